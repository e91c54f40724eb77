//! Maglev hashing (Eisenbud et al., NSDI'16, Sec. 3.4): a table of prime size, which servers fill
//! in turn, each in its own order. A pick takes one lookup, and shares are more even than those of
//! a ring. If a server joins or leaves, somewhat more objects move than its share.
//!
//! The paper fills a new table when a server fails. Here health is not membership: the table
//! stays, and an object whose server is down takes another slot of the table. So only the objects
//! of the failed server move, and they return when it does. The next slot would be a bad choice,
//! because neighbouring slots are not independent.

use std::any::Any;

use levada_types::{Key, Request, hash64, weigh};

use crate::{
    Candidates, Cluster, Kind, Node, NodeIndex, Parameter, Pick, PickContext, PickReason, Policy,
    PolicyEntry, Setting, order::scale, shared::SharedTable,
};

pub(crate) const ENTRIES: &[PolicyEntry] = &[PolicyEntry {
    name: "maglev",
    paper: "Maglev, NSDI'16 Sec. 3.4",
    summary: "the server that owns the object's slot in a table which all servers fill in turn",
    keyed: true,
    needs: &[],
    parameters: &[TABLE_SIZE],
    build: |parameters, _| {
        let size = parameters.integer(TABLE_SIZE.name).unwrap_or_default();
        Box::new(Maglev { size: next_prime(size), owners: SharedTable::new() })
    },
}];

const TABLE_SIZE: Parameter = Parameter {
    name: "table_size",
    kind: Kind::Integer(2, 5_000_011),
    default: Setting::Integer(65_537),
    unit: "places",
    help: "Slots in the table, of 4 bytes each, raised to the next prime; at least 100 per server keep shares within 1 % (NSDI'16 Sec. 3.4).",
};

#[derive(Clone)]
struct Maglev {
    size: u64,
    owners: SharedTable<Box<[NodeIndex]>>,
}

impl Policy for Maglev {
    fn pick(
        &mut self,
        request: &Request,
        cluster: &Cluster,
        _context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        if self.owners.of(cluster).is_none() {
            self.owners.follow(cluster, || fill(cluster.nodes(), self.size));
        }
        let node = first_taking(request.key, self.owners.known()?, cluster)?;
        Some(Pick { node, reason: PickReason::Hash, set_size: 1 })
    }

    fn candidates(&self, request: &Request, cluster: &Cluster) -> Candidates {
        let fresh;
        let owners = match self.owners.of(cluster) {
            Some(owners) => owners,
            None => {
                fresh = fill(cluster.nodes(), self.size);
                &fresh
            }
        };
        let mut met = vec![false; cluster.len()];
        let new = |node: &NodeIndex| !std::mem::replace(&mut met[node.get()], true);
        let mut order: Vec<_> = preference(request.key, owners, cluster)
            .filter(new)
            .filter(|node| cluster.is_up(*node))
            .collect();
        order.sort_by_key(|node| !cluster.accepts(*node, request.key));
        Candidates { set_size: order.len().min(1), order }
    }

    fn join(&mut self, first: &dyn Any) {
        if let Some(first) = first.downcast_ref::<Self>() {
            self.owners.join(&first.owners);
        }
    }
}

fn first_taking(key: Key, owners: &[NodeIndex], cluster: &Cluster) -> Option<NodeIndex> {
    let taking = |node: &NodeIndex| cluster.accepts(*node, key);
    let owner = *owners.get(place_of(key, 0, owners.len()))?;
    if taking(&owner) {
        return Some(owner);
    }
    let mut preference = preference(key, owners, cluster);
    if cluster.up().iter().any(taking) {
        preference.find(taking)
    } else {
        preference.find(|node| cluster.is_up(*node))
    }
}

/// The owners of the slots that `key` tries, one after the other, and then every node: in a table
/// smaller than the cluster some nodes have no slot.
fn preference(
    key: Key,
    owners: &[NodeIndex],
    cluster: &Cluster,
) -> impl Iterator<Item = NodeIndex> {
    let tries = if owners.is_empty() { 0 } else { TRIES };
    let tried = (0..tries).map(move |n| owners[place_of(key, n, owners.len())]);
    tried.chain(owners.iter().copied()).chain(cluster.up().iter().copied())
}

fn place_of(key: Key, attempt: u64, places: usize) -> usize {
    scale(weigh(key, TABLE + attempt), places)
}

