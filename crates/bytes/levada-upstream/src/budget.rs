//! The retry budget: retries may add a part to the load, never multiply it when everything fails.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use levada_types::Timestamp;
use parking_lot::Mutex;

/// Retries allowed without any traffic, per second, so that a quiet site can retry at all.
const FLOOR_PER_SECOND: f64 = 10.0;
/// How many seconds' worth of allowance can be saved up.
const SAVED_SECONDS: f64 = 10.0;

/// Allows one retry per `1 / ratio` requests, and ten more a second.
pub struct RetryBudget {
    ratio: f64,
    /// Requests since the last retry was asked for.
    requests: AtomicU64,
    state: Mutex<Balance>,
}

struct Balance {
    tokens: f64,
    last: Timestamp,
}

impl RetryBudget {
    /// A budget of `ratio` retries per request.
    pub fn new(ratio: f64) -> Self {
        let tokens = FLOOR_PER_SECOND * SAVED_SECONDS;
        let state = Mutex::new(Balance { tokens, last: Timestamp::ZERO });
        Self { ratio, requests: AtomicU64::new(0), state }
    }

    /// Counts a request, which earns a part of a retry.
    pub fn count(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    /// Takes one retry out. Returns whether there was one left.
    pub fn take(&self, now: Timestamp) -> bool {
        let mut balance = self.state.lock();
        let requests = self.requests.swap(0, Relaxed);
        let elapsed = now.since(balance.last).as_secs_f64();
        balance.last = now;
        let earned = elapsed * FLOOR_PER_SECOND + requests as f64 * self.ratio;
        let most = (FLOOR_PER_SECOND * SAVED_SECONDS).max(balance.tokens);
        balance.tokens = (balance.tokens + earned).min(most.max(requests as f64 * self.ratio));
        let granted = balance.tokens >= 1.0;
        if granted {
            balance.tokens -= 1.0;
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_part_of_the_traffic() {
        let budget = RetryBudget::new(0.2);
        let now = Timestamp::from_secs(1);
        let saved = (0..1000).filter(|_| budget.take(now)).count();
        assert_eq!(saved, 100, "ten seconds' worth is saved up");
        let granted = (0..1000).filter(|_| {
            budget.count();
            budget.take(now)
        });
        let granted = granted.count();
        assert!((195..=200).contains(&granted), "one in five: {granted}");
    }
}
