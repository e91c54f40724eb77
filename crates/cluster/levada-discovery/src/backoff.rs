//! The pause before a source that failed is asked again.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use levada_types::Backoff;
use tokio::time::Instant;

/// Pauses that grow with each failure, and start again after a success that lasted.
pub(crate) struct Pauses {
    backoff: Backoff,
    failures: u32,
    attempt_began: Instant,
}

/// The first wait: a server that restarts closes its connections, and is there again at once.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
/// The longest wait, unless another one is asked for: a source that is back is followed within this time.
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);
/// An attempt that lasted so long was a success.
const LASTING: Duration = Duration::from_secs(15);

impl Pauses {
    pub(crate) fn new() -> Self {
        Self::up_to(LONGEST_BACKOFF)
    }

    pub(crate) fn up_to(longest: Duration) -> Self {
        let backoff = Backoff::new(FIRST_BACKOFF, longest);
        Self { backoff, failures: 0, attempt_began: Instant::now() }
    }

    /// Waits after an attempt that failed. The pause is between half and all of its nominal length, so that nodes
    /// that lost a server together do not come back together.
    pub(crate) async fn pause(&mut self) {
        if self.attempt_began.elapsed() > LASTING {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep(self.backoff.after(self.failures).mul_f64(0.5 + 0.5 * chance())).await;
        self.attempt_began = Instant::now();
    }
}

/// A number from 0 to 1, another one on every node.
#[expect(clippy::cast_precision_loss, reason = "a pause needs no more digits")]
fn chance() -> f64 {
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}
