//! Something that does one job after the other: a CPU, a disk.

use levada_types::Timestamp;

/// A first come, first served queue before one worker. Since a job's length is known when it
/// arrives, so is its end, and the queue needs no list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Station {
    free: Timestamp,
    promised: u64,
}

impl Station {
    /// A job of `nanoseconds` arrives; it will be done at the time returned.
    pub(crate) fn take(&mut self, now: Timestamp, nanoseconds: u64) -> Timestamp {
        self.free = Timestamp(self.free.0.max(now.0) + nanoseconds);
        self.promised += nanoseconds;
        self.free
    }

    /// How long it has worked so far, in nanoseconds.
    pub(crate) fn worked(&self, now: Timestamp) -> u64 {
        // The last busy period ends at `free`; what lies beyond now is not done yet.
        self.promised - self.free.0.saturating_sub(now.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_done_one_after_the_other() {
        let mut station = Station::default();
        assert_eq!(station.take(Timestamp(10), 5), Timestamp(15));
        assert_eq!(station.take(Timestamp(12), 5), Timestamp(20));
        assert_eq!(station.worked(Timestamp(14)), 4);
        assert_eq!(station.take(Timestamp(30), 1), Timestamp(31));
        assert_eq!(station.worked(Timestamp(40)), 11);
    }
}
