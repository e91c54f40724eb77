//! Locality-aware request distribution (ASPLOS'98, Pai et al.): requests for a target go to the
//! node that served it before, and so has it in its cache, until that node is much more loaded than
//! others.
//!
//! Basic LARD (Sec. 2.3) assigns one node to a target and moves it. LARD with replication, LARD/R
//! (Sec. 2.4), assigns a set, which grows by the least loaded node and shrinks by the most loaded
//! one when it has not changed for `k`. Both assign a target at its first request and use
//! outstanding requests only.
//!
//! Beyond the paper: outstanding requests count relative to a node's weight and ramp, so that a
//! node in slow start gives up targets early and gets new ones late; at ramp 0 it counts as down. A
//! target whose node is down is assigned again when it is requested. When the driver reports that a
//! node has failed, all its targets become unassigned, as in the paper. A node that is drained
//! keeps the targets that are not requested meanwhile.

mod thresholds;

use std::{any::Any, time::Duration};

use levada_types::{Request, Timestamp};

use crate::choose::least_by;
use crate::per_node::Roster;
use crate::relative_load::ascending;
use crate::table::ObjectTable;
use crate::{
    Candidates, Cluster, Deployment, Kind, NodeIndex, Parameter, Parameters, Pick, PickContext,
    PickReason, Policy, PolicyEntry, Setting, Tracked,
};
pub(crate) use thresholds::given as given_thresholds;
use thresholds::{FIRST, FirstNode, T_HIGH, T_LOW, Thresholds};

pub(crate) const ENTRIES: &[PolicyEntry] = &[
    PolicyEntry {
        name: "lard",
        paper: "ASPLOS'98 Sec. 2.3",
        summary: "the node that served the object before, moved to the least loaded when too busy",
        keyed: true,
        needs: &[],
        parameters: &[T_LOW, T_HIGH, FIRST, TARGETS],
        build: |parameters: &Parameters, deployment: &Deployment| {
            Box::new(Lard {
                thresholds: Thresholds::read(parameters),
                first: FirstNode::read(parameters, deployment),
                roster: Roster::default(),
                targets: ObjectTable::new(share_of_targets(parameters, deployment)),
            })
        },
    },
    PolicyEntry {
        name: "lard/r",
        paper: "ASPLOS'98 Sec. 2.4",
        summary: "the least loaded of the object's nodes; their set grows when busy, shrinks in time",
        keyed: true,
        needs: &[],
        parameters: &[T_LOW, T_HIGH, K, FIRST, TARGETS],
        build: |parameters: &Parameters, deployment: &Deployment| {
            Box::new(LardR {
                thresholds: Thresholds::read(parameters),
                first: FirstNode::read(parameters, deployment),
                k: parameters.duration("k"),
                roster: Roster::default(),
                targets: ObjectTable::new(share_of_targets(parameters, deployment)),
            })
        },
    },
];

const K: Parameter = Parameter {
    name: "k",
    kind: Kind::Duration(Duration::ZERO, Duration::from_secs(86_400)),
    default: Setting::Duration(Duration::from_secs(20)),
    unit: "",
    help: "K: a set of nodes that has not changed for this long loses its most loaded one \
           (ASPLOS'98 Sec. 2.4).",
};

pub(crate) const TARGETS: Parameter = Parameter {
    name: "targets",
    kind: Kind::Integer(1, 1_000_000_000),
    default: Setting::Integer(1_000_000),
    unit: "objects",
    help: "How many objects are remembered at most; those not asked for lately are forgotten first \
           (ASPLOS'98 Sec. 2.5).",
};

fn share_of_targets(parameters: &Parameters, deployment: &Deployment) -> usize {
    let all = parameters.integer(TARGETS.name).expect("it has a default");
    (all / u64::from(deployment.shards)).max(1) as usize
}

/// Whether `node` can keep its targets.
#[inline]
fn serves(node: NodeIndex, cluster: &Cluster) -> bool {
    let n = cluster.node(node);
    n.up && n.ramp > 0.0
}

/// The `assigned` nodes first, then the others in the order in which LARD would choose them.
fn preferring(assigned: Vec<NodeIndex>, cluster: &Cluster) -> Candidates {
    let set_size = assigned.len();
    let others = ascending(cluster).into_iter().filter(|node| !assigned.contains(node)).collect();
    let order = [assigned, others].concat();
    Candidates { order, set_size }
}

