//! The choice of `eviction = "auto"`, of all shards of the memory tier together.

use levada_cache::eviction::{Choice, Switch};
use serde::{Deserialize, Serialize};

/// Which algorithms evict, and what each would answer. Every shard of the memory tier chooses for itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EvictionStatus {
    /// The algorithms to choose from.
    pub algorithms: Vec<AlgorithmStatus>,
    /// Switches from one algorithm to another since the start, of all shards.
    pub switches: u64,
    /// The last switches of a shard, 8 of each at most.
    pub last: Vec<SwitchStatus>,
    /// Objects in the samples.
    pub sampled_objects: usize,
    /// Bytes that the samples take. They are part of the memory tier.
    pub sample_bytes: u64,
}

/// An algorithm, and how it does in the miniature caches of the samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AlgorithmStatus {
    /// Its name.
    pub name: String,
    /// The shards that use it.
    pub shards: usize,
    /// Hits of the recent sampled requests, from 0 to 1.
    pub hit_ratio: f64,
    /// Bytes of hits of the bytes of recent sampled requests, from 0 to 1.
    pub byte_hit_ratio: f64,
}

/// A switch of a shard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwitchStatus {
    /// The algorithm before.
    pub from: String,
    /// The algorithm since then.
    pub to: String,
    /// The ratio of the algorithm before, of requests or of bytes by the aim.
    pub from_ratio: f64,
    /// The ratio of the other one.
    pub to_ratio: f64,
    /// The judgements of the shard since then, one for each 1,024 sampled requests.
    pub judgements_ago: u64,
}

impl EvictionStatus {
    /// The state of all shards; none if their eviction makes no choice.
    pub(crate) fn of(choices: &[Choice]) -> Option<Self> {
        let first = choices.first()?;
        let mean = |ratio: &dyn Fn(&Choice) -> f64| {
            choices.iter().map(ratio).sum::<f64>() / choices.len() as f64
        };
        let algorithm = |(at, one): (usize, &levada_cache::eviction::Candidate)| AlgorithmStatus {
            name: one.name.to_owned(),
            shards: choices.iter().filter(|choice| choice.current == one.name).count(),
            hit_ratio: mean(&|choice| choice.candidates[at].hit_ratio),
            byte_hit_ratio: mean(&|choice| choice.candidates[at].byte_hit_ratio),
        };
        let switches = |choice: &Choice| {
            let now = choice.judgements;
            choice.last.clone().into_iter().map(move |one| SwitchStatus::of(one, now))
        };
        let mut last: Vec<_> = choices.iter().flat_map(switches).collect();
        last.sort_by_key(|one| one.judgements_ago);
        Some(Self {
            algorithms: first.candidates.iter().enumerate().map(algorithm).collect(),
            switches: choices.iter().map(|choice| choice.switches).sum(),
            last,
            sampled_objects: choices.iter().map(|choice| choice.objects).sum(),
            sample_bytes: choices.iter().map(|choice| choice.bytes).sum(),
        })
    }
}

impl SwitchStatus {
    fn of(switch: Switch, now: u64) -> Self {
        let [from, to] = switch.names.map(str::to_owned);
        let [from_ratio, to_ratio] = switch.ratios;
        let judgements_ago = now - switch.judgement;
        Self { from, to, from_ratio, to_ratio, judgements_ago }
    }
}
