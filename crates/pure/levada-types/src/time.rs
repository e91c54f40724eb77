//! Time as a number that the driver passes in: pure crates do not read a clock.

use std::{
    fmt,
    ops::{Add, Sub},
    time::Duration,
};

/// Nanoseconds since the start of the driver: of the process in an edge, of the run in a
/// simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The start of the driver.
    pub const ZERO: Self = Self(0);

    /// `seconds` after the start.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds * 1_000_000_000)
    }

    /// `milliseconds` after the start.
    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(milliseconds * 1_000_000)
    }

    /// The time since `earlier`; zero if `earlier` is later than `self`.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The time since the start, in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Self> for Timestamp {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// The error for a text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a duration: write a number and a unit (ns, us, ms, s, m, h, d), such as \"300ms\" or \"1.5s\""
)]
pub struct ParseDurationError(pub String);

const UNITS: &[(&str, f64)] = &[
    ("ns", 1e-9),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
    ("d", 86400.0),
];

/// Reads `"300ms"`, `"1.5s"`, `"2h"`.
///
/// # Errors
/// When the number or the unit is missing, the unit is unknown, or the number is negative or too
/// large for a `Duration`.
pub fn parse_duration(text: &str) -> Result<Duration, ParseDurationError> {
    let wrong = || ParseDurationError(text.to_owned());
    let text_trimmed = text.trim();
    let split = text_trimmed.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
    let (number, unit) = text_trimmed.split_at(split);
    let scale = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1;
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * scale).map_err(|_| wrong())
}

/// Writes a duration in the largest unit that gives a whole number, in the form that
/// [`parse_duration`] reads.
pub fn format_duration(duration: Duration) -> impl fmt::Display {
    let nanos = duration.as_nanos();
    let units: [(u128, &str); 7] = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
        (1, "ns"),
    ];
    let (size, unit) = units
        .into_iter()
        .find(|(size, _)| nanos >= *size && nanos.is_multiple_of(*size))
        .unwrap_or((1, "ns"));
    if nanos == 0 { "0s".to_owned() } else { format!("{}{unit}", nanos / size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_alike() {
        for text in ["300ms", "2h", "15us", "7d", "1s", "90s", "0s"] {
            let read = parse_duration(text).unwrap();
            let again = parse_duration(&format_duration(read).to_string()).unwrap();
            assert_eq!(read, again, "{text}");
        }
        assert_eq!(parse_duration("1.5s").unwrap(), Duration::from_millis(1500));
    }

    #[test]
    fn texts_that_are_not_durations_are_refused() {
        for text in ["", "5", "ms", "5 parsecs", "-1s", "1e400s", "NaNs", "infs"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn time_never_runs_backwards() {
        assert_eq!(Timestamp::from_secs(1) - Timestamp::from_secs(2), Duration::ZERO);
        assert_eq!(Timestamp(u64::MAX) + Duration::from_secs(1), Timestamp(u64::MAX));
    }
}
