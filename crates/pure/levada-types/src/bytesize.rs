//! Sizes in bytes with units, such as "64MiB".

use std::{fmt, str::FromStr};

/// A number of bytes, read and written as `"64MiB"`, `"1500"`, `"10kB"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// The error for a text that is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a size: write a number and a unit (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB), such as \"64MiB\""
)]
pub struct ParseByteSizeError(pub String);

const UNITS: &[(&str, u64)] = &[
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

impl FromStr for ByteSize {
    type Err = ParseByteSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseByteSizeError(text.to_owned());
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let unit = if unit.is_empty() { "B" } else { unit };
        let scale =
            UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(wrong)?.1;
        let number = number.trim();
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(scale).map(Self).ok_or_else(wrong);
        }
        let bytes = number.parse::<f64>().map_err(|_| wrong())? * scale as f64;
        if !(0.0..u64::MAX as f64).contains(&bytes) {
            return Err(wrong());
        }
        Ok(Self(bytes.round() as u64))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, scale) = ["TiB", "GiB", "MiB", "KiB"]
            .into_iter()
            .zip([1u64 << 40, 1 << 30, 1 << 20, 1 << 10])
            .find(|(_, scale)| self.0 >= *scale)
            .unwrap_or(("B", 1));
        if self.0.is_multiple_of(scale) {
            write!(f, "{}{name}", self.0 / scale)
        } else {
            write!(f, "{:.1}{name}", self.0 as f64 / scale as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in
            [("64MiB", 64 << 20), ("1500", 1500), ("10kB", 10_000), ("1.5KiB", 1536), ("0", 0)]
        {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!(size.0, bytes, "{text}");
        }
        for (bytes, text) in [(64 << 20, "64MiB"), (1536, "1.5KiB"), (0, "0B"), (999, "999B")] {
            assert_eq!(ByteSize(bytes).to_string(), text);
        }
    }

    #[test]
    fn texts_that_are_not_sizes_are_refused() {
        for text in ["", "MiB", "-1", "5 furlongs", "99999999999TiB", "NaN", "inf"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }
}
