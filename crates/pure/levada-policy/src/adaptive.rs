//! Adaptive sets: each object has a set of nodes, which starts as the first node of its hash order.
//! The set grows or moves when its least loaded node reaches a bound relative to the mean load.
//!
//! The policy joins three ideas. From OSDI'02 (FDR, Sec. 3.4.2) it takes a set per object in HRW
//! order, so that redirectors agree without communication. From consistent hashing with bounded
//! loads (Mirrokni et al., SODA'18) it takes a bound that follows the mean load, so that nobody has
//! to choose a threshold. From LARD/R (ASPLOS'98 Sec. 2.4) it takes sets that stay where they moved.
//!
//! ```text
//! mean    (outstanding + 1) / weights        this redirector's requests, over all nodes that are up
//! bound   1.1 * mean +     sqrt(mean) + 1    for a hot object
//!         1.5 * mean + 2 * sqrt(mean) + 1    for any other
//! hot     share >= 1 / (32 n)                the object's part of all requests in the window
//! ```
//!
//! The counts of one redirector fluctuate by about their root, so the second term gives the
//! bound the right slack at every load and for any number of redirectors. A copy of an object costs
//! one miss and is repaid by later requests. So the at most 32 n hot objects spread early and relieve
//! a node, and all others stay where they are cached: the queue of a node whose disk is never idle
//! fluctuates by more than its root, and they wait until it falls.
//!
//! For a hot object the mean is taken over the nodes outside its set. Otherwise the queue of a crowd
//! would raise the mean that the crowd is held against, and its set would stop growing.
//!
//! Shares are relative to all requests of a redirector. If it runs several shards, they count together.

mod bound;
mod sets;
#[cfg(test)]
mod tests;
mod window;

use std::any::Any;

use levada_types::{Key, Request};

use crate::{
    Candidates, Cluster, Deployment, Kind, LoadBound, NodeIndex, Parameter, Parameters, Pick,
    PickContext, PickReason, Policy, PolicyEntry, Setting, Tracked,
    choose::least_by,
    order::{Method, ORDER_CACHE, Order},
    per_node::Roster,
};
pub(crate) use bound::Bound;
use bound::Mean;
use sets::{AskedSet, ObjectSet, ObjectSets};
use window::Window;

pub(crate) const ENTRIES: &[PolicyEntry] = &[PolicyEntry {
    name: "adaptive",
    paper: "Levada; from OSDI'02 Sec. 3.4.2, SODA'18 and ASPLOS'98 Sec. 2.4",
    summary: "the least loaded of the object's nodes; their set grows and moves at a bound relative to the mean load",
    keyed: true,
    needs: &[],
    parameters: &[SLOTS, ORDER_CACHE],
    build: |parameters, deployment| Box::new(Adaptive::new(parameters, deployment)),
}];

const SLOTS: Parameter = Parameter {
    name: "slots",
    kind: Kind::Integer(1, 1 << 28),
    default: Setting::Integer(262_144),
    unit: "objects",
    help: "How many objects are remembered at most, with 12 bytes each; those that are requested least are forgotten first. A changed number forgets all.",
};

#[derive(Clone)]
struct Adaptive {
    order: Order,
    roster: Roster,
    sets: ObjectSets,
    window: Window,
}

impl Adaptive {
    fn new(parameters: &Parameters, deployment: &Deployment) -> Self {
        let slots = parameters.integer(SLOTS.name).unwrap_or(1) / u64::from(deployment.shards);
        Self {
            order: Order::new(Method::Hrw, USUAL_WALK, parameters, deployment),
            roster: Roster::default(),
            sets: ObjectSets::new(slots as usize),
            window: Window::new(deployment.shards),
        }
    }

    /// Counts the request and looks its object up.
    fn ask(
        &mut self,
        key: Key,
        cluster: &Cluster,
        context: &mut PickContext<'_>,
    ) -> (AskedSet, Bound) {
        if let Some(moves) = self.roster.follow(cluster) {
            self.sets.rename(|node| moves.get(node.get()).copied().flatten());
        }
        // The slot and the order are in two tables, and are read at the same time.
        self.order.prefetch(key);
        self.window.count(cluster.len());
        let asked = self.sets.ask(key, &self.window, context.rng);
        let hot = asked.known && self.window.is_hot(asked.count, cluster.up().len());
        (asked, Bound { hot })
    }

    /// The set of `key` and its requests in the window, if it is remembered.
    fn peek(&self, key: Key, cluster: &Cluster) -> Option<(ObjectSet, u16)> {
        self.roster.knows(cluster).then(|| self.sets.peek(key, &self.window)).flatten()
    }
}

