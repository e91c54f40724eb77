//! LRU for all sizes at once, by stack distances in bytes (Mattson et al., IBM Systems Journal 9(2), 1970).
//!
//! A cache holds an object if it has room for the object and for all others that were requested since. Distances of
//! a sample are as many times shorter as its rate says (SHARDS, FAST'15, Sec. 2.2), except the object itself, which
//! is there in full. A cache passes over objects that are larger than itself, so that these count for larger caches
//! only: each class of objects, by the sizes that they exceed, has a tree of its own.

use crate::part::{Counts, Part};

/// The misses of LRU caches of these sizes, ascending, at the scale of the part.
pub(crate) fn lru_misses(part: &Part, sizes: &[u64]) -> Vec<Counts> {
    let class_of = |bytes: u64| sizes.partition_point(|size| *size < bytes);
    let mut misses = vec![Counts::default(); sizes.len()];
    let mut classes = classes(part, sizes.len(), class_of);
    let mut last: Vec<Option<Request>> = vec![None; part.objects.len()];
    for (time, (run, counts)) in (0..).zip(part.runs()) {
        let object = part.object(run);
        let own = class_of(object.bytes);
        let requests = if counts { u64::from(run.requests) } else { 0 };
        for of_size in misses.iter_mut().take(own) {
            of_size.add(object, requests);
        }
        if own == sizes.len() {
            continue;
        }
        let before = last[run.object as usize].take();
        if let Some(before) = before {
            classes[own].remove(before.place, object.bytes);
        }
        let mut since = 0.0;
        for (class, size) in sizes.iter().enumerate() {
            if let Some(before) = before {
                since += classes[class].since(before.time);
            }
            let needed = object.bytes as f64 + since / part.rate;
            if class >= own && (before.is_none() || needed > *size as f64) {
                misses[class].add(object, u64::from(counts));
            }
        }
        let place = classes[own].push(time, object.bytes);
        last[run.object as usize] = Some(Request { time, place });
    }
    misses
}

/// The last request for an object.
#[derive(Clone, Copy)]
struct Request {
    /// The number of its run.
    time: u32,
    /// The number among the runs of its class.
    place: u32,
}

/// The last requests for the objects of a class, by time.
#[derive(Default)]
struct Recency {
    /// The times of all its requests so far.
    times: Vec<u32>,
    /// Bytes by place, summed up as a binary indexed tree (Fenwick, Software: Practice and Experience 24(3), 1994).
    tree: Vec<f64>,
    total: f64,
}

fn classes(part: &Part, sizes: usize, class_of: impl Fn(u64) -> usize) -> Vec<Recency> {
    let mut runs = vec![0; sizes + 1];
    for run in &part.runs {
        runs[class_of(part.object(*run).bytes)] += 1;
    }
    let of_runs = |runs: usize| Recency { tree: vec![0.0; runs], ..Recency::default() };
    runs.into_iter().take(sizes).map(of_runs).collect()
}

impl Recency {
    /// The bytes of the objects whose last request was after `time`.
    fn since(&self, time: u32) -> f64 {
        let mut place = self.times.partition_point(|of| *of <= time);
        let mut before = 0.0;
        while place > 0 {
            before += self.tree[place - 1];
            place &= place - 1;
        }
        self.total - before
    }

    fn push(&mut self, time: u32, bytes: u64) -> u32 {
        self.times.push(time);
        let place = self.times.len() - 1;
        self.add(place, bytes as f64);
        place as u32
    }

    fn remove(&mut self, place: u32, bytes: u64) {
        self.add(place as usize, -(bytes as f64));
    }

    fn add(&mut self, place: usize, bytes: f64) {
        self.total += bytes;
        let mut place = place + 1;
        while place <= self.tree.len() {
            self.tree[place - 1] += bytes;
            place += place & place.wrapping_neg();
        }
    }
}