#[derive(Clone)]
struct Lard {
    thresholds: Thresholds,
    first: FirstNode,
    roster: Roster,
    targets: ObjectTable<NodeIndex>,
}

impl Policy for Lard {
    fn pick(
        &mut self,
        request: &Request,
        cluster: &Cluster,
        context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        if let Some(moves) = self.roster.follow(cluster) {
            self.targets.update(|node| moves[node.get()]);
        }
        let assigned = self.targets.ask(request.key).filter(|node| serves(**node, cluster));
        let (node, reason) = match assigned {
            Some(node) => match self.thresholds.relief(*node, cluster, context.rng) {
                None => (*node, PickReason::Hash),
                Some(least) => {
                    *node = least;
                    (least, PickReason::Spill)
                }
            },
            None => {
                let first = self.first.of(request.key, self.thresholds, cluster, context.rng)?;
                self.targets.insert(request.key, first.0);
                first
            }
        };
        Some(Pick { node, reason, set_size: 1 })
    }

    fn candidates(&self, request: &Request, cluster: &Cluster) -> Candidates {
        let assigned =
            if self.roster.knows(cluster) { self.targets.peek(request.key) } else { None };
        let assigned = assigned.filter(|node| serves(**node, cluster));
        preferring(assigned.copied().into_iter().collect(), cluster)
    }

    fn failed(&mut self, node: NodeIndex, cluster: &Cluster) {
        if let Some(moves) = self.roster.follow(cluster) {
            self.targets.update(|node| moves[node.get()]);
        }
        self.targets.update(|assigned| (assigned != node).then_some(assigned));
    }

    fn inherit(&mut self, former: Box<dyn Any>) {
        let Ok(former) = former.downcast::<Self>() else { return };
        let Self { roster, targets, .. } = *former;
        self.targets = targets.limited_to(self.targets.limit());
        self.roster = roster;
    }

    fn tracked(&self) -> Tracked {
        let (objects, limit) = (self.targets.len(), self.targets.limit());
        Tracked { objects, limit, bytes: self.targets.bytes() }
    }
}

#[derive(Clone)]
struct LardR {
    thresholds: Thresholds,
    first: FirstNode,
    k: Duration,
    roster: Roster,
    targets: ObjectTable<ServerSet>,
}

impl Policy for LardR {
    fn pick(
        &mut self,
        request: &Request,
        cluster: &Cluster,
        context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        if let Some(moves) = self.roster.follow(cluster) {
            self.targets.update(|set| set.moved(&moves));
        }
        let Some(set) = self.targets.ask(request.key) else {
            return self.assign(request, cluster, context);
        };
        if !set.nodes().iter().all(|&node| serves(node, cluster)) {
            set.retain(|node| serves(node, cluster));
            set.changed_at(context.now);
        }
        let load = |node: NodeIndex| cluster.relative_load(node);
        let Some(mut node) = least_by(set.nodes(), load, context.rng) else {
            return self.assign(request, cluster, context);
        };
        let most = set.nodes().iter().copied().max_by(|&a, &b| load(a).total_cmp(&load(b)));
        let mut reason =
            if set.nodes().len() == 1 { PickReason::Hash } else { PickReason::Replica };

        let mut changed = false;
        if let Some(least) = self.thresholds.relief(node, cluster, context.rng) {
            if !set.nodes().contains(&least) {
                set.add(least);
                (reason, changed) = (PickReason::Spill, true);
            }
            node = least;
        }
        if set.nodes().len() > 1 && set.unchanged_for(context.now) > self.k {
            // This may remove the node just chosen; the request still goes there.
            set.retain(|member| Some(member) != most);
            changed = true;
        }
        if changed {
            set.changed_at(context.now);
        }
        Some(Pick { node, reason, set_size: set.nodes().len() as u32 })
    }

    fn candidates(&self, request: &Request, cluster: &Cluster) -> Candidates {
        let set = if self.roster.knows(cluster) { self.targets.peek(request.key) } else { None };
        let mut set = set.cloned().unwrap_or_default();
        set.retain(|node| serves(node, cluster));
        let mut nodes = set.nodes().to_vec();
        nodes.sort_by(|&a, &b| cluster.relative_load(a).total_cmp(&cluster.relative_load(b)));
        preferring(nodes, cluster)
    }

