//! The state of the node, in the types of levada-control.

use std::sync::Arc;

use levada_cluster::events::unix_time;
use levada_control::status::{
    CertificateStatus, DrainStatus, HotObject, NodeStatus, PopularObject, RouteSummary,
    ServerStatus, SwitchedSite, Totals,
};
use levada_policy::{Cluster, LoadTable, Node as PolicyNode};
use levada_types::Request;

use crate::{
    node::Node,
    sites::{Site, Sites},
};
use levada_config::KeyFrom;
use levada_observe::metrics::{CacheResult, MetricSnapshot};

/// The objects that a status names.
const HOTTEST: usize = 24;

impl Node {
    /// The state of the node, for operators, pages and peers.
    pub fn status(&self) -> NodeStatus {
        let (totals, sites, limits) = (self.totals(), self.sites.load(), &self.settings().limits);
        let requests = &self.metrics.requests;
        let count = |result| requests.count(false, result) + requests.count(true, result);
        let missing = self.missing();
        NodeStatus {
            name: self.settings().name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            time: unix_time(),
            uptime_seconds: self.clock.uptime().as_secs_f64(),
            ready: missing.is_empty(),
            missing,
            claimed: self.claimed.load().as_deref().cloned(),
            in_flight: totals.in_flight,
            in_service: totals.in_service,
            capacity: limits.capacity,
            connections: totals.connections,
            requests: totals.client_requests + totals.peer_requests,
            peer_requests: totals.peer_requests,
            refused: totals.refused,
            hits: totals.hits,
            misses: totals.misses,
            collapsed: count(CacheResult::Collapsed),
            relayed: count(CacheResult::Relayed),
            bytes_sent: totals.bytes,
            origin_bytes: totals.origin_bytes,
            cache_bytes: self.cache.store.bytes(),
            cache_objects: self.cache.store.entries(),
            eviction: self.cache.store.eviction(),
            memory_bytes: totals.memory_bytes,
            memory_limit: self.metrics.memory.limit.get() as u64,
            now: self.history.last(),
            peers: self.peers.as_deref().map(ServerStatus::of_nodes).unwrap_or_default(),
            origins: (sites.iter())
                .flat_map(|site| ServerStatus::of_origins(&site.name(), &site.origins))
                .collect(),
            switches: switched(&sites),
            drain: self.draining(),
            route: self.route_summary(),
            purges_pending: self.purging.pending(),
            purge_rules: self.cache.purges.rule_count() as u64,
            certificates: (self.certificates.states().into_iter())
                .map(|state| CertificateStatus::of(state, unix_time()))
                .collect(),
            transfers: self.large.statuses(),
            hottest: self.hottest(&sites),
        }
    }

