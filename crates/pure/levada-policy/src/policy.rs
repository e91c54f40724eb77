//! The interface between policies, which decide, and drivers, which carry out decisions.

use std::{any::Any, time::Duration};

use levada_types::{Request, Rng, Timestamp};

use crate::{Cluster, NodeIndex};

/// The time and the random generator for one decision, passed in by the driver.
pub struct PickContext<'a> {
    /// The time of the decision.
    pub now: Timestamp,
    /// The only source of randomness.
    pub rng: &'a mut Rng,
}

/// A policy chooses the node of each request.
///
/// The owner of a policy locks it. A policy whose [`PolicyEntry::keyed`](crate::PolicyEntry::keyed) is true
/// keeps its state per key, so its owner may run one instance per shard of the key space
/// ([`build_shards`](crate::build_shards)). Of any other policy the owner runs exactly one instance.
pub trait Policy: Fork + Send + Any {
    /// Chooses the node for `request`; returns `None` exactly if no node is up.
    ///
    /// Call it once per request, just before the request is sent, because policies count their
    /// picks. The caller then counts the request as outstanding
    /// ([`LoadTable::begin`](crate::LoadTable::begin)).
    fn pick(
        &mut self,
        request: &Request,
        cluster: &Cluster,
        context: &mut PickContext<'_>,
    ) -> Option<Pick>;

    /// The nodes that [`pick`](Self::pick) would consider for `request` now. Changes nothing.
    fn candidates(&self, request: &Request, cluster: &Cluster) -> Candidates;

    /// The bound that [`pick`](Self::pick) would hold nodes against for `request` now, if the policy
    /// has one. Changes nothing.
    fn bound(&self, _request: &Request, _cluster: &Cluster) -> Option<LoadBound> {
        None
    }

    /// Reports how a request ended. Called only if [`observes`](Self::observes) returns true.
    fn observe(&mut self, _outcome: &RequestOutcome, _context: &mut PickContext<'_>) {}

    /// Whether this policy uses [`observe`](Self::observe); constant over its life.
    fn observes(&self) -> bool {
        false
    }

    /// Reports that `node` of `cluster` has failed and lost its cache: the objects that are
    /// assigned to it become unassigned, as if they had never been requested (ASPLOS'98). Do not
    /// call it for a node that is only skipped for one request or that is being drained.
    fn failed(&mut self, _node: NodeIndex, _cluster: &Cluster) {}

    /// Takes over the state of `former`, an instance of the same policy and the same shard with
    /// other parameters.
    fn inherit(&mut self, _former: Box<dyn Any>) {}

    /// Counts together with `first`, the instance of another shard, what is counted over all keys.
    fn join(&mut self, _first: &dyn Any) {}

    /// The amount of state per object, for metrics and for the limit on memory.
    fn tracked(&self) -> Tracked {
        Tracked::default()
    }
}

/// Every policy can be copied.
pub trait Fork {
    /// An independent copy, so that `explain` can test decisions without changing the policy.
    fn fork(&self) -> Box<dyn Policy>;
}

impl<P: Policy + Clone> Fork for P {
    fn fork(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}

/// A decision and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// The node that serves the request.
    pub node: NodeIndex,
    /// The reason.
    pub reason: PickReason,
    /// The number of nodes that are responsible for the object (or the class) after this decision.
    pub set_size: u32,
}

/// The reason why a node was chosen: the label of `levada_policy_decisions_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PickReason {
    /// First in the object's hash order, or its assigned node.
    Hash,
    /// One of several nodes that hold the object, picked by load, distance or chance.
    Replica,
    /// The responsible nodes were busy: another node served the request, or joined the set.
    Spill,
    /// The least loaded of all (or of a sample of all) nodes.
    Least,
    /// The next in turn, in a rotation over all nodes or within a service class.
    Class,
    /// By chance alone.
    Chance,
    /// An earlier choice failed for this request. Only the driver sets it.
    Retry,
}

impl PickReason {
    /// All reasons, as metrics enumerate them.
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

/// The nodes that a policy considers for one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// In the policy's order of preference; if it has none, in the cluster's order.
    pub order: Vec<NodeIndex>,
    /// The number of nodes at the front of `order` that are responsible for the object now (its
    /// set).
    pub set_size: usize,
}

/// A bound on the load of the nodes that take an object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadBound {
    /// The outstanding requests at which a node of weight 1 takes no more requests for the object.
    pub requests: f64,
    /// The object's share of the requests that this redirector saw lately, if the policy counts
    /// them.
    pub share: Option<f64>,
}

/// The outcome of a request, for policies that learn from service times.
#[derive(Clone, Copy, Debug)]
pub struct RequestOutcome {
    /// The node that served it.
    pub node: NodeIndex,
    /// The time from sending the request to the first byte of the response.
    pub latency: Duration,
    /// The time from sending the request to the last byte of the response.
    pub service_time: Duration,
    /// Whether the request succeeded.
    pub ok: bool,
}

/// The amount of state that a policy keeps per object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tracked {
    /// The number of objects (or of slots that objects share) that have state now.
    pub objects: usize,
    /// The upper limit of `objects`.
    pub limit: usize,
    /// The bytes of memory that they use.
    pub bytes: usize,
}
