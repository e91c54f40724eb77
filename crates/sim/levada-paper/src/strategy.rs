//! The strategies that the tables of a paper compare, and those added to every table.

/// A strategy: its name in reports, and its settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strategy {
    pub(super) name: &'static str,
    pub(super) policy: &'static str,
    pub(super) set: &'static [(&'static str, &'static str)],
}

impl Strategy {
    /// The key of its rows in claims.
    pub(super) fn key(&self) -> String {
        self.name.replace(' ', "/")
    }
}

/// A policy with its defaults.
pub(super) const fn known_as(name: &'static str) -> Strategy {
    Strategy { name, policy: name, set: &[] }
}

pub(super) const BOUNDED: Strategy = Strategy {
    name: "bounded_hash 1.25",
    policy: "bounded_hash",
    set: &[("policy.hash_balance_factor", "125")],
};

/// The policies of today's proxies, run in the same world.
pub(super) const PEERS: &[Strategy] = &[
    BOUNDED,
    Strategy {
        name: "bounded_hash 1.5",
        policy: "bounded_hash",
        set: &[("policy.hash_balance_factor", "150")],
    },
    known_as("p2c"),
    known_as("least_conn"),
    known_as("maglev"),
    known_as("peak_ewma"),
];
