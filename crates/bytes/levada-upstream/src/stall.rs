//! A deadline between the pieces of a body.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use levada_http::{DeadlineTimer, Patience};
use tokio::time::Instant;

/// Fires when no piece has come for too long, or too little for a longer time.
pub(crate) struct Stall {
    patience: Patience,
    left: Duration,
    /// Since when the next piece is awaited. The clock is read once or twice per wait, not per piece.
    awaited: Option<Instant>,
    timer: DeadlineTimer,
}

impl Stall {
    /// Fires when `patience` is used up.
    pub(crate) fn new(patience: Patience) -> Self {
        Self { patience, left: patience.time, awaited: None, timer: DeadlineTimer::default() }
    }

    /// The time without a piece after which it fires.
    pub(crate) fn timeout(&self) -> Duration {
        self.patience.time
    }

    /// A piece of so many bytes has come.
    pub(crate) fn moved(&mut self, bytes: u64) {
        if let Some(awaited) = self.awaited.take()
            && self.patience.min_rate > 0
        {
            self.left = self.patience.earned(self.left.saturating_sub(awaited.elapsed()), bytes);
        }
    }

    /// Ready when the time is over. Call it when the body is pending.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let awaited = *self.awaited.get_or_insert_with(Instant::now);
        self.timer.poll(cx, awaited + self.left)
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
        let mut stall = Stall::new(Patience { time: patience, min_rate: 0 });
        for piece_after in [0, 1, 9, 9, 5] {
            let piece = Duration::from_secs(piece_after);
            let early = timeout(piece, poll_fn(|cx| stall.poll(cx))).await;
            assert!(early.is_err(), "it fires before its time");
            stall.moved(1);
        }
        let begun = Instant::now();
        poll_fn(|cx| stall.poll(cx)).await;
        let waited = begun.elapsed();
        assert!(waited >= patience && waited <= patience + COARSE, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn fires_while_pieces_trickle() {
        let patience = Patience { time: Duration::from_secs(10), min_rate: 500 };
        for (bytes, goes_on) in [(1, false), (400, false), (500, true), (5000, true)] {
            let mut stall = Stall::new(patience);
            let mut seconds = 0..100;
            let fired = loop {
                let Some(_) = seconds.next() else { break false };
                let piece = Duration::from_secs(1) - COARSE;
                if timeout(piece, poll_fn(|cx| stall.poll(cx))).await.is_ok() {
                    break true;
                }
                stall.moved(bytes);
            };
            assert_eq!(fired, !goes_on, "{bytes} bytes per second");
        }
    }
}
