//! A policy as data: name, origin, needs and parameters.

use crate::{Parameter, Parameters, Policy};

/// One policy of the list.
#[derive(Clone, Copy)]
pub struct PolicyEntry {
    /// The published or common name: the word in a `[policy]` table.
    pub name: &'static str,
    /// The paper with its section, or the proxy that has the policy.
    pub paper: &'static str,
    /// One sentence that says how it chooses.
    pub summary: &'static str,
    /// Whether its owner may shard it by key (see [`Policy`]): its state is per key, and shards that are
    /// joined count together what they count over all keys.
    pub keyed: bool,
    /// The information that it needs beyond keys and local loads.
    pub needs: &'static [Need],
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Builds one instance. The `Parameters` have been checked against `parameters`.
    pub build: fn(&Parameters, &Deployment) -> Box<dyn Policy>,
}

/// Information that a policy needs and that some drivers do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The load of every node over all redirectors. Only the simulator has it.
    GlobalLoads,
    /// The content of every node's cache, modelled from sizes and capacities. Only the simulator
    /// has it.
    GlobalCache,
    /// The size of the object, if known. If it is unknown, the policy falls back to its base
    /// policy.
    Size,
    /// The service class of the request.
    Class,
    /// The service times of requests ([`Policy::observe`]).
    Outcomes,
}

impl Need {
    /// The word in listings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GlobalLoads => "global loads",
            Self::GlobalCache => "global cache",
            Self::Size => "object size",
            Self::Class => "service class",
            Self::Outcomes => "service times",
        }
    }
}

impl PolicyEntry {
    /// Whether an edge can run it. Other policies run in the simulator only.
    pub fn runs_on_an_edge(&self) -> bool {
        !self.needs.iter().any(|n| matches!(n, Need::GlobalLoads | Need::GlobalCache))
    }
}

/// The facts about a deployment from which defaults are derived when a policy is built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deployment {
    /// The number of redirectors that decide independently over the same nodes, at least 1.
    pub redirectors: u32,
    /// The number of requests that a node of weight 1 can hold before it must refuse, at least 1.
    pub capacity: u32,
    /// The number of instances that share the key space, at least 1. A table that is limited by a
    /// parameter is divided by it as well, so that the limit holds for the sum.
    pub shards: u32,
}

impl Default for Deployment {
    /// One redirector with servers that hold 512 active and 5 x 512 waiting requests (OSDI'02 Sec.
    /// 4.3).
    fn default() -> Self {
        Self { redirectors: 1, capacity: 3072, shards: 1 }
    }
}

impl Deployment {
    /// The outstanding requests at which one redirector considers a node of weight 1 busy. All
    /// redirectors together must notice it before the node is full, so a part of the capacity is divided
    /// among them: with 2/5 the waiting time of one request in ten is half of that with 4/5, at 1 % less
    /// capacity of the cluster.
    pub fn busy_threshold(&self) -> u64 {
        (u64::from(self.capacity) * 2 / 5 / u64::from(self.redirectors)).max(1)
    }
}
