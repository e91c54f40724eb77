//! Parsers of command-line options, with the sentence that an error shows.

use std::time::Duration;

use levada_types::{ByteSize, parse_duration, parse_rate};

/// Reads a duration.
///
/// # Errors
/// When the text is not a number and a unit.
pub fn time(text: &str) -> Result<Duration, &'static str> {
    parse_duration(text).map_err(|_| "a duration is written with its unit: 25ms, 2s")
}

/// Reads an amount of bytes.
///
/// # Errors
/// When the text is not a number with or without a unit.
pub fn size(text: &str) -> Result<ByteSize, &'static str> {
    text.parse().map_err(|_| "a size is written with its unit: 50MB, 2MiB")
}

/// Reads a rate as bytes per second.
///
/// # Errors
/// When the text is not a rate in bits or bytes.
pub fn rate(text: &str) -> Result<u64, &'static str> {
    parse_rate(text).map_err(|_| "a rate is written in bits or bytes a second: 10Mbit/s, 1MiB/s")
}
