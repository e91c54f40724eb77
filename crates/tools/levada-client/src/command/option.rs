//! Parsers of command-line options, with the sentence that an error shows.

use std::{io, path::Path, time::Duration};

use anyhow::Context as _;
use levada_types::{ByteSize, parse_duration, parse_rate};

/// The text of a file; `-` is standard input.
///
/// # Errors
/// When it cannot be read.
pub fn text_of(file: &Path) -> anyhow::Result<String> {
    let is_input = file.as_os_str() == "-";
    let text =
        if is_input { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(file) };
    text.with_context(|| format!("cannot read {}", file.display()))
}

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

/// Reads a rate limit of bytes per second, as curl and wget write it: `100K`, `1.5m`; or a size, or a rate.
///
/// # Errors
/// When the text is none of them, or nothing could be transferred at that rate.
pub fn rate_limit(text: &str) -> Result<ByteSize, &'static str> {
    const WRONG: &str = "a rate limit is bytes a second: 500000, 100K, 2.5M, 2MiB, 10Mbit/s";
    let in_letters = |text: &str| -> Option<ByteSize> {
        let at = "kmgt".find(text.chars().last()?.to_ascii_lowercase())?;
        let number: f64 = text[..text.len() - 1].trim().parse().ok()?;
        let bytes = number * 1024_f64.powi(at as i32 + 1);
        (1.0..u64::MAX as f64).contains(&bytes).then_some(ByteSize(bytes as u64))
    };
    let limit = in_letters(text)
        .or_else(|| parse_rate(text).ok().map(ByteSize))
        .or_else(|| text.parse().ok());
    limit.filter(|limit| limit.0 > 0).ok_or(WRONG)
}

/// Reads a rate limit as rsync writes it: a number alone is KiB per second, and 0 is no limit.
///
/// # Errors
/// When the text is neither that nor a rate limit with its unit.
pub fn bandwidth_limit(text: &str) -> Result<ByteSize, &'static str> {
    match text.parse::<f64>() {
        Ok(kib) if (0.0..1e15).contains(&kib) => Ok(ByteSize((kib * 1024.0).ceil() as u64)),
        Ok(_) => Err("a limit is KiB a second: 500, 1.5m, or bytes with a unit: 2MB, 10Mbit/s"),
        Err(_) => rate_limit(text),
    }
}

/// Reads a rate as bytes per second.
///
/// # Errors
/// When the text is not a rate in bits or bytes.
pub fn rate(text: &str) -> Result<u64, &'static str> {
    parse_rate(text).map_err(|_| "a rate is written in bits or bytes a second: 10Mbit/s, 1MiB/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limits_are_those_of_curl_and_wget_and_ours() {
        for (text, bytes) in [
            ("100K", 102_400),
            ("2.5k", 2_560),
            ("1m", 1 << 20),
            ("1G", 1 << 30),
            ("500000", 500_000),
            ("500KiB", 512_000),
            ("1kB", 1_000),
            ("2MiB/s", 2 << 20),
            ("8kbit/s", 1_000),
        ] {
            assert_eq!(rate_limit(text), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "K", "0", "0K", "-1K", "100X", "fast", "NaNK", "infK", "1e30M", "é"] {
            assert!(rate_limit(text).is_err(), "{text}");
        }
        for (text, bytes) in [("100", 102_400), ("1.5m", 1_572_864), ("1MB", 1_000_000), ("0", 0)] {
            assert_eq!(bandwidth_limit(text), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "-1", "NaN", "inf", "fast"] {
            assert!(bandwidth_limit(text).is_err(), "{text}");
        }
    }
}
