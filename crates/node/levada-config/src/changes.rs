//! The difference between two settings of a node, in words: what a reload changes, and what it cannot change.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
};

use crate::file::Limits;
use crate::settings::{PurgeSettings, Settings, SiteSettings};
use levada_cluster::nodes::{Peer, PeerTrust, Peering};
use levada_store::CacheSettings;

/// The names of what differs, or the reason why a running node cannot change to the new settings.
/// # Errors
/// With the names of the parts that need a restart.
pub fn between(old: &Settings, new: &Settings) -> Result<Vec<String>, String> {
    let fixed = fixed(old, new);
    if !fixed.is_empty() {
        return Err(format!(
            "a running node cannot change {}: undo the change, or restart the node",
            fixed.join(", ")
        ));
    }
    let parts = [
        ("[[listen]]", old.listeners != new.listeners),
        ("[session_tickets]", old.tickets != new.tickets),
        ("[acme]", old.acme != new.acme),
        ("[peering]", peering(old) != peering(new)),
        ("[dns]", old.dns != new.dns),
        (
            "[[discovery]]",
            old.discovery.sources != new.discovery.sources
                || old.discovery.registration != new.discovery.registration,
        ),
        ("[resolver]", old.discovery.resolver != new.discovery.resolver),
        ("[[trusted]]", old.trusted != new.trusted),
        ("[admin]", old.admin != new.admin),
        ("cache.memory", old.cache.memory != new.cache.memory),
        ("purge.token", old.purge.access.token != new.purge.access.token),
        ("purge.grant", old.purge.access.grants != new.purge.access.grants),
        ("[limits]", old.limits != new.limits),
        ("[log]", old.access_log != new.access_log || old.redact != new.redact),
        ("runtime.splice", old.splice != new.splice),
    ];
    let mut changes: Vec<String> =
        parts.iter().filter(|(_, changed)| *changed).map(|(name, _)| (*name).to_owned()).collect();
    changes.extend(named("peer", peers(old), peers(new), |peer| &peer.name));
    changes.extend(named("site", &old.sites, &new.sites, SiteSettings::name));
    Ok(changes)
}

/// Those that were added, changed or removed: by name, in the order of the new list, or by number if they are many.
fn named<T: PartialEq>(kind: &str, old: &[T], new: &[T], name: impl Fn(&T) -> &str) -> Vec<String> {
    let before: HashMap<_, _> = old.iter().map(|one| (name(one), one)).collect();
    let after: HashSet<_> = new.iter().map(&name).collect();
    let change = |one: &T| match before.get(name(one)) {
        None => Some("added"),
        Some(former) => (*former != one).then_some("changed"),
    };
    let there = new.iter().filter_map(|one| change(one).map(|change| (name(one), change)));
    let gone = old.iter().map(&name).filter(|name| !after.contains(name));
    let all: Vec<(&str, &str)> = there.chain(gone.map(|name| (name, "removed"))).collect();
    if all.len() > NAMED {
        let count = |change| (change, all.iter().filter(|(_, own)| *own == change).count());
        let counts = ["added", "changed", "removed"].map(count);
        let words = counts.iter().filter(|(_, count)| *count > 0);
        let words: Vec<_> = words.map(|(change, count)| format!("{count} {change}")).collect();
        return vec![format!("{kind}s: {}", words.join(", "))];
    }
    let said = |(name, change): &(&str, &str)| match *change {
        "changed" => format!("{kind} {name}"),
        change => format!("{kind} {name} {change}"),
    };
    all.iter().map(said).collect()
}

/// The most sites or peers that are named.
const NAMED: usize = 10;

/// The part of a name server that its sockets and threads are made of.
fn dns_sockets(settings: &Settings) -> Option<(&[SocketAddr], usize, Vec<SocketAddr>)> {
    let dns = settings.dns.as_ref()?;
    Some((&*dns.listen, dns.threads, dns.http.iter().map(|http| http.address).collect()))
}

fn peers(settings: &Settings) -> &[Peer] {
    settings.peering.as_ref().map_or(&[], |peering| &peering.peers)
}

/// The settings of the cluster without its nodes.
fn peering(settings: &Settings) -> Option<Peering> {
    settings.peering.as_ref().map(|peering| Peering { peers: Vec::new(), ..peering.clone() })
}

/// What needs a restart: it belongs to the process or to its threads, or others hold it for as long as the
/// node runs.
fn fixed(old: &Settings, new: &Settings) -> Vec<&'static str> {
    let cache = |settings: &Settings| CacheSettings { memory: 0, ..settings.cache.clone() };
    let compression = |limits: &Limits| (limits.compress_workers, limits.compress_queue);
    let purge = |purge: &PurgeSettings| purge.expose_tags;
    // Otherwise the nodes of both sides of a connection would have to change at the same moment.
    let go_together = |old: &PeerTrust, new: &PeerTrust| {
        old.proving().is_some() == new.proving().is_some()
            && old.secrets().zip(new.secrets()).is_none_or(|(old, new)| old.overlap(new))
    };
    let both = old.peering.as_ref().zip(new.peering.as_ref());
    let address = |settings: &Settings| {
        settings.admin.as_ref().map(|admin| (admin.listen.clone(), admin.mode))
    };
    let parts = [
        ("`name`", old.name != new.name),
        ("[runtime]", (&old.runtime, &old.run_as) != (&new.runtime, &new.run_as)),
        ("[peering] as a whole", old.peering.is_some() != new.peering.is_some()),
        ("[dns] as a whole, its addresses and `threads`", dns_sockets(old) != dns_sockets(new)),
        (
            "the kind of trust in [peering], or its secret without the old one in `secrets`",
            both.is_some_and(|(old, new)| !go_together(&old.trust, &new.trust)),
        ),
        ("`admin.listen`", address(old) != address(new)),
        ("`metrics.listen`", old.metrics != new.metrics),
        ("[cache] except `memory`", cache(old) != cache(new)),
        ("`purge.expose_tags`", purge(&old.purge) != purge(&new.purge)),
        ("[handoff]", old.handoff != new.handoff),
        ("[route]", old.route != new.route),
        ("[telemetry]", old.telemetry != new.telemetry),
        (
            "`limits.compress_workers` and `limits.compress_queue`",
            compression(&old.limits) != compression(&new.limits),
        ),
        ("`seed`", old.seed != new.seed),
    ];
    parts.iter().filter(|(_, changed)| *changed).map(|(name, _)| *name).collect()
}
