//! Signals that an operator or a supervisor sends.

use std::{
    future::{pending, poll_fn},
    task::{Context, Poll},
};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals of a node. From their registration on none of them ends the process, and one that comes while
/// no task waits is kept for the next wait.
#[derive(Debug)]
pub struct Signals {
    stops: Vec<Signal>,
    reload: Option<Signal>,
    reopen: Option<Signal>,
    upgrade: Option<Signal>,
}

impl Signals {
    /// Registers the handlers. A node does so before it says that it is ready.
    pub fn register() -> Self {
        let stops = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()];
        Self {
            stops: stops.into_iter().filter_map(|kind| signal(kind).ok()).collect(),
            reload: signal(SignalKind::hangup()).ok(),
            reopen: signal(SignalKind::user_defined1()).ok(),
            upgrade: signal(SignalKind::user_defined2()).ok(),
        }
    }

    /// Returns on TERM, INT or QUIT. Until then it reloads on each HUP, reopens on each USR1 and upgrades on each
    /// USR2.
    pub async fn until_stopped(
        &mut self,
        reload: impl AsyncFn(),
        reopen: impl AsyncFn(),
        upgrade: impl AsyncFn(),
    ) {
        let Self { stops, reload: reloads, reopen: reopens, upgrade: upgrades } = self;
        let stopped =
            |cx: &mut Context<'_>| match stops.iter_mut().any(|s| s.poll_recv(cx).is_ready()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            };
        tokio::select! {
            () = poll_fn(stopped) => {}
            () = on_each(reloads, reload) => {}
            () = on_each(reopens, reopen) => {}
            () = on_each(upgrades, upgrade) => {}
        }
    }
}

/// Acts on each signal. Never returns.
async fn on_each(signals: &mut Option<Signal>, act: impl AsyncFn()) {
    let Some(signals) = signals else { return pending().await };
    while signals.recv().await.is_some() {
        act().await;
    }
}
