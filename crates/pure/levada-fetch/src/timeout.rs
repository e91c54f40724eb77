//! How long to wait for a piece: CoDeploy's timeout (WORLDS'04, Sec. 3).
//!
//! ```text
//!   limit = average x 5 x 2^failures          average: EWMA of the times of the pieces that came
//! ```
//!
//! The multiple is five and doubles with each failure that follows another; a success resets it and
//! enters the average. The paper does not record the average's weight: it is 1/8 here, as in TCP's smoothed
//! round-trip time (RFC 6298 Sec. 2). Nor does it say what holds before there is an average: a first
//! deadline, 10 s by default.
//!
//! The caller chooses over what an average is taken. The paper keeps one per connection, that is over all
//! nodes that a connection meets: an average per node would get used to a node that is always slow.

use std::time::Duration;

/// A new time counts one part in this many of the average (RFC 6298 Sec. 2.3).
const WEIGHT: u32 = 8;

/// Half of the pieces take longer than the average, and few take this many times as long.
pub(crate) const AMPLE: u32 = 2;

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
    /// How long it may take while there is no average.
    pub first: Duration,
    /// The shortest limit. Five times the average of a quick link is within the delays of any scheduler.
    pub least: Duration,
    /// The longest limit.
    pub most: Duration,
}

impl Patience {
    /// The published factor without a shortest limit, and a first deadline that the paper does not give.
    pub const PAPER: Self = Self {
        factor: 5.0,
        first: Duration::from_secs(10),
        least: Duration::ZERO,
        most: Duration::from_secs(60),
    };
}

impl Default for Patience {
    /// The published factor, and no less than Linux waits before TCP sends again.
    fn default() -> Self {
        Self { least: Duration::from_millis(200), ..Self::PAPER }
    }
}

/// How long to wait, learned from how long it took before.
#[derive(Clone, Debug, Default)]
pub struct Timeout {
    patience: Patience,
    average: Average,
    failures: u32,
}

impl Timeout {
    /// Without history.
    pub fn new(patience: Patience) -> Self {
        Self { patience, ..Self::default() }
    }

    /// How long the next piece may take.
    pub fn limit(&self) -> Duration {
        self.limit_after(self.failures)
    }

    /// How long a piece may take after this many failures in a row, for callers who count those of
    /// each piece.
    pub fn limit_after(&self, failures: u32) -> Duration {
        let Patience { factor, first, least, most } = self.patience;
        let limit = match self.average.get() {
            None => first,
            Some(average) => {
                let seconds = average.as_secs_f64() * factor;
                Duration::try_from_secs_f64(seconds).unwrap_or(most).max(least)
            }
        };
        let doubled = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
        limit.saturating_mul(doubled).min(most.max(first))
    }

    /// A piece came and took this long.
    pub fn succeeded(&mut self, took: Duration) {
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
