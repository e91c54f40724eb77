//! The time with few requests.

use levada_types::Timestamp;

/// Requests at a machine, and the time with fewer than some number of them (ASPLOS'98 Sec. 3.3).
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    few: u32,
    requests: u32,
    /// The start of the current period with few requests.
    since: Timestamp,
    nanoseconds: u64,
}

impl Idle {
    pub(super) fn new(few: u32) -> Self {
        Self { few, requests: 0, since: Timestamp::ZERO, nanoseconds: 0 }
    }

    pub(super) fn begin(&mut self, now: Timestamp) {
        self.requests += 1;
        if self.requests == self.few {
            self.nanoseconds += now.0 - self.since.0;
        }
    }

    pub(super) fn end(&mut self, now: Timestamp) {
        if self.requests == self.few {
            self.since = now;
        }
        self.requests -= 1;
    }

    pub(super) fn so_far(&self, now: Timestamp) -> u64 {
        let current = if self.requests < self.few { now.0 - self.since.0 } else { 0 };
        self.nanoseconds + current
    }
}
