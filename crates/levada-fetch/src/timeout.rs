//! How long to wait for a piece: CoDeploy's timeout (WORLDS'04, Sec. 3).
//!
//! ```text
//!   limit = (average x 5 + deviation x 4) x 2^failures
//!
//!   average: EWMA of the times of the pieces that came; deviation: that of how far they were from it
//! ```
//!
//! The paper's multiple is five times the average; it doubles with each failure that follows another
//! and is five again after a success, which also enters the average. Its weight is not recorded: 1/8
//! here, as in TCP's smoothed round-trip time (RFC 6298 Sec. 2). Nor is what holds before there is an
//! average: a deadline of its own, 10 s unless told otherwise. Its own is the term for pieces whose times
//! are far apart, as they are where a link is shared: RFC 6298's, and nothing where all take equally long.
//!
//! What one average is kept of is the caller's choice. The paper keeps one per connection, that is
//! over whichever nodes a connection meets: one node that is always slow must not get used to it.

use std::time::Duration;

/// The part of a new time in the average.
const WEIGHT: u32 = 8;

/// The part of a new difference in the deviation (RFC 6298 Sec. 2.3).
const DEVIATION_WEIGHT: u32 = 4;

/// So often the limit doubles at most.
const DOUBLINGS: u32 = 10;

/// An exponentially weighted moving average of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Average(Option<Duration>);

impl Average {
    /// Takes a time in: the first one whole, each later one with a weight of 1/8.
    pub fn add(&mut self, time: Duration) {
        self.0 = Some(match self.0 {
            None => time,
            Some(average) => average.saturating_sub(average / WEIGHT) + time / WEIGHT,
        });
    }

    /// The average; `None` before the first time.
    pub fn get(self) -> Option<Duration> {
        self.0
    }
}

/// How patient a [`Timeout`] is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patience {
    /// How many times the average a piece may take.
    pub factor: f64,
    /// How many times the mean deviation it may take beyond that; nothing as published.
    pub variance: f64,
    /// How many times as long is waited for a piece that none begun later has overtaken: it may be the
    /// link that is slow, and not the piece. Once as published.
    pub unsure: f64,
    /// A piece that comes, and needs more than so many times the average for its rest, is not waited for.
    /// Infinite as published: it always is.
    pub rest: f64,
    /// How long it may take while there is no average.
    pub first: Duration,
    /// Less than this is never a reason to ask again: on a quick link five times the average is
    /// within a hiccup of any scheduler.
    pub least: Duration,
    /// More than this is always one.
    pub most: Duration,
}

impl Patience {
    /// As it was published: five times the average and nothing else, with a first deadline of our own.
    pub const PAPER: Self = Self {
        factor: 5.0,
        variance: 0.0,
        unsure: 1.0,
        rest: f64::INFINITY,
        first: Duration::from_secs(10),
        least: Duration::ZERO,
        most: Duration::from_secs(60),
    };
}

impl Default for Patience {
    /// The paper's factor, TCP's for the deviation (RFC 6298 Sec. 2.3), and no less than TCP waits before
    /// it sends again on Linux. To get a piece from elsewhere takes as long as others took, or twice as long when
    /// it is not there yet.
    fn default() -> Self {
        Self {
            variance: 4.0,
            unsure: 2.0,
            rest: 2.0,
            least: Duration::from_millis(200),
            ..Self::PAPER
        }
    }
}

/// How long to wait, learnt from how long it took before.
#[derive(Clone, Debug, Default)]
pub struct Timeout {
    patience: Patience,
    average: Average,
    deviation: Duration,
    failures: u32,
}

impl Timeout {
    /// Without history.
    pub fn new(patience: Patience) -> Self {
        Self { patience, ..Self::default() }
    }

    /// How long is waited for a piece of which it is not sure that it is late, in times of its limit.
    pub fn unsure(&self) -> f64 {
        if self.average.get().is_none() { 1.0 } else { self.patience.unsure }
    }

    /// How long the next piece may take.
    pub fn limit(&self) -> Duration {
        self.limit_after(self.failures)
    }