/// Pseudocode 1 of the paper: in every round each server takes its next preferred free slot. A
/// server of less than the greatest weight skips rounds, so that it gets its share.
fn fill(nodes: &[Node], size: u64) -> Box<[NodeIndex]> {
    let mut by_name: Vec<_> = (0..).map(NodeIndex).zip(nodes).collect();
    by_name.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
    let greatest = nodes.iter().map(|node| node.weight).fold(0.0, f64::max);
    let mut servers: Vec<_> = by_name
        .into_iter()
        .map(|(index, node)| (index, Preference::of(node, size), node.weight / greatest))
        .map(|(index, preference, share)| {
            (index, preference, if share > 0.0 { share } else { 1.0 })
        })
        .collect();
    let mut owners: Vec<Option<NodeIndex>> = vec![None; size as usize];
    let mut free = if servers.is_empty() { 0 } else { owners.len() };
    let mut round = 0.0;
    while free > 0 {
        for (index, preference, share) in &mut servers {
            let due = ((round + 1.0) * *share).floor() > (round * *share).floor();
            if !due || free == 0 {
                continue;
            }
            // There is a free slot, and the preference is a permutation of all slots.
            while owners[preference.place()].is_some() {
                preference.advance();
            }
            owners[preference.place()] = Some(*index);
            free -= 1;
        }
        round += 1.0;
    }
    owners.into_iter().flatten().collect()
}

/// The order in which one server prefers slots: offset, offset + skip, offset + 2 skip, ... It
/// contains every slot once, because the size is prime.
struct Preference {
    place: u64,
    skip: u64,
    size: u64,
}

impl Preference {
    fn of(node: &Node, size: u64) -> Self {
        let skip = hash64(&node.hash.to_le_bytes()) % (size - 1) + 1;
        Self { place: node.hash % size, skip, size }
    }

    fn place(&self) -> usize {
        self.place as usize
    }

    fn advance(&mut self) {
        self.place = (self.place + self.skip) % self.size;
    }
}

fn next_prime(at_least: u64) -> u64 {
    let prime = |n: u64| n >= 2 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
    (at_least.max(2)..).find(|n| prime(*n)).unwrap_or(2)
}

/// The number of slots that an object tries before it takes the first node that accepts it.
const TRIES: u64 = 64;

/// The seed that makes the slot of a key independent of the key's other hashes.
const TABLE: u64 = 0x6d61_676c_6576_3136;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, cluster, nodes};

    fn counts(owners: &[NodeIndex], nodes: usize) -> Vec<usize> {
        (0..nodes as u32).map(|n| owners.iter().filter(|o| **o == NodeIndex(n)).count()).collect()
    }

    #[test]
    fn shares_differ_by_one_place_at_most() {
        let counts = counts(&fill(&nodes(10), 1_009), 10);
        assert!(counts.iter().all(|count| (100..=101).contains(count)), "{counts:?}");
    }

    #[test]
    fn heavy_nodes_take_more_turns() {
        let mut weighted = nodes(3);
        weighted[2].weight = 2.0;
        let counts = counts(&fill(&weighted, 1_009), 3);
        assert!(counts[2].abs_diff(504) <= 2 && counts[0].abs_diff(252) <= 2, "{counts:?}");
    }

    #[test]
    fn sizes_are_raised_to_a_prime() {
        assert_eq!([2, 4, 100, 65_537].map(next_prime), [2, 5, 101, 65_537]);
    }

    #[test]
    fn only_the_objects_of_a_failed_node_move() {
        let all = cluster(nodes(5));
        let rest = all.without(&[NodeIndex(3)]);
        let mut world = World::new("maglev", &[]);
        let mut refuges = [0; 5];
        for key in 0..5_000 {
            let (home, refuge) = (world.node(key, &all), world.node(key, &rest));
            assert!(home == refuge || home == 3);
            refuges[refuge as usize] += usize::from(home == 3);
        }
        // About a thousand objects move, evenly to the other nodes.
        assert_eq!(refuges[3], 0);
        assert!([0, 1, 2, 4].iter().all(|n| (190..320).contains(&refuges[*n])), "{refuges:?}");
    }

    #[test]
    fn a_table_smaller_than_the_cluster_still_serves() {
        let world = &mut World::new("maglev", &[("table_size", crate::ParameterValue::Integer(2))]);
        let all = cluster(nodes(5));
        let node = NodeIndex(world.node(1, &all));
        let others: Vec<_> = all.up().iter().copied().filter(|n| *n != node).collect();
        let second = NodeIndex(world.node(1, &all.without(&[node])));
        assert!(others.contains(&second));
        assert_ne!(world.node(1, &all.without(&[node, second])), node.0);
    }
}
