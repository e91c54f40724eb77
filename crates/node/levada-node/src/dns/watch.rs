//! Asks every node how it is, and tells the name server: a node that does not answer twice, or drains, is out of the
//! answers within two seconds.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, LazyLock, Weak},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, StatusCode};
use levada_access::round_trips::ROUND_TRIPS;
use levada_cluster::nodes::{Member, Membership, PROBE, Peer, Peers, Standing};
use levada_dns::{
    route::{NodeState, RoundTrip, nearest, round_trips},
    serve::Server,
};
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
const LONGEST: usize = 64 << 10;
/// The probe that asks for round trips as well.
static MEASURED_PROBE: LazyLock<String> = LazyLock::new(|| format!("{PROBE}?{ROUND_TRIPS}"));
/// Every so many times a node is asked for its clients' round trips as well: about every ten seconds.
const MEASURED: u32 = 20;
/// Changes of load that are smaller do not change the answers.
const LOAD_STEP: f64 = 0.05;

/// The node of this process.
pub(crate) struct Own {
    /// Whether it serves, and how it is.
    pub(crate) standing: Box<dyn Fn() -> Option<(bool, Standing)> + Send + Sync>,
    /// The lines of its clients' round trips.
    pub(crate) round_trips: Box<dyn Fn() -> String + Send + Sync>,
}

/// The last words of each node.
struct Watched {
    peers: Arc<Peers>,
    server: Arc<Server>,
    /// `None`: this process is no node.
    own: Option<Own>,
    counts_health: bool,
    seen: Mutex<HashMap<Arc<str>, Seen>>,
}

#[derive(Default)]
struct Seen {
    /// The task that asks it.
    member: Weak<Member>,
    failures: u32,
    standing: Standing,
    round_trips: Vec<RoundTrip>,
}

/// Watches the nodes for ever. With `counts_health`, a node that requests or probes of this node have found to be down is
/// out as well.
pub(crate) async fn watch(
    peers: Arc<Peers>,
    server: Arc<Server>,
    own: Option<Own>,
    counts_health: bool,
) {
    let watched = Arc::new(Watched { peers, server, own, counts_health, seen: Mutex::default() });
    for turn in 0u32.. {
        let now = watched.peers.membership();
        for (node, member) in now.all() {
            if node != now.me() {
                watched.begin(member);
            }
        }
        watched.forget(&now);
        watched.publish(&now);
        if turn.is_multiple_of(MEASURED) {
            watched.measure(&now);
        }
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

    fn note(&self, name: &str, told: Option<Told>) {
        if let Some(seen) = self.seen.lock().get_mut(name) {
            match told {
                Some(Told { standing, round_trips }) => {
                    (seen.failures, seen.standing) = (0, standing);
                    seen.round_trips = round_trips.unwrap_or(std::mem::take(&mut seen.round_trips));
                }
                None => seen.failures = seen.failures.saturating_add(1),
            }
        }
        self.publish(&self.peers.membership());
    }

    /// Tells the server which regions are near which networks of clients.
    fn measure(&self, now: &Membership) {
        let own = self.own.as_ref().map(|own| round_trips(&(own.round_trips)()));
        let seen = self.seen.lock();
        let peers = now.settings().peers.iter().zip(now.all());
        let told = peers.filter_map(|(peer, (node, member))| {
            let trips = match node == now.me() {
                true => own.as_deref(),
                false => seen.get(&member.server.name).map(|seen| &*seen.round_trips),
            };
            Some((&peer.region, trips?))
        });
        let near = nearest(told);
        drop(seen);
        self.server.set_distances(near);
    }

    /// Tells the server.
    fn publish(&self, now: &Membership) {
        let own = self.own.as_ref().and_then(|own| (own.standing)());
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
    for turn in 0u32.. {
        let told = ask(member, turn.is_multiple_of(MEASURED)).await;
        let Some(watched) = watched.upgrade() else { return };
        let pause = if told.is_some() { INTERVAL } else { AGAIN };
        watched.note(&member.server.name, told);
        drop(watched);
        tokio::time::sleep(pause).await;
    }
}

/// The words of a node.
struct Told {
    standing: Standing,
    /// The round trips of its clients, if it was asked for them.
    round_trips: Option<Vec<RoundTrip>>,
}

/// How a node says it is, if it serves clients.
pub(crate) async fn standing_of(member: &Member) -> Option<Standing> {
    Some(ask(member, false).await?.standing)
}

/// How a node says it is, if it serves clients, and if it is `measured`, what it knows of theirs.
async fn ask(member: &Member, measured: bool) -> Option<Told> {
    let path = if measured { &*MEASURED_PROBE } else { PROBE };
    let asked = member.ask(Method::GET, path, Bytes::new(), LONGEST);
    match tokio::time::timeout(TIMEOUT, asked).await {
        Ok(Ok((StatusCode::OK, text))) => {
            let text = std::str::from_utf8(&text).ok()?;
            let standing = text.lines().next()?.parse().ok()?;
            Some(Told { standing, round_trips: measured.then(|| round_trips(text)) })
        }
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
