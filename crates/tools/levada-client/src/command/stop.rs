//! The signals that ask a command to end.

use std::{
    future::poll_fn,
    io,
    task::{Context, Poll},
};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that no longer end the process by themselves.
pub struct StopSignals(Vec<Signal>);

impl StopSignals {
    /// INT and TERM, and HUP if the command is to notice the end of its terminal.
    ///
    /// # Errors
    /// If the system refuses a handler.
    pub fn new(with_hangup: bool) -> io::Result<Self> {
        let hangup = with_hangup.then(SignalKind::hangup);
        let kinds = [SignalKind::interrupt(), SignalKind::terminate()].into_iter().chain(hangup);
        Ok(Self(kinds.map(signal).collect::<Result<_, _>>()?))
    }

    /// Returns when one of them comes.
    pub async fn asked(&mut self) {
        let mut any =
            |cx: &mut Context<'_>| self.0.iter_mut().any(|one| one.poll_recv(cx).is_ready());
        poll_fn(|cx| if any(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}
