//! The progress of a run, for the caller that watches it.

use levada_types::Timestamp;

/// Progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Simulated time.
    pub now: Timestamp,
    /// Requests finished.
    pub finished: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// The offered rate, in requests per second; 0 in a closed loop.
    pub rate: f64,
    /// Events of the kernel so far.
    pub events: u64,
}
