//! Amounts of bytes per second as people write them, in bytes or in bits.

use crate::ByteSize;

/// The text is not an amount of bytes or bits per second.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no rate: write bits or bytes per second, such as \"40Mbit/s\" or \"5MiB/s\"")]
pub struct ParseRateError(pub String);

const BIT_UNITS: &[(&str, f64)] = &[("kbit", 1e3), ("Mbit", 1e6), ("Gbit", 1e9), ("bit", 1.0)];

/// Reads `"5MiB/s"` or `"40Mbit/s"` as bytes per second.
///
/// # Errors
/// When the number, the unit or the `/s` is missing, or the rate rounds to zero: a node at that rate
/// would serve nothing.
pub fn parse_rate(text: &str) -> Result<u64, ParseRateError> {
    let wrong = || ParseRateError(text.to_owned());
    let amount = text.trim().strip_suffix("/s").ok_or_else(wrong)?.trim();
    let bits = BIT_UNITS.iter().find_map(|(unit, scale)| {
        amount.strip_suffix(unit).and_then(|n| n.trim().parse::<f64>().ok()).map(|n| n * scale)
    });
    let bytes = match bits {
        Some(bits) if bits.is_finite() && bits >= 0.0 => (bits / 8.0).round() as u64,
        Some(_) => return Err(wrong()),
        None => amount.parse().map(|ByteSize(bytes)| bytes).map_err(|_| wrong())?,
    };
    if bytes == 0 { Err(wrong()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_bytes_or_bits() {
        for (text, bytes) in [
            ("5MiB/s", 5 << 20),
            ("1000B/s", 1000),
            ("40Mbit/s", 5_000_000),
            ("0.5 Gbit/s", 62_500_000),
            ("8bit/s", 1),
        ] {
            assert_eq!(parse_rate(text), Ok(bytes), "{text}");
        }
        for text in ["5MiB", "40Mbit", "0B/s", "-1Mbit/s", "fast", "NaNbit/s", "infMbit/s", "/s"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }
}