    fn failed(&mut self, node: NodeIndex, cluster: &Cluster) {
        if let Some(moves) = self.roster.follow(cluster) {
            self.targets.update(|set| set.moved(&moves));
        }
        self.targets.update(|set| set.left_by(node));
    }

    fn inherit(&mut self, former: Box<dyn Any>) {
        let Ok(former) = former.downcast::<Self>() else { return };
        let Self { roster, targets, .. } = *former;
        self.targets = targets.limited_to(self.targets.limit());
        self.roster = roster;
    }

    fn tracked(&self) -> Tracked {
        let boxed: usize = self.targets.values().map(ServerSet::boxed_bytes).sum();
        let (objects, limit) = (self.targets.len(), self.targets.limit());
        Tracked { objects, limit, bytes: self.targets.bytes() + boxed }
    }
}

impl LardR {
    /// Assigns the least loaded node to a target that has none.
    fn assign(
        &mut self,
        request: &Request,
        cluster: &Cluster,
        context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        let (node, reason) = self.first.of(request.key, self.thresholds, cluster, context.rng)?;
        let mut set = ServerSet::default();
        set.add(node);
        set.changed_at(context.now);
        self.targets.insert(request.key, set);
        Some(Pick { node, reason, set_size: 1 })
    }
}

/// The nodes of a target, and the time of the last change. Most targets have one node; two fit
/// inline, more are boxed. 16 bytes.
#[derive(Clone, Debug)]
enum ServerSet {
    Few { len: u8, changed: Millis, nodes: [NodeIndex; 2] },
    Many(Box<(Millis, Vec<NodeIndex>)>),
}

/// Milliseconds, modulo 2^32. After 49 days without a request for a target, its set may lose a node
/// up to `k` late.
type Millis = u32;

fn millis(time: Timestamp) -> Millis {
    (time.0 / 1_000_000) as Millis
}

impl Default for ServerSet {
    fn default() -> Self {
        Self::Few { len: 0, changed: 0, nodes: [NodeIndex(0); 2] }
    }
}

impl ServerSet {
    #[inline]
    fn nodes(&self) -> &[NodeIndex] {
        match self {
            Self::Few { len, nodes, .. } => &nodes[..usize::from(*len)],
            Self::Many(set) => &set.1,
        }
    }

    fn changed(&mut self) -> &mut Millis {
        match self {
            Self::Few { changed, .. } => changed,
            Self::Many(set) => &mut set.0,
        }
    }

    fn changed_at(&mut self, now: Timestamp) {
        *self.changed() = millis(now);
    }

    fn unchanged_for(&mut self, now: Timestamp) -> Duration {
        Duration::from_millis(millis(now).wrapping_sub(*self.changed()).into())
    }

    fn add(&mut self, node: NodeIndex) {
        let mut nodes = self.nodes().to_vec();
        nodes.push(node);
        self.set(nodes);
    }

    fn retain(&mut self, keep: impl Fn(NodeIndex) -> bool) {
        self.set(self.nodes().iter().copied().filter(|&node| keep(node)).collect());
    }

    /// The set after nodes joined or left; `None` if no node is left in it.
    fn moved(mut self, moves: &[Option<NodeIndex>]) -> Option<Self> {
        self.set(self.nodes().iter().filter_map(|node| moves[node.get()]).collect());
        (!self.nodes().is_empty()).then_some(self)
    }

    /// The set without `node`; `None` if no node is left in it.
    fn left_by(mut self, node: NodeIndex) -> Option<Self> {
        if self.nodes().contains(&node) {
            self.retain(|member| member != node);
        }
        (!self.nodes().is_empty()).then_some(self)
    }

    fn set(&mut self, members: Vec<NodeIndex>) {
        let changed = *self.changed();
        *self = match members[..] {
            [] => Self::Few { len: 0, changed, nodes: [NodeIndex(0); 2] },
            [a] => Self::Few { len: 1, changed, nodes: [a, a] },
            [a, b] => Self::Few { len: 2, changed, nodes: [a, b] },
            _ => Self::Many(Box::new((changed, members))),
        };
    }

