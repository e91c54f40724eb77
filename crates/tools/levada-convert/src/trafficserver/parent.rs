//! `parent.config`: caches between this one and origins.

use super::{Converter, Line, pairs};
use crate::{
    ledger::{Outcome, TAKEN, differs, left},
    pool::{self, Member},
    rows::{Row, find},
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

    fn set(&mut self, field: Field, value: &str) -> Outcome {
        match field {
            Domain => value.trim_start_matches('*').clone_into(&mut self.domain),
            Servers => self.servers.extend(servers(value)),
            Policy(policy) => self.policy = policy,
        }
        TAKEN
    }

    pub(super) fn keys(&self) -> Table {
        let urls = self.servers.iter().cloned();
        match self.policy {
            Some(policy) if self.servers.len() > 1 => {
                let member = |url| Member { url, weight: None, max_conns: None };
                pool::keys(urls.map(member).collect(), policy)
            }
            _ => Table::from_iter([("origin", Value::List(urls.map(Value::from).collect()))]),
        }
    }
}

impl Converter {
    /// `dest_domain=. parent="p1:8080;p2:8080" round_robin=consistent_hash`
    pub(super) fn parent(&mut self, line: &Line<'_>) -> Outcome {
        let mut parent = Parent { domain: String::new(), servers: Vec::new(), policy: None };
        let mut outcome =
            differs("parents get requests in the form for origins, with the origin's `Host`");
        for (name, value) in pairs(line.text) {
            match find(FIELDS, &name, &value) {
                Some(row) => {
                    let found = row.outcome(|field| parent.set(field, &value));
                    if found.is_err() {
                        outcome = found;
                    }
                }
                None => outcome = left(format!("the parents are there, `{name}` is not")),
            }
        }
        if parent.domain.is_empty() || parent.servers.is_empty() {
            return left("parents are found by the domain of the origin");
        }
        self.parents.push(parent);
        outcome
    }
}

/// A field of a line.
#[derive(Clone, Copy)]
pub(crate) enum Field {
    Domain,
    Servers,
    Policy(Option<&'static str>),
}

use Field::{Domain, Policy, Servers};

pub(crate) const FIELDS: &[Row<Field>] = &[
    Row::writes("dest_domain dest_host", "the sites with these origins", Domain),
    Row::writes("parent", "servers, origin", Servers),
    Row::writes("round_robin = true strict", "policy", Policy(Some("round_robin"))),
    Row::writes("round_robin = consistent_hash", "policy", Policy(Some("ring_hash"))),
    Row::writes("round_robin = false latched", "origin", Policy(None)),
    Row::left("round_robin", "the parents are there, the first that is up is asked"),
    Row::needless("go_direct = false", "origins are not asked beside parents"),
    Row::left("go_direct", "the parents are there; origins are not asked beside them"),
    Row::left("secondary_parent", "the parents are there, the secondary ones are not"),
    Row::needless("parent_is_proxy qstring", "parents get requests in the form for origins"),
];

/// `p1.example:8080|0.5;p2.example:8080`, also with commas.
fn servers(list: &str) -> impl Iterator<Item = String> + '_ {
    let names =
        list.split([';', ',']).map(|one| one.split(['|', '&']).next().unwrap_or_default().trim());
    names.filter(|name| !name.is_empty()).map(|name| format!("http://{name}"))
}
