//! The clock that drivers hand to the pure crates as "now".

use std::time::{Duration, Instant};

use levada_types::Timestamp;

/// Time since the node started.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// The time since the start, for the pure crates.
    pub fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.start.elapsed()
    }

    /// The time since the start.
    pub fn uptime(&self) -> Duration {
        self.start.elapsed()
    }
}
