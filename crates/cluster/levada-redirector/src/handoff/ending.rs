//! How far the end of a front-end has come, as the back-end knows it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use levada_net::stop::{self, Stop};
use tokio::sync::Notify;

/// See the module.
#[derive(Default)]
pub(crate) struct FrontEndEnding {
    leaves: AtomicBool,
    stops: Notify,
}

impl FrontEndEnding {
    /// Whether its connections are to end with their next answers.
    pub(crate) fn has_begun(&self) -> bool {
        self.leaves.load(Relaxed)
    }

    pub(crate) fn leaves(&self) {
        self.leaves.store(true, Relaxed);
    }

    pub(crate) fn stops(&self) {
        self.leaves();
        self.stops.notify_one();
    }

    /// The stop of its connections, which begins with the end of this front-end or of this node.
    pub(crate) fn connections(self: Arc<Self>, stop: &Stop) -> Stop {
        let (stopper, connections) = stop::channel();
        let stop = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = self.stops.notified() => {}
                () = stop.begun() => {}
                () = stopper.done() => return,
            }
            stopper.begin();
            tokio::select! {
                () = stopper.done() => {}
                () = stop.cut() => {}
            }
        });
        connections
    }
}
