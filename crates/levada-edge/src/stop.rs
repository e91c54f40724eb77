//! Stopping: connections finish what they are doing, then the process ends.

use tokio::sync::watch;

/// Heard by everyone who must stop; kept by every connection until it has.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<bool>);

/// Says when to stop.
pub(crate) struct Stopper(watch::Sender<bool>);

pub(crate) fn channel() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(false);
    (Stopper(sender), Stop(receiver))
}

impl Stop {
    /// Returns when the stop has begun.
    pub(crate) async fn begun(&self) {
        let mut receiver = self.0.clone();
        // An error means that the stopper is gone: the process is ending.
        let _ = receiver.wait_for(|stopped| *stopped).await;
    }
}

impl Stopper {
    /// Begins the stop.
    pub(crate) fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Returns when everyone who could hear it is gone.
    pub(crate) async fn done(&self) {
        self.0.closed().await;
    }
}
