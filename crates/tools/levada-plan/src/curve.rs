//! One cache over its size: what a memory of this size can reach at most, and which bytes its hits save.

use levada_cache::eviction::{EvictionEntry, Handle};
use serde::Serialize;

/// The hit ratios of one eviction over sizes, ascending.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Curve {
    pub(crate) eviction: &'static str,
    pub(crate) points: Vec<Point>,
}

/// A size and its ratios.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Point {
    pub(crate) bytes: u64,
    pub(crate) hit: f64,
    pub(crate) byte_hit: f64,
}

/// Requests for objects, the first of which fill the cache without being measured.
pub(crate) struct Requests<'a> {
    pub(crate) requests: &'a [u32],
    pub(crate) warm: usize,
    pub(crate) size: &'a dyn Fn(u32) -> u64,
    pub(crate) key: &'a dyn Fn(u32) -> levada_types::Key,
}

/// Computes the curve: eleven sizes, each three times the one before; the last holds everything.
pub(crate) fn curve(requests: &Requests<'_>, eviction: &'static EvictionEntry, all: u64) -> Curve {
    let sizes = (0..11u32).rev().map(|step| (all / 3u64.pow(step)).max(1));
    Curve {
        eviction: eviction.name,
        points: sizes.map(|bytes| replay(requests, eviction, bytes)).collect(),
    }
}

/// The ratios of a cache of this size.
pub(crate) fn replay(requests: &Requests<'_>, entry: &EvictionEntry, bytes: u64) -> Point {
    let mut eviction = (entry.build)(bytes);
    let mut victims = Vec::new();
    let (mut hits, mut byte_hits, mut total) = (0.0, 0.0, 0.0);
    for (at, id) in requests.requests.iter().enumerate() {
        let (handle, size) = (Handle(*id), (requests.size)(*id));
        let is_measured = at >= requests.warm;
        total += if is_measured { size as f64 } else { 0.0 };
        if eviction.contains(handle) {
            eviction.touch(handle);
            if is_measured {
                hits += 1.0;
                byte_hits += size as f64;
            }
        } else if size <= bytes {
            // It fits, so the insertion succeeds.
            let _ = eviction.insert(handle, (requests.key)(*id), size, &mut victims);
            victims.clear();
        }
    }
    let measured = (requests.requests.len() - requests.warm).max(1) as f64;
    Point { bytes, hit: hits / measured, byte_hit: byte_hits / total.max(1.0) }
}

impl Curve {
    /// The hit ratio at a size, between points in proportion to the logarithm of the size.
    pub(crate) fn hit(&self, bytes: u64) -> f64 {
        let log = |bytes: u64| (bytes.max(1) as f64).ln();
        let points: Vec<_> = self.points.iter().map(|p| (log(p.bytes), p.hit)).collect();
        between(&points, log(bytes))
    }

    /// The byte-hit ratio of a cache with this hit ratio.
    pub(crate) fn byte_hit(&self, hit: f64) -> f64 {
        let points: Vec<_> = self.points.iter().map(|p| (p.hit, p.byte_hit)).collect();
        between(&points, hit)
    }

    /// The hit ratio of unlimited memory.
    pub(crate) fn best(&self) -> f64 {
        self.points.last().map_or(0.0, |point| point.hit)
    }
}

/// Linear between the points, which ascend in x; from the origin to the first one.
fn between(points: &[(f64, f64)], x: f64) -> f64 {
    let mut before = (0.0, 0.0);
    for &point in points {
        if x <= point.0 {
            let width = point.0 - before.0;
            return if width > 0.0 {
                before.1 + (point.1 - before.1) * (x - before.0) / width
            } else {
                point.1
            };
        }
        before = point;
    }
    before.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_between_points_are_between_their_values() {
        let points = [(1.0, 0.2), (2.0, 0.6), (2.0, 0.6)];
        assert!((between(&points, 1.5) - 0.4).abs() < 1e-9);
        assert!((between(&points, 0.5) - 0.1).abs() < 1e-9);
        assert_eq!(between(&points, 9.0), 0.6);
        assert_eq!(between(&[], 1.0), 0.0);
    }
}
