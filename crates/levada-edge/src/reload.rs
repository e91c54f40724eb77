//! Reloads the settings of a running node: all of them, or none.
//!
//! Whatever can fail is done first: files are read, addresses bound, policies built. Running requests end as
//! they began. Servers that stay keep their health and connections, and policies that stay keep what they
//! have learned, even when their parameters change. The access log is opened anew even when the settings
//! cannot be used.

use std::{collections::HashSet, sync::Arc};

use levada_log::access_log::Log;
use levada_net::stop::{Stop, spawn_until};
use levada_peers::{MembershipChange, PreparedPeers};
use levada_redirector::SwitchMetrics as _;
use levada_upstream::ServerKind;

use crate::{
    listeners::{Listeners, PreparedListener},
    node::Node,
    settings::{Settings, SettingsReader, changes},
    site_builder::make_sites,
    sites::{Sites, WatchedOrigin},
    start_error::StartError,
    tend::{tend_peers, tend_sites},
};

/// A node whose settings can be read anew.
pub(crate) struct Reloader {
    pub(crate) node: Arc<Node>,
    pub(crate) listeners: Listeners,
    /// The source of new settings.
    reader: Option<SettingsReader>,
    /// Held while settings change.
    turn: tokio::sync::Mutex<()>,
}

impl Reloader {
    pub(crate) fn new(
        node: Arc<Node>,
        listeners: Listeners,
        reader: Option<SettingsReader>,
    ) -> Self {
        Self { node, listeners, reader, turn: tokio::sync::Mutex::default() }
    }

    /// Reads and applies new settings. Returns what has changed, in words.
    ///
    /// # Errors
    /// With the reason in words when the settings cannot be used; the node keeps its settings.
    pub(crate) async fn reload(self: &Arc<Self>, stop: &Stop) -> Result<Vec<String>, String> {
        let _turn = self.turn.lock().await;
        self.node.telemetry.log.load().iter().for_each(|log| log.reopen());
        let planner = self.clone();
        let planned = tokio::task::spawn_blocking(move || planner.plan()).await;
        let planned = planned.map_err(|error| error.to_string()).flatten();
        let result = planned.map(|plan| self.apply(plan, stop));
        self.node.metrics.reloaded(result.is_ok());
        match &result {
            Ok(changes) => tracing::info!(?changes, "reloaded"),
            Err(reason) => {
                tracing::error!("reload failed, the previous settings stay in use:\n{reason}")
            }
        }
        result
    }

    /// Does everything that can fail, on a thread for blocking calls.
    fn plan(&self) -> Result<Plan, String> {
        let shown = |error: StartError| error.to_string();
        let node = &self.node;
        let settings = match &self.reader {
            Some(SettingsReader(read)) => read()?,
            None => return Err("this node was not started from a file".to_owned()),
        };
        let before = node.settings();
        let changes = changes::between(&before, &settings)?;
        let listeners = self.listeners.prepare(&settings).map_err(shown)?;
        let log = (before.access_log != settings.access_log).then_some(&settings.access_log);
        let log = log.map(|log| node.telemetry.open(log.as_ref())).transpose().map_err(shown)?;
        let peers = node.peers.as_ref().zip(settings.peering.as_ref());
        let peers = peers.map(|(peers, peering)| peers.prepare(peering)).transpose();
        let peers = peers.map_err(|error| error.to_string())?;
        let builder = node.site_builder(&settings);
        let sites = make_sites(&builder, &settings.sites, &node.sites.load()).map_err(shown)?;
        Ok(Plan { settings, changes, listeners, log, peers, sites })
    }

    fn apply(&self, plan: Plan, stop: &Stop) -> Vec<String> {
        let Plan { settings, changes, listeners, log, peers, sites } = plan;
        if let Some(former) = log.and_then(|log| self.node.telemetry.log.swap(log)) {
            tokio::spawn(async move { former.close().await });
        }
        self.listeners.set_connections(settings.limits.connections);
        self.node.set(settings);
        if let Some(peers) = peers {
            change_peers(&self.node, peers, stop);
        }
        change_sites(&self.node, Arc::new(sites), stop);
        self.listeners.change(&self.node, listeners, stop);
        changes
    }
}

/// New settings, and all that was built from them.
struct Plan {
    settings: Settings,
    changes: Vec<String>,
    listeners: Vec<PreparedListener>,
    /// The access log, if it changes.
    log: Option<Option<Arc<Log>>>,
    peers: Option<PreparedPeers>,
    sites: Sites,
}

/// Goes on with other peers. Running requests end as they began. Policies whose thresholds follow from the number
/// of nodes have new ones when sites are built.
pub(crate) fn change_peers(node: &Arc<Node>, prepared: PreparedPeers, stop: &Stop) {
    let Some(peers) = &node.peers else { return };
    let change = peers.commit(prepared);
    node.large.follow(&change.before, &change.after);
    tend_peers(node, peers, &|task| spawn_until(stop, task));
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
            node.metrics.moved(ServerKind::Peer, decider.name(), part);
        }
    }
}

/// Replaces the sites. Running requests end as they began.
fn change_sites(node: &Node, after: Arc<Sites>, stop: &Stop) {
    let before = node.sites.swap(after.clone());
    for old in before.iter() {
        let new = || after.iter().filter(|new| new.place() == old.place());
        let stays = |one: &Arc<WatchedOrigin>| {
            new().any(|site| site.origins.iter().any(|other| Arc::ptr_eq(one, other)))
        };
        for gone in old.origins.iter().filter(|origin| !stays(origin)) {
            if let Some(watch) = gone.watch.lock().take() {
                watch.abort();
            }
        }
        if let Some(switch) = &old.switch
            && !new().any(|site| site.switch.is_some())
        {
            switch.retire();
        }
    }
    tend_sites(node, &|task| spawn_until(stop, task));
}
