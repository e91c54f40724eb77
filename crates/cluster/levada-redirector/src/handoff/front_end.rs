//! A node's front-end: it begins to hand connections over when it can steer their packets, and lets those at
//! back-ends end before the node does.

use std::sync::{Arc, OnceLock};

use levada_net::{bpf::BpfError, stop::Stop};

use crate::handoff::{
    channel::CONNECT_BACKOFF,
    front::Front,
    serve::Serve,
    settings::{HandoffControl, HandoffSettings},
};

/// The front-end of a node, which may be one that hands nothing over.
pub struct FrontEnd<S: Serve> {
    front: OnceLock<Front<S>>,
    /// The settings and connections to start it with, if it cannot be used before another process has ended.
    waits: Option<(HandoffSettings, usize)>,
}

impl<S: Serve> FrontEnd<S> {
    /// Begins to steer, if the settings want it. Without the rights for it, connections are proxied.
    pub fn start(settings: Option<&HandoffSettings>, connections: usize) -> Self {
        let front = OnceLock::new();
        let Some(settings) = settings else { return Self { front, waits: None } };
        match Front::start(settings, connections) {
            Ok(started) => Self { front: started.into(), waits: None },
            Err(error @ BpfError::Taken { .. }) => {
                tracing::warn!(%error, "proxying: connections are handed off when one of them has ended");
                Self { front, waits: Some((settings.clone(), connections)) }
            }
            Err(error) => {
                tracing::warn!(%error, "proxying: no connection can be handed off");
                Self { front, waits: None }
            }
        }
    }

    /// The front-end, if connections can be handed over now.
    #[inline]
    pub fn get(&self) -> Option<&Front<S>> {
        self.front.get()
    }

    /// Whether there is a front-end now, or may be one later.
    fn may_come(&self) -> bool {
        self.waits.is_some() || self.get().is_some()
    }

    /// Waits until it can steer.
    async fn started(&self) -> &Front<S> {
        loop {
            if let Some(front) = self.get() {
                return front;
            }
            let Some((settings, connections)) = &self.waits else {
                return std::future::pending().await;
            };
            tokio::time::sleep(CONNECT_BACKOFF).await;
            match Front::start(settings, *connections) {
                Ok(front) => {
                    tracing::info!("connections are handed off from now on");
                    return self.front.get_or_init(|| front);
                }
                Err(error) => tracing::debug!(%error, "still proxying"),
            }
        }
    }
}

/// Starts the node's front-end when that is possible, connects it to back-ends, and ends it with the node.
pub async fn tend<S: Serve>(
    node: Arc<S>,
    front_end: impl Fn(&S) -> &FrontEnd<S>,
    controls: Vec<HandoffControl>,
    stop: Stop,
) {
    let front_end = front_end(&node);
    if !front_end.may_come() {
        return;
    }
    let front = tokio::select! {
        front = front_end.started() => front,
        () = stop.begun() => return,
    };
    front.reach(&node, &controls);
    tokio::select! {
        () = node.left() => front.leave(),
        () = stop.begun() => {}
    }
    stop.begun().await;
    front.stop();
}
