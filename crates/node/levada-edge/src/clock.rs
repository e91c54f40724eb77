//! The node's clocks: the time since its start, for the pure crates, and the time of day.

use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) use levada_upstream::Clock;

/// The time of day, for HTTP's dates.
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// The seconds of Unix time.
pub(crate) fn unix_seconds() -> u64 {
    wall().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
