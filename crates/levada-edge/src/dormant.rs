//! Dormant connections, whose client has gone or whose route has moved: they are given up with a reset
//! (WWW'09 Sec. 3.1.2; `levada_net::dormant` tells how they are found).

use std::{
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
    time::Duration,
};

use levada_http1::ConnectionEnd;
use levada_net::{client::ConnectionOwner, dormant::DormancyWatch, tcp::TcpInfo};
use levada_types::Key;
use tokio::time::MissedTickBehavior;

use levada_access::given_up::GivenUpClients;

use crate::metrics::Metrics;

/// Begins to watch the connections of a listener, if it is configured.
pub(crate) fn watch(
    metrics: &Arc<Metrics>,
    given_up: &Arc<GivenUpClients>,
    retries: Option<u8>,
) -> Option<Arc<DormancyWatch<ConnectionOwner>>> {
    let watch = DormancyWatch::new(retries?);
    tokio::spawn(sweep(metrics.clone(), given_up.clone(), Arc::downgrade(&watch)));
    Some(watch)
}

/// Sweeps until the listener and all its connections are gone.
async fn sweep(
    metrics: Arc<Metrics>,
    given_up: Arc<GivenUpClients>,
    watch: Weak<DormancyWatch<ConnectionOwner>>,
) {
    let mut ticks = tokio::time::interval(SWEEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(watch) = watch.upgrade() else { return };
        watch.sweep(|seat, info| give_up(&metrics, &given_up, &seat.about, info));
    }
}

/// Aborts the connection's task. Its socket is closed with it, by a reset.
fn give_up(metrics: &Metrics, given_up: &GivenUpClients, owner: &ConnectionOwner, info: &TcpInfo) {
    let Some(task) = owner.task() else { return };
    task.abort();
    metrics.ended(ConnectionEnd::Dormant);
    given_up.note(owner.client, Key(owner.last_key().load(Relaxed)));
    let TcpInfo { retransmits, timeout, last_ack, rtt, retransmitted, .. } = info;
    tracing::debug!(
        client = %owner.client, retransmits, ?timeout, ?last_ack, ?rtt, retransmitted,
        "dormant connection given up"
    );
}

/// Half of Linux' shortest retransmission timeout.
const SWEEP: Duration = Duration::from_millis(100);
