//! The registration of a node among the members of its cluster: from the moment at which it serves until it stops, or
//! until another process has taken over.

use std::sync::{Arc, Mutex, PoisonError};

use levada_cluster::{awaited::AwaitedThing, events::EventKind};
use levada_discovery::{Leave, NameState, Registration, register};
use levada_edge::node::Node;
use levada_net::stop::Stop;
use tokio::sync::watch;

use crate::upgrade::upgrades::{UpgradePhase, Upgrades};

/// See the module.
#[derive(Debug)]
pub(crate) struct Registrar(watch::Sender<Option<Registration>>);

impl Registrar {
    /// A node that registers so, or not at all.
    pub(crate) fn new(registration: Option<Registration>) -> Self {
        Self(watch::Sender::new(registration))
    }

    /// Registers in another way from now on.
    pub(crate) fn set(&self, registration: Option<Registration>) {
        self.0.send_if_modified(|now| {
            let differs = *now != registration;
            *now = registration;
            differs
        });
    }

    /// Keeps the node registered from the moment at which it serves until it stops. The node says so if another one
    /// has its name, or wants it.
    pub(crate) async fn keep(&self, node: &Node, upgrades: &Upgrades, stop: &Stop) {
        tokio::select! {
            () = node.purging.until_serving() => {}
            () = stop.begun() => return,
        }
        let mut wanted = self.0.subscribe();
        let mut goes_on = true;
        while std::mem::take(&mut goes_on) {
            let registration = wanted.borrow_and_update().clone();
            let leaving = async {
                tokio::select! {
                    biased;
                    () = upgrades.until(UpgradePhase::Succeeded) => Leave::PassOn,
                    () = stop.begun() => Leave::TakeBack,
                    changed = wanted.changed() => {
                        goes_on = changed.is_ok();
                        Leave::TakeBack
                    }
                }
            };
            let Some(registration) = registration else {
                leaving.await;
                continue;
            };
            let known = Mutex::new((NameState::Own, None));
            let told = |state: NameState| {
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                if known.0 != state {
                    *known = (state.clone(), name_is(node, state));
                }
            };
            register(&registration, told, leaving).await;
            node.claimed.store(None);
        }
    }
}

/// Says what another node of this name does. A node whose name another one has is not ready.
fn name_is(node: &Node, state: NameState) -> Option<AwaitedThing> {
    let (missing, claimed) = match state {
        NameState::Own => (None, None),
        NameState::Taken(why) => (Some(why), None),
        NameState::Claimed(why) => (None, Some(why)),
    };
    if let Some(why) = missing.as_ref().or(claimed.as_ref()) {
        node.events.tell(EventKind::NameTaken, why);
    }
    if let Some(why) = &claimed {
        tracing::error!("{why}");
    }
    node.claimed.store(claimed.map(Arc::new));
    missing.map(|why| node.awaited.begin("registration", why))
}
