//! Watches the node itself: a sample every second, and events of what has changed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use levada_cluster::events::unix_time;
use levada_control::status::{RefusalWatch, RouteWatch, ServerWatch, SetWatch, Watched};
use levada_edge::node::Node;
use tokio::task::spawn_blocking;

/// The interval at which peers and the route are looked at. What costs more is looked at every second.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);
const LOOKS_PER_SECOND: u32 = 4;

/// Watches the node while it runs.
pub(crate) async fn watch(node: Arc<Node>) {
    let is_alone = node.peers.is_none() && node.route.is_none();
    let looks = if is_alone { 1 } else { LOOKS_PER_SECOND };
    let mut ticks = node.clock.ticks(WATCH_INTERVAL * (LOOKS_PER_SECOND / looks));
    let mut faded = Instant::now();
    let (mut peers, mut servers) = (ServerWatch::default(), ServerWatch::default());
    let (mut route, mut sets) = (RouteWatch::default(), SetWatch::default());
    let mut refusals = RefusalWatch::default();
    for look in 0u32.. {
        match is_alone {
            true => node.memory.tick(&mut ticks).await,
            false => _ = ticks.tick().await,
        }
        if let Some(known) = &node.peers {
            let now = known.membership();
            let seen: Vec<_> = now.others().map(|member| (0, member.server.clone())).collect();
            peers.look(Watched::Peers, &seen, |_| String::new(), &node.events);
        }
        if let Some(of_node) = &node.route {
            route.look(of_node.level(), &node.events);
        }
        if look % looks != 0 {
            continue;
        }
        let totals = node.totals();
        refusals.look(totals.refused, node.settings().limits.capacity, &node.events);
        node.history.add(totals);
        // A node that rested catches up.
        let seconds = faded.elapsed().as_secs().max(1);
        (0..seconds).for_each(|_| node.popular.second_is_over());
        faded = Instant::now();
        let of_sites = (node.clone(), servers, sets);
        let looked = spawn_blocking(move || look_at_sites(of_sites)).await;
        let Ok(again) = looked else { return };
        (servers, sets) = again;
    }
}

/// A node may have thousands of sites: clients do not wait behind this.
fn look_at_sites(
    (node, mut servers, mut sets): (Arc<Node>, ServerWatch, SetWatch),
) -> (ServerWatch, SetWatch) {
    let sites = node.sites.load_full();
    let numbered = (0..).zip(sites.iter());
    let seen: Vec<_> = numbered
        .flat_map(|(at, site)| site.servers().into_iter().map(move |server| (at, server)))
        .collect();
    let owner = |at| sites.iter().nth(at).map_or_else(String::new, |site| site.name());
    servers.look(Watched::Servers, &seen, owner, &node.events);
    let hottest = node.hottest(&sites);
    sets.look(&hottest, &node.events);
    node.set_sizes.note(&hottest, (unix_time() * 1e3) as u64);
    (servers, sets)
}
