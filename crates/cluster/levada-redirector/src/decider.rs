//! The choice of the node that serves a request: the policy, its locks and its random generator.

use std::sync::{Arc, OnceLock};

use levada_observe::metrics::Counter;
use levada_policy::{
    BuildError, Candidates, Cluster, Deployment, LoadBound, NodeIndex, Pick, PickContext,
    PickReason, Policy, PolicyEntry, RequestOutcome, Tracked, build_shards,
};
use levada_types::{Key, Request, Rng, Timestamp};
use parking_lot::Mutex;

use crate::PolicyChoice;

/// Instances of a keyed policy: enough that cores rarely contend for one lock.
const SHARDS: u32 = 16;
/// Objects in the sample of those that may move: enough to tell the share of one node of many.
const SAMPLE: u64 = 1_000;

/// The nodes that a decider chooses from, as far as policies are built for them.
#[derive(Clone, Copy, Debug)]
pub struct DeciderDeployment {
    /// The nodes that choose by themselves.
    pub redirectors: u32,
    /// Requests that a node of weight 1 holds.
    pub capacity: u32,
    /// The seed of random choices.
    pub seed: u64,
}

/// The policy of a site, or of several that share it. A keyed policy is sharded by key: its state is
/// per key.
pub struct Decider {
    name: &'static str,
    shards: Box<[Aligned]>,
    observes: bool,
    per_object: bool,
    choice: PolicyChoice,
    /// The counters of its choices, by reason.
    pub(crate) decisions: [OnceLock<Counter>; PickReason::ALL.len()],
    /// The nodes that it is built for.
    deployment: Mutex<Deployment>,
}

/// On lines of its own, so that two locks that are taken at once do not slow each other.
#[repr(align(128))]
struct Aligned(Mutex<PolicyShard>);

struct PolicyShard {
    policy: Box<dyn Policy>,
    rng: Rng,
}

impl Decider {
    /// Builds the instances of `choice`.
    ///
    /// # Errors
    /// When the policy does not exist or its parameters are wrong.
    pub fn new(choice: &PolicyChoice, of: &DeciderDeployment) -> Result<Self, BuildError> {
        let (entry, deployment) = plan(choice, of)?;
        let policies = build_shards(&choice.name, &choice.parameters, &deployment)?;
        let observes = policies[0].observes();
        let per_object = entry.keyed || policies[0].tracked().limit > 0;
        let shard = |(shard, policy)| {
            Aligned(Mutex::new(PolicyShard { policy, rng: Rng::new(of.seed ^ shard) }))
        };
        Ok(Self {
            name: entry.name,
            shards: (0..).zip(policies).map(shard).collect(),
            observes,
            per_object,
            choice: choice.clone(),
            decisions: Default::default(),
            deployment: Mutex::new(deployment),
        })
    }

    /// Goes on with the thresholds for another number of nodes that choose by themselves. Keeps what it has learned.
    ///
    /// # Errors
    /// When the policy cannot be built for so many. Nothing has changed then.
    pub fn follow(&self, redirectors: u32) -> Result<(), BuildError> {
        let mut deployment = self.deployment.lock();
        let changed = Deployment { redirectors, ..*deployment };
        if changed == *deployment {
            return Ok(());
        }
        let policies = build_shards(&self.choice.name, &self.choice.parameters, &changed)?;
        for (shard, policy) in self.shards.iter().zip(policies) {
            let shard = &mut *shard.0.lock();
            let learned = std::mem::replace(&mut shard.policy, policy);
            shard.policy.inherit(learned);
        }
        *deployment = changed;
        Ok(())
    }

    /// Takes over a copy of what `former`, a decider of the same policy, has learned.
    fn inherit(&self, former: &Self) {
        for (shard, former) in self.shards.iter().zip(&former.shards) {
            let learned = former.0.lock().policy.fork();
            shard.0.lock().policy.inherit(learned);
        }
    }

    /// Whether several sites can share it: all that it knows belongs to objects, and keys differ between sites. An
    /// object's share is relative to the requests of all.
    pub(crate) fn is_per_object(&self) -> bool {
        self.per_object
    }

    /// The policy and its parameters.
    pub(crate) fn choice(&self) -> &PolicyChoice {
        &self.choice
    }

