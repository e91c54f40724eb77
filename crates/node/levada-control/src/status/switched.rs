//! The servers of a site's switch: their listing for operators, and draining.

use std::borrow::Cow;

use levada_cluster::nodes::Peers;
use levada_redirector::{Classes, Member, Origins, Switch};
use serde::{Deserialize, Serialize};

use crate::status::ServerStatus;

/// One site with its switch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwitchedSite {
    /// Its hosts, or its first host and the route that has the servers.
    pub site: String,
    /// Its policy.
    pub policy: String,
    /// Requests at its servers.
    pub outstanding: usize,
    /// Requests that wait for a server.
    pub waiting: usize,
    /// The most requests at all servers together.
    pub limit: usize,
    /// The servers.
    pub servers: Vec<SwitchedServer>,
    /// Classes that were learned, by prefix or rule.
    pub learned: Vec<(String, Cow<'static, str>)>,
}

/// A server of a switch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwitchedServer {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// The source that has named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// `up`, `slow start`, `down` or `drained`.
    pub state: Cow<'static, str>,
    /// Why it is down, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Its weight.
    pub weight: f64,
    /// Requests that it holds.
    pub outstanding: u32,
    /// The most requests that it gets at a time.
    pub max_conns: u32,
    /// Requests since the start.
    pub requests: u64,
    /// Failed requests among them.
    pub failures: u64,
}

impl SwitchedSite {
    /// The servers of `switch`, for the site with this name, whose policy is `policy`.
    pub fn of(site: String, policy: &str, switch: &Switch, classes: Option<&Classes>) -> Self {
        let view = switch.view();
        let counts = switch.counts();
        let ramps = view.cluster().nodes().iter().map(|seen| seen.ramp);
        let servers = view.settings.servers.iter().zip(&view.members).zip(ramps);
        let listed = |((settings, member), ramp): ((&levada_redirector::SwitchServer, _), f64)| {
            let member: &std::sync::Arc<Member> = member;
            let (requests, failures) = member.totals();
            SwitchedServer {
                name: settings.name.clone(),
                address: member.server.address.to_string(),
                source: settings.found.as_ref().map(|found| found.source.to_string()),
                state: state(member, ramp).into(),
                why: member.server.health.why_down(),
                weight: settings.weight,
                outstanding: member.held(),
                max_conns: settings.max_conns,
                requests,
                failures,
            }
        };
        let learned = classes.into_iter().flat_map(Classes::learned);
        Self {
            site,
            policy: policy.to_owned(),
            outstanding: counts.admitted,
            waiting: counts.waiting,
            limit: counts.limit,
            servers: servers.map(listed).collect(),
            learned: learned.map(|(kind, class)| (kind, class.as_str().into())).collect(),
        }
    }
}

impl ServerStatus {
    /// A server as the node sees it now.
    pub fn of(server: &levada_upstream::Server) -> Self {
        let counts = server.counts();
        Self {
            name: server.name.to_string(),
            address: server.address.to_string(),
            up: server.health.is_up(),
            why: server.health.why_down(),
            connections: counts.admitted,
            waiting: counts.waiting,
            ..Self::default()
        }
    }

    /// The nodes of the cluster.
    pub fn of_nodes(peers: &Peers) -> Vec<Self> {
        let now = peers.membership();
        let nodes = now.all().map(|(node, member)| Self {
            outstanding: Some(now.outstanding(node)),
            up: node == now.me() || member.server.health.is_up(),
            ..Self::of(&member.server)
        });
        nodes.collect()
    }

    /// The origins of a site.
    pub fn of_origins(site: &str, origins: &Origins) -> Vec<Self> {
        let list = origins.list();
        let origins = list.all().iter().map(|origin| Self {
            site: Some(site.to_owned()),
            source: origin.source.as_ref().map(ToString::to_string),
            ..Self::of(&origin.server)
        });
        origins.collect()
    }
}

fn state(member: &Member, ramp: f64) -> &'static str {
    match () {
        () if member.is_drained() => "drained",
        () if !member.server.health.is_up() => "down",
        () if ramp < 1.0 => "slow start",
        () => "up",
    }
}

/// Drains a server, or undoes that, in every one of `switches` that has it.
///
/// # Errors
/// When there is none of this name; with the names that there are.
pub fn drain_server(switches: &[&Switch], server: &str, drained: bool) -> Result<usize, String> {
    // In every one, not only in the first.
    let found = switches.iter().filter(|switch| switch.drain(server, drained)).count();
    if found > 0 {
        return Ok(found);
    }
    let names = |switch: &&Switch| {
        let view = switch.view();
        view.settings.servers.iter().map(|server| server.name.clone()).collect::<Vec<_>>()
    };
    let known: Vec<String> = switches.iter().flat_map(names).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(format!("there is no server `{server}`; there is: {known}"))
}
