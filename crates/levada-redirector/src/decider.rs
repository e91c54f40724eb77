//! The choice of the node that serves a request: the policy, its locks and its random generator.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use levada_policy::{
    BuildError, Candidates, Cluster, Deployment, LoadBound, NodeIndex, Pick, PickContext, Policy,
    PolicyEntry, RequestOutcome, Tracked,
};
use levada_types::{Key, Request, Rng, Timestamp};
use parking_lot::Mutex;

use crate::PolicyChoice;

/// Instances of a keyed policy: enough that cores rarely contend for one lock.
const SHARDS: u32 = 16;

/// A site's policy. A keyed policy is sharded by key, without a difference in decisions: its state is
/// per key.
pub struct Decider {
    name: &'static str,
    shards: Box<[Mutex<PolicyShard>]>,
    observes: AtomicBool,
    decisions: AtomicU64,
    /// The choice and the deployment that it was built from.
    plan: Mutex<(PolicyChoice, Deployment)>,
}

struct PolicyShard {
    policy: Box<dyn Policy>,
    rng: Rng,
}

impl Decider {
    /// Builds the instances of `choice`.
    ///
    /// # Errors
    /// When the policy does not exist or its parameters are wrong.
    pub fn new(
        choice: &PolicyChoice,
        redirectors: u32,
        capacity: u32,
        seed: u64,
    ) -> Result<Self, BuildError> {
        let (entry, deployment) = plan(choice, redirectors, capacity)?;
        let policies = instances(choice, &deployment)?;
        let observes = AtomicBool::new(policies[0].observes());
        let shard =
            |(shard, policy)| Mutex::new(PolicyShard { policy, rng: Rng::new(seed ^ shard) });
        Ok(Self {
            name: entry.name,
            shards: (0..).zip(policies).map(shard).collect(),
            observes,
            decisions: AtomicU64::new(0),
            plan: Mutex::new((choice.clone(), deployment)),
        })
    }

    /// Replaces the instances by others of the same policy, which take over what these have learned.
    fn change(&self, choice: PolicyChoice, deployment: Deployment, policies: Policies) {
        for (shard, policy) in self.shards.iter().zip(policies) {
            let mut shard = shard.lock();
            let former = std::mem::replace(&mut shard.policy, policy);
            shard.policy.inherit(former);
            self.observes.store(shard.policy.observes(), Relaxed);
        }
        *self.plan.lock() = (choice, deployment);
    }

    /// The name of the policy.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Decides.
    pub fn pick(&self, request: &Request, cluster: &Cluster, now: Timestamp) -> Option<Pick> {
        self.decisions.fetch_add(1, Relaxed);
        let mut shard = self.shard(request.key).lock();
        let PolicyShard { policy, rng } = &mut *shard;
        policy.pick(request, cluster, &mut PickContext { now, rng })
    }

    /// Reports the outcome of a request to the policy, if it uses outcomes.
    pub fn observe(&self, outcome: &RequestOutcome, now: Timestamp) {
        if !self.observes() {
            return;
        }
        for shard in &self.shards {
            let PolicyShard { policy, rng } = &mut *shard.lock();
            policy.observe(outcome, &mut PickContext { now, rng });
        }
    }

    /// Reports the failure of a node to the policy.
    pub fn failed(&self, node: NodeIndex, cluster: &Cluster) {
        for shard in &self.shards {
            shard.lock().policy.failed(node, cluster);
        }
    }

    /// Whether [`observe`](Self::observe) does anything.
    pub fn observes(&self) -> bool {
        self.observes.load(Relaxed)
    }

    /// The decision that it would make, without making it, and what the decision depends on.
    pub fn foretell(
        &self,
        request: &Request,
        cluster: &Cluster,
        now: Timestamp,
    ) -> (Option<Pick>, Candidates, Option<LoadBound>) {
        let (mut policy, mut rng) = {
            let shard = self.shard(request.key).lock();
            (shard.policy.fork(), shard.rng.clone())
        };
        let (candidates, bound) =
            (policy.candidates(request, cluster), policy.bound(request, cluster));
        let pick = policy.pick(request, cluster, &mut PickContext { now, rng: &mut rng });
        (pick, candidates, bound)
    }

    /// The size of its memory, over all instances.
    pub fn tracked(&self) -> Tracked {
        self.shards.iter().fold(Tracked::default(), |sum, shard| {
            let one = shard.lock().policy.tracked();
            Tracked {
                objects: sum.objects + one.objects,
                limit: sum.limit + one.limit,
                bytes: sum.bytes + one.bytes,
            }
        })
    }

    fn shard(&self, key: Key) -> &Mutex<PolicyShard> {
        // The high bits: policies use the low ones for their tables.
        let shard = (key.0 >> 32) % self.shards.len() as u64;
        &self.shards[shard as usize]
    }
}

type Policies = Vec<Box<dyn Policy>>;

fn plan(
    choice: &PolicyChoice,
    redirectors: u32,
    capacity: u32,
) -> Result<(&'static PolicyEntry, Deployment), BuildError> {
    let entry = levada_policy::find(&choice.name)
        .ok_or_else(|| BuildError::UnknownPolicy(choice.name.clone()))?;
    let shards = if entry.keyed { SHARDS } else { 1 };
    Ok((entry, Deployment { redirectors, capacity, shards }))
}

fn instances(choice: &PolicyChoice, deployment: &Deployment) -> Result<Policies, BuildError> {
    let build = |_| levada_policy::build(&choice.name, &choice.parameters, deployment);
    (0..deployment.shards).map(build).collect()
}

/// A decider for a choice. It replaces another one only when it is committed.
pub struct PreparedDecider {
    decider: SharedDecider,
    change: Option<(PolicyChoice, Deployment, Policies)>,
}

impl PreparedDecider {
    /// Takes over the state of the decider `before`, if it has the same policy.
    ///
    /// # Errors
    /// When the policy does not exist or its parameters are wrong. Nothing has changed then.
    pub fn new(
        choice: &PolicyChoice,
        redirectors: u32,
        capacity: u32,
        seed: u64,
        before: Option<&SharedDecider>,
    ) -> Result<Self, BuildError> {
        let (entry, deployment) = plan(choice, redirectors, capacity)?;
        let Some(before) = before.filter(|before| before.name == entry.name) else {
            let decider = Arc::new(Decider::new(choice, redirectors, capacity, seed)?);
            return Ok(Self { decider, change: None });
        };
        let same = *before.plan.lock() == (choice.clone(), deployment);
        let change = match same {
            true => None,
            false => Some((choice.clone(), deployment, instances(choice, &deployment)?)),
        };
        Ok(Self { decider: before.clone(), change })
    }

    /// Puts it in the place of the former one.
    pub fn commit(self) -> SharedDecider {
        if let Some((choice, deployment, policies)) = self.change {
            self.decider.change(choice, deployment, policies);
        }
        self.decider
    }
}

/// The retry that follows a failed choice.
pub fn retried(pick: Pick) -> Pick {
    Pick { reason: levada_policy::PickReason::Retry, ..pick }
}

/// A shared decider.
pub type SharedDecider = Arc<Decider>;
