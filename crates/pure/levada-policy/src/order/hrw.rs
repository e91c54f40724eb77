//! Highest random weight (Thaler and Ravishankar; OSDI'02 Sec. 2.2): the servers of a URL, sorted
//! by `hash(url, server)` descending, ties by name. A server that joins or leaves takes or gives up
//! only its own URLs. Every URL has its own order, so a full server's load spreads over all others.
//!
//! With weights, servers are sorted by `-w / ln(u)`, where u is the hash as a number in (0, 1). So
//! each server is first for its share of the URLs. The function rises with u, so equal weights give
//! the unweighted order.

use std::cmp::Reverse;

use levada_types::{Key, weigh};

use super::cache::LINE;
use crate::{Cluster, Node, NodeIndex};

pub(super) struct Hrw {
    // Sorted by name, so that the first of equal scores is the first by name.
    parties: Vec<u64>,
    nodes: Vec<NodeIndex>,
    weights: Option<Vec<f64>>,
}

impl Hrw {
    pub(super) fn new(nodes: &[Node]) -> Self {
        let mut by_name: Vec<_> = (0..).map(NodeIndex).zip(nodes).collect();
        by_name.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        let even = nodes.windows(2).all(|pair| pair[0].weight == pair[1].weight);
        Self {
            parties: by_name.iter().map(|(_, node)| node.hash).collect(),
            nodes: by_name.iter().map(|(index, _)| *index).collect(),
            weights: (!even).then(|| by_name.iter().map(|(_, node)| node.weight).collect()),
        }
    }

    pub(super) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn fill(&self, key: Key, out: &mut [NodeIndex]) {
        match &self.weights {
            None => self.select(|_, hash| hash, key, out),
            Some(weights) => self.select(|i, hash| score(hash, weights[i]), key, out),
        }
    }

    fn select(&self, score: impl Fn(usize, u64) -> u64, key: Key, out: &mut [NodeIndex]) {
        let scored = self.parties.iter().enumerate().map(|(i, p)| (score(i, weigh(key, *p)), i));
        match out.len() {
            0 => {}
            1 => out[0] = self.nodes[highest(scored)],
            few if few <= LINE && self.weights.is_none() => self.filter(key, out),
            _ => self.sort(scored.collect(), out),
        }
    }

    /// Selects the few highest: sorts the nodes above a score that somewhat more nodes than
    /// necessary should reach. If too few or too many reach it, sorts all.
    fn filter(&self, key: Key, out: &mut [NodeIndex]) {
        const ROOM: usize = 32;
        let few = out.len() as f64;
        let part = (few + 2.0 * few.sqrt() + 1.0) / self.nodes.len() as f64;
        let bar = ((1.0 - part).max(0.0) * u64::MAX as f64) as u64;
        let (mut best, mut reached) = ([0u32; ROOM], 0);
        for (i, party) in (0..).zip(&self.parties) {
            // Written unconditionally: a branch would be mispredicted too often.
            best[reached % ROOM] = i;
            reached += usize::from(weigh(key, *party) >= bar);
        }
        if reached < out.len() || reached > ROOM {
            let scored = self.parties.iter().enumerate().map(|(i, p)| (weigh(key, *p), i));
            return self.sort(scored.collect(), out);
        }
        let mut scored = best.map(|i| (0, i as usize));
        for (score, i) in &mut scored[..reached] {
            *score = weigh(key, self.parties[*i]);
        }
        scored[..reached].sort_unstable_by(descending);
        for (place, (_, i)) in out.iter_mut().zip(scored) {
            *place = self.nodes[i];
        }
    }

    fn sort(&self, mut scored: Vec<(u64, usize)>, out: &mut [NodeIndex]) {
        if out.len() < scored.len() {
            scored.select_nth_unstable_by(out.len(), descending);
            scored.truncate(out.len());
        }
        scored.sort_unstable_by(descending);
        for (place, (_, i)) in out.iter_mut().zip(scored) {
            *place = self.nodes[i];
        }
    }
}

fn descending(a: &(u64, usize), b: &(u64, usize)) -> std::cmp::Ordering {
    b.0.cmp(&a.0).then(a.1.cmp(&b.1))
}

fn highest(scored: impl Iterator<Item = (u64, usize)>) -> usize {
    scored.fold((0, 0), |best, next| if next.0 > best.0 { next } else { best }).1
}

/// These nodes in the order of highest random weight for `key`.
pub fn rendezvous<'a>(
    key: Key,
    nodes: impl Iterator<Item = (NodeIndex, &'a Node)>,
) -> Vec<NodeIndex> {
    let scored = |(index, node): (NodeIndex, &'a Node)| {
        (Reverse(score(weigh(key, node.hash), node.weight)), &node.name, index)
    };
    let mut order: Vec<_> = nodes.map(scored).collect();
    order.sort_unstable();
    order.into_iter().map(|(.., index)| index).collect()
}

/// The node with the highest random weight for `key` of those that are up and that `takes` it.
pub(crate) fn first_of(
    key: Key,
    cluster: &Cluster,
    takes: impl Fn(NodeIndex) -> bool,
) -> Option<NodeIndex> {
    let weight = |index: &NodeIndex| {
        let node = cluster.node(*index);
        score(weigh(key, node.hash), node.weight)
    };
    cluster.up().iter().copied().filter(|node| takes(*node)).max_by_key(weight)
}

/// `-w / ln(u)` as bits: positive floating-point numbers sort as their bits do.
fn score(hash: u64, weight: f64) -> u64 {
    // 52 bits and a half keep u strictly between 0 and 1.
    let u = ((hash >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
    (-weight / u.ln()).to_bits()
}
