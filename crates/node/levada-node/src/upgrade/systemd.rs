//! Tells systemd how the node is (sd_notify(3)). Without systemd this does nothing.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::runtime::Handle;

/// The shortest pause between two messages that the node works.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// The node serves clients.
pub(crate) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// A reload begins; [`ready`] ends it.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

/// The node ends.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Another process is the service from now on.
pub(crate) fn succeeded_by(pid: u32) {
    notify(&[NotifyState::MainPid(pid)]);
}

/// Says that the node works, twice in the time that systemd waits for it, when every worker has answered.
/// Returns if systemd does not want to hear it.
pub(crate) async fn watch(workers: Vec<Handle>) {
    let Some(time) = sd_notify::watchdog_enabled() else { return };
    let mut ticks = tokio::time::interval((time / 2).max(SHORTEST_INTERVAL));
    loop {
        ticks.tick().await;
        for worker in &workers {
            // A worker that is gone ends with the process.
            let _ = worker.spawn(async {}).await;
        }
        notify(&[NotifyState::Watchdog]);
    }
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, ?state, "systemd does not listen");
    }
}
