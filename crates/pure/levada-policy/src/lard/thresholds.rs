//! When a node of LARD is overloaded, and which node a new target begins at.
//!
//! The paper's T_low and T_high count requests at the servers of 1998 before one front-end that admits S. At a node
//! that holds fewer they are never reached, and at one that holds many they always are. So without given ones a
//! node is overloaded at a bound relative to the mean load, as under `fdr`: some other node is below the mean then.
//!
//! The paper's front-end is alone, and gives a new target to the least loaded node. Several redirectors that do
//! this assign one target to different nodes, up to one each, and its copies fill the memories. They begin with
//! the hash order, which they share.

use levada_types::{Key, Rng};

use crate::relative_load::{Ties, least_of_all};
use crate::{
    Cluster, Deployment, Kind, NodeIndex, Parameter, Parameters, PickReason, Setting,
    order::first_of, view::LoadView,
};

pub(super) const T_LOW: Parameter = Parameter {
    name: "t_low",
    kind: Kind::Integer(1, 1_000_000),
    default: Setting::Derived("the mean load; 25 if t_high is given"),
    unit: "requests",
    help: "T_low: a node with fewer outstanding requests has resources to spare; 25 in ASPLOS'98 Sec. 2.3.",
};

pub(super) const T_HIGH: Parameter = Parameter {
    name: "t_high",
    kind: Kind::Integer(1, 1_000_000),
    default: Setting::Derived(
        "1.5 times the mean load, plus twice its root, plus 1; 65 if t_low is given",
    ),
    unit: "requests",
    help: "T_high: a node with more outstanding requests gives targets to one below T_low; at twice \
           as many it gives them to any; 65 in ASPLOS'98 Sec. 2.3.",
};

pub(super) const FIRST: Parameter = Parameter {
    name: "first",
    kind: Kind::Choice(&["least", "hash"]),
    default: Setting::Derived("least with one redirector, hash with several"),
    unit: "",
    help: "The node of a new target: the least loaded one, as in ASPLOS'98 Sec. 2.3, or the first of its hash \
           order, in which redirectors agree. A node above T_high is passed over.",
};

/// The loads at which a node loses targets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Thresholds {
    /// Numbers of requests per unit of weight.
    Given { low: f64, high: f64 },
    /// Relative to the mean load.
    Relative,
}

impl Thresholds {
    pub(super) fn read(parameters: &Parameters) -> Self {
        given(parameters).map_or(Self::Relative, |(low, high)| Self::Given {
            low: low as f64,
            high: high as f64,
        })
    }

    /// The node that takes over from `node`, if `node` is overloaded: the least loaded of all.
    ///
    /// "if (n.load > T_high and some node has load < T_low) or n.load >= 2 T_high": all nodes are
    /// searched only above T_high, and some node is below T_low exactly if the least loaded one is.
    #[inline]
    pub(super) fn relief(
        self,
        node: NodeIndex,
        cluster: &Cluster,
        rng: &mut Rng,
    ) -> Option<NodeIndex> {
        if !self.is_overloaded(node, cluster) {
            return None;
        }
        let least = least_of_all(cluster, Ties::Chance(rng))?;
        let wanted = match self {
            Self::Given { low, high } => {
                cluster.relative_load(least) < low || cluster.relative_load(node) >= 2.0 * high
            }
            Self::Relative => true,
        };
        (wanted && least != node).then_some(least)
    }

    #[inline]
    fn is_overloaded(self, node: NodeIndex, cluster: &Cluster) -> bool {
        match self {
            Self::Given { high, .. } => cluster.relative_load(node) > high,
            Self::Relative => {
                let view = LoadView::default();
                view.is_far_above(node, cluster, view.mean(cluster))
            }
        }
    }
}

/// T_low and T_high, if at least one is given; the other one is the paper's.
pub(crate) fn given(parameters: &Parameters) -> Option<(u64, u64)> {
    match [T_LOW, T_HIGH].map(|parameter| parameters.integer(parameter.name)) {
        [None, None] => None,
        [low, high] => Some((low.unwrap_or(25), high.unwrap_or(65))),
    }
}

/// The rule for the node of a new target.
#[derive(Clone, Copy, Debug)]
pub(super) enum FirstNode {
    /// The least loaded of all.
    Least,
    /// The first of the target's hash order that is not overloaded; the least loaded if all are.
    Hash,
}

impl FirstNode {
    pub(super) fn read(parameters: &Parameters, deployment: &Deployment) -> Self {
        match parameters.setting(FIRST.name) {
            Some(Setting::Choice("hash")) => Self::Hash,
            Some(Setting::Choice(_)) => Self::Least,
            _ if deployment.redirectors > 1 => Self::Hash,
            _ => Self::Least,
        }
    }

    pub(super) fn of(
        self,
        key: Key,
        thresholds: Thresholds,
        cluster: &Cluster,
        rng: &mut Rng,
    ) -> Option<(NodeIndex, PickReason)> {
        let takes = |node| cluster.accepts(node, key) && !thresholds.is_overloaded(node, cluster);
        if let Self::Hash = self
            && let Some(node) = first_of(key, cluster, takes)
        {
            return Some((node, PickReason::Hash));
        }
        Some((least_of_all(cluster, Ties::Chance(rng))?, PickReason::Least))
    }
}