    fn boxed_bytes(&self) -> usize {
        match self {
            Self::Few { .. } => 0,
            Self::Many(set) => {
                size_of::<(Millis, Vec<NodeIndex>)>() + set.1.capacity() * size_of::<NodeIndex>()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, cluster, loaded, nodes, set_loads};
    use crate::{Node, ParameterValue};
    use levada_types::Key;

    fn pick(world: &mut World, key: u64, cluster: &Cluster) -> (u32, PickReason, u32) {
        let pick = world.pick(&Request::new(Key(key)), cluster).unwrap();
        (pick.node.0, pick.reason, pick.set_size)
    }

    /// The thresholds of the paper.
    const PUBLISHED: [(&str, ParameterValue); 2] =
        [("t_low", ParameterValue::Integer(25)), ("t_high", ParameterValue::Integer(65))];

    /// A world in which node 0 serves target 7, with the thresholds of the paper.
    fn assigned(policy: &str, nodes: usize) -> (World, Cluster) {
        serving(World::new(policy, &PUBLISHED), nodes)
    }

    /// `world` once node 0 serves target 7.
    fn serving(mut world: World, nodes: usize) -> (World, Cluster) {
        let mut loads = vec![1; nodes];
        loads[0] = 0;
        let cluster = loaded(&loads);
        assert_eq!(pick(&mut world, 7, &cluster), (0, PickReason::Least, 1));
        (world, cluster)
    }

    #[test]
    fn without_thresholds_a_target_moves_at_a_bound_relative_to_the_mean() {
        for policy in ["lard", "lard/r"] {
            let (mut world, four) = serving(World::new(policy, &[]), 4);
            // The mean is (3 + 1) / 4 = 1, and the bound 1.5 + 2 + 1; then (8 + 1) / 4 and 7.4.
            set_loads(&four, &[3, 0, 0, 0]);
            assert_eq!(pick(&mut world, 7, &four).1, PickReason::Hash, "{policy}");
            set_loads(&four, &[8, 0, 0, 0]);
            assert_eq!(pick(&mut world, 7, &four).1, PickReason::Spill, "{policy}");
            // Everyone has much to do: no target moves.
            let (mut world, four) = serving(World::new(policy, &[]), 4);
            set_loads(&four, &[900, 800, 900, 800]);
            assert_eq!(pick(&mut world, 7, &four).1, PickReason::Hash, "{policy}");
        }
    }

    #[test]
    fn several_redirectors_give_a_new_target_to_the_same_node() {
        let several = Deployment { redirectors: 4, ..Deployment::default() };
        for policy in ["lard", "lard/r"] {
            let node = |loads: &[u32], key| {
                let policy =
                    crate::build(policy, &Default::default(), &several).expect("it exists");
                let mut world = World { policy, ..World::new("lard", &[]) };
                pick(&mut world, key, &loaded(loads)).0
            };
            let homes: Vec<_> = (0..60).map(|key| node(&[0, 2, 1], key)).collect();
            assert_eq!(homes, (0..60).map(|key| node(&[2, 0, 1], key)).collect::<Vec<_>>());
            assert!((0..3).all(|node| homes.contains(&node)), "{policy}: {homes:?}");
            // A node that is overloaded is passed over.
            let others: Vec<_> = (0..60).map(|key| node(&[50, 2, 1], key)).collect();
            assert!(!others.contains(&0), "{policy}: {others:?}");
            let same = |key: usize| homes[key] == 0 || homes[key] == others[key];
            assert!((0..60).all(same), "{policy}: {homes:?} {others:?}");
        }
    }

    #[test]
    fn both_move_exactly_when_the_paper_says() {
        use PickReason::{Hash, Spill};
        // T_low is 25, T_high 65: loads of the assigned and of the other node, and the expected
        // reason.
        let steps: &[([u32; 2], PickReason)] = &[
            ([65, 0], Hash),    // not above T_high
            ([66, 25], Hash),   // no node below T_low
            ([129, 25], Hash),  // 129 is less than twice T_high
            ([66, 24], Spill),  // above T_high and one below T_low
            ([130, 25], Spill), // twice T_high
            ([130, 131], Hash), // it is the least loaded itself
        ];
        for (policy, replicas) in [("lard", 1), ("lard/r", 2)] {
            for (loads, reason) in steps {
                let (mut world, two) = assigned(policy, 2);
                set_loads(&two, loads);
                let expected =
                    if *reason == Spill { (1, Spill, replicas) } else { (0, *reason, 1) };
                assert_eq!(pick(&mut world, 7, &two), expected, "{policy} at {loads:?}");
            }
        }
    }

    #[test]
    fn overloaded_target_moves_to_the_idle_node_and_stays() {
        let (mut world, three) = assigned("lard", 3);
        set_loads(&three, &[66, 30, 3]);
        assert_eq!(pick(&mut world, 7, &three), (2, PickReason::Spill, 1));
        set_loads(&three, &[0, 0, 60]);
        assert_eq!(pick(&mut world, 7, &three), (2, PickReason::Hash, 1));
    }

    #[test]
    fn the_least_loaded_replica_serves() {
        let (mut world, three) = assigned("lard/r", 3);
        set_loads(&three, &[66, 30, 3]);
        assert_eq!(pick(&mut world, 7, &three), (2, PickReason::Spill, 2));
        set_loads(&three, &[40, 0, 50]);
        assert_eq!(pick(&mut world, 7, &three), (0, PickReason::Replica, 2));
    }

    #[test]
    fn a_set_that_has_not_changed_for_k_loses_its_most_loaded_node() {
        let (mut world, three) = assigned("lard/r", 3);
        set_loads(&three, &[66, 30, 3]);
        pick(&mut world, 7, &three);
        set_loads(&three, &[5, 0, 9]);
        assert_eq!(pick(world.at_secs(20), 7, &three), (0, PickReason::Replica, 2));
        assert_eq!(pick(world.at_secs(21), 7, &three), (0, PickReason::Replica, 1));
        set_loads(&three, &[5, 0, 0]);
        assert_eq!(pick(&mut world, 7, &three), (0, PickReason::Hash, 1));
    }

    #[test]
    fn a_set_that_grows_after_k_swaps_its_most_loaded_node() {
        let (mut world, two) = assigned("lard/r", 2);
        set_loads(&two, &[66, 3]);
        assert_eq!(pick(world.at_secs(21), 7, &two), (1, PickReason::Spill, 1));
        set_loads(&two, &[0, 3]);
        assert_eq!(pick(&mut world, 7, &two), (1, PickReason::Hash, 1));
    }

    #[test]
    fn a_node_that_was_just_chosen_may_leave_the_set() {
        // Both members have equal load, so either may be the most loaded one.
        let (mut world, two) = assigned("lard/r", 2);
        set_loads(&two, &[66, 3]);
        pick(&mut world, 7, &two);
        set_loads(&two, &[4, 4]);
        let (node, _, set_size) = pick(world.at_secs(30), 7, &two);
        assert!(node < 2 && set_size == 1);
    }

    #[test]
    fn targets_of_a_node_that_is_down_are_assigned_anew() {
        for policy in ["lard", "lard/r"] {
            let (mut world, three) = assigned(policy, 3);
            let rest = three.without(&[NodeIndex(0)]);
            set_loads(&three, &[0, 9, 1]);
            assert_eq!(pick(&mut world, 7, &rest), (2, PickReason::Least, 1), "{policy}");
            assert_eq!(pick(&mut world, 7, &three), (2, PickReason::Hash, 1), "{policy}");
        }
    }

    #[test]
    fn a_node_that_goes_down_leaves_the_set() {
        let (mut world, three) = assigned("lard/r", 3);
        set_loads(&three, &[66, 30, 3]);
        pick(&mut world, 7, &three);
        let rest = three.without(&[NodeIndex(2)]);
        assert_eq!(pick(&mut world, 7, &rest), (0, PickReason::Hash, 1));
        set_loads(&three, &[5, 0, 0]);
        assert_eq!(pick(&mut world, 7, &three), (0, PickReason::Hash, 1));
    }

    #[test]
    fn assignments_follow_names_when_nodes_join_and_leave() {
        for policy in ["lard", "lard/r"] {
            let (mut world, _) = assigned(policy, 2);
            let moved = cluster(vec![Node::new("new"), nodes(2).remove(1), nodes(2).remove(0)]);
            assert_eq!(pick(&mut world, 7, &moved), (2, PickReason::Hash, 1), "{policy}");
            let left = cluster(vec![Node::new("new")]);
            assert_eq!(pick(&mut world, 7, &left), (0, PickReason::Least, 1), "{policy}");
        }
    }

    #[test]
    fn slow_start_lets_new_targets_through_last() {
        for policy in ["lard", "lard/r"] {
            let mut slow = nodes(2);
            slow[0].ramp = 0.1;
            let two = cluster(slow);
            let mut world = World::new(policy, &PUBLISHED);
            set_loads(&two, &[0, 8]);
            assert_eq!(pick(&mut world, 1, &two), (1, PickReason::Least, 1), "9 before 1 / 0.1");
            set_loads(&two, &[0, 10]);
            assert_eq!(pick(&mut world, 2, &two), (0, PickReason::Least, 1), "1 / 0.1 before 11");
            set_loads(&two, &[7, 10]);
            assert_eq!(pick(&mut world, 2, &two).1, PickReason::Spill, "7 / 0.1 is above T_high");
        }
    }

    #[test]
    fn a_flood_of_targets_stays_within_the_limit() {
        for (policy, most_per_object) in [("lard", 17), ("lard/r", 32)] {
            let mut world = World::new(policy, &[("targets", ParameterValue::Integer(1_000))]);
            world.spread(20_000, &cluster(nodes(4)));
            let tracked = world.policy.tracked();
            assert_eq!((tracked.objects, tracked.limit), (1_000, 1_000));
            assert!(tracked.bytes <= 1_000 * most_per_object, "{policy}: {}", tracked.bytes);
        }
    }

    #[test]
    fn large_sets_are_kept_and_shrink_again() {
        let (mut world, five) = assigned("lard/r", 5);
        for (idle, replicas) in (1..5).zip(2..) {
            let loads: Vec<u32> = (0..5).map(|n| if n == idle { 0 } else { 70 }).collect();
            set_loads(&five, &loads);
            assert_eq!(pick(&mut world, 7, &five), (idle, PickReason::Spill, replicas));
        }
        set_loads(&five, &[1, 2, 3, 4, 5]);
        for round in 1..=5 {
            let set_size = pick(world.at_secs(30 * round), 7, &five).2;
            assert_eq!(u64::from(set_size), 5 - round.min(4));
        }
    }

    #[test]
    fn targets_of_a_failed_node_are_unassigned_even_without_a_request_meanwhile() {
        for name in ["lard", "lard/r"] {
            let (mut world, three) = (World::new(name, &[]), cluster(nodes(3)));
            let request = |key| Request::new(Key(key));
            let before: Vec<u32> = (0..60).map(|key| world.node(key, &three)).collect();
            world.policy.failed(NodeIndex(1), &three);
            for key in 0..60 {
                let known = world.policy.candidates(&request(key), &three).set_size;
                let lost = before[key as usize] == 1;
                assert_eq!(known, usize::from(!lost), "{name} {key}");
            }
            assert!(before.contains(&1));
        }
    }

    #[test]
    fn learned_targets_outlive_a_change_of_parameters() {
        for name in ["lard", "lard/r"] {
            let (mut world, three) = (World::new(name, &[]), cluster(nodes(3)));
            let before: Vec<u32> = (0..60).map(|key| world.node(key, &three)).collect();
            let mut changed = World::new(name, &[("t_high", ParameterValue::Integer(80))]);
            changed.policy.inherit(world.policy);
            let after: Vec<u32> = (0..60).map(|key| changed.node(key, &three)).collect();
            assert_eq!(before, after, "{name}");
        }
    }

    #[test]
    fn candidates_begin_with_the_assigned_nodes() {
        let (mut world, three) = assigned("lard/r", 3);
        set_loads(&three, &[66, 30, 3]);
        pick(&mut world, 7, &three);
        set_loads(&three, &[4, 0, 9]);
        let candidates = world.policy.candidates(&Request::new(Key(7)), &three);
        assert_eq!(candidates.order, [0, 2, 1].map(NodeIndex));
        assert_eq!(candidates.set_size, 2);
    }
}
