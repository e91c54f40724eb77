//! The wait before a failed attempt is repeated.

use std::time::Duration;

/// A wait that doubles with each failure in a row, up to a bound.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// From the wait after the first failure up to the longest one.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The longest wait.
    pub const fn longest(self) -> Duration {
        self.longest
    }

    /// The wait after so many failures in a row: none before the first one.
    pub fn after(self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_doubles_with_each_failure_up_to_its_bound() {
        let backoff = Backoff::new(Duration::from_secs(120), Duration::from_secs(21_600));
        let waits = [0, 1, 2, 3, 8, 9, 33, u32::MAX].map(|failures| backoff.after(failures));
        assert_eq!(
            waits.map(|wait| wait.as_secs()),
            [0, 120, 240, 480, 15_360, 21_600, 21_600, 21_600]
        );
        assert_eq!(Backoff::new(Duration::MAX, Duration::MAX).after(2), Duration::MAX);
    }
}
