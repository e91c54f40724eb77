//! The node's clocks: the time since its start, for the pure crates, and the time of day.

use std::time::SystemTime;

pub(crate) use levada_upstream::Clock;

/// The time of day, for HTTP's dates.
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}
