//! Signals that an operator or a supervisor sends.

use tokio::signal::unix;

/// Acts on each signal of a kind. Never returns.
pub async fn on_each(kind: unix::SignalKind, act: impl AsyncFn()) {
    let Ok(mut signal) = unix::signal(kind) else { return std::future::pending().await };
    while signal.recv().await.is_some() {
        act().await;
    }
}

/// Returns on TERM, INT or QUIT.
pub async fn until_stopped() {
    let mut signals: Vec<unix::Signal> =
        [unix::SignalKind::terminate(), unix::SignalKind::interrupt(), unix::SignalKind::quit()]
            .into_iter()
            .filter_map(|kind| unix::signal(kind).ok())
            .collect();
    std::future::poll_fn(|cx| match signals.iter_mut().any(|s| s.poll_recv(cx).is_ready()) {
        true => std::task::Poll::Ready(()),
        false => std::task::Poll::Pending,
    })
    .await;
}
