//! The servers of a node's switches: their listing for operators, and draining.

use levada_redirector::Member;
use serde::Serialize;

use crate::sites::{Site, Sites};

/// One site with its switch.
#[derive(Serialize)]
pub(crate) struct SwitchedSite {
    site: String,
    policy: &'static str,
    /// Requests at its servers.
    outstanding: usize,
    /// Requests that wait for a server.
    waiting: usize,
    /// The most requests at all servers together.
    limit: usize,
    servers: Vec<ListedServer>,
    /// Classes that were learned, by prefix or rule.
    learned: Vec<(String, &'static str)>,
}

#[derive(Serialize)]
struct ListedServer {
    name: String,
    address: String,
    /// The source that has named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// `up`, `slow start`, `down` or `drained`.
    state: &'static str,
    weight: f64,
    outstanding: u32,
    max_conns: u32,
    requests: u64,
    failures: u64,
}

/// All switches, in the order of the sites.
pub(crate) fn list(sites: &Sites) -> Vec<SwitchedSite> {
    sites.iter().filter_map(|site| switched(site)).collect()
}

fn switched(site: &Site) -> Option<SwitchedSite> {
    let switch = site.switch.as_ref()?;
    let view = switch.view();
    let counts = switch.counts();
    let ramps = view.cluster().nodes().iter().map(|seen| seen.ramp);
    let servers = view.settings.servers.iter().zip(&view.members).zip(ramps);
    let learned = site.classes.iter().flat_map(|classes| classes.learned());
    Some(SwitchedSite {
        site: match &site.route {
            Some(_) => site.name(),
            None => site.settings.hosts.join(", "),
        },
        policy: site.decider.name(),
        outstanding: counts.admitted,
        waiting: counts.waiting,
        limit: counts.limit,
        servers: servers
            .map(|((settings, member), ramp)| {
                let (requests, failures) = member.totals();
                ListedServer {
                    name: settings.name.clone(),
                    address: member.server.address.to_string(),
                    source: settings.found.as_ref().map(|found| found.source.to_string()),
                    state: state(member, ramp),
                    weight: settings.weight,
                    outstanding: member.held(),
                    max_conns: settings.max_conns,
                    requests,
                    failures,
                }
            })
            .collect(),
        learned: learned.map(|(kind, class)| (kind, class.as_str())).collect(),
    })
}

fn state(member: &Member, ramp: f64) -> &'static str {
    match () {
        () if member.is_drained() => "drained",
        () if !member.server.health.is_up() => "down",
        () if ramp < 1.0 => "slow start",
        () => "up",
    }
}

/// Drains a server, or undoes that, on every site that has it, or on the site of one host.
///
/// # Errors
/// When there is none of this name; with the names that there are.
pub(crate) fn drain(
    sites: &Sites,
    server: &str,
    host: Option<&str>,
    drained: bool,
) -> Result<(), String> {
    let wanted = |site: &&std::sync::Arc<Site>| {
        host.is_none_or(|host| site.settings.hosts.iter().any(|own| own.eq_ignore_ascii_case(host)))
    };
    let switches = || sites.iter().filter(wanted).filter_map(|site| site.switch.as_ref());
    // On every site, not only on the first.
    let found = switches().filter(|switch| switch.drain(server, drained)).count();
    if found > 0 {
        tracing::info!(server, drained, sites = found, "an operator changed a server's drain");
        return Ok(());
    }
    let known: Vec<String> = switches()
        .flat_map(|switch| {
            let view = switch.view();
            view.settings.servers.iter().map(|s| s.name.clone()).collect::<Vec<_>>()
        })
        .collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(format!("there is no server `{server}`; there is: {known}"))
}
