//! The part of the cluster's view that lasts: it shows the membership of this moment, and goes on with another.

use std::{
    collections::{HashMap, HashSet},
    pin::Pin,
    sync::{Arc, Weak},
};

use arc_swap::{ArcSwap, Guard};
use levada_net::stop::Spawn;
use levada_policy::LoadTable;
use levada_tls::{peer, pem::TlsError};
use levada_types::Timestamp;
use levada_upstream::{Address, Clock, PeerProof, Server, ServerBounds, Wire};
use parking_lot::Mutex;

use crate::nodes::{
    Member, Peer, PeerLog, PeerTrust, Peering, WatchedPeer,
    membership::{Generation, Membership},
};

/// The peers, this node among them.
pub struct Peers {
    /// The name of this node.
    name: Arc<str>,
    membership: ArcSwap<Membership>,
    /// Held while the membership is made again, with the tables of former generations, which count the requests at
    /// nodes that left.
    former: Mutex<Vec<Weak<LoadTable>>>,
    bounds: Mutex<ServerBounds>,
    workers: usize,
    clock: Clock,
    own: Weak<Self>,
}

/// The name of an observer: no node has such a name.
const OBSERVER: &str = "";

/// The task that watches a node.
pub type Watch = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Why a list of nodes cannot be used. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    /// A certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Two nodes have one name.
    #[error("two nodes of the cluster are called {0:?}: give each node a name of its own")]
    SameName(String),
    /// This node is not in the list.
    #[error("{0:?}, the name of this node, is not among the nodes of the cluster: list it too")]
    NotListed(String),
}

/// Nodes that have been checked, for [`Peers::commit`].
pub struct PreparedPeers {
    peering: Peering,
    wire: Wire,
}

/// The memberships before and after a change; the same one if nothing has changed.
pub struct MembershipChange {
    /// Before.
    pub before: Arc<Membership>,
    /// After.
    pub after: Arc<Membership>,
}

impl Peers {
    /// The nodes of `peering` as the node `name` sees them. It sends requests to them with so many `workers`.
    ///
    /// # Errors
    /// When the list or a certificate cannot be used.
    pub fn new(
        name: &str,
        peering: &Peering,
        bounds: ServerBounds,
        clock: Clock,
        workers: usize,
    ) -> Result<Arc<Self>, PeersError> {
        let PreparedPeers { peering, wire } = prepare(name, peering)?;
        Ok(Arc::new_cyclic(|own| {
            let member = |(slot, peer)| {
                let server = server(peer, &peering, &wire, bounds, workers);
                Member::new(server, Arc::default(), slot, own.clone())
            };
            let members = peering.peers.iter().enumerate().map(member).collect();
            let generation = Arc::new(Generation::new(name, peering, members));
            Self {
                name: name.into(),
                membership: ArcSwap::from_pointee(Membership::new(generation, clock.now())),
                former: Mutex::default(),
                bounds: Mutex::new(bounds),
                workers,
                clock,
                own: own.clone(),
            }
        }))
    }

    /// The nodes of `peering` as a process sees them that is none of them: it asks them, and chooses none.
    ///
    /// # Errors
    /// When the list or a certificate cannot be used.
    pub fn observer(
        peering: &Peering,
        bounds: ServerBounds,
        clock: Clock,
    ) -> Result<Arc<Self>, PeersError> {
        Self::new(OBSERVER, peering, bounds, clock, 1)
    }

    /// The nodes at this moment.
    pub fn now(&self) -> Guard<Arc<Membership>> {
        self.membership.load()
    }

    /// The same, to be kept for longer than it takes to choose a node.
    pub fn membership(&self) -> Arc<Membership> {
        self.membership.load_full()
    }

    /// Changes the limits of all servers.
    pub fn set_bounds(&self, bounds: ServerBounds) {
        *self.bounds.lock() = bounds;
        self.now().all().for_each(|(_, member)| member.server.set_bounds(bounds));
    }

    /// Checks a list of nodes, and reads the certificates again.
    ///
    /// # Errors
    /// When the list or a certificate cannot be used.
    pub fn prepare(&self, peering: &Peering) -> Result<PreparedPeers, PeersError> {
        prepare(&self.name, peering)
    }

