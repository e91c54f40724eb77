//! Asks every node how it is, and tells the name server: a node that does not answer twice, or drains, is out of the
//! answers within two seconds.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, StatusCode};
use levada_cluster::nodes::{Member, Membership, PROBE, Peer, Peers, Standing};
use levada_dns::{route::NodeState, serve::Server};
use parking_lot::Mutex;

/// The pause before a node is asked again,
const INTERVAL: Duration = Duration::from_millis(500);
/// and after a failure.
const AGAIN: Duration = Duration::from_millis(100);
/// How long a node may take. Interval, two of these and the pause between them are less than two seconds.
const TIMEOUT: Duration = Duration::from_millis(600);
/// Failures in a row after which a node is out.
const FAILURES: u32 = 2;
/// The longest answer.
const LONGEST: usize = 4 << 10;
/// Changes of load that are smaller do not change the answers.
const LOAD_STEP: f64 = 0.05;

/// The node of this process: whether it serves, and how it is. `None`: this process is no node.
pub(super) type Own = Box<dyn Fn() -> Option<(bool, Standing)> + Send + Sync>;

/// The last words of each node.
struct Watched {
    peers: Arc<Peers>,
    server: Arc<Server>,
    own: Own,
    counts_health: bool,
    seen: Mutex<HashMap<Arc<str>, Seen>>,
}

#[derive(Default)]
struct Seen {
    /// The task that asks it.
    member: Weak<Member>,
    failures: u32,
    standing: Standing,
}

/// Watches the nodes for ever. With `counts_health`, a node that requests or probes of this node have found to be down is
/// out as well.
pub(crate) async fn watch(peers: Arc<Peers>, server: Arc<Server>, own: Own, counts_health: bool) {
    let watched = Arc::new(Watched { peers, server, own, counts_health, seen: Mutex::default() });
    loop {
        let now = watched.peers.membership();
        for (node, member) in now.all() {
            if node != now.me() {
                watched.begin(member);
            }
        }
        watched.forget(&now);
        watched.publish(&now);
        tokio::time::sleep(INTERVAL / 2).await;
    }
}

impl Watched {
    /// Begins to ask a node, unless it is asked already at this address.
    fn begin(self: &Arc<Self>, member: &Arc<Member>) {
        let mut seen = self.seen.lock();
        let known = seen.entry(member.server.name.clone()).or_default();
        if known.member.ptr_eq(&Arc::downgrade(member)) {
            return;
        }
        known.member = Arc::downgrade(member);
        let (watched, member) = (Arc::downgrade(self), member.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = ask_regularly(&watched, &member) => {}
                () = member.gone() => {}
            }
        });
    }

    /// Forgets nodes that have left.
    fn forget(&self, now: &Membership) {
        self.seen.lock().retain(|name, _| now.named(name).is_some());
    }

    fn note(&self, name: &str, standing: Option<Standing>) {
        if let Some(seen) = self.seen.lock().get_mut(name) {
            match standing {
                Some(standing) => (seen.failures, seen.standing) = (0, standing),
                None => seen.failures = seen.failures.saturating_add(1),
            }
        }
        self.publish(&self.peers.membership());
    }

    /// Tells the server.
    fn publish(&self, now: &Membership) {
        let own = (self.own)();
        let seen = self.seen.lock();
        let peers = now.settings().peers.iter().zip(now.all());
        let states = peers.filter_map(|(peer, (node, member))| {
            if node == now.me() {
                return own.map(|(ready, standing)| state(peer, ready, standing));
            }
            let seen = seen.get(&member.server.name)?;
            let is_up = !self.counts_health || member.server.health.is_up();
            Some(state(peer, seen.failures < FAILURES && is_up, seen.standing))
        });
        let states = states.collect();
        drop(seen);
        self.server.set_nodes(states);
    }
}

async fn ask_regularly(watched: &Weak<Watched>, member: &Member) {
    loop {
        let standing = ask(member).await;
        let Some(watched) = watched.upgrade() else { return };
        watched.note(&member.server.name, standing);
        drop(watched);
        tokio::time::sleep(if standing.is_some() { INTERVAL } else { AGAIN }).await;
    }
}

/// How a node says it is, if it serves clients.
async fn ask(member: &Member) -> Option<Standing> {
    let asked = member.ask(Method::GET, PROBE, Bytes::new(), LONGEST);
    match tokio::time::timeout(TIMEOUT, asked).await {
        Ok(Ok((StatusCode::OK, text))) => std::str::from_utf8(&text).ok()?.parse().ok(),
        _ => None,
    }
}

fn state(peer: &Peer, ready: bool, standing: Standing) -> NodeState {
    let (v4, v6): (Vec<_>, Vec<_>) = peer.public.iter().partition(|address| address.is_ipv4());
    NodeState {
        name: peer.name.as_str().into(),
        region: peer.region.clone(),
        v4: v4
            .into_iter()
            .filter_map(|ip| if let IpAddr::V4(v4) = ip { Some(v4) } else { None })
            .collect(),
        v6: v6
            .into_iter()
            .filter_map(|ip| if let IpAddr::V6(v6) = ip { Some(v6) } else { None })
            .collect(),
        weight: peer.weight,
        ready,
        draining: standing.draining,
        load: (standing.load / LOAD_STEP).round() * LOAD_STEP,
    }
}
