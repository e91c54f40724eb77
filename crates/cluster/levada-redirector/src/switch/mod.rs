//! The web switch: a site whose policy chooses among servers that are not Levada (the front-end of
//! ASPLOS'98 and WWW10).
//!
//! ```text
//!   Switch::send ──> queue      so many outstanding requests, the rest waits in order of arrival
//!                      │
//!                    choose     the policy, over servers that are up, not drained, not full
//!                      │
//!                    member     counted until the answer's body has ended
//!                      └──> levada_upstream::send, and the next choice where that is safe
//! ```
//!
//! A switch outlives reloads: servers that stay keep their health, their connections and their counts.
//! Running requests end at their servers.

mod member;
mod send;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use crate::handoff::HandoffControl;
use arc_swap::{ArcSwap, Guard};
use http::HeaderValue;
use levada_net::stop::Spawn;
use levada_policy::{
    ClientShare, Cluster, LoadTable, Node as ClusterNode, NodeIndex, distances, lard_thresholds,
    weighted_lard_admission_limit,
};
use levada_types::Timestamp;
use levada_upstream::{
    Change, Clock, FairQueue, FirstLooks, HealthCheck, QueueCounts, Server, ServerKind,
    WatchedServer, watch_in_turn,
};
use parking_lot::Mutex;

pub use member::Member;
pub use send::{ChosenServer, Claim, ServerTurn, SitePolicy};

use crate::{
    Decider, FoundBy, PolicyChoice, PolicyMetrics, ServerPlan, SharedDecider, SwitchServer,
    SwitchSettings,
};

/// A site's servers at work.
pub struct Switch {
    view: ArcSwap<SwitchView>,
    queue: Arc<FairQueue<()>>,
    /// Before it, for uploads and handshakes of tunnels, whose time is up to the client: they have half of the places.
    slow: Arc<FairQueue<()>>,
    decider: ArcSwap<Decider>,
    /// Held while the view is made again.
    making: Mutex<()>,
    clock: Clock,
    metrics: Arc<PolicyMetrics>,
}

/// The servers as a decision sees them.
pub struct SwitchView {
    /// The settings of the servers.
    pub settings: Arc<SwitchSettings>,
    /// In the order of the settings.
    pub members: Vec<Arc<Member>>,
    loads: Arc<LoadTable>,
    cluster: Cluster,
    check: Arc<HealthCheck>,
    host: Option<HeaderValue>,
    /// T_low and T_high of LARD.
    thresholds: Option<(u64, u64)>,
}

/// The settings of a switch and of its site.
pub struct SwitchPlan<'a> {
    /// The switch.
    pub settings: &'a SwitchSettings,
    /// The policy that chooses among its servers.
    pub policy: &'a PolicyChoice,
    /// The same at work.
    pub decider: &'a SharedDecider,
    /// The plan of its servers.
    pub servers: ServerPlan<'a>,
}

impl SwitchPlan<'_> {
    /// The bound on the connections of one server: the queue before all of them has the one that counts.
    pub const CONNECTIONS: usize = 1_000_000;
}

impl Switch {
    /// A switch that has sent nothing yet.
    pub fn new(plan: &SwitchPlan<'_>, clock: Clock, metrics: Arc<PolicyMetrics>) -> Arc<Self> {
        let members = plan.settings.servers.iter().map(|server| make(server, plan)).collect();
        let admission = plan.settings.admission;
        let queue = || FairQueue::new(ClientShare::All, 0, admission.queue, admission.wait);
        let switch = Arc::new(Self {
            view: ArcSwap::from_pointee(SwitchView::new(plan, members)),
            queue: queue(),
            slow: queue(),
            decider: ArcSwap::new(plan.decider.clone()),
            making: Mutex::new(()),
            clock,
            metrics,
        });
        switch.settle();
        switch
    }

