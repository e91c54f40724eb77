//! The difference between two settings of a node, in words: what a reload changes, and what it cannot change.

use std::{collections::HashMap, fmt::Debug};

use crate::{CacheSettings, Limits, PurgeSettings, Settings, SiteSettings};

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
        ("[[listen]]", differ(&old.listeners, &new.listeners)),
        ("[[trusted]]", differ(&old.trusted, &new.trusted)),
        ("[admin]", differ(&old.admin, &new.admin)),
        ("cache.memory", old.cache.memory != new.cache.memory),
        ("purge.token", old.purge.token != new.purge.token),
        ("[limits]", differ(&old.limits, &new.limits)),
        ("[log]", old.access_log != new.access_log),
        ("runtime.splice", old.splice != new.splice),
    ];
    let mut changes: Vec<String> =
        parts.iter().filter(|(_, changed)| *changed).map(|(name, _)| (*name).to_owned()).collect();
    let name = |site: &SiteSettings| site.hosts.first().cloned().unwrap_or_default();
    let before: HashMap<_, _> = old.sites.iter().map(|site| (name(site), site)).collect();
    let after: HashMap<_, _> = new.sites.iter().map(|site| (name(site), site)).collect();
    for site in &new.sites {
        match before.get(&name(site)) {
            None => changes.push(format!("site {} added", name(site))),
            Some(former) if differ(former, &site) => changes.push(format!("site {}", name(site))),
            Some(_) => {}
        }
    }
    let gone = old.sites.iter().map(name).filter(|name| !after.contains_key(name));
    changes.extend(gone.map(|name| format!("site {name} removed")));
    Ok(changes)
}

/// What needs a restart: it belongs to the process or to its threads, or others hold it for as long as the
/// node runs.
fn fixed(old: &Settings, new: &Settings) -> Vec<&'static str> {
    let cache = |settings: &Settings| CacheSettings { memory: 0, ..settings.cache.clone() };
    let compression = |limits: &Limits| (limits.compress_workers, limits.compress_queue);
    let purge = |purge: &PurgeSettings| purge.expose_tags;
    let address = |settings: &Settings| {
        settings.admin.as_ref().map(|admin| (admin.listen.clone(), admin.mode))
    };
    let parts = [
        ("`name`", old.name != new.name),
        ("[runtime]", differ(&(&old.runtime, &old.run_as), &(&new.runtime, &new.run_as))),
        ("[peering] and [[peer]]", differ(&old.peering, &new.peering)),
        ("`admin.listen`", address(old) != address(new)),
        ("`metrics.listen`", old.metrics != new.metrics),
        ("[cache] except `memory`", differ(&cache(old), &cache(new))),
        ("`purge.expose_tags`", purge(&old.purge) != purge(&new.purge)),
        ("[handoff]", differ(&old.handoff, &new.handoff)),
        ("[route]", differ(&old.route, &new.route)),
        (
            "`limits.compress_workers` and `limits.compress_queue`",
            compression(&old.limits) != compression(&new.limits),
        ),
        ("`seed`", old.seed != new.seed),
    ];
    parts.iter().filter(|(_, changed)| *changed).map(|(name, _)| *name).collect()
}

/// Settings without equality are compared by all that they say of themselves.
fn differ<T: Debug>(old: &T, new: &T) -> bool {
    format!("{old:?}") != format!("{new:?}")
}
