//! The list of policies as data: what each is called, where it comes from, what it takes.

use std::collections::BTreeMap;

use crate::{POLICIES, Parameter, ParameterError, Parameters, Policy, Value};

/// One policy of the list.
#[derive(Clone, Copy)]
pub struct Entry {
    /// As published, or as known: the word in a `[policy]` table.
    pub name: &'static str,
    /// The paper with its section, or the peer that made it known.
    pub paper: &'static str,
    /// One sentence: how it chooses.
    pub summary: &'static str,
    /// Whether it keeps its state per key (see [`Policy`]): its owner may shard it by key.
    pub keyed: bool,
    /// What it needs beyond keys and local loads.
    pub needs: &'static [Need],
    /// What it can be told.
    pub parameters: &'static [Parameter],
    /// Makes one instance. `Parameters` has been checked against `parameters`.
    pub build: fn(&Parameters, &Surroundings) -> Box<dyn Policy>,
}

/// What a policy needs that not every driver has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The load of every node over all redirectors: only the simulator has it.
    GlobalLoads,
    /// The content of every node's cache, foretold from sizes and capacities: only the simulator has it.
    GlobalCache,
    /// The size of the object, where known; without it the policy falls back to its base.
    Size,
    /// The service class of the request, by the operator's rules.
    Class,
    /// How long requests took ([`Policy::observe`]).
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

impl Entry {
    /// Whether an edge can run it; the others run in the simulator only.
    pub fn runs_on_an_edge(&self) -> bool {
        !self.needs.iter().any(|n| matches!(n, Need::GlobalLoads | Need::GlobalCache))
    }
}

/// What the driver knows when it builds a policy, and from which defaults are derived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Surroundings {
    /// How many redirectors decide independently over the same nodes, at least 1.
    pub redirectors: u32,
    /// How many requests one node of weight 1 can hold before it must refuse, at least 1.
    pub capacity: u32,
    /// Into how many instances the key space is divided, at least 1: tables bounded by a parameter
    /// are divided as well, so that the bound holds for the sum.
    pub shards: u32,
}

impl Default for Surroundings {
    /// One redirector before servers that hold 512 active and 5 x 512 waiting requests
    /// (OSDI'02 Sec. 4.1).
    fn default() -> Self {
        Self { redirectors: 1, capacity: 3072, shards: 1 }
    }
}

impl Surroundings {
    /// The outstanding requests at which one redirector calls a node of weight 1 busy: all
    /// redirectors together must notice before the node is full (specs of OSDI'02, 1.7 a), so 4/5 of
    /// the capacity is divided among them.
    pub fn busy_threshold(&self) -> u64 {
        (u64::from(self.capacity) * 4 / 5 / u64::from(self.redirectors)).max(1)
    }
}

/// Why a policy could not be built from a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// There is no policy of this name.
    #[error("there is no policy `{0}`; `levada policies` lists them")]
    UnknownPolicy(String),
    /// Some parameters are wrong.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Parameters(Vec<ParameterError>),
}

/// The policy of this name.
pub fn find(name: &str) -> Option<&'static Entry> {
    POLICIES.iter().flat_map(|file| file.iter()).find(|entry| entry.name == name)
}

/// Builds one instance of the policy `name` with the parameters `given`.
///
/// # Errors
/// When there is no such policy, or with everything that is wrong about the parameters.
pub fn build(
    name: &str,
    given: &BTreeMap<String, Value>,
    surroundings: &Surroundings,
) -> Result<Box<dyn Policy>, BuildError> {
    let entry = find(name).ok_or_else(|| BuildError::UnknownPolicy(name.to_owned()))?;
    let parameters =
        Parameters::check(entry.name, entry.parameters, given).map_err(BuildError::Parameters)?;
    Ok((entry.build)(&parameters, surroundings))
}
