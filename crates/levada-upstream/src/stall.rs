//! A deadline between the pieces of a body.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use levada_http1::DeadlineTimer;
use tokio::time::Instant;

/// Fires when no piece has come for too long.
pub(crate) struct Stall {
    patience: Duration,
    /// Since when the next piece is awaited. The clock is read once per wait, not per piece.
    awaited: Option<Instant>,
    timer: DeadlineTimer,
}

impl Stall {
    /// Fires after `patience` without a piece.
    pub(crate) fn new(patience: Duration) -> Self {
        Self { patience, awaited: None, timer: DeadlineTimer::default() }
    }

    /// The time without a piece after which it fires.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// A piece has come.
    pub(crate) fn moved(&mut self) {
        self.awaited = None;
    }

    /// Ready when no piece has come for too long. Call it when the body is pending.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let patience = self.patience;
        let awaited = *self.awaited.get_or_insert_with(Instant::now);
        self.timer.poll(cx, awaited + patience)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::timeout;

    use super::*;

    /// The timers of the system are a millisecond coarse.
    const COARSE: Duration = Duration::from_millis(2);

    // The clock stands still, and goes on to the next timer when there is nothing to do.
    #[tokio::test(start_paused = true)]
    async fn fires_when_its_time_has_passed_since_the_last_piece_and_not_later() {
        let patience = Duration::from_secs(10);
        let mut stall = Stall::new(patience);
        for piece_after in [0, 1, 9, 9, 5] {
            let piece = Duration::from_secs(piece_after);
            let early = timeout(piece, poll_fn(|cx| stall.poll(cx))).await;
            assert!(early.is_err(), "it fires before its time");
            stall.moved();
        }
        let begun = Instant::now();
        poll_fn(|cx| stall.poll(cx)).await;
        let waited = begun.elapsed();
        assert!(waited >= patience && waited <= patience + COARSE, "{waited:?}");
    }
}
