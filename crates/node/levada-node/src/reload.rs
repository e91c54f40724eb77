//! Reloads the settings of a running node: all of them, or none.
//!
//! The plan does all that can fail: files are read, addresses bound, policies built, logs opened, sources asked. Nothing
//! that runs sees any of it; a plan that is dropped leaves an empty file of a new log at most. To apply it cannot fail.
//!
//! Running requests end as they began. Servers that stay keep their health and connections, and policies that stay
//! keep what they have learned, even when their parameters change. The access log is opened again even when the
//! settings cannot be used.
//!
//! Thousands of sites take their time. They are read, compared, made and released on a thread for blocking calls,
//! so that no client waits for them.

use std::{
    collections::HashSet,
    sync::{Arc, OnceLock},
    time::Duration,
};

use levada_cluster::nodes::{MembershipChange, PeerSources, PreparedPeers};
use levada_discovery::ResolverPlan;
use levada_edge::{
    node::{Node, follow_peers},
    site_builder::{PlannedSites, follow_all, plan_sites},
    sites::Sites,
};
use levada_fleet::{FleetLook, FleetStatus};
use levada_net::stop::{Stop, spawn_until};
use levada_observe::{log::access_log::Log, metrics::MetricSnapshot};
use levada_redirector::Sources;
use levada_upstream::ServerKind;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::{
    dns::NameServer,
    listeners::{Listeners, PreparedListeners},
    members::SETTLE_TIMEOUT,
    tend::{tend_peers, tend_sites},
    upgrade::{Registrar, Upgrades, systemd},
};
use levada_config::{Settings, SettingsReader, changes};

/// A node whose settings can be read again.
pub(crate) struct Reloader {
    pub(crate) node: Arc<Node>,
    pub(crate) listeners: Listeners,
    /// The source of new settings.
    reader: Option<SettingsReader>,
    pub(crate) upgrades: Upgrades,
    pub(crate) registrar: Registrar,
    /// The name server, once it is started.
    pub(crate) dns: OnceLock<NameServer>,
    /// The node's knowledge of its fleet, if it follows one.
    pub(crate) fleet: OnceLock<(Arc<Mutex<FleetStatus>>, FleetLook)>,
}

impl Reloader {
    pub(crate) fn new(
        node: Arc<Node>,
        listeners: Listeners,
        reader: Option<SettingsReader>,
    ) -> Self {
        let registrar = Registrar::new(node.settings().discovery.registration.clone());
        let upgrades = Upgrades::default();
        let (dns, fleet) = (OnceLock::new(), OnceLock::new());
        Self { node, listeners, reader, upgrades, registrar, dns, fleet }
    }

    /// All metrics at this moment.
    pub(crate) fn read_metrics(&self) -> Vec<MetricSnapshot> {
        let mut metrics = self.node.read_metrics();
        metrics.extend(self.dns.get().into_iter().flat_map(NameServer::read_metrics));
        metrics
    }

    /// Reads and applies new settings. Returns what has changed, in words. Goes on when the operator goes away.
    ///
    /// # Errors
    /// With the reason in words when the settings cannot be used; the node keeps its settings.
    pub(crate) async fn reload(self: &Arc<Self>, stop: &Stop) -> Result<Vec<String>, String> {
        let (reloader, stop) = (self.clone(), stop.clone());
        let reloading = tokio::spawn(async move { reloader.reload_in_turn(&stop).await });
        reloading.await.map_err(|error| error.to_string()).flatten()
    }

    async fn reload_in_turn(self: &Arc<Self>, stop: &Stop) -> Result<Vec<String>, String> {
        let _changing = self.node.changing.lock().await;
        systemd::reloading();
        self.node.telemetry.logs.reopen();
        let (reloader, stop) = (self.clone(), stop.clone());
        let changed = move || reloader.plan().map(|plan| reloader.apply(plan, &stop));
        let result = tokio::task::spawn_blocking(changed).await;
        let result = result.map_err(|error| error.to_string()).flatten();
        self.node.metrics.reloaded(result.is_ok());
        systemd::ready();
        match &result {
            Ok(changes) => tracing::info!(changes = changes.join(", "), "reloaded"),
            Err(reason) => {
                tracing::error!("reload failed, the previous settings stay in use:\n{reason}")
            }
        }
        self.node.events.reloaded(&result);
        result
    }

