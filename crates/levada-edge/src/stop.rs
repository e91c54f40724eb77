//! Stopping: connections finish what they are doing, then whoever has not is cut.

use std::{future::Future, pin::Pin, task::Poll};

use tokio::{sync::watch, task::AbortHandle};

/// Heard by everyone who must stop; kept by every connection until it has.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<StopPhase>);

/// Says when to stop. Whatever is left is cut when it is dropped.
pub(crate) struct Stopper(watch::Sender<StopPhase>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum StopPhase {
    Open,
    Draining,
}

pub(crate) fn channel() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(StopPhase::Open);
    (Stopper(sender), Stop(receiver))
}

impl Stop {
    /// Whether the stop has begun.
    pub(crate) fn has_begun(&self) -> bool {
        *self.0.borrow() == StopPhase::Draining
    }

    /// Returns when the stop has begun.
    pub(crate) async fn begun(&self) {
        let mut receiver = self.0.clone();
        // An error means that the stopper is gone: a stop of the hardest kind.
        let begun = async { drop(receiver.wait_for(|phase| *phase == StopPhase::Draining).await) };
        once_changed(&self.0, begun).await;
    }

    /// Returns when there is no time left.
    pub(crate) async fn cut(&self) {
        let mut receiver = self.0.clone();
        once_changed(&self.0, async { while receiver.changed().await.is_ok() {} }).await;
    }
}

/// Polls `told` once, to be woken, and then only when there is something to be told: a connection
/// asks at each of its turns, from one and the same task.
pub(crate) async fn once_changed<T>(news: &watch::Receiver<T>, told: impl Future<Output = ()>) {
    let mut told = std::pin::pin!(told);
    let (news, mut asked) = (news.clone(), false);
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut asked, true) && matches!(news.has_changed(), Ok(false)) {
            return Poll::Pending;
        }
        told.as_mut().poll(cx)
    })
    .await;
}

impl Stopper {
    /// Begins the stop.
    pub(crate) fn begin(&self) {
        self.0.send_replace(StopPhase::Draining);
    }

    /// Returns when everyone who could hear it is gone.
    pub(crate) async fn done(&self) {
        self.0.closed().await;
    }
}

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