    /// The name of the policy.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Decides.
    pub fn pick(&self, request: &Request, cluster: &Cluster, now: Timestamp) -> Option<Pick> {
        // Policies expect a node.
        if cluster.is_empty() {
            return None;
        }
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
            let PolicyShard { policy, rng } = &mut *shard.0.lock();
            policy.observe(outcome, &mut PickContext { now, rng });
        }
    }

    /// Reports the failure of a node to the policy.
    pub fn failed(&self, node: NodeIndex, cluster: &Cluster) {
        for shard in &self.shards {
            shard.0.lock().policy.failed(node, cluster);
        }
    }

    /// Whether [`observe`](Self::observe) does anything.
    pub fn observes(&self) -> bool {
        self.observes
    }

    /// The decision that it would make, without making it, and what the decision depends on.
    pub fn foretell(
        &self,
        request: &Request,
        cluster: &Cluster,
        now: Timestamp,
    ) -> (Option<Pick>, Candidates, Option<LoadBound>) {
        if cluster.is_empty() {
            return (None, Candidates { order: Vec::new(), set_size: 0 }, None);
        }
        let (mut policy, mut rng) = {
            let shard = self.shard(request.key).lock();
            (shard.policy.fork(), shard.rng.clone())
        };
        let (candidates, bound) =
            (policy.candidates(request, cluster), policy.bound(request, cluster));
        let pick = policy.pick(request, cluster, &mut PickContext { now, rng: &mut rng });
        (pick, candidates, bound)
    }

    /// The nodes that are responsible for a request's object now, in the policy's order, and the object's share of
    /// recent requests, if the policy counts them. Unlike [`foretell`](Self::foretell) it copies nothing.
    pub fn responsible(
        &self,
        request: &Request,
        cluster: &Cluster,
    ) -> (Vec<NodeIndex>, Option<f64>) {
        if cluster.is_empty() {
            return (Vec::new(), None);
        }
        let shard = self.shard(request.key).lock();
        let Candidates { mut order, set_size } = shard.policy.candidates(request, cluster);
        let share = shard.policy.bound(request, cluster).and_then(|bound| bound.share);
        order.truncate(set_size);
        (order, share)
    }

    /// The part of the places of a sample of objects that moves when `after` follows `before`; `None` if the policy
    /// gives objects no place. What it has learned does not count.
    pub fn moved(&self, before: &Cluster, after: &Cluster) -> Option<f64> {
        if before.is_empty() || after.is_empty() {
            return None;
        }
        let (choice, deployment) = (&self.choice, *self.deployment.lock());
        let policy = levada_policy::build(&choice.name, &choice.parameters, &deployment);
        levada_policy::moved(&mut *policy.ok()?, before, after, SAMPLE)
    }

    /// The size of its memory, over all instances.
    pub fn tracked(&self) -> Tracked {
        self.shards.iter().fold(Tracked::default(), |sum, shard| {
            let one = shard.0.lock().policy.tracked();
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
        &self.shards[shard as usize].0
    }
}

fn plan(
    choice: &PolicyChoice,
    of: &DeciderDeployment,
) -> Result<(&'static PolicyEntry, Deployment), BuildError> {
    let DeciderDeployment { redirectors, capacity, .. } = *of;
    let entry = levada_policy::find(&choice.name)
        .ok_or_else(|| BuildError::UnknownPolicy(choice.name.clone()))?;
    let shards = if entry.keyed { SHARDS } else { 1 };
    Ok((entry, Deployment { redirectors, capacity, shards }))
}

/// A decider for a choice. It replaces another one only when it is committed.
pub struct PreparedDecider {
    decider: SharedDecider,
    /// The decider that it learns from when it is committed. Other sites may still use that one.
    former: Option<SharedDecider>,
}

impl PreparedDecider {
    /// Takes over the state of the decider `before`, if it has the same policy.
    ///
    /// # Errors
    /// When the policy does not exist or its parameters are wrong. Nothing has changed then.
    pub fn new(
        choice: &PolicyChoice,
        of: &DeciderDeployment,
        before: Option<&SharedDecider>,
    ) -> Result<Self, BuildError> {
        let (entry, deployment) = plan(choice, of)?;
        let before = before.filter(|before| before.name == entry.name).cloned();
        match before {
            Some(same) if same.choice == *choice && *same.deployment.lock() == deployment => {
                Ok(Self { decider: same, former: None })
            }
            former => {
                let decider = Arc::new(Decider::new(choice, of)?);
                Ok(Self { decider, former })
            }
        }
    }

    /// The same decider for another site with the same nodes and the same choice, if all that the policy knows
    /// belongs to objects.
    pub(crate) fn for_another_site(&self) -> Option<Self> {
        let per_object = self.decider.is_per_object();
        per_object.then(|| Self { decider: self.decider.clone(), former: None })
    }

    /// Puts it in the place of the former one.
    pub fn commit(self) -> SharedDecider {
        if let Some(former) = self.former {
            self.decider.inherit(&former);
        }
        self.decider
    }
}

/// The retry that follows a failed choice.
pub(crate) fn retried(pick: Pick) -> Pick {
    Pick { reason: levada_policy::PickReason::Retry, ..pick }
}

/// A shared decider.
pub type SharedDecider = Arc<Decider>;

#[cfg(test)]
mod tests {
    use levada_policy::{LoadTable, Node, ParameterValue};

    use super::*;

    fn choice(name: &str, parameter: &str, value: i64) -> PolicyChoice {
        let parameters = [(parameter.to_owned(), ParameterValue::Integer(value))].into();
        PolicyChoice { name: name.to_owned(), parameters }
    }

    const DEPLOYMENT: DeciderDeployment =
        DeciderDeployment { redirectors: 1, capacity: 100, seed: 1 };

    fn prepared(choice: &PolicyChoice, before: Option<&SharedDecider>) -> PreparedDecider {
        PreparedDecider::new(choice, &DEPLOYMENT, before).expect("it exists")
    }

    #[test]
    fn a_changed_decider_has_learned_what_the_former_one_knows_and_leaves_it_alone() {
        let nodes = (0..3).map(|n| Node::new(&format!("node-{n}"))).collect();
        let cluster = Cluster::new(nodes, LoadTable::new(3));
        let lard = choice("lard", "t_high", 65);
        let former = prepared(&lard, None).commit();
        let homes = |decider: &Decider| -> Vec<_> {
            let pick =
                |key: u64| decider.pick(&Request::new(Key(key << 30)), &cluster, Timestamp::ZERO);
            (0..50).map(|key| pick(key).map(|pick| pick.node)).collect()
        };
        let learned = homes(&former);
        let unchanged = prepared(&lard, Some(&former)).commit();
        assert!(Arc::ptr_eq(&unchanged, &former));
        let changed = prepared(&choice("lard", "t_high", 80), Some(&former)).commit();
        assert!(!Arc::ptr_eq(&changed, &former));
        assert_eq!((homes(&changed), homes(&former)), (learned.clone(), learned));
    }

    #[test]
    fn changed_decider_knows_the_shares_of_objects() {
        let nodes = (0..3).map(|n| Node::new(&format!("node-{n}"))).collect();
        let cluster = Cluster::new(nodes, LoadTable::new(3));
        let request = |key: u64| Request::new(Key(key << 30));
        let former = prepared(&choice("adaptive", "order_cache", 1_000), None).commit();
        for n in 0..20_000 {
            let key = if n % 4 == 0 { 7 } else { n };
            former.pick(&request(key), &cluster, Timestamp::ZERO);
        }
        let before = former.responsible(&request(7), &cluster).1.unwrap();
        assert!((0.2..0.3).contains(&before), "{before}");
        let changed = prepared(&choice("adaptive", "order_cache", 2_000), Some(&former)).commit();
        let after = changed.responsible(&request(7), &cluster).1.unwrap();
        assert!((0.95..1.05).contains(&(after / before)), "{after} after {before}");
    }

    #[test]
    fn threshold_follows_the_number_of_nodes_that_choose() {
        let loads = LoadTable::new(2);
        let nodes = (0..2).map(|n| Node::new(&format!("node-{n}"))).collect();
        let cluster = Cluster::new(nodes, loads.clone());
        let request = Request::new(Key(7 << 30));
        let busy = [("busy".to_owned(), ParameterValue::Text("capacity".to_owned()))].into();
        let by_capacity = PolicyChoice { name: "fdr".to_owned(), parameters: busy };
        let fdr = prepared(&by_capacity, None).commit();
        let pick = || fdr.pick(&request, &cluster, Timestamp::ZERO).expect("there are nodes");
        let first = pick();
        // Busy at 2/5 of the capacity, and with four that choose at a quarter of this.
        loads.set(first.node, 20);
        assert_eq!(pick().node, first.node);
        fdr.follow(4).expect("it can be built");
        assert_ne!(pick().node, first.node);
    }

    #[test]
    fn decider_forgets_nothing_when_the_number_of_nodes_changes() {
        let nodes = (0..3).map(|n| Node::new(&format!("node-{n}"))).collect();
        let cluster = Cluster::new(nodes, LoadTable::new(3));
        let lard = prepared(&choice("lard", "t_high", 65), None).commit();
        let homes = || -> Vec<_> {
            let pick =
                |key: u64| lard.pick(&Request::new(Key(key << 30)), &cluster, Timestamp::ZERO);
            (0..50).map(|key| pick(key).map(|pick| pick.node)).collect()
        };
        let learned = homes();
        lard.follow(4).expect("it can be built");
        assert_eq!(homes(), learned);
    }
}
