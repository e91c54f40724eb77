//! Stopping: connections finish what they are doing, then whoever has not is cut.

use tokio::sync::watch;

/// Heard by everyone who must stop; kept by every connection until it has.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<Phase>);

/// Says when to stop. Whatever is left is cut when it is dropped.
pub(crate) struct Stopper(watch::Sender<Phase>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Draining,
}

pub(crate) fn channel() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(Phase::Open);
    (Stopper(sender), Stop(receiver))
}

impl Stop {
    /// Returns when the stop has begun.
    pub(crate) async fn begun(&self) {
        let mut receiver = self.0.clone();
        // An error means that the stopper is gone: a stop of the hardest kind.
        let _ = receiver.wait_for(|phase| *phase == Phase::Draining).await;
    }

    /// Returns when there is no time left.
    pub(crate) async fn cut(&self) {
        let mut receiver = self.0.clone();
        while receiver.changed().await.is_ok() {}
    }
}

impl Stopper {
    /// Begins the stop.
    pub(crate) fn begin(&self) {
        self.0.send_replace(Phase::Draining);
    }

    /// Returns when everyone who could hear it is gone.
    pub(crate) async fn done(&self) {
        self.0.closed().await;
    }
}
