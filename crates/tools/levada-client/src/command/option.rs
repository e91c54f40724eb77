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
    }
}
