//! Dormant connections, whose client has gone or whose route has moved: they are given up with a reset
//! (WWW'09 Sec. 3.1.2; `levada_net::dormant` tells how they are found).

use std::{
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
    time::Duration,
};

use levada_net::{client::ConnectionOwner, dormant::DormancyWatch, tcp::TcpInfo};
use levada_types::Key;
use tokio::time::MissedTickBehavior;

use crate::{given_up::GivenUpClients, memory_bound::MemoryBound};

/// Begins to watch the connections of a listener, if it is configured. Calls `ended` for each connection that is
/// given up.
pub fn watch(
    given_up: &Arc<GivenUpClients>,
    memory: &Arc<MemoryBound>,
    retries: Option<u8>,
    ended: impl Fn() + Send + Sync + 'static,
) -> Option<Arc<DormancyWatch<ConnectionOwner>>> {
    let watch = DormancyWatch::new(retries?);
    let measuring = given_up.clone();
    watch.on_round_trip(move |owner: &ConnectionOwner, trip| {
        measuring.round_trips.note(owner.client, trip);
    });
    tokio::spawn(sweep(given_up.clone(), memory.clone(), Arc::downgrade(&watch), ended));
    Some(watch)
}

/// Sweeps until the listener and all its connections are gone.
async fn sweep(
    given_up: Arc<GivenUpClients>,
    memory: Arc<MemoryBound>,
    watch: Weak<DormancyWatch<ConnectionOwner>>,
    ended: impl Fn(),
) {
    let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        memory.tick(&mut ticks).await;
        let Some(watch) = watch.upgrade() else { return };
        watch.sweep(|seat, info| {
            if give_up(&given_up, &seat.about, info) {
                ended();
            }
        });
        watch.probe().await;
    }
}

/// Aborts the connection's task, if it has one. Its socket is closed with it, by a reset.
fn give_up(given_up: &GivenUpClients, owner: &ConnectionOwner, info: &TcpInfo) -> bool {
    let Some(task) = owner.task() else { return false };
    task.abort();
    given_up.note(owner.client, Key(owner.last_key().load(Relaxed)));
    let TcpInfo { retransmits, timeout, last_ack, rtt, retransmitted, .. } = info;
    tracing::debug!(
        client = %owner.client, retransmits, ?timeout, ?last_ack, ?rtt, retransmitted,
        "dormant connection given up"
    );
    true
}

/// The interval of sweeps: half of Linux' shortest retransmission timeout.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
