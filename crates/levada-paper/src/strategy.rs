//! What the tables of a paper compare, and what stands beside it in every one of them.

/// A strategy: as reports name it, and how it is set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strategy {
    pub(super) name: &'static str,
    pub(super) policy: &'static str,
    pub(super) set: &'static [(&'static str, &'static str)],
}

impl Strategy {
    /// As claims name its rows.
    pub(super) fn key(&self) -> String {
        self.name.replace(' ', "/")
    }
}

/// A policy as it is.
pub(super) const fn known_as(name: &'static str) -> Strategy {
    Strategy { name, policy: name, set: &[] }
}

pub(super) const BOUNDED: Strategy = Strategy {
    name: "bounded_hash 1.25",
    policy: "bounded_hash",
    set: &[("policy.hash_balance_factor", "125")],
};

/// What today's proxies have, run in the same world.
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