    /// Does everything that can fail. Nothing changes.
    fn plan(&self) -> Result<Plan, String> {
        if self.upgrades.has_succeeded() {
            return Err("another process has taken over: reload that one".to_owned());
        }
        let node = &self.node;
        let settings = match &self.reader {
            Some(SettingsReader(read)) => read()?,
            None => return Err("this node was not started from a file".to_owned()),
        };
        let before = node.settings();
        let changes = changes::between(&before, &settings)?;
        let listeners = self.listeners.prepare(&settings).map_err(|error| error.to_string())?;
        let log = (before.access_log != settings.access_log).then_some(&settings.access_log);
        let log = log
            .map(|log| node.telemetry.open(log.as_ref()))
            .transpose()
            .map_err(|error| error.to_string())?;
        let resolver = node.discovery.plan_resolver(settings.discovery.resolver.clone());
        // Peers and sites change to members that are known.
        let peer_sources = follow_peers(&settings, &node.discovery);
        let followed = follow_all(&settings, &node.discovery);
        Handle::current().block_on(node.discovery.settle(SETTLE_TIMEOUT));
        let peers = node.peers.as_ref().zip(settings.peering.as_ref());
        let nodes = |peering| peer_sources.nodes(&settings.name, peering);
        let peers = peers.map(|(peers, peering)| peers.prepare(&nodes(peering))).transpose();
        let peers = peers.map_err(|error| error.to_string())?;
        let builder = node.site_builder(&settings);
        let former = node.sites.load();
        let sites =
            plan_sites(&builder, Some((&before, &former))).map_err(|error| error.to_string())?;
        // Clients can see it: it comes last.
        listeners.listen().map_err(|error| error.to_string())?;
        Ok(Plan {
            settings,
            changes,
            listeners,
            log,
            resolver,
            peer_sources,
            followed,
            peers,
            sites,
        })
    }

    fn apply(&self, plan: Plan, stop: &Stop) -> Vec<String> {
        let Plan { settings, changes, listeners, log, resolver, .. } = plan;
        if let Some(log) = log {
            self.node.telemetry.log.store(log);
        }
        self.node.telemetry.redact.store(Arc::new(settings.redact.clone()));
        self.listeners.places.set(settings.limits.connections);
        self.registrar.set(settings.discovery.registration.clone());
        resolver.commit();
        if let Some((name_server, dns)) = self.dns.get().zip(settings.dns.as_ref()) {
            name_server.change(&settings, dns);
        }
        let sites = plan.sites.make(&self.node.site_builder(&settings));
        drop(plan.followed);
        let former = self.node.set(settings);
        self.node.peer_sources.store(Arc::new(plan.peer_sources));
        if let Some(peers) = plan.peers {
            change_peers(&self.node, peers, stop);
        }
        let former = (former, change_sites(&self.node, Arc::new(sites), stop));
        self.listeners.change(&self.node, listeners, stop);
        tokio::task::spawn_blocking(move || (release(former.0), release(former.1)));
        changes
    }
}

/// New settings, and all that was built from them.
struct Plan {
    settings: Settings,
    changes: Vec<String>,
    listeners: PreparedListeners,
    /// The access log, if it changes.
    log: Option<Option<Arc<Log>>>,
    resolver: ResolverPlan,
    peer_sources: PeerSources,
    /// The sources of the planned sites, which follow them by themselves once they are made.
    followed: Vec<Sources>,
    peers: Option<PreparedPeers>,
    sites: PlannedSites,
}

/// Goes on with other peers. Running requests end as they began.
pub(crate) fn change_peers(node: &Arc<Node>, prepared: PreparedPeers, stop: &Stop) {
    let Some(peers) = &node.peers else { return };
    let change = peers.commit(prepared);
    node.large.follow(&change.before, &change.after);
    tend_peers(node, peers, &|task| spawn_until(stop, task));
    node.follow_redirectors();
    let node = node.clone();
    tokio::task::spawn_blocking(move || show_moved(&node, &change));
}

/// Shows how many objects a change has moved, for the first site of each policy.
fn show_moved(node: &Node, MembershipChange { before, after }: &MembershipChange) {
    let (before, after) = (before.cluster(), after.cluster());
    if before.membership() == after.membership() {
        return;
    }
    let mut shown = HashSet::new();
    for site in node.sites.load().iter().filter(|site| site.switch.is_none()) {
        let decider = &site.decider;
        if shown.insert(decider.name())
            && let Some(part) = decider.moved(before, after)
        {
            node.metrics.policies.moved(ServerKind::Peer, decider.name(), part);
        }
    }
}

/// Replaces the sites. Running requests end as they began. Returns the former sites.
fn change_sites(node: &Node, after: Arc<Sites>, stop: &Stop) -> Arc<Sites> {
    let before = node.sites.swap(after.clone());
    // Redirectors may have been made before the nodes of the cluster changed.
    node.follow_redirectors();
    let origins: HashSet<_> = after.iter().map(|site| Arc::as_ptr(&site.origins)).collect();
    let switches: HashSet<_> =
        after.iter().flat_map(|site| &site.switch).map(Arc::as_ptr).collect();
    for gone in before.iter() {
        if !origins.contains(&Arc::as_ptr(&gone.origins)) {
            gone.origins.retire();
        }
    }
    let switched = before.iter().filter_map(|site| site.switch.as_ref());
    switched
        .filter(|switch| !switches.contains(&Arc::as_ptr(switch)))
        .for_each(|gone| gone.retire());
    tend_sites(node, |_| true, &|task| spawn_until(stop, task));
    before
}

/// Releases what requests do not use any more. It takes long for thousands of sites: a thread that serves must not be
/// the last one to have them.
fn release<T>(former: Arc<T>) {
    let used = || Arc::strong_count(&former) > 1;
    (0..RELEASE_LOOKS).take_while(|_| used()).for_each(|_| std::thread::sleep(RELEASE_INTERVAL));
}

const RELEASE_INTERVAL: Duration = Duration::from_millis(10);
const RELEASE_LOOKS: usize = 100;
