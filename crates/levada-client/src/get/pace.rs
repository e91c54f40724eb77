//! `--limit-rate`: what all connections together may read.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// A bucket of bytes that runs full at the rate.
pub(crate) struct Pace {
    rate: Option<u64>,
    /// When all that was read is paid for.
    paid: Mutex<Option<Instant>>,
}

impl Pace {
    pub(crate) fn new(rate: Option<u64>) -> Self {
        Self { rate: rate.filter(|&rate| rate > 0), paid: Mutex::new(None) }
    }

    /// So much was read: waits until more may be.
    pub(crate) async fn spent(&self, bytes: usize) {
        let Some(rate) = self.rate else { return };
        let paid = {
            let mut paid = self.paid.lock();
            let now = Instant::now();
            // What was not used is not saved beyond a moment.
            let from = paid.map_or(now, |paid| paid.max(now.checked_sub(BURST).unwrap_or(now)));
            *paid.insert(from + Duration::from_secs_f64(bytes as f64 / rate as f64))
        };
        sleep_until(paid).await;
    }
}

/// So far reading may run ahead of the rate after a silence.
const BURST: Duration = Duration::from_millis(50);
