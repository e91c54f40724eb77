//! The redirectors, each with its own policy and its own loads.
//!
//! OSDI'02 puts one on every regional router with clients behind it; they exchange nothing. A switch
//! before a cluster (ASPLOS'98, WWW10) is a single redirector. A policy that needs the global view
//! receives the loads over all redirectors, at once or as they are shared. A policy that models all
//! caches (LB/GC) is one instance that all redirectors share, because there is one set of caches to
//! model.

mod global;

use levada_policy::{
    Cluster, Deployment, LoadTable, Need, Node, NodeIndex, Outstanding, PickContext, Policy,
    RequestOutcome, build,
};
use levada_topology::{PlaceIndex, Routes, Topology};
use levada_types::{Request, Rng, Timestamp};

use self::global::GlobalLoads;
use crate::Scenario;

pub(crate) struct Redirectors {
    redirectors: Vec<Redirector>,
    policies: Vec<Box<dyn Policy>>,
    /// Index by client.
    of_client: Vec<u16>,
    global: Option<GlobalLoads>,
    observes: bool,
    rng: Rng,
}

struct Redirector {
    policy: usize,
    cluster: Cluster,
    /// Requests in a row that found each server down.
    refused: Vec<u32>,
}

/// Counts a request at its redirector, and in the global view where there is one, until it drops.
#[derive(Debug)]
pub(crate) struct Counted {
    _here: Outstanding,
    _everywhere: Option<Outstanding>,
}

impl Redirectors {
    /// The scenario was checked, so its policy can be built.
    pub(crate) fn new(
        scenario: &Scenario,
        topology: &Topology,
        routes: &Routes,
        places: &[PlaceIndex],
        servers: &[PlaceIndex],
        clients: &[PlaceIndex],
    ) -> Self {
        let global = scenario.needs(Need::GlobalLoads).then(|| {
            let every = scenario.servers.loads_shared_every.map(|time| time.0);
            GlobalLoads::new(places.len(), servers.len(), every)
        });
        let one_for_all = scenario.needs(Need::GlobalCache);
        let deployment = Deployment {
            redirectors: places.len() as u32,
            capacity: scenario.servers.active.saturating_add(scenario.servers.queue),
            shards: 1,
        };
        let instances = if one_for_all { 1 } else { places.len() };
        let (name, parameters) = (&scenario.policy.name, &scenario.policy.parameters);
        let policies: Vec<_> = (0..instances)
            .map(|_| build(name, parameters, &deployment).expect("it was checked"))
            .collect();
        let redirectors = places.iter().enumerate().map(|(n, place)| {
            let cluster = cluster(scenario, topology, routes, *place, servers);
            let cluster = match &global {
                Some(global) => cluster.with_global_loads(global.of(n).clone()),
                None => cluster,
            };
            Redirector { policy: n % instances, cluster, refused: vec![0; servers.len()] }
        });
        let of_client = clients.iter().map(|client| {
            let nearest = routes.nearest(*client, places).expect("there is a redirector");
            places.iter().position(|place| *place == nearest).unwrap_or(0) as u16
        });
        Self {
            redirectors: redirectors.collect(),
            observes: policies.iter().any(|policy| policy.observes()),
            policies,
            of_client: of_client.collect(),
            global,
            rng: Rng::new(scenario.seed ^ CHANCE),
        }
    }

    /// Picks the server for a request of `client`, other than one that was `tried`, and counts the
    /// request there; `None` when no server is up.
    pub(crate) fn pick(
        &mut self,
        request: &Request,
        client: u32,
        tried: Option<NodeIndex>,
        now: Timestamp,
    ) -> Option<(NodeIndex, Counted)> {
        let at = self.of(client);
        let redirector = &self.redirectors[at];
        if let Some(global) = &mut self.global {
            let own = self.redirectors.iter().map(|redirector| &**redirector.cluster.loads());
            global.share(now, own);
        }
        let mut context = PickContext { now, rng: &mut self.rng };
        let policy = &mut self.policies[redirector.policy];
        let others = tried.map(|tried| redirector.cluster.without(&[tried]));
        let cluster = others.as_ref().unwrap_or(&redirector.cluster);
        let node = policy.pick(request, cluster, &mut context)?.node;
        let counted = Counted {
            _here: redirector.cluster.loads().begin(node),
            _everywhere: self.global.as_ref().map(|global| global.of(at).begin(node)),
        };
        Some((node, counted))
    }

