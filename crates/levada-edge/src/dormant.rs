//! Connections whose client is gone, because a route has moved or because it has: they are given up
//! with a reset (WWW'09 Sec. 3.1.2; `levada_net::dormant` tells how they are found).

use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use levada_http1::ConnectionEnd;
use levada_net::{
    dormant::{DormancyWatch, MonitoredStream, WatchedConnection},
    tcp::TcpInfo,
};
use levada_types::Key;
use parking_lot::Mutex;
use tokio::{
    net::TcpStream,
    task::{AbortHandle, JoinHandle},
    time::{Instant, MissedTickBehavior},
};

use crate::{connection::ClientConnection, node::Node};

/// A client's socket.
pub(crate) type ClientSocket = MonitoredStream<ConnectionOwner>;

/// Who is on a connection, and who serves it.
pub(crate) struct ConnectionOwner {
    client: IpAddr,
    client_connection: OnceLock<Arc<ClientConnection>>,
    task: OnceLock<AbortHandle>,
}

impl ConnectionOwner {
    pub(crate) fn is_served_by(&self, task: &JoinHandle<()>) {
        let _ = self.task.set(task.abort_handle());
    }

    pub(crate) fn is_visited_by(&self, client_connection: &Arc<ClientConnection>) {
        let _ = self.client_connection.set(client_connection.clone());
    }
}

/// Begins to look after the connections of a listener, if it is to be done.
pub(crate) fn watch(
    node: &Arc<Node>,
    retries: Option<u8>,
) -> Option<Arc<DormancyWatch<ConnectionOwner>>> {
    let watch = DormancyWatch::new(retries?);
    tokio::spawn(sweep(node.clone(), Arc::downgrade(&watch)));
    Some(watch)
}

/// Makes a connection one that is looked after.
pub(crate) fn seat(
    stream: TcpStream,
    client: IpAddr,
    watch: Option<&Arc<DormancyWatch<ConnectionOwner>>>,
) -> (ClientSocket, Arc<WatchedConnection<ConnectionOwner>>) {
    let seat = WatchedConnection::new(ConnectionOwner {
        client,
        client_connection: OnceLock::new(),
        task: OnceLock::new(),
    });
    (MonitoredStream::new(stream, watch.cloned(), seat.clone()), seat)
}

/// Sweeps until the listener and all its connections are gone.
async fn sweep(node: Arc<Node>, watch: Weak<DormancyWatch<ConnectionOwner>>) {
    let mut ticks = tokio::time::interval(SWEEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(watch) = watch.upgrade() else { return };
        watch.sweep(|seat, info| give_up(&node, &seat.about, info));
    }
}

/// Drops everything that the connection holds; its socket is closed with it, by a reset.
fn give_up(node: &Node, occupant: &ConnectionOwner, info: &TcpInfo) {
    let Some(task) = occupant.task.get() else { return };
    task.abort();
    node.metrics.ended(ConnectionEnd::Dormant);
    if let Some(client_connection) = occupant.client_connection.get() {
        node.lost.note(occupant.client, client_connection.last_key());
    }
    let TcpInfo { retransmits, timeout, last_ack, rtt, retransmitted, .. } = info;
    tracing::debug!(
        client = %occupant.client, retransmits, ?timeout, ?last_ack, ?rtt, retransmitted,
        "dormant connection given up"
    );
}

/// Who was given up lately. A client that asks for the rest from here within seconds had not gone
/// away: it was given up too early.
#[derive(Default)]
pub(crate) struct GivenUpClients {
    len: AtomicUsize,
    recent: Mutex<VecDeque<(Instant, IpAddr, Key)>>,
}

impl GivenUpClients {
    fn note(&self, client: IpAddr, key: Key) {
        let mut recent = self.recent.lock();
        if recent.len() == MOST_LOST {
            recent.pop_front();
        }
        recent.push_back((Instant::now(), client, key));
        self.len.store(recent.len(), Relaxed);
    }

    /// Whether a request for the rest of `key` comes from a client that was just given up.
    pub(crate) fn returns(&self, client: IpAddr, key: Key) -> bool {
        if self.len.load(Relaxed) == 0 {
            return false;
        }
        let mut recent = self.recent.lock();
        let old = recent.partition_point(|(lost, ..)| lost.elapsed() > RETURN);
        drop(recent.drain(..old));
        let found = recent.iter().position(|(_, c, k)| (*c, *k) == (client, key));
        if let Some(found) = found {
            recent.remove(found);
        }
        self.len.store(recent.len(), Relaxed);
        found.is_some()
    }
}

/// Half of the shortest timeout there is on Linux.
const SWEEP: Duration = Duration::from_millis(100);
/// Within this time a client comes back that had not gone away.
const RETURN: Duration = Duration::from_secs(5);
/// When thousands vanish at once, what the last of them did is enough.
const MOST_LOST: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_back_for_the_same_object_counts_once() {
        let (lost, here, there) =
            (GivenUpClients::default(), IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        assert!(!lost.returns(here, Key(1)));
        lost.note(here, Key(1));
        assert!(!lost.returns(here, Key(2)));
        assert!(!lost.returns(there, Key(1)));
        assert!(lost.returns(here, Key(1)));
        assert!(!lost.returns(here, Key(1)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let lost = GivenUpClients::default();
        for key in 0..=MOST_LOST as u64 {
            lost.note(IpAddr::from([10, 0, 0, 1]), Key(key));
        }
        assert!(!lost.returns(IpAddr::from([10, 0, 0, 1]), Key(0)));
        assert!(lost.returns(IpAddr::from([10, 0, 0, 1]), Key(1)));
    }
}
