//! `--limit-rate`: a limit on the bytes that all connections together read.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// A token bucket of bytes.
pub(crate) struct RateLimiter {
    rate: Option<u64>,
    /// The time at which the rate allows all bytes read so far.
    paid: Mutex<Option<Instant>>,
}

impl RateLimiter {
    pub(crate) fn new(rate: Option<u64>) -> Self {
        Self { rate: rate.filter(|&rate| rate > 0), paid: Mutex::new(None) }
    }

    /// Records that `bytes` were read, and waits until the rate allows more.
    pub(crate) async fn spent(&self, bytes: usize) {
        let Some(rate) = self.rate else { return };
        let paid = {
            let mut paid = self.paid.lock();
            let now = Instant::now();
            // Unused rate is not saved up beyond a short burst.
            let from = paid.map_or(now, |paid| paid.max(now.checked_sub(BURST).unwrap_or(now)));
            *paid.insert(from + Duration::from_secs_f64(bytes as f64 / rate as f64))
        };
        sleep_until(paid).await;
    }
}

/// How far reading may run ahead of the rate after a pause.
const BURST: Duration = Duration::from_millis(50);
