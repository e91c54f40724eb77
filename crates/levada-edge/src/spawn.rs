//! Tasks that end with the node.

use std::pin::Pin;

use levada_net::stop::Stop;
use tokio::task::{AbortHandle, JoinHandle};

/// Starts a task that ends with the node, or when it is aborted.
pub(crate) type Spawn<'a> = dyn Fn(Pin<Box<dyn Future<Output = ()> + Send>>) -> AbortHandle + 'a;

/// Starts a task that ends with the node.
pub(crate) fn spawn_until(
    stop: &Stop,
    task: Pin<Box<dyn Future<Output = ()> + Send>>,
) -> AbortHandle {
    let stop = stop.clone();
    let task = tokio::spawn(async move {
        tokio::select! {
            () = task => {}
            () = stop.begun() => {}
        }
    });
    task.abort_handle()
}

/// Starts a task that is cut when the stop leaves no time.
pub(crate) fn spawn_until_cut(
    stop: Stop,
    serving: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = serving => {}
            () = stop.cut() => {}
        }
    })
}
