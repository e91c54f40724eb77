//! The registration of a node among the members of its cluster: from the moment at which it serves until it stops, or
//! until another process has taken over.

use std::sync::{Mutex, PoisonError};

use levada_cluster::awaited::Awaited;
use levada_discovery::{Leave, Registration, register};
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

    /// Keeps the node registered from `serving` on until it stops. `awaited` says so if another node has its name.
    pub(crate) async fn keep(
        &self,
        serving: impl Future<Output = ()>,
        upgrades: &Upgrades,
        awaited: &Awaited,
        stop: &Stop,
    ) {
        tokio::select! {
            () = serving => {}
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
            let missing = Mutex::new(None);
            let told = |refused: Option<String>| {
                let refused = refused.map(|why| awaited.begin("registration", why));
                *missing.lock().unwrap_or_else(PoisonError::into_inner) = refused;
            };
            register(&registration, told, leaving).await;
        }
    }
}
