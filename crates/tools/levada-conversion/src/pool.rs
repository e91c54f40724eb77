//! Several servers among which a policy chooses, as the keys of a site or a route.

use crate::table::{Table, Value};

/// A server of a pool.
pub struct Member {
    /// Its URL.
    pub url: String,
    /// Its share, where one is stated.
    pub weight: Option<u64>,
    /// Connections to it at once, where a bound is stated.
    pub max_conns: Option<u64>,
}

/// The keys of a pool.
pub fn keys(members: Vec<Member>, policy: &str) -> Table {
    let mut keys = Table::default();
    let weighs = members.iter().any(|member| member.weight.is_some_and(|weight| weight != 1));
    if weighs || members.iter().any(|member| member.max_conns.is_some()) {
        for member in members {
            let mut server = Table::from_iter([("url", member.url.into())]);
            for (key, value) in [("weight", member.weight), ("max_conns", member.max_conns)] {
                if let Some(value) = value {
                    server.set(key, value);
                }
            }
            keys.push("server", server);
        }
    } else {
        let urls = members.into_iter().map(|member| member.url.into());
        keys.set("servers", Value::List(urls.collect()));
    }
    let policy = if weighs && policy == "round_robin" { "weighted_round_robin" } else { policy };
    keys.inline("policy").set("name", policy);
    keys
}
