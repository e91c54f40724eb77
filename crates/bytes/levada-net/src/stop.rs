//! The stop of a program: connections finish their requests, and those that do not in time are cut.

use std::{future::Future, pin::Pin, task::Poll};

use tokio::{
    sync::watch,
    task::{AbortHandle, JoinHandle},
};

/// Tells a connection that it must stop. A connection keeps it until it has stopped.
#[derive(Clone, Debug)]
pub struct Stop {
    all: watch::Receiver<StopPhase>,
    /// An end that comes for some connections alone.
    own: Option<watch::Receiver<StopPhase>>,
}

/// Begins the stop. When it is dropped, the connections that are left are cut.
#[derive(Debug)]
pub struct Stopper(watch::Sender<StopPhase>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopPhase {
    Open,
    Draining,
}

/// The two ends of one stop.
pub fn channel() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(StopPhase::Open);
    (Stopper(sender), Stop { all: receiver, own: None })
}

impl Stop {
    /// The same, which also starts when `other` does: what is left then is not cut.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self { all: self.all.clone(), own: Some(other.all.clone()) }
    }

    /// Whether the stop has started, or its stopper is gone.
    pub fn has_begun(&self) -> bool {
        let begun = |of: &watch::Receiver<StopPhase>| {
            *of.borrow() == StopPhase::Draining || of.has_changed().is_err()
        };
        begun(&self.all) || self.own.as_ref().is_some_and(begun)
    }

    /// Returns when the stop has started.
    pub async fn begun(&self) {
        let Some(own) = &self.own else { return begun(&self.all).await };
        // Few connections have one: the others have no room for it.
        Box::pin(async {
            tokio::select! {
                () = begun(&self.all) => {}
                () = begun(own) => {}
            }
        })
        .await;
    }

    /// Returns when there is no time left.
    pub async fn cut(&self) {
        let mut receiver = self.all.clone();
        once_changed(&self.all, async { while receiver.changed().await.is_ok() {} }).await;
    }
}

async fn begun(stop: &watch::Receiver<StopPhase>) {
    let mut receiver = stop.clone();
    // An error means that the stopper is gone: a stop of the hardest kind.
    let begun = async { drop(receiver.wait_for(|phase| *phase == StopPhase::Draining).await) };
    once_changed(stop, begun).await;
}

/// Polls `changed` once, to register the waker, and again only when the receiver has a new value: a
/// connection polls at each of its turns, from one and the same task.
pub async fn once_changed<T>(receiver: &watch::Receiver<T>, changed: impl Future<Output = ()>) {
    // It registers the waker even in a task that has used up its turn.
    let mut changed = std::pin::pin!(tokio::task::coop::unconstrained(changed));
    let (receiver, mut polled) = (receiver.clone(), false);
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut polled, true) && matches!(receiver.has_changed(), Ok(false)) {
            return Poll::Pending;
        }
        changed.as_mut().poll(cx)
    })
    .await;
}

impl Stopper {
    /// Begins the stop.
    pub fn begin(&self) {
        self.0.send_replace(StopPhase::Draining);
    }

    /// Returns when every [`Stop`] has been dropped.
    pub async fn done(&self) {
        self.0.closed().await;
    }
}

/// Starts a task that ends when the stop begins, or when it is aborted.
pub type Spawn<'a> = dyn Fn(Pin<Box<dyn Future<Output = ()> + Send>>) -> AbortHandle + 'a;

/// Starts a task that ends when the stop begins.
pub fn spawn_until(stop: &Stop, task: Pin<Box<dyn Future<Output = ()> + Send>>) -> AbortHandle {
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
pub fn spawn_until_cut(
    stop: Stop,
    serving: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    // A task has room for everything that it was made of, as long as it runs.
    let serving = Box::pin(serving);
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = serving => {}
            () = stop.cut() => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_has_begun_when_its_stopper_is_gone() {
        let (stopper, stop) = channel();
        assert!(!stop.has_begun());
        drop(stopper);
        assert!(stop.has_begun());
    }

    #[tokio::test]
    async fn stop_of_some_starts_with_either_and_leaves_the_others_alone() {
        let ((all, stop), (some, of_some)) = (channel(), channel());
        let both = stop.or(&of_some);
        assert!(!both.has_begun());
        drop(some);
        both.begun().await;
        assert!(both.has_begun() && !stop.has_begun());
        let (_some, of_some) = channel();
        let both = stop.or(&of_some);
        all.begin();
        both.begun().await;
        assert!(!of_some.has_begun());
    }

    #[tokio::test]
    async fn stop_reaches_a_task_that_had_used_its_turn_up() {
        let (stopper, stop) = channel();
        let (waits, waiting) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            while tokio::task::coop::has_budget_remaining() {
                tokio::task::coop::consume_budget().await;
            }
            waits.send(()).unwrap();
            stop.begun().await;
        });
        waiting.await.unwrap();
        tokio::task::yield_now().await;
        stopper.begin();
        let stopped = tokio::time::timeout(std::time::Duration::from_secs(5), task).await;
        stopped.expect("it learns of the stop").unwrap();
    }
}
