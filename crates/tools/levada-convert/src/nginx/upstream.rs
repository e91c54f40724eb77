//! `upstream`: the servers behind a name.

use super::parse::Directive;
use crate::{
    ledger::{Outcome, Stated as _, TAKEN, left, needless},
    matchers::{Part, part},
    pool::{self, Member},
    rows::{Row, find},
    table::Table,
    units,
};

/// The servers of an `upstream`, and how one of them is chosen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Upstream {
    servers: Vec<Server>,
    policy: Option<&'static str>,
    key: Option<Table>,
    health_check: Table,
}

#[derive(Clone, Debug)]
struct Server {
    address: String,
    weight: u64,
    max_conns: Option<u64>,
    backup: bool,
}

type Within = fn(&mut Upstream, &Directive) -> Outcome;

/// Directives within `upstream`.
pub(crate) const WITHIN: &[Row<Within>] = &[
    Row::writes("server", "origin, servers, server", Upstream::server),
    Row::writes("least_conn", "policy", |own, _| own.by("least_conn")),
    Row::writes("random = two", "policy", |own, _| own.by("p2c")),
    Row::writes("random", "policy", |own, _| own.by("random")),
    Row::writes("hash", "policy, key", Upstream::hash),
    Row::left(
        "ip_hash",
        "the address of a client is no key of a policy: use a cookie or a header as `key`",
    ),
    Row::needless("zone", "the threads of a node share their servers' state"),
    Row::needless(
        "keepalive keepalive_timeout keepalive_requests keepalive_time",
        "connections to servers are always kept: [limits]",
    ),
];

impl Upstream {
    /// Reads the block, with what became of each directive in it. `others` reads directives of no row.
    pub(super) fn read(
        directive: &Directive,
        others: fn(&Directive) -> Outcome,
    ) -> (Self, Vec<Outcome>) {
        const NO_BACKUP: &str = "servers among which a policy chooses have no backup";
        let mut upstream = Self::default();
        let read = |one: &Directive| match find(WITHIN, &one.name, one.arg(0)) {
            Some(row) => row.outcome(|read| read(&mut upstream, one)),
            None => others(one),
        };
        let mut outcomes: Vec<_> = directive.inner().iter().map(read).collect();
        let primaries = upstream.servers.iter().filter(|server| !server.backup).count();
        if primaries > 1 && primaries < upstream.servers.len() {
            upstream.servers.retain(|server| !server.backup);
            for (inner, outcome) in directive.inner().iter().zip(&mut outcomes) {
                if inner.has_arg("backup") {
                    *outcome = left(NO_BACKUP);
                }
            }
        }
        (upstream, outcomes)
    }

    fn by(&mut self, policy: &'static str) -> Outcome {
        self.policy = Some(policy);
        TAKEN
    }

    fn hash(&mut self, directive: &Directive) -> Outcome {
        let named = |from: &str, name: String| {
            Table::from_iter([("from", from.into()), ("name", name.into())])
        };
        let key = match directive.arg(0).trim_start_matches('$') {
            "request_uri" | "uri" | "host$request_uri" | "scheme$proxy_host$request_uri" => None,
            "host" | "http_host" => Some(Table::from_iter([("from", "host".into())])),
            other => Some(match part(other) {
                Some(Part::Cookie(name)) => named("cookie", name),
                Some(Part::Argument(name)) => named("query", name),
                Some(Part::Field(name)) => named("header", name),
                None => return left(format!("`{}` is no key of a policy", directive.arg(0))),
            }),
        };
        self.key = key;
        self.by(if directive.arg(1) == "consistent" { "ring_hash" } else { "modulo" })
    }

    fn server(&mut self, directive: &Directive) -> Outcome {
        let mut server = Server {
            address: directive.arg(0).to_owned(),
            weight: 1,
            max_conns: None,
            backup: false,
        };
        let mut outcome = TAKEN;
        for parameter in directive.args.iter().skip(1) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match (name, value.parse::<u64>()) {
                ("weight", Ok(weight)) => server.weight = weight.clamp(1, 1000),
                ("max_conns", Ok(0)) => {}
                ("max_conns", Ok(most)) => server.max_conns = Some(most),
                ("max_fails", Ok(fails)) => self.health_check.set("eject_after", fails.min(1000)),
                ("fail_timeout", _) => match units::nginx_time(value) {
                    Some(time) if (1..=3_600_000).contains(&time) => {
                        self.health_check.set("eject_for", units::duration(time));
                    }
                    _ => outcome = left("no time that a server can be out"),
                },
                ("backup", _) => server.backup = true,
                ("down", _) => return needless("the server is marked as down"),
                _ => outcome = left(format!("a server has no `{name}`")),
            }
        }
        // A server that is named twice has twice the share.
        match self.servers.iter_mut().find(|own| own.address == server.address) {
            Some(own) => own.weight = (own.weight + server.weight).min(1000),
            None => self.servers.push(server),
        }
        outcome
    }

    /// The keys of a site or a route that is served by these servers.
    pub(super) fn keys(&self, scheme: &str) -> Table {
        let url = |server: &Server| url(scheme, &server.address);
        let mut keys = Table::default();
        if self.servers.iter().filter(|server| !server.backup).count() > 1 {
            let member = |server: &Server| Member {
                url: url(server),
                weight: Some(server.weight).filter(|weight| *weight != 1),
                max_conns: server.max_conns,
            };
            let members = self.servers.iter().map(member).collect();
            keys = pool::keys(members, self.policy.unwrap_or("round_robin"));
            if let Some(key) = &self.key {
                keys.set("key", key.clone());
            }
        } else {
            let mut ordered: Vec<_> = self.servers.iter().collect();
            ordered.sort_by_key(|server| server.backup);
            keys.set("origin", ordered.into_iter().map(url).collect::<Vec<_>>());
        }
        if !self.health_check.is_empty() {
            keys.set("health_check", self.health_check.clone());
        }
        keys
    }
}

/// The URL of a server, as Levada writes it.
pub(super) fn url(scheme: &str, address: &str) -> String {
    match address.strip_prefix("unix:") {
        Some(path) => format!("unix:{}", path.trim_end_matches(':')),
        None => format!("{scheme}://{address}"),
    }
}