    /// A request of `client` found `server` down: so many in a row eject it, as at a node.
    pub(crate) fn refused(&mut self, client: u32, server: NodeIndex) {
        let at = self.of(client);
        let refused = &mut self.redirectors[at].refused[server.get()];
        *refused += 1;
        if *refused == EJECT_AFTER {
            self.see(at, server, false);
        }
    }

    /// All redirectors learn whether `server` is up.
    pub(crate) fn notice(&mut self, server: NodeIndex, up: bool) {
        (0..self.redirectors.len()).for_each(|at| self.see(at, server, up));
    }

    fn see(&mut self, at: usize, server: NodeIndex, up: bool) {
        let redirector = &mut self.redirectors[at];
        redirector.refused[server.get()] = 0;
        if redirector.cluster.is_up(server) == up {
            return;
        }
        let mut nodes = redirector.cluster.nodes().to_vec();
        nodes[server.get()].up = up;
        let cluster = Cluster::new(nodes, redirector.cluster.loads().clone());
        redirector.cluster = match &self.global {
            Some(global) => cluster.with_global_loads(global.of(at).clone()),
            None => cluster,
        };
        if !up {
            self.policies[redirector.policy].failed(server, &redirector.cluster);
        }
    }

    /// The number of `client`'s redirector.
    pub(crate) fn of(&self, client: u32) -> usize {
        self.of_client[client as usize].into()
    }

    /// Whether the policy uses [`Redirectors::observe`].
    pub(crate) fn observes(&self) -> bool {
        self.observes
    }

    /// Tells the policy of `client`'s redirector how a request ended.
    pub(crate) fn observe(&mut self, client: u32, outcome: &RequestOutcome, now: Timestamp) {
        let redirector = &self.redirectors[self.of(client)];
        let mut context = PickContext { now, rng: &mut self.rng };
        self.policies[redirector.policy].observe(outcome, &mut context);
    }

    /// Requests counted at the redirectors now.
    #[cfg(test)]
    pub(crate) fn outstanding(&self) -> u64 {
        self.redirectors.iter().map(|redirector| redirector.cluster.loads().total()).sum()
    }
}

/// The servers as `place` sees them: their distance is the round-trip time on the idle network,
/// relative to that of the nearest (OSDI'02 Sec. 3.5). The seed is part of names that are not given, so
/// that it draws their places in hash orders, too.
fn cluster(
    scenario: &Scenario,
    topology: &Topology,
    routes: &Routes,
    place: PlaceIndex,
    servers: &[PlaceIndex],
) -> Cluster {
    let latency = |server: &PlaceIndex| routes.latency_ns(place, *server).max(1) as f64;
    let nearest = servers.iter().map(latency).fold(f64::INFINITY, f64::min);
    let drawn = |server: &PlaceIndex| {
        format!("{}/{}", topology.places[*server as usize].name, scenario.seed)
    };
    let nodes = servers.iter().enumerate().map(|(n, server)| Node {
        distance: latency(server) / nearest,
        ..Node::new(&scenario.servers.names.get(n).cloned().unwrap_or_else(|| drawn(server)))
    });
    let nodes: Vec<_> = nodes.collect();
    let loads = LoadTable::new(nodes.len());
    Cluster::new(nodes, loads)
}

/// Failed requests in a row that eject a server: a node's default.
const EJECT_AFTER: u32 = 3;

/// Seeds the policies' random numbers apart from others.
const CHANCE: u64 = 0x7069_636b;
