//! The circle of consistent hashing (Karger et al.; OSDI'02 Sec. 2.2): it has 2^32 positions; every
//! server has several points on it, every URL one.
//!
//! A walk goes clockwise from the URL. R-CHash instead takes the server *closest* to each of k
//! points, spaced evenly from the URL's point. "Closest on the circle" includes the server before a
//! point.

use levada_types::{Key, weigh};

use super::cache::LINE;
use crate::{Node, NodeIndex};

pub(super) struct Ring {
    // Ascending; servers at the same position are sorted by name.
    points: Vec<Point>,
    // The index of the first point at or after each interval of 2^shift positions. A lookup takes
    // one read and a step or two, while each step of a binary search misses the processor's cache.
    intervals: Vec<u32>,
    shift: u32,
    nodes: usize,
}

#[derive(Clone, Copy)]
struct Point {
    place: u32,
    node: NodeIndex,
}

impl Ring {
    /// The circle with `per_node` points for each server of weight 1.
    pub(super) fn new(nodes: &[Node], per_node: u64) -> Self {
        let mut by_name: Vec<_> = (0..).map(NodeIndex).zip(nodes).collect();
        by_name.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        let mut points = Vec::new();
        for (index, node) in by_name {
            let count = (per_node as f64 * node.weight).round().clamp(1.0, MAX_POINTS) as u64;
            let place = |n| (weigh(Key(n), node.hash) >> 32) as u32;
            points.extend((0..count).map(|n| Point { place: place(n), node: index }));
        }
        points.sort_by_key(|point| point.place);
        let bits = points.len().max(1).next_power_of_two().ilog2();
        let shift = 32 - bits;
        let first =
            |interval: u64| points.partition_point(|p| u64::from(p.place) < interval << shift);
        let intervals = (0..1u64 << bits).map(|interval| first(interval) as u32).collect();
        Self { points, intervals, shift, nodes: nodes.len() }
    }

    pub(super) fn nodes(&self) -> usize {
        self.nodes
    }

    /// The first distinct servers clockwise from the position of `key`.
    pub(super) fn clockwise(&self, key: Key, out: &mut [NodeIndex]) {
        self.extend_clockwise(key, Distinct::new(out, self.nodes));
    }

    /// The servers closest to `replicas` points, then the servers clockwise. Returns how many of
    /// the first entries of `out` are of the first kind.
    pub(super) fn spread(&self, key: Key, replicas: usize, out: &mut [NodeIndex]) -> usize {
        let start = place_of(key);
        let mut servers = Distinct::new(out, self.nodes);
        for j in 0..replicas as u64 {
            let offset = (j << 32) / replicas as u64;
            servers.push(self.closest(start.wrapping_add(offset as u32)));
        }
        let spread = servers.count;
        self.extend_clockwise(key, servers);
        spread
    }

    fn extend_clockwise(&self, key: Key, mut servers: Distinct<'_>) {
        let (before, after) = self.points.split_at(self.successor(place_of(key)));
        for point in after.iter().chain(before) {
            if servers.full() {
                return;
            }
            servers.push(point.node);
        }
    }

    /// The index in `points` of the first point at or after `place`; 0 beyond the last point.
    fn successor(&self, place: u32) -> usize {
        let mut at = self.intervals[(u64::from(place) >> self.shift) as usize] as usize;
        while self.points.get(at).is_some_and(|point| point.place < place) {
            at += 1;
        }
        if at == self.points.len() { 0 } else { at }
    }

    /// The server closest to `place` in either direction; of two equally close the one after it.
    fn closest(&self, place: u32) -> NodeIndex {
        let at = self.successor(place);
        let after = self.points[at];
        let before = self.points[at.checked_sub(1).unwrap_or(self.points.len() - 1)];
        let (up, down) = (after.place.wrapping_sub(place), place.wrapping_sub(before.place));
        if down < up { before.node } else { after.node }
    }
}

#[inline]
fn place_of(key: Key) -> u32 {
    (weigh(key, CIRCLE) >> 32) as u32
}

/// A list that holds every node at most once.
struct Distinct<'a> {
    out: &'a mut [NodeIndex],
    count: usize,
    // A short list is searched; a long one has marks.
    seen: Vec<bool>,
}

impl<'a> Distinct<'a> {
    fn new(out: &'a mut [NodeIndex], nodes: usize) -> Self {
        let seen = if out.len() > LINE { vec![false; nodes] } else { Vec::new() };
        Self { out, count: 0, seen }
    }

    fn full(&self) -> bool {
        self.count == self.out.len()
    }

    fn push(&mut self, node: NodeIndex) {
        let known = match self.seen.get_mut(node.get()) {
            Some(mark) => std::mem::replace(mark, true),
            None => self.out[..self.count].contains(&node),
        };
        if !known && !self.full() {
            self.out[self.count] = node;
            self.count += 1;
        }
    }
}

/// The most points of one server, at any weight: 1 MiB.
const MAX_POINTS: f64 = 131_072.0;

/// The seed that makes the position of a key independent of the key's other hashes.
const CIRCLE: u64 = 0x6369_7263_6c65_3332;
