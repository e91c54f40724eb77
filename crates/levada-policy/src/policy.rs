//! The seam between those who decide and those who carry.

use std::{any::Any, time::Duration};

use levada_types::{Request, Rng, Timestamp};

use crate::{Cluster, NodeIndex};

/// What a driver lends a policy for one decision.
pub struct Context<'a> {
    /// The time of the decision.
    pub now: Timestamp,
    /// The only source of chance.
    pub rng: &'a mut Rng,
}

/// A way of choosing the node of each request.
///
/// The owner locks. A policy whose [`Entry::keyed`](crate::Entry::keyed) is true keeps its state per
/// key, so an owner may run one instance per shard of the key space and lose nothing; of the others
/// it runs exactly one.
pub trait Policy: Send + Any {
    /// Chooses the node for `request`; `None` exactly when no node is up.
    ///
    /// Call it once per request, when the request is about to be sent: policies count their picks.
    /// The caller then counts the request as outstanding ([`LoadTable::begin`](crate::LoadTable::begin)).
    fn pick(
        &mut self,
        request: &Request,
        cluster: &Cluster,
        context: &mut Context<'_>,
    ) -> Option<Pick>;

    /// The nodes that [`pick`](Self::pick) would weigh for `request` now, and changes nothing.
    fn candidates(&self, request: &Request, cluster: &Cluster) -> Candidates;

    /// Learns how a request ended. Called only when [`observes`](Self::observes) says so.
    fn observe(&mut self, _outcome: &Outcome, _context: &mut Context<'_>) {}

    /// Whether [`observe`](Self::observe) is of use to this policy; constant over its life.
    fn observes(&self) -> bool {
        false
    }

    /// Learns that `node` of `cluster` has failed, so that what it had is gone: objects that are assigned
    /// to it become unassigned, as if they had never been asked for (ASPLOS'98). For a node that is
    /// merely passed over for one request, or that is being drained, this is not called.
    fn failed(&mut self, _node: NodeIndex, _cluster: &Cluster) {}

    /// Takes over what `former` has learned: an instance of the same policy, and of the same shard,
    /// whose parameters were others.
    fn inherit(&mut self, _former: Box<dyn Any>) {}

    /// What the policy remembers per object, for metrics and for the bound on memory.
    fn tracked(&self) -> Tracked {
        Tracked::default()
    }

    /// An independent copy, so that `explain` can ask "what if" without changing what it explains.
    fn fork(&self) -> Box<dyn Policy>;
}

/// A decision and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Where the request goes.
    pub node: NodeIndex,
    /// Why there.
    pub reason: Reason,
    /// How many nodes the policy holds responsible for the object (or the class) after this decision.
    pub set_size: u32,
}

/// Why a node was chosen: the label of `levada_policy_decisions_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// First in the object's hash order, or its assigned node.
    Hash,
    /// One of several nodes that hold the object, picked by load, distance or chance.
    Replica,
    /// The responsible nodes were busy: another took over, or joined the set.
    Spill,
    /// The least loaded of all (or of a sample of all) nodes.
    Least,
    /// The next in turn, of a rotation over all nodes or within a service class.
    Class,
    /// By chance alone.
    Chance,
    /// An earlier choice failed for this request. Set by the driver, never by a policy.
    Retry,
}

impl Reason {
    /// All of them, as metrics enumerate them.
    pub const ALL: [Self; 7] = [
        Self::Hash,
        Self::Replica,
        Self::Spill,
        Self::Least,
        Self::Class,
        Self::Chance,
        Self::Retry,
    ];

    /// The word in logs, metrics and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Replica => "replica",
            Self::Spill => "spill",
            Self::Least => "least",
            Self::Class => "class",
            Self::Chance => "chance",
            Self::Retry => "retry",
        }
    }
}

/// The nodes a policy weighs for one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// In the policy's order of preference; for policies without one, in the cluster's order.
    pub order: Vec<NodeIndex>,
    /// How many of the first in `order` are responsible for the object now (its set of nodes).
    pub set_size: usize,
}

/// How a request ended, for policies that learn from service times.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Who served it.
    pub node: NodeIndex,
    /// From sending the request to the first byte of the answer.
    pub latency: Duration,
    /// From sending the request to the last byte of the answer.
    pub service_time: Duration,
    /// Whether it was served at all.
    pub ok: bool,
}

/// What a policy remembers per object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tracked {
    /// Objects (or slots of a table shared by objects) with state of their own at the moment.
    pub objects: usize,
    /// The most there can ever be.
    pub limit: usize,
    /// Bytes of memory held for them.
    pub bytes: usize,
}
