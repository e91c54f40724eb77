//! Changes of members while the node runs: a source names other ones, and the sites that use it go on with these.

use std::{slice, sync::Arc, time::Duration};

use levada_discovery::{Member, Source};
use levada_edge::{node::Node, site_builder::change_members, sites::Site};
use levada_net::stop::{Stop, spawn_until};

use crate::{reload::change_peers, tend::tend_sites};

/// How long a start or a reload waits for the first answer of a source.
pub(crate) const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

/// Carries the changes of sources to sites, for ever.
pub(crate) async fn follow(node: Arc<Node>, stop: Stop) {
    let weak = Arc::downgrade(&node);
    node.discovery.ask_health(Box::new(move |source, member| {
        weak.upgrade().is_none_or(|node| is_up(&node, source, member))
    }));
    loop {
        let changed = node.discovery.changed().await;
        let _changing = node.changing.lock().await;
        if node.peer_sources.load().are_among(&changed) {
            change_nodes(&node, &stop);
        }
        let (using, with) = (node.clone(), changed.clone());
        // A long list is compared on another thread than those that serve.
        let changing = move || change_sites(&using, |site| site.sources.are_among(&with));
        let _ = tokio::task::spawn_blocking(changing).await;
        let uses = |site: &Site| site.sources.are_among(&changed);
        tend_sites(&node, uses, &|task| spawn_until(&stop, task));
    }
}

/// Goes on with the nodes that the sources of the cluster name now.
fn change_nodes(node: &Arc<Node>, stop: &Stop) {
    let settings = node.settings.load_full();
    let Some((peers, peering)) = node.peers.as_ref().zip(settings.peering.as_ref()) else { return };
    match peers.prepare(&node.peer_sources.load().nodes(&settings.name, peering)) {
        Ok(prepared) => change_peers(node, prepared, stop),
        Err(error) => tracing::error!("the nodes of the cluster stay as they are: {error}"),
    }
}

fn change_sites(node: &Node, uses: impl Fn(&Site) -> bool) {
    let settings = node.settings.load_full();
    let builder = node.site_builder(&settings);
    for site in node.sites.load().iter().filter(|site| uses(site)) {
        change_members(&builder, site);
    }
}

/// Waits for the first answers of all sources, within bounds: a node that starts must not refuse the requests
/// of a moment, and must not wait for a source that says nothing.
pub(crate) async fn settle(node: &Arc<Node>, stop: &Stop) {
    node.discovery.settle(SETTLE_TIMEOUT).await;
    change_nodes(node, stop);
    change_sites(node, |site| site.sources.any());
}

/// Whether a member that a source does not name any more is up, as those see it that use it.
fn is_up(node: &Node, source: &Source, member: &Member) -> bool {
    let sites = node.sites.load();
    let mut users =
        sites.iter().filter(|site| site.sources.are_among(slice::from_ref(source))).peekable();
    let is_up = |site: &Arc<Site>| {
        let servers = site.servers();
        let mut at = servers.iter().filter(|s| s.address.found() == Some(member.address));
        at.any(|server| server.health.is_up())
    };
    users.peek().is_none() || users.any(is_up)
}
