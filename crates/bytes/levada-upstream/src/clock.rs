//! The clock that drivers hand to the pure crates as "now".

use std::time::{Duration, Instant};

use levada_types::Timestamp;
use tokio::time::{Interval, MissedTickBehavior};

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

    /// Ticks now, and then at whole multiples of `period` since the start: what is done regularly wakes the process
    /// together.
    pub fn ticks(&self, period: Duration) -> Interval {
        let mut ticks = tokio::time::interval_at(self.start.into(), period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticks
    }

    /// The time since the start.
    pub fn uptime(&self) -> Duration {
        self.start.elapsed()
    }
}