    /// How long a piece may take after so many failures in a row, for callers who count those of
    /// each piece.
    pub fn limit_after(&self, failures: u32) -> Duration {
        let Patience { factor, variance, first, least, most, .. } = self.patience;
        let limit = match self.average.get() {
            None => first,
            Some(average) => {
                let apart = self.deviation.as_secs_f64() * variance;
                let seconds = average.as_secs_f64() * factor + apart;
                Duration::try_from_secs_f64(seconds).unwrap_or(most).max(least)
            }
        };
        limit.saturating_mul(1 << failures.min(DOUBLINGS)).min(most.max(first))
    }

    /// A piece came, and took so long.
    pub fn succeeded(&mut self, took: Duration) {
        self.deviation = match self.average.get() {
            None => took / 2,
            Some(average) => {
                let rest = self.deviation - self.deviation / DEVIATION_WEIGHT;
                rest + average.abs_diff(took) / DEVIATION_WEIGHT
            }
        };
        self.average.add(took);
        self.failures = 0;
    }

    /// A piece did not come, or not in time.
    pub fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// How long pieces have taken lately; `None` before the first.
    pub fn average(&self) -> Option<Duration> {
        self.average.get()
    }

    /// Failures since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn first_piece_has_a_deadline_of_its_own() {
        let mut timeout = Timeout::new(Patience::PAPER);
        assert_eq!(timeout.limit(), Duration::from_secs(10));
        timeout.succeeded(ms(100));
        assert_eq!(timeout.limit(), ms(500), "five times the only time there is");
    }

    #[test]
    fn average_moves_by_an_eighth() {
        let mut average = Average::default();
        assert_eq!(average.get(), None);
        average.add(ms(80));
        average.add(ms(160));
        assert_eq!(average.get(), Some(ms(90)));
    }

    #[test]
    fn times_that_are_far_apart_are_waited_for_longer() {
        let mut timeout = Timeout::new(Patience::default());
        timeout.succeeded(ms(100));
        // RFC 6298 Sec. 2.2: the deviation is half of the first time.
        assert_eq!(timeout.limit(), ms(500 + 4 * 50));
        timeout.succeeded(ms(100));
        assert_eq!(timeout.limit(), ms(500) + 4 * ms(75) / 2, "a quarter less each time");
        for _ in 0..100 {
            timeout.succeeded(ms(100));
        }
        assert_eq!(timeout.limit().as_millis(), 500, "equal times are the published limit");
        timeout.succeeded(ms(900));
        // 100 x 7/8 + 900 / 8, five times; and four times a quarter of 800.
        assert_eq!(timeout.limit().as_millis(), 5 * 200 + 800);
    }

    #[test]
    fn limit_doubles_with_failures_in_a_row_and_comes_back_with_a_success() {
        let mut timeout = Timeout::new(Patience::PAPER);
        timeout.succeeded(ms(100));
        let limits: Vec<_> = (0..4)
            .map(|_| {
                timeout.failed();
                timeout.limit()
            })
            .collect();
        assert_eq!(limits, [ms(1000), ms(2000), ms(4000), ms(8000)]);
        timeout.succeeded(ms(900));
        // The new average includes the piece that took so long: 100 x 7/8 + 900 / 8.
        assert_eq!(timeout.limit(), ms(1000));
        assert_eq!(timeout.failures(), 0);
    }

    #[test]
    fn limit_stays_within_its_bounds() {
        let mut timeout = Timeout::new(Patience::default());
        timeout.succeeded(Duration::from_micros(10));
        assert_eq!(timeout.limit(), ms(200));
        for _ in 0..100 {
            timeout.failed();
        }
        assert_eq!(timeout.limit(), Duration::from_secs(60));
        timeout.succeeded(Duration::MAX / 16);
        timeout.succeeded(Duration::MAX / 16);
        assert_eq!(timeout.limit(), Duration::from_secs(60));
    }

    #[test]
    fn a_long_first_deadline_is_not_cut() {
        let patience = Patience { first: Duration::from_secs(90), ..Patience::default() };
        assert_eq!(Timeout::new(patience).limit(), Duration::from_secs(90));
    }
}
