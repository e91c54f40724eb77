//! `parent.config`: caches between this one and origins.

use super::{Converter, Line, pairs};
use crate::{
    ledger::{Outcome, differs, left},
    table::{Table, Value},
};

/// The parents of some origins.
#[derive(Clone, Debug)]
pub(super) struct Parent {
    /// The domain of these origins; `.` is every one.
    domain: String,
    servers: Vec<String>,
    policy: Option<&'static str>,
}

impl Parent {
    pub(super) fn is_for(&self, host: &str) -> bool {
        self.domain == "."
            || host == self.domain
            || host.strip_suffix(&self.domain).is_some_and(|rest| rest.ends_with('.'))
    }

    pub(super) fn keys(&self) -> Table {
        let mut keys = Table::default();
        let list = Value::List(self.servers.iter().map(|server| server.as_str().into()).collect());
        match self.policy {
            Some(policy) if self.servers.len() > 1 => {
                keys.set("servers", list);
                keys.inline("policy").set("name", policy);
            }
            _ => keys.set("origin", list),
        }
        keys
    }
}

impl Converter {
    /// `dest_domain=. parent="p1:8080;p2:8080" round_robin=consistent_hash`
    pub(super) fn parent(&mut self, line: &Line<'_>) -> Outcome {
        let mut parent = Parent { domain: String::new(), servers: Vec::new(), policy: None };
        let mut fate =
            differs("parents get requests in the form for origins, with the origin's `Host`");
        for (name, value) in pairs(line.text) {
            match name.as_str() {
                "dest_domain" | "dest_host" => {
                    parent.domain = value.trim_start_matches('*').to_owned()
                }
                "parent" => parent.servers.extend(servers(&value)),
                "secondary_parent" => {
                    fate = left("the parents are there, the secondary ones are not")
                }
                "round_robin" => match value.as_str() {
                    "true" | "strict" => parent.policy = Some("round_robin"),
                    "consistent_hash" => parent.policy = Some("ring_hash"),
                    "false" | "latched" => parent.policy = None,
                    _ => fate = left("the parents are there, the first that is up is asked"),
                },
                "go_direct" if value == "false" => {}
                "go_direct" => {
                    fate = left("the parents are there; origins are not asked beside them")
                }
                "parent_is_proxy" | "qstring" => {}
                _ => fate = left(format!("the parents are there, `{name}` is not")),
            }
        }
        if parent.domain.is_empty() || parent.servers.is_empty() {
            return left("parents are found by the domain of the origin");
        }
        self.parents.push(parent);
        fate
    }
}

/// `p1.example:8080|0.5;p2.example:8080`, also with commas.
fn servers(list: &str) -> impl Iterator<Item = String> + '_ {
    let names =
        list.split([';', ',']).map(|one| one.split(['|', '&']).next().unwrap_or_default().trim());
    names.filter(|name| !name.is_empty()).map(|name| format!("http://{name}"))
}
