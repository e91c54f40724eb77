//! The node's clock: what drivers hand to the pure crates as "now".

use std::time::{Duration, Instant, SystemTime};

use levada_types::Timestamp;

/// Time since the node started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.start.elapsed()
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.start.elapsed()
    }
}

/// The time of day, for HTTP's dates.
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}
