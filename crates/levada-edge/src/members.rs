//! Changes of members while the node runs: a source names other ones, and the sites that use it go on with these.

use std::{slice, sync::Arc, time::Duration};

use levada_discovery::{Member, Source};
use levada_net::stop::{Stop, spawn_until};

use crate::{node::Node, site_builder::change_members, sites::Site, tend::tend_site};

/// How long a start or a reload waits for the first answer of a source.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Carries the changes of sources to sites, for ever.
pub(crate) async fn follow(node: Arc<Node>, stop: Stop) {
    let weak = Arc::downgrade(&node);
    node.discovery.ask_health(Box::new(move |source, member| {
        weak.upgrade().is_none_or(|node| is_up(&node, source, member))
    }));
    loop {
        let changed = node.discovery.changed().await;
        let _changing = node.changing.lock().await;
        let settings = node.settings.load_full();
        let builder = node.site_builder(&settings);
        for site in node.sites.load().iter().filter(|site| site.sources.are_among(&changed)) {
            change_members(&builder, site);
            tend_site(&node, site, &|task| spawn_until(&stop, task));
        }
    }
}

/// Waits for the first answers of all sources, within bounds: a node that starts must not refuse the requests
/// of a moment, and must not wait for a source that says nothing.
pub(crate) async fn settle(node: &Node) {
    node.discovery.settle(PATIENCE).await;
    let settings = node.settings.load_full();
    let builder = node.site_builder(&settings);
    for site in node.sites.load().iter().filter(|site| site.sources.any()) {
        change_members(&builder, site);
    }
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