    /// Goes on with another plan. A server whose name and address stay is the same server. A new server
    /// starts slowly; one that has left ends the requests that it has.
    pub fn change(self: &Arc<Self>, plan: &SwitchPlan<'_>) {
        let before = self.view.load_full();
        let now = self.clock.now();
        let known = before.settings.servers.iter().zip(&before.members);
        let known: HashMap<_, _> = known.map(|one| (one.0.name.as_str(), one)).collect();
        let members: Vec<_> = (plan.settings.servers.iter())
            .map(|server| {
                let same = |(old, member): &&(&SwitchServer, &Arc<Member>)| {
                    old.origin == server.origin && plan.servers.reaches(&member.server)
                };
                let old = known.get(server.name.as_str()).filter(same);
                old.map_or_else(
                    || {
                        let member = make(server, plan);
                        member.server.health.begins(now);
                        member
                    },
                    |(_, member)| {
                        plan.servers.renew(&member.server, &server.origin);
                        Arc::clone(member)
                    },
                )
            })
            .collect();
        let stay: HashSet<_> = members.iter().map(Arc::as_ptr).collect();
        for gone in before.members.iter().filter(|member| !stay.contains(&Arc::as_ptr(member))) {
            gone.sit(&LoadTable::new(0), None);
            gone.stop_watch();
        }
        if *before.check != *plan.servers.check || before.host != plan.servers.host {
            before.members.iter().for_each(|member| member.stop_watch());
        }
        self.decider.store(plan.decider.clone());
        let making = self.making.lock();
        self.view.store(Arc::new(SwitchView::new(plan, members)));
        drop(making);
        self.settle();
        let after = self.view.load();
        if after.cluster.membership() != before.cluster.membership()
            && let Some(part) = plan.decider.moved(&before.cluster, &after.cluster)
        {
            self.metrics.moved(ServerKind::Switched, plan.decider.name(), part);
        }
    }

    fn settle(self: &Arc<Self>) {
        let view = self.view.load();
        let admission = view.settings.admission;
        self.queue.bound(admission.queue, admission.wait);
        self.slow.bound(admission.queue, admission.wait);
        for (at, member) in (0..).map(NodeIndex).zip(&view.members) {
            member.sit(&view.loads, Some(at));
        }
        drop(view);
        self.refresh();
    }

    /// The servers as the next decision sees them.
    pub fn view(&self) -> Guard<Arc<SwitchView>> {
        self.view.load()
    }

    /// Requests at the servers, and requests that wait.
    pub fn counts(&self) -> QueueCounts {
        let (all, slow) = (self.queue.counts(), self.slow.counts());
        QueueCounts { waiting: all.waiting + slow.waiting, ..all }
    }

    /// Renews the view and the admission limit from the health of the servers.
    pub fn refresh(&self) {
        let _making = self.making.lock();
        let before = self.view.load_full();
        let nodes = before.nodes(self.clock.now());
        let limit = before.limit(&nodes);
        self.view.store(Arc::new(SwitchView {
            settings: before.settings.clone(),
            members: before.members.clone(),
            loads: before.loads.clone(),
            cluster: Cluster::new(nodes, before.loads.clone()),
            check: before.check.clone(),
            host: before.host.clone(),
            thresholds: before.thresholds,
        }));
        self.queue.limit(limit);
        self.slow.limit(limit.div_ceil(2));
    }

    /// Whether a refresh is due because a server is in slow start.
    pub fn ramping(&self) -> bool {
        self.view.load().cluster.ramping()
    }

    /// Drains a server, or lets it come back. Returns false when there is none of this name.
    pub fn drain(&self, name: &str, drained: bool) -> bool {
        let view = self.view.load_full();
        let named = |member: &&Arc<Member>| *member.server.name == *name;
        let Some(member) = view.members.iter().find(named) else { return false };
        member.set_drained(drained);
        self.refresh();
        true
    }

    /// Watches the servers that have no watch yet, until `spawn`'s tasks end.
    pub fn tend(self: &Arc<Self>, looks: &FirstLooks<'_>, spawn: &Spawn<'_>) {
        let view = self.view.load_full();
        for member in &view.members {
            let mut watching = member.watch.lock();
            if watching.is_none() {
                let watched = self.watched(member, &view);
                *watching = Some(spawn(Box::pin(watch_in_turn(watched, self.clock, looks))));
            }
        }
    }

    /// Ends the watches.
    pub fn retire(&self) {
        self.view.load().members.iter().for_each(|member| member.stop_watch());
    }

    /// Whether connections can be handed to any of the servers.
    pub fn hands_over(&self) -> bool {
        self.view.load().settings.servers.iter().any(|server| server.handoff.is_some())
    }

    /// The back-ends to which connections can be handed.
    pub fn controls(&self) -> Vec<HandoffControl> {
        self.view.load().settings.servers.iter().filter_map(|server| server.handoff).collect()
    }

