//! A station that does one job after the other: a CPU or a disk.

use levada_types::Timestamp;

/// A first come, first served queue before one worker. A job's length is known when it arrives, so
/// its end is known too, and the queue needs no list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Station {
    free: Timestamp,
    promised: u64,
}

impl Station {
    /// Adds a job of `nanoseconds` and returns the time at which it will be done.
    pub(crate) fn take(&mut self, now: Timestamp, nanoseconds: u64) -> Timestamp {
        self.free = Timestamp(self.free.0.max(now.0) + nanoseconds);
        self.promised += nanoseconds;
        self.free
    }

    /// Ends all work at once, and forgets the queue.
    pub(crate) fn stop(&mut self, now: Timestamp) {
        self.promised = self.worked(now);
        self.free = self.free.min(now);
    }

    /// Working time so far, in nanoseconds.
    pub(crate) fn worked(&self, now: Timestamp) -> u64 {
        // The last busy period ends at `free`; the part of it after now is still to come.
        self.promised - self.free.0.saturating_sub(now.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Ramp;
    use levada_types::Rng;

    /// The mean time in the system, in seconds, of jobs that arrive at `rate` per second.
    fn mean_sojourn(rate: f64, mut job: impl FnMut(&mut Rng) -> u64) -> f64 {
        const JOBS: u32 = 4_000_000;
        let (mut arrivals, mut jobs) = (Rng::new(1), Rng::new(2));
        let (mut ramp, mut station, mut now) =
            (Ramp::level(rate), Station::default(), Timestamp::ZERO);
        let mut sum = 0.0;
        for _ in 0..JOBS {
            now = ramp.next(now, &mut arrivals);
            sum += (station.take(now, job(&mut jobs)) - now).as_secs_f64();
        }
        sum / f64::from(JOBS)
    }

    /// Jobs of 1 ms on average.
    #[test]
    fn waiting_agrees_with_the_closed_forms_of_queueing() {
        for load in [0.3, 0.5, 0.7] {
            let exponential = |rng: &mut Rng| (rng.exponential() * 1e6) as u64;
            let (mm1, expected) = (mean_sojourn(load * 1e3, exponential), 1e-3 / (1.0 - load));
            assert!((mm1 / expected - 1.0).abs() < 0.01, "M/M/1 at {load}: {mm1} {expected}");
            let expected = 1e-3 * (1.0 + load / (2.0 * (1.0 - load)));
            let md1 = mean_sojourn(load * 1e3, |_| 1_000_000);
            assert!((md1 / expected - 1.0).abs() < 0.01, "M/D/1 at {load}: {md1} {expected}");
        }
    }

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