    /// Goes on with other nodes. One that stays keeps its health, its connections, its purge log and the count of
    /// its requests; at another address, or with another secret, it gets new connections. One that joins is down until it answers a
    /// probe, and then begins its slow start. One that leaves ends the requests that it has.
    pub fn commit(&self, prepared: PreparedPeers) -> MembershipChange {
        let PreparedPeers { peering, wire } = prepared;
        let mut former = self.former.lock();
        let before = self.membership.load_full();
        if peering == *before.settings() {
            before.others().for_each(|member| member.server.set_tls(wire.tls.clone()));
            return MembershipChange { after: before.clone(), before };
        }
        let known: HashMap<_, _> =
            before.all().map(|(_, member)| (&*member.server.name, member)).collect();
        let taken: HashSet<_> = known.values().map(|member| member.slot).collect();
        let mut free = (0..).filter(|slot| !taken.contains(slot));
        let member = |peer: &Peer| match known.get(&*peer.name) {
            Some(known) => self.kept(known, peer, &peering, &wire),
            None => self.joined(peer, &peering, &wire, free.next().unwrap_or_default()),
        };
        let members = peering.peers.iter().map(member).collect();
        let generation = Generation::new(&self.name, peering, members);
        former.retain(|table| table.strong_count() > 0);
        former.extend(generation.take_over(&before.generation));
        let checks_alike = before.settings().health == generation.settings.health;
        let after = Arc::new(Membership::new(Arc::new(generation), self.clock.now()));
        self.membership.store(after.clone());
        for (_, member) in before.all() {
            match after.named(&member.server.name) {
                Some(same) if Arc::ptr_eq(same, member) && checks_alike => {}
                Some(same) if Arc::ptr_eq(same, member) => member.stop_watch(),
                Some(_) | None => member.leave(),
            }
        }
        MembershipChange { before, after }
    }

    /// Goes on with other nodes, as [`commit`](Self::commit) says. It reads files.
    ///
    /// # Errors
    /// When the list or a certificate cannot be used; nothing has changed then.
    pub fn change(&self, peering: &Peering) -> Result<MembershipChange, PeersError> {
        Ok(self.commit(self.prepare(peering)?))
    }

    fn kept(&self, known: &Arc<Member>, peer: &Peer, with: &Peering, wire: &Wire) -> Arc<Member> {
        let address = address(peer);
        let proving = |trust: &PeerTrust| trust.proving().map(|secrets| secrets.first().to_owned());
        let proves_as_before = proving(&self.now().settings().trust) == proving(&with.trust);
        let is_there = known.server.address == address;
        if is_there && known.server.protocols().h2 == with.h2 && proves_as_before {
            known.server.set_tls(wire.tls.clone());
            return known.clone();
        }
        let server = known.server.moved(address, wire_to(peer, with, wire));
        Member::new(server, known.log.clone(), known.slot, self.own.clone())
    }

    fn joined(&self, peer: &Peer, with: &Peering, wire: &Wire, slot: usize) -> Arc<Member> {
        let server = server(peer, with, wire, *self.bounds.lock(), self.workers);
        match with.health.interval.is_zero() {
            true => server.health.begins(self.clock.now()),
            false => server.health.awaits_probe(&with.health),
        }
        Member::new(server, Arc::new(PeerLog::default()), slot, self.own.clone())
    }

    /// Renews the view of the cluster from the health of its nodes and their distances.
    pub fn refresh(&self, now: Timestamp) {
        let _making = self.former.lock();
        let generation = self.membership.load().generation.clone();
        self.membership.store(Arc::new(Membership::new(generation, now)));
    }

    pub(crate) fn view_changed(&self) {
        self.refresh(self.clock.now());
    }

    /// Whether a refresh is due because a node is in slow start.
    pub fn ramping(&self) -> bool {
        self.now().ramping()
    }

    /// Watches the nodes that have no watch yet: `watch` makes the task of each one.
    pub fn tend(&self, spawn: &Spawn<'_>, watch: impl Fn(WatchedPeer) -> Watch) {
        let now = self.membership();
        for member in now.others() {
            let mut watching = member.watch.lock();
            if watching.is_none() {
                *watching = Some(spawn(watch(now.watched(member))));
            }
        }
    }

    /// The nodes that choose by themselves among the nodes of a region: those of this node's region, for which `""`
    /// stands, or all of the cluster, among the nodes of a shield.
    pub fn redirectors(&self, region: &str) -> u32 {
        let now = self.now();
        let count = if region.is_empty() { now.members().count() } else { now.all().count() };
        count.max(1) as u32
    }

    /// Requests at all nodes that are not finished, with those at nodes that left.
    pub fn outstanding(&self) -> u32 {
        let now = self.now();
        let members: u32 = now.all().map(|(node, _)| now.outstanding(node)).sum();
        let former = self.former.lock();
        let left = former.iter().filter_map(Weak::upgrade);
        members + left.map(|table| table.at_nodes_that_left()).sum::<u32>()
    }
}

