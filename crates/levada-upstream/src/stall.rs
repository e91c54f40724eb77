//! A deadline between the pieces of a body.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Sleep;

/// Fires when no piece has come for too long.
pub struct Stall {
    /// Made when a piece is awaited: most bodies arrive with their heads.
    timer: Option<Pin<Box<Sleep>>>,
    patience: Duration,
    /// A piece has come since the timer was set. The timer is set anew only when it fires, so a piece costs
    /// nothing.
    moved: bool,
}

impl Stall {
    /// Fires after `patience` without a piece.
    pub fn new(patience: Duration) -> Self {
        Self { timer: None, patience, moved: false }
    }

    /// A piece has come.
    pub fn moved(&mut self) {
        self.moved = true;
    }

    /// Ready when no piece has come for too long. Call it when the body is pending.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let patience = self.patience;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        while timer.as_mut().poll(cx).is_ready() {
            if !std::mem::take(&mut self.moved) {
                return Poll::Ready(());
            }
            timer.as_mut().reset(tokio::time::Instant::now() + patience);
        }
        Poll::Pending
    }
}