    /// The reasons why the node is not ready, in words.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = self.awaited.missing();
        if missing.is_empty() && !self.purging.serves() {
            missing.push("start: the listeners for clients are not open yet".to_owned());
        }
        if self.drain.is_on() {
            missing.push("service: the node drains".to_owned());
        }
        missing.extend(self.cut_off().map(|why| format!("origins: {why}")));
        missing
    }

    /// The progress of a drain.
    pub fn draining(&self) -> DrainStatus {
        DrainStatus {
            draining: self.drain.is_on(),
            downloads: self.drain.running(),
            moved: self.drain.moved(),
            in_flight: self.metrics.requests.in_flight.get(),
        }
    }

    /// All metrics at this moment.
    pub fn read_metrics(&self) -> Vec<MetricSnapshot> {
        let metrics = &self.metrics;
        let tiers = &self.cache.tiers;
        metrics.cache.show(&self.cache.store, tiers.memory.bytes(), &tiers.loans);
        metrics.purges.rules.set(self.cache.purges.rule_count());
        metrics.purges.pending.set(self.purging.pending());
        let (misses, waiting) = self.misses();
        metrics.misses.set(misses);
        metrics.misses_waiting.set(waiting);
        let sites = self.sites.load();
        let shown = metrics.servers.show();
        for site in sites.iter() {
            shown.origins(&site.origins);
            site.switch.iter().for_each(|switch| shown.switch(&site.name(), switch));
        }
        let peers = self.peers.as_ref().map(|peers| peers.now());
        peers.iter().flat_map(|now| now.others()).for_each(|peer| shown.peer(&peer.server));
        shown.policies(sites.iter().flat_map(|site| site.deciders()).map(|(_, one)| one).collect());
        shown.end();
        let sources: Vec<_> = match &peers {
            Some(now) => {
                now.members().map(|(_, one)| (one.slot, one.server.name.to_string())).collect()
            }
            None => vec![(0, self.settings().name.clone())],
        };
        let (performance, waiting) = (self.large.sources.lock().clone(), self.large.waiting());
        metrics.large.show(&performance, sources.into_iter(), waiting);
        metrics.registry.read()
    }

    /// The counts of the node since its start.
    pub fn totals(&self) -> Totals {
        let (metrics, requests) = (&self.metrics, &self.metrics.requests);
        let count = |result| requests.count(false, result) + requests.count(true, result);
        let all = |from_peer: bool| {
            // A response that this node itself gives to a peer answers a probe or a message of the cluster.
            let counts = CacheResult::ALL.iter().filter(|r| !from_peer || **r != CacheResult::None);
            counts.map(|result| requests.count(from_peer, *result)).sum()
        };
        Totals {
            client_requests: all(false),
            peer_requests: all(true),
            bytes: requests.bytes(),
            hits: count(CacheResult::Hit),
            misses: [CacheResult::Miss, CacheResult::Expired, CacheResult::Revalidated]
                .into_iter()
                .map(count)
                .sum(),
            origin_bytes: metrics.policies.upstream.origin_bytes.get(),
            refused: self.telemetry.refused.get(),
            latencies: self.telemetry.latencies.counts(),
            in_flight: requests.in_flight.get(),
            in_service: self.in_service(),
            connections: metrics.connections.open.get(),
            memory_bytes: metrics.memory.resident.get() as u64,
        }
    }

    fn route_summary(&self) -> Option<RouteSummary> {
        let route = self.route.as_ref()?.status(self.clock.uptime());
        let (level, reason) = (route.level.to_owned(), route.reason.to_owned());
        Some(RouteSummary { level, reason, seconds: route.seconds, error: route.error })
    }

    /// The objects that clients request most, with the nodes that are responsible for them.
    pub fn hottest(&self, sites: &Sites) -> Vec<HotObject> {
        let alone = || Cluster::new(vec![PolicyNode::new(&self.name.token)], LoadTable::new(1));
        let nodes = match &self.peers {
            Some(peers) => peers.now().cluster().clone(),
            None => alone(),
        };
        let hot = |object: PopularObject| {
            let site = sites.find(&object.host);
            let view = site.and_then(|site| Some(site.switch.as_ref()?.view()));
            let nodes = view.as_ref().map_or(&nodes, |view| view.cluster());
            // A switch may choose by another key than the URL's.
            let by_url = |site: &&Arc<Site>| {
                let switch = site.settings.servers.switch.as_ref();
                switch.is_none_or(|switch| switch.key == KeyFrom::Url)
            };
            let request = Request::new(object.key);
            let (set, share) = match site.filter(by_url) {
                Some(site) => site.decider.responsible(&request, nodes),
                None => (Vec::new(), None),
            };
            let policy = site.map_or("", |site| site.decider.name());
            HotObject::of(object, policy, set.iter().map(|node| &*nodes.node(*node).name), share)
        };
        self.popular.hottest(HOTTEST).into_iter().map(hot).collect()
    }
}

/// The sites with switches, in the order of the sites.
pub fn switched(sites: &Sites) -> Vec<SwitchedSite> {
    let of_site = |site: &Arc<Site>| {
        let name = match &site.route {
            Some(_) => site.name(),
            None => site.settings.hosts.join(", "),
        };
        let (switch, classes) = (site.switch.as_ref()?, site.classes.as_deref());
        Some(SwitchedSite::of(name, site.decider.name(), switch, classes))
    };
    sites.iter().filter_map(of_site).collect()
}