    fn watched(self: &Arc<Self>, member: &Arc<Member>, view: &SwitchView) -> WatchedMember {
        WatchedMember {
            switch: self.clone(),
            member: member.clone(),
            check: view.check.clone(),
            host: view.host.clone(),
        }
    }
}

impl SwitchView {
    fn new(plan: &SwitchPlan<'_>, members: Vec<Arc<Member>>) -> Self {
        let loads = LoadTable::new(members.len());
        let nodes = plan.settings.nodes();
        Self {
            settings: Arc::new(plan.settings.clone()),
            cluster: Cluster::new(nodes, loads.clone()),
            members,
            loads,
            check: Arc::new(plan.servers.check.clone()),
            host: plan.servers.host.clone(),
            thresholds: lard_thresholds(&plan.policy.name, &plan.policy.parameters),
        }
    }

    /// The servers as a policy sees them.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn nodes(&self, now: Timestamp) -> Vec<ClusterNode> {
        let is_up = |m: &Arc<Member>| !m.is_drained() && m.server.health.is_up();
        let any = self.members.iter().any(is_up);
        let found = || self.settings.servers.iter().map(|server| server.found.as_ref());
        // The lowest priority of each source of which a server is up.
        let mut lowest: HashMap<usize, u16> = HashMap::new();
        for found in found().zip(&self.members).filter(|(_, m)| is_up(m)).filter_map(|(f, _)| f) {
            let lowest = lowest.entry(found.place).or_insert(found.priority);
            *lowest = found.priority.min(*lowest);
        }
        let waits = |found: &FoundBy| lowest.get(&found.place).is_some_and(|p| found.priority > *p);
        let distances = distances(self.members.iter().map(|m| (None, m.measured_trip())));
        let near = |(node, distance)| ClusterNode { distance, ..node };
        let nodes = self.settings.nodes().into_iter().zip(distances).map(near);
        let seen = |((node, member), found): ((ClusterNode, &Arc<Member>), Option<&FoundBy>)| {
            let health = &member.server.health;
            // When all are down, probes and the last requests tell nothing: try each.
            let up = !member.is_drained() && (health.is_up() || !any);
            ClusterNode {
                up: up && !found.is_some_and(waits),
                ramp: health.ramp(self.settings.slow_start, now),
                ..node
            }
        };
        nodes.zip(&self.members).zip(found()).map(seen).collect()
    }

    /// The most requests that may be at all of `nodes` together.
    fn limit(&self, nodes: &[ClusterNode]) -> usize {
        let up = || nodes.iter().zip(&self.settings.servers).filter(|(node, _)| node.up);
        let held: u64 = up().map(|(_, server)| u64::from(server.max_conns)).sum();
        let weights: Vec<f64> = up().map(|(_, server)| server.weight).collect();
        let lard =
            self.thresholds.map(|(low, high)| weighted_lard_admission_limit(&weights, low, high));
        let given = self.settings.admission.at_once.map(u64::from);
        let limit = given.or(lard).map_or(held, |limit| limit.min(held));
        // No server is up: requests must fail with that reason at once, not wait.
        let limit = if weights.is_empty() { u64::MAX } else { limit.max(1) };
        usize::try_from(limit).unwrap_or(usize::MAX)
    }
}

fn make(server: &SwitchServer, plan: &SwitchPlan<'_>) -> Arc<Member> {
    Member::new(plan.servers.make(&server.origin, Some(server.name.as_str().into())))
}

/// A server under watch.
struct WatchedMember {
    switch: Arc<Switch>,
    member: Arc<Member>,
    check: Arc<HealthCheck>,
    host: Option<HeaderValue>,
}

impl WatchedServer for WatchedMember {
    const KIND: ServerKind = ServerKind::Switched;

    fn server(&self) -> &Arc<Server> {
        &self.member.server
    }

    fn check(&self) -> &HealthCheck {
        &self.check
    }

    fn host(&self) -> Option<&HeaderValue> {
        self.host.as_ref()
    }

    fn measured(&self, took: Duration) {
        if self.member.trips.note(took) {
            self.switch.refresh();
        }
    }

    fn changed(&self, change: Change) {
        let switch = &self.switch;
        switch.refresh();
        if change == Change::Down
            && let Some(at) = self.member.at()
        {
            switch.decider.load().failed(at, &switch.view.load().cluster);
        }
    }
}
