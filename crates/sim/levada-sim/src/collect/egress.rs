//! Readings of the origin: what it was asked, what it sent, and how long requests waited.

use std::time::Duration;

use levada_types::Timestamp;

use crate::{Metric, Outcome};

/// The readings of the origin: waiting of the whole run, all else from the end of the warm-up on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Egress {
    warm_up: Timestamp,
    /// Requests that it has answered.
    requests: u64,
    /// Time that requests waited for a place and for their turn, in nanoseconds, and their number.
    waited: (u64, u64),
    /// Bytes of all bodies.
    bytes: u64,
    /// Bytes of the busiest second.
    peak: u64,
    second: u64,
    within: u64,
}

impl Egress {
    pub(crate) fn new(warm_up: Timestamp) -> Self {
        Self { warm_up, ..Self::default() }
    }

    /// A request waited so long before it was worked on.
    pub(crate) fn waited(&mut self, time: Duration) {
        self.waited.0 += time.as_nanos() as u64;
        self.waited.1 += 1;
    }

    /// A request is answered.
    pub(crate) fn answered(&mut self, now: Timestamp) {
        self.requests += u64::from(now >= self.warm_up);
    }

    /// Bytes of a body have come.
    pub(crate) fn sent(&mut self, at: Timestamp, bytes: u64) {
        if at < self.warm_up {
            return;
        }
        self.bytes += bytes;
        let second = at.0 / 1_000_000_000;
        if second != self.second {
            (self.second, self.within) = (second, 0);
        }
        self.within += bytes;
        self.peak = self.peak.max(self.within);
    }

    /// The readings of a run that was measured for so many seconds.
    pub(super) fn conclude(&self, measured: f64, outcome: &mut Outcome) {
        let per_second = |count: u64| if measured > 0.0 { count as f64 / measured } else { 0.0 };
        outcome.readings.extend([
            (Metric::OriginRate.into(), per_second(self.requests)),
            (Metric::OriginEgress.into(), 8.0 * per_second(self.bytes)),
            (Metric::OriginPeak.into(), 8.0 * self.peak as f64),
        ]);
        if let (waited, asked @ 1..) = self.waited {
            outcome.readings.insert(Metric::OriginWait.into(), waited as f64 / 1e9 / asked as f64);
        }
    }
}
