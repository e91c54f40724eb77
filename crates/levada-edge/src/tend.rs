//! The background tasks of a node: health checks, slow start, purges, the route.

use std::{sync::Arc, time::Duration};

use levada_net::stop::{Spawn, Stop, spawn_until};
use levada_peers::Peers;

use crate::{expressions, members, node::Node, purge::exchange::ComparedPeer, route, sites::Site};

/// How often a peer in slow start gets more of its keys.
const RAMP_STEP: Duration = Duration::from_millis(250);

/// Starts all background tasks. They end when the node stops.
pub(crate) fn tend(node: &Arc<Node>, stop: &Stop) {
    let until_stopped = |task| spawn_until(stop, task);
    tend_sites(node, &until_stopped);
    if let Some(peers) = &node.peers {
        tend_peers(node, peers, &until_stopped);
        until_stopped(Box::pin(node.purging.clone().stay_awake()));
        until_stopped(Box::pin(node.purging.clone().compare_regularly()));
    }
    if let Some(route) = &node.route {
        until_stopped(Box::pin(route::tend(node.clone(), route.clone())));
    }
    until_stopped(Box::pin(members::follow(node.clone(), stop.clone())));
    until_stopped(Box::pin(ramp(node.clone())));
    until_stopped(Box::pin(expressions::watch(node.clone())));
    until_stopped(Box::pin(levada_purge::sweep(
        node.cache.store.clone(),
        node.cache.purges.clone(),
    )));
    if let Some(front) = &node.front {
        let sites = node.sites.load();
        let switches = sites.iter().filter_map(|site| site.switch.as_ref());
        switches.for_each(|switch| front.reach(node, &switch.controls()));
        let (weak, stop) = (Arc::downgrade(node), stop.clone());
        tokio::spawn(async move {
            stop.begun().await;
            drop(stop);
            if let Some(front) = weak.upgrade().as_ref().and_then(|node| node.front.as_ref()) {
                front.end();
            }
        });
    }
}

/// Starts health checks for the peers that have none yet.
pub(crate) fn tend_peers(node: &Node, peers: &Peers, spawn: &Spawn<'_>) {
    peers.tend(spawn, |peer| {
        let watched = ComparedPeer { peer, purging: node.purging.clone() };
        Box::pin(levada_upstream::watch(watched, node.clock))
    });
}

/// Starts health checks for the servers of all sites that have none yet.
pub(crate) fn tend_sites(node: &Node, spawn: &Spawn<'_>) {
    let sites = node.sites.load_full();
    for site in sites.iter() {
        tend_site(node, site, spawn);
    }
}

/// Starts health checks for the servers of a site that have none yet.
pub(crate) fn tend_site(node: &Node, site: &Site, spawn: &Spawn<'_>) {
    site.origins.tend(node.clock, spawn);
    if let Some(switch) = &site.switch {
        switch.tend(spawn);
    }
}

async fn ramp(node: Arc<Node>) {
    let mut ticks = tokio::time::interval(RAMP_STEP);
    loop {
        ticks.tick().await;
        if let Some(peers) = node.peers.as_ref().filter(|peers| peers.ramping()) {
            peers.refresh(node.clock.now());
        }
        let sites = node.sites.load_full();
        for switch in sites.iter().filter_map(|site| site.switch.as_ref()) {
            if switch.ramping() {
                switch.refresh();
            }
        }
    }
}
