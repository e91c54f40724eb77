//! A sample that is complete, and disjoint parts of it: what algorithms run over.

use levada_types::{Key, weigh};

use crate::sample::{Run, Sample};

/// Requests for objects of known size, sampled at one rate.
pub(crate) struct Part {
    pub(crate) runs: Vec<Run>,
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
        Self::new(objects, &sample.runs, rate)
    }

    /// One of [`SHARDS`] disjoint parts.
    pub(crate) fn shard(&self, number: usize) -> Self {
        let objects = self.objects.iter().map(|o| (o.shard() == number).then_some(*o));
        Self::new(objects, &self.runs, self.rate / SHARDS as f64)
    }

    /// The objects that are kept get new numbers; runs of the others are dropped.
    fn new(objects: impl Iterator<Item = Option<PartObject>>, runs: &[Run], rate: f64) -> Self {
        let mut kept = Vec::new();
        let ids: Vec<Option<u32>> = objects
            .map(|object| {
                kept.push(object?);
                Some(kept.len() as u32 - 1)
            })
            .collect();
        let runs = runs.iter().filter_map(|run| {
            let object = ids[run.object as usize]?;
            Some(Run { object, ..*run })
        });
        Self { runs: runs.collect(), objects: kept, rate }
    }

    pub(crate) fn object(&self, run: Run) -> PartObject {
        self.objects[run.object as usize]
    }

    /// All requests.
    pub(crate) fn all(&self) -> Counts {
        let mut all = Counts::default();
        for run in &self.runs {
            let object = self.object(*run);
            all.add(object, run.requests.into());
        }
        all
    }

    /// The misses of a cache that never evicts: the first request for each object.
    pub(crate) fn first_requests(&self) -> Counts {
        let mut firsts = Counts::default();
        self.objects.iter().for_each(|object| firsts.add(*object, 1));
        firsts
    }
}
