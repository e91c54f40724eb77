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