impl Policy for Adaptive {
    fn pick(
        &mut self,
        request: &Request,
        cluster: &Cluster,
        context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        let (asked, bound) = self.ask(request.key, cluster, context);
        let AskedSet { set, known, .. } = asked;
        let (walked, start) = self.order.walk_through(request.key, cluster, set.first, set.len);
        let (before, members) = walked.split_at(start);
        let least = match cluster.uniform() {
            true => least_by(members, |node| cluster.load(node), context.rng)?,
            false => least_by(members, |node| cluster.relative_load(node), context.rng)?,
        };
        let (steps, len) = (walked.len(), members.len());
        let mean = bound.mean(members, cluster);

        if !bound.is_reached(least, mean, cluster) {
            let reason = if len == 1 { PickReason::Hash } else { PickReason::Replica };
            let mut set_size = len;
            if len > 1 && set.rested(context.now) {
                set_size -= 1;
                let shrunk = without_an_end(before, members, cluster);
                self.sets.record(asked.slot, shrunk, context.now);
            }
            return Some(Pick { node: least, reason, set_size: set_size as u32 });
        }

        let below = |node: &NodeIndex| mean.exceeds(*node, cluster);
        let earlier = before.iter().copied().enumerate().find(|(_, node)| below(node));
        let found = earlier.or_else(|| {
            let mut further = self.order.walk(request.key, cluster).enumerate().skip(steps);
            further.find(|(_, node)| below(node))
        });
        let Some((place, node)) = found else {
            return Some(Pick { node: least, reason: PickReason::Replica, set_size: len as u32 });
        };
        // A first node at the front of the order needs no name: it follows changes of membership.
        let named = (place > 0).then_some(node);
        let changed = match (known, place < start) {
            (false, _) => ObjectSet::of(named, 1),
            (true, true) => ObjectSet::of(named, start + len - place),
            (true, false) => ObjectSet::of(set.first.filter(|_| start > 0), place + 1 - start),
        };
        self.sets.record(asked.slot, changed, context.now);
        Some(Pick { node, reason: PickReason::Spill, set_size: changed.len as u32 })
    }

    fn candidates(&self, request: &Request, cluster: &Cluster) -> Candidates {
        let set = self.peek(request.key, cluster).map(|(set, _)| set).unwrap_or_default();
        let accepting = self.order.candidates(request.key, cluster, usize::MAX);
        let (mut order, accepting) = (accepting.order, accepting.set_size);
        let place = |first| order[..accepting].iter().position(|node| *node == first);
        let start = set.first.and_then(place).unwrap_or(0);
        let end = accepting.min(start + set.len);
        order[..end].rotate_left(start);
        Candidates { order, set_size: end - start }
    }

    fn bound(&self, request: &Request, cluster: &Cluster) -> Option<LoadBound> {
        if cluster.up().is_empty() {
            return None;
        }
        let known = self.peek(request.key, cluster).map(|(_, count)| count);
        let hot = known.is_some_and(|count| self.window.is_hot(count, cluster.up().len()));
        let Candidates { order, set_size } = self.candidates(request, cluster);
        let bound = Bound { hot };
        let Mean(mean) = bound.mean(&order[..set_size], cluster);
        let share = self.window.share(known.unwrap_or_default());
        Some(LoadBound { requests: bound.of(mean), share: Some(share) })
    }

    fn failed(&mut self, node: NodeIndex, cluster: &Cluster) {
        if self.roster.knows(cluster) {
            self.sets.rename(|first| (first != node).then_some(first));
        }
    }

    fn inherit(&mut self, former: Box<dyn Any>) {
        let Ok(former) = former.downcast::<Self>() else { return };
        let Self { roster, sets, window, .. } = *former;
        if self.sets.inherit(sets) {
            self.roster = roster;
            self.window.inherit(&window);
        }
    }

    fn join(&mut self, first: &dyn Any) {
        if let Some(first) = first.downcast_ref::<Self>() {
            self.order.join(&first.order);
            self.window.join(&first.window);
        }
    }

    fn tracked(&self) -> Tracked {
        self.sets.tracked()
    }
}

/// The set without the more loaded of its two ends; `before` are the nodes before it in the order.
fn without_an_end(before: &[NodeIndex], members: &[NodeIndex], cluster: &Cluster) -> ObjectSet {
    let load = |node: Option<&NodeIndex>| node.map(|node| cluster.relative_load(*node));
    let first_is_less_loaded = load(members.first()) <= load(members.last());
    let first = if first_is_less_loaded { members.first() } else { members.get(1) };
    let at_the_front = first_is_less_loaded && before.is_empty();
    ObjectSet::of(first.copied().filter(|_| !at_the_front), members.len() - 1)
}

/// The number of nodes of an order that are computed at first. This takes one pass over the nodes,
/// as for the first node alone, and nodes at their bound are so few that a second pass is rare.
const USUAL_WALK: usize = 4;
