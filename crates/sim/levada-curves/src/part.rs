//! A sample that is complete, and disjoint parts of it: what algorithms run over.

use levada_types::{Key, weigh};

use crate::sample::{Run, Sample};

/// Requests for objects of known size, sampled at one rate.
pub(crate) struct Part {
    pub(crate) runs: Vec<Run>,
    /// So many of them only fill the caches.
    pub(crate) filling: usize,
    /// The objects, by the numbers in the runs.
    pub(crate) objects: Vec<PartObject>,
    /// The share of all objects that it has.
    pub(crate) rate: f64,
}

#[derive(Clone, Copy)]
pub(crate) struct PartObject {
    pub(crate) key: Key,
    pub(crate) bytes: u64,
}

impl PartObject {
    /// The disjoint part that has it, by a hash of its own: that of the sample is small for all its objects.
    fn shard(self) -> usize {
        weigh(self.key, SHARD_SEED) as usize % SHARDS
    }
}

const SHARD_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Disjoint parts of a sample.
pub(crate) const SHARDS: usize = 8;

/// Requests and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) requests: f64,
    pub(crate) bytes: f64,
}

impl Counts {
    /// Counts requests for an object.
    pub(crate) fn add(&mut self, object: PartObject, requests: u64) {
        self.requests += requests as f64;
        self.bytes += requests as f64 * object.bytes as f64;
    }
}

impl Part {
    /// The requests for objects of known size.
    pub(crate) fn of(sample: &Sample, rate: f64) -> Self {
        let objects = sample.objects.iter();
        let objects = objects.map(|o| Some(PartObject { key: o.key, bytes: o.size.bytes()? }));
        Self::new(objects, &sample.runs, sample.filling, rate)
    }

    /// One of [`SHARDS`] disjoint parts.
    pub(crate) fn shard(&self, number: usize) -> Self {
        let objects = self.objects.iter().map(|o| (o.shard() == number).then_some(*o));
        Self::new(objects, &self.runs, self.filling, self.rate / SHARDS as f64)
    }

    /// The objects that are kept get new numbers; runs of the others are dropped.
    fn new(
        objects: impl Iterator<Item = Option<PartObject>>,
        runs: &[Run],
        filling: usize,
        rate: f64,
    ) -> Self {
        let mut kept = Vec::new();
        let ids: Vec<Option<u32>> = objects
            .map(|object| {
                kept.push(object?);
                Some(kept.len() as u32 - 1)
            })
            .collect();
        let is_kept = |run: &&Run| ids[run.object as usize].is_some();
        let filling = runs[..filling].iter().filter(is_kept).count();
        let runs = runs.iter().filter_map(|run| {
            let object = ids[run.object as usize]?;
            Some(Run { object, ..*run })
        });
        Self { runs: runs.collect(), filling, objects: kept, rate }
    }

    pub(crate) fn object(&self, run: Run) -> PartObject {
        self.objects[run.object as usize]
    }

    /// The runs, each with whether it counts.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (Run, bool)> {
        self.runs.iter().enumerate().map(|(at, run)| (*run, at >= self.filling))
    }

    /// All requests that count.
    pub(crate) fn all(&self) -> Counts {
        let mut all = Counts::default();
        for run in &self.runs[self.filling..] {
            let object = self.object(*run);
            all.add(object, run.requests.into());
        }
        all
    }

    /// The misses of a cache that never evicts: the first request for each object.
    pub(crate) fn first_requests(&self) -> Counts {
        let mut is_known = vec![false; self.objects.len()];
        self.runs[..self.filling].iter().for_each(|run| is_known[run.object as usize] = true);
        let mut firsts = Counts::default();
        let objects = self.objects.iter().zip(is_known).filter(|(_, is_known)| !is_known);
        objects.for_each(|(object, _)| firsts.add(*object, 1));
        firsts
    }

    /// The bytes of all objects.
    pub(crate) fn object_bytes(&self) -> f64 {
        self.objects.iter().map(|object| object.bytes as f64).sum()
    }
}
