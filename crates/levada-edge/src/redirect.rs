//! Which node serves a request: the policy, its locks and its chance.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use levada_policy::{
    Candidates, Cluster, Context, Entry, Outcome, Pick, Policy, Surroundings, Tracked,
};
use levada_types::{Key, Request, Rng, Timestamp};
use parking_lot::Mutex;

use crate::settings::PolicyChoice;

/// Instances of a keyed policy: enough that cores rarely meet at one lock.
const SHARDS: u32 = 16;

/// A site's policy. Keyed policies are divided by key, which loses nothing: their state is per key.
pub(crate) struct Decider {
    name: &'static str,
    shards: Box<[Mutex<Shard>]>,
    observes: bool,
    decisions: AtomicU64,
}

struct Shard {
    policy: Box<dyn Policy>,
    rng: Rng,
}

impl Decider {
    /// Builds the instances of `choice`.
    pub(crate) fn new(
        choice: &PolicyChoice,
        redirectors: u32,
        capacity: u32,
        seed: u64,
    ) -> Result<Self, levada_policy::BuildError> {
        let entry: &Entry = levada_policy::find(&choice.name)
            .ok_or_else(|| levada_policy::BuildError::UnknownPolicy(choice.name.clone()))?;
        let shards = if entry.keyed { SHARDS } else { 1 };
        let surroundings = Surroundings { redirectors, capacity, shards };
        let shards = (0..shards)
            .map(|shard| {
                let policy = levada_policy::build(&choice.name, &choice.parameters, &surroundings)?;
                Ok(Mutex::new(Shard { policy, rng: Rng::new(seed ^ u64::from(shard)) }))
            })
            .collect::<Result<Box<[_]>, _>>()?;
        let observes = shards[0].lock().policy.observes();
        Ok(Self { name: entry.name, shards, observes, decisions: AtomicU64::new(0) })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Decides.
    pub(crate) fn pick(
        &self,
        request: &Request,
        cluster: &Cluster,
        now: Timestamp,
    ) -> Option<Pick> {
        self.decisions.fetch_add(1, Relaxed);
        let mut shard = self.shard(request.key).lock();
        let Shard { policy, rng } = &mut *shard;
        policy.pick(request, cluster, &mut Context { now, rng })
    }

    /// Tells the policy how a request ended, if it wants to know.
    pub(crate) fn observe(&self, outcome: &Outcome, now: Timestamp) {
        if !self.observes {
            return;
        }
        for shard in &self.shards {
            let Shard { policy, rng } = &mut *shard.lock();
            policy.observe(outcome, &mut Context { now, rng });
        }
    }

    /// Whether [`observe`](Self::observe) does anything.
    pub(crate) fn observes(&self) -> bool {
        self.observes
    }

    /// What it would decide, without deciding.
    pub(crate) fn foretell(
        &self,
        request: &Request,
        cluster: &Cluster,
        now: Timestamp,
    ) -> (Option<Pick>, Candidates) {
        let (mut policy, mut rng) = {
            let shard = self.shard(request.key).lock();
            (shard.policy.fork(), shard.rng.clone())
        };
        let candidates = policy.candidates(request, cluster);
        (policy.pick(request, cluster, &mut Context { now, rng: &mut rng }), candidates)
    }

    /// What it remembers, over all instances.
    pub(crate) fn tracked(&self) -> Tracked {
        self.shards.iter().fold(Tracked::default(), |sum, shard| {
            let one = shard.lock().policy.tracked();
            Tracked {
                objects: sum.objects + one.objects,
                limit: sum.limit + one.limit,
                bytes: sum.bytes + one.bytes,
            }
        })
    }

    fn shard(&self, key: Key) -> &Mutex<Shard> {
        // The high bits: policies use the low ones for their tables.
        let shard = (key.0 >> 32) % self.shards.len() as u64;
        &self.shards[shard as usize]
    }
}

/// The retry that follows a failed choice.
pub(crate) fn retried(pick: Pick) -> Pick {
    Pick { reason: levada_policy::Reason::Retry, ..pick }
}

/// A shared decider.
pub(crate) type SharedDecider = Arc<Decider>;
