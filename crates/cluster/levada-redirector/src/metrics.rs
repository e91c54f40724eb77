//! The counters of policies, and the state of servers on a page.
//!
//! Each page shows the servers that the node has at that moment, so that none is missing and none stays when its
//! server has left.

use std::sync::Arc;

use levada_observe::metrics::{Counter, Family, Gauge, NumberGauge, Registry, SizeHistogram};
use levada_policy::Pick;
use levada_upstream::{Server, ServerKind, UpstreamMetrics};
use parking_lot::{Mutex, MutexGuard};

use crate::{Decider, Origins, SharedDecider, Switch};

/// The counters of policies.
pub struct PolicyMetrics {
    /// The counters of requests to servers.
    pub upstream: Arc<UpstreamMetrics>,
    decisions: Family<[&'static str; 2], Counter>,
    moved: Family<[&'static str; 2], NumberGauge>,
    set_sizes: SizeHistogram,
}

impl PolicyMetrics {
    /// The counters, which `registry` shows.
    pub fn registered(registry: &mut Registry) -> Self {
        Self {
            upstream: Arc::new(UpstreamMetrics::registered(registry)),
            decisions: registry.family(
                "policy_decisions",
                "Choices of a node, by reason",
                ["policy", "reason"],
            ),
            moved: registry.family(
                "policy_moved_ratio",
                "Part of the places of objects that the last change of members moved",
                ["kind", "policy"],
            ),
            set_sizes: registry.metric(
                "policy_server_set_size",
                "Nodes held responsible for the object, per decision",
            ),
        }
    }

    /// Counts a policy's choice of a server.
    pub fn decision(&self, decider: &Decider, pick: Pick) {
        let labels = [decider.name(), pick.reason.as_str()];
        let find = || self.decisions.get_or_create(&labels).clone();
        decider.decisions[pick.reason as usize].get_or_init(find).inc();
        self.set_sizes.observe(pick.set_size);
    }

    /// Shows the part of the places of objects that a policy has moved, because servers have joined or left.
    pub fn moved(&self, kind: ServerKind, policy: &'static str, part: f64) {
        self.moved.get_or_create(&[kind.as_str(), policy]).set(part);
    }
}

/// The state of policies and servers at the moment of a page. One page at a time makes its gauges again.
pub struct ServerMetrics {
    upstream: Arc<UpstreamMetrics>,
    /// Requests that lack the part their key is taken from: the URL was used.
    pub fallbacks: Counter,
    gauges: Mutex<Gauges>,
}

struct Gauges {
    tracked_objects: Gauge,
    tracked_bytes: Gauge,
    in_flight: Family<[String; 2], Gauge>,
    waiting: Family<[String; 1], Gauge>,
    limit: Family<[String; 1], Gauge>,
}

impl ServerMetrics {
    /// The gauges, which `registry` shows, with the health of servers and the times of their heads.
    pub fn registered(registry: &mut Registry, upstream: &Arc<UpstreamMetrics>) -> Self {
        let tracked_objects = registry
            .metric("policy_tracked_objects", "Objects with state of their own in the policies");
        let tracked_bytes =
            registry.metric("policy_tracked_bytes", "Memory of the policies' tables");
        let fallbacks = registry.metric(
            "policy_key_fallbacks",
            "Requests that lack the part their key is taken from: the URL was used",
        );
        upstream.show_health(registry);
        let gauges = Mutex::new(Gauges {
            tracked_objects,
            tracked_bytes,
            in_flight: registry.family(
                "server_requests_in_flight",
                "Requests in flight at a server of a switch",
                ["site", "server"],
            ),
            waiting: registry.family(
                "server_requests_waiting",
                "Requests that wait for a server of a switch",
                ["site"],
            ),
            limit: registry.family(
                "server_requests_limit",
                "The most requests in flight at all servers of a switch together",
                ["site"],
            ),
        });
        upstream.show_head_times(registry);
        Self { upstream: upstream.clone(), fallbacks, gauges }
    }

    /// Begins a page, without any server.
    pub fn show(&self) -> ShownServers<'_> {
        let gauges = self.gauges.lock();
        self.upstream.clear_health();
        gauges.in_flight.clear();
        gauges.waiting.clear();
        gauges.limit.clear();
        ShownServers { upstream: &self.upstream, gauges }
    }
}

/// The gauges of one page, which no other page changes meanwhile.
pub struct ShownServers<'a> {
    upstream: &'a UpstreamMetrics,
    gauges: MutexGuard<'a, Gauges>,
}

impl ShownServers<'_> {
    /// Shows the origins of a site.
    pub fn origins(&self, origins: &Origins) {
        let list = origins.list();
        let servers = list.all().iter().map(|one| &one.server);
        servers.for_each(|server| self.upstream.note_health(ServerKind::Origin, server));
    }

    /// Shows a peer.
    pub fn peer(&self, server: &Server) {
        self.upstream.note_health(ServerKind::Peer, server);
    }

    /// Shows a switch: its servers with the requests at each one, the requests that wait, and the admission limit.
    pub fn switch(&self, site: &str, switch: &Switch) {
        let (view, counts, site) = (switch.view(), switch.counts(), site.to_owned());
        for member in &view.members {
            self.upstream.note_health(ServerKind::Switched, &member.server);
            let labels = [site.clone(), member.server.name.to_string()];
            self.gauges.in_flight.get_or_create(&labels).set(member.held());
        }
        let site = [site];
        self.gauges.waiting.get_or_create(&site).set(counts.waiting);
        self.gauges.limit.get_or_create(&site).set(counts.limit);
    }

    /// Shows the tables of policies. Sites may share a decider, which is counted once.
    pub fn policies(&self, mut deciders: Vec<&SharedDecider>) {
        deciders.sort_by_key(|decider| Arc::as_ptr(decider));
        deciders.dedup_by_key(|decider| Arc::as_ptr(decider));
        let tracked = deciders.iter().map(|decider| decider.tracked());
        let (objects, bytes) = tracked.fold((0, 0), |(o, b), t| (o + t.objects, b + t.bytes));
        self.gauges.tracked_objects.set(objects);
        self.gauges.tracked_bytes.set(bytes);
    }

    /// Ends the series of servers that are not shown: they have left.
    pub fn end(&self) {
        self.upstream.forget_others();
    }
}