fn prepare(name: &str, peering: &Peering) -> Result<PreparedPeers, PeersError> {
    let mut names = HashSet::new();
    if let Some(twice) = peering.peers.iter().find(|peer| !names.insert(&peer.name)) {
        return Err(PeersError::SameName(twice.name.clone()));
    }
    if name != OBSERVER && !names.contains(&name.to_owned()) {
        return Err(PeersError::NotListed(name.to_owned()));
    }
    let (mut peering, wire) = (peering.clone(), wire(&peering.trust, peering.h2)?);
    let region = peering.region_of(name);
    peering.peers.sort_by_cached_key(|peer| (peer.region != region, peer.region.clone()));
    Ok(PreparedPeers { peering, wire })
}

fn server(
    peer: &Peer,
    with: &Peering,
    wire: &Wire,
    bounds: ServerBounds,
    workers: usize,
) -> Arc<Server> {
    let (name, address) = (peer.name.as_str().into(), address(peer));
    Server::new(name, address, wire_to(peer, with, wire), bounds, workers)
}

fn wire_to(peer: &Peer, with: &Peering, wire: &Wire) -> Wire {
    Wire { proof: proof(&with.trust, &peer.name), ..wire.clone() }
}

/// The address of a node: `host:port`, checked when the configuration was read.
fn address(peer: &Peer) -> Address {
    let (host, port) = peer.address.rsplit_once(':').unwrap_or((&peer.address, "0"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().unwrap_or(0);
    match peer.at {
        Some(at) => Address::Found { host: host.into(), port, at },
        None => Address::Tcp { host: host.to_owned(), port },
    }
}

/// The proof for connections to a node. With mutual TLS none is needed.
pub fn proof(trust: &PeerTrust, node: &str) -> Option<Arc<PeerProof>> {
    trust.proving().map(|secrets| Arc::new(PeerProof::new(secrets, node)))
}

fn wire(trust: &PeerTrust, h2: bool) -> Result<Wire, TlsError> {
    let tls = match trust {
        PeerTrust::Secret(_) => None,
        PeerTrust::Mtls { identity, authority, .. } => Some(peer::client(identity, authority, h2)?),
    };
    Ok(Wire { tls, h2, peer: true, ..Wire::default() })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use levada_policy::NodeIndex;
    use levada_upstream::HealthCheck;

    use super::*;

    fn peering(names: &[&str]) -> Peering {
        let peer = |name: &&str| Peer {
            name: (*name).to_owned(),
            address: "192.0.2.1:8443".to_owned(),
            at: None,
            weight: 1.0,
            rtt: None,
            client_url: None,
            region: Arc::default(),
            public: Vec::new(),
        };
        Peering {
            listen: "127.0.0.1:0".parse().unwrap(),
            trust: PeerTrust::Secret("0123456789abcdef".into()),
            h2: false,
            peers: names.iter().map(peer).collect(),
            discovery: None,
            health: HealthCheck::default(),
            slow_start: Duration::ZERO,
            catch_up: Duration::ZERO,
        }
    }

    fn bounds() -> ServerBounds {
        ServerBounds {
            connections: 1,
            queue: 0,
            queue_timeout: Duration::ZERO,
            connect_timeout: Duration::ZERO,
            response_timeout: Duration::ZERO,
        }
    }

    #[test]
    fn node_that_joins_is_chosen_once_it_has_answered_a_probe() {
        let clock = Clock::start();
        let peers = Peers::new("a", &peering(&["a", "b"]), bounds(), clock, 1).unwrap();
        let up = || peers.now().cluster().up().to_vec();
        assert_eq!(up(), [NodeIndex(0), NodeIndex(1)], "no node begins with peers that are down");
        let after = peers.change(&peering(&["c", "b", "a"])).unwrap().after;
        assert_eq!(up(), [NodeIndex(1), NodeIndex(2)]);
        let (joined, check) = (after.named("c").unwrap(), &after.settings().health);
        joined.server.health.probed(true, check, clock.now());
        peers.view_changed();
        assert_eq!(up(), [0, 1, 2].map(NodeIndex));
    }

    #[test]
    fn observer_sees_all_nodes_and_is_none_of_them() {
        let mut nodes = peering(&["a", "b"]);
        nodes.peers[1].region = "eu".into();
        let peers = Peers::observer(&nodes, bounds(), Clock::start()).unwrap();
        let now = peers.now();
        let others: Vec<_> = now.others().map(|member| member.server.name.to_string()).collect();
        assert_eq!(others, ["a", "b"]);
        assert!(now.region().is_empty());
        drop(now);
        let change = peers.change(&peering(&["c"])).unwrap();
        assert_eq!(change.after.others().count(), 1);
        peers.view_changed();
    }
}
