//! The time that a server takes for the head of a response, and the time after which a head is late.
//!
//! A head is late after three times the 99th percentile. The estimate of the percentile moves with every
//! response: one that took longer raises it by a fifth, any other lowers it by 1/543. The two are in balance
//! when one response of a hundred takes longer. Responses that were not waited for count as longer.
//!
//! The usual time is the smoothed one, in which each response has the weight of one of eight.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// The estimate before anything was learned.
const UNKNOWN: Duration = Duration::from_secs(1);
/// A head is never late earlier: a busy machine may pause as long.
const FLOOR: Duration = Duration::from_millis(500);
/// How many times the percentile a head may take.
const FACTOR: u64 = 3;

/// One server's times, in microseconds. Updates that meet may lose one of them.
pub(crate) struct HeadTime {
    /// The 99th percentile.
    percentile: AtomicU64,
    /// The smoothed time; 0 when nothing was learned.
    usual: AtomicU64,
}

impl Default for HeadTime {
    fn default() -> Self {
        let percentile = AtomicU64::new(UNKNOWN.as_micros() as u64);
        Self { percentile, usual: AtomicU64::new(0) }
    }
}

impl HeadTime {
    /// Takes in the time of a response.
    pub(crate) fn took(&self, time: Duration) {
        let (time, percentile) = (time.as_micros() as u64, self.percentile.load(Relaxed));
        match time > percentile {
            true => self.raise(percentile),
            false => self.percentile.store(percentile - percentile / 543, Relaxed),
        }
        let usual = self.usual.load(Relaxed);
        let smoothed = if usual == 0 { time } else { usual - usual / 8 + time / 8 };
        self.usual.store(smoothed.max(1), Relaxed);
    }

    /// The usual time of a response; `None` before the first one.
    pub(crate) fn usual(&self) -> Option<Duration> {
        Some(Duration::from_micros(self.usual.load(Relaxed))).filter(|usual| !usual.is_zero())
    }

    /// Takes in that a response was late, and was not waited for.
    pub(crate) fn outrun(&self) {
        self.raise(self.percentile.load(Relaxed));
    }

    fn raise(&self, percentile: u64) {
        let hour = Duration::from_secs(3600).as_micros() as u64;
        self.percentile.store((percentile + percentile / 5 + 1).min(hour), Relaxed);
    }

    /// The time after which a head is late: half of `timeout` at most, so that another server has as long.
    pub(crate) fn late_after(&self, timeout: Duration) -> Duration {
        Duration::from_micros(FACTOR * self.percentile.load(Relaxed)).max(FLOOR).min(timeout / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[test]
    fn head_is_late_after_three_times_the_99th_percentile() {
        let times = HeadTime::default();
        assert_eq!(
            times.late_after(TIMEOUT),
            Duration::from_secs(3),
            "before anything was learned"
        );
        for n in 0..100_000_u64 {
            // Evenly spread up to two seconds.
            times.took(Duration::from_millis(n * 7919 % 2000));
        }
        let late = times.late_after(TIMEOUT).as_secs_f64();
        assert!((4.5..9.0).contains(&late), "{late}");
    }

    #[test]
    fn usual_time_follows_the_responses() {
        let times = HeadTime::default();
        assert_eq!(times.usual(), None);
        times.took(Duration::from_millis(9));
        assert_eq!(times.usual(), Some(Duration::from_millis(9)));
        (0..50).for_each(|_| times.took(Duration::from_millis(90)));
        assert!(times.usual().unwrap() > Duration::from_millis(80));
    }

    #[test]
    fn bound_stays_sane() {
        let times = HeadTime::default();
        (0..10_000).for_each(|_| times.took(Duration::from_millis(1)));
        assert_eq!(times.late_after(TIMEOUT), FLOOR);
        (0..10_000).for_each(|_| times.outrun());
        assert_eq!(times.late_after(TIMEOUT), TIMEOUT / 2);
    }
}
