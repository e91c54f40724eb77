//! The background tasks of a node: health checks, slow start, purges, the route.

use std::{sync::Arc, time::Duration};

use levada_cluster::nodes::Peers;
use levada_cluster::orders::ComparedPeer;
use levada_edge::{handoff, node::Node, sites::Site};
use levada_net::stop::{Spawn, Stop, spawn_until};
use levada_tls::acme::OtherNodes;

use crate::{expressions, members, reload::Reloader, route, watch};

/// How often a peer in slow start gets more of its keys.
const RAMP_STEP: Duration = Duration::from_millis(250);

/// Starts all background tasks. They end when the node stops.
pub(crate) fn tend(reloader: &Arc<Reloader>, stop: &Stop) {
    let node = &reloader.node;
    let until_stopped = |task| spawn_until(stop, task);
    tend_sites(node, |_| true, &until_stopped);
    if let (Some(exporter), Some(collector)) =
        (&node.telemetry.exporter, &node.settings().telemetry)
    {
        let reloader = Arc::downgrade(reloader);
        collector.start(exporter, move || Some(reloader.upgrade()?.read_metrics()));
    }
    if let Some(peers) = &node.peers {
        tend_peers(node, peers, &until_stopped);
        until_stopped(Box::pin(node.purging.clone().stay_awake()));
        until_stopped(Box::pin(node.purging.clone().compare_regularly()));
    }
    until_stopped(Box::pin(keep_certificates(node.clone())));
    if let Some(route) = &node.route {
        until_stopped(Box::pin(route::tend(node.clone(), route.clone())));
    }
    until_stopped(Box::pin(members::follow(node.clone(), stop.clone())));
    until_stopped(Box::pin(ramp(node.clone())));
    until_stopped(Box::pin(watch::watch(node.clone())));
    until_stopped(Box::pin(expressions::watch(node.clone())));
    until_stopped(Box::pin(levada_cluster::purge::sweep(
        node.cache.store.clone(),
        node.cache.purges.clone(),
    )));
    handoff::tend(node, stop);
}

async fn keep_certificates(node: Arc<Node>) {
    let peers = node.peers.clone().map(|peers| peers as Arc<dyn OtherNodes>);
    let events = node.events.clone();
    node.certificates.clone().keep(peers, move |event| events.certificate(event)).await;
}

/// Starts health checks for the peers that have none yet.
pub(crate) fn tend_peers(node: &Node, peers: &Peers, spawn: &Spawn<'_>) {
    peers.tend(spawn, |peer| {
        let watched = ComparedPeer { peer, purging: node.purging.clone() };
        Box::pin(levada_upstream::watch(watched, node.clock))
    });
}

/// Starts health checks for the servers of these sites that have none yet.
pub(crate) fn tend_sites(node: &Node, which: impl Fn(&Site) -> bool, spawn: &Spawn<'_>) {
    let looks = node.probes.first_looks();
    for site in node.sites.load_full().iter().filter(|site| which(site)) {
        site.origins.tend(node.clock, &looks, spawn);
        if let Some(switch) = &site.switch {
            switch.tend(&looks, spawn);
        }
    }
}

async fn ramp(node: Arc<Node>) {
    let mut ticks = node.clock.ticks(RAMP_STEP);
    loop {
        node.memory.tick(&mut ticks).await;
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
