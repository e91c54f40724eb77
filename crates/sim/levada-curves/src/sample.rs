//! The sample: the requests for objects whose hash is below a threshold, in bounded memory.
//!
//! SHARDS (Waldspurger et al., FAST'15, Sec. 3) samples objects by their hash, and lowers the threshold when there
//! are too many (Sec. 3.2). It rescales what it has counted until then; here the requests themselves are kept, so
//! that those above the new threshold are dropped, and all figures belong to one rate.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use levada_trace::StatedSize;
use levada_types::{Key, hash64, weigh};

use crate::CurveOptions;

/// Takes requests in their order, keeps a sample of them, and computes the curves.
pub struct Curves {
    pub(crate) options: CurveOptions,
    threshold: SampleFilter,
    pub(crate) sample: Sample,
    pub(crate) totals: Totals,
}

/// Requests that were kept, and their objects.
#[derive(Default)]
pub(crate) struct Sample {
    ids: HashMap<Key, u32>,
    pub(crate) objects: Vec<SampledObject>,
    pub(crate) runs: Vec<Run>,
    /// So many runs only fill the caches.
    pub(crate) filling: usize,
}

/// Consecutive requests of the sample for one object. A crowd for one object takes little memory so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) object: u32,
    pub(crate) requests: u32,
}

#[derive(Clone, Copy)]
pub(crate) struct SampledObject {
    pub(crate) key: Key,
    pub(crate) size: StatedSize,
    /// The bytes that its responses state, all together.
    pub(crate) stated: f64,
}

/// Counts of all requests, sampled or not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Requests.
    pub requests: u64,
    /// Requests whose responses do not state a size.
    pub sizeless: u64,
    /// The bytes that the responses state.
    pub stated: f64,
}

impl Totals {
    /// Counts a request.
    pub fn count(&mut self, size: StatedSize) {
        self.requests += 1;
        match size.bytes() {
            Some(bytes) => self.stated += bytes as f64,
            None => self.sizeless += 1,
        }
    }

    /// Adds other counts.
    pub fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.sizeless += other.sizeless;
        self.stated += other.stated;
    }
}

/// Says which requests the sample leaves out, so that other threads need not pass them on. Its threshold falls with
/// that of its [`Curves`].
#[derive(Clone)]
pub struct SampleFilter {
    /// The hashes below it are sampled; the maximum samples all.
    threshold: Arc<AtomicU64>,
    seed: u64,
}

impl SampleFilter {
    /// Whether requests for this object may be in the sample. An object that is out never comes in.
    pub fn takes(&self, key: Key) -> bool {
        let threshold = self.threshold.load(Relaxed);
        threshold == u64::MAX || weigh(key, self.seed) < threshold
    }

    /// The share of the objects that are sampled.
    fn rate(&self) -> f64 {
        match self.threshold.load(Relaxed) {
            u64::MAX => 1.0,
            threshold => threshold as f64 / RANGE,
        }
    }

    fn lower(&self) {
        let threshold = self.threshold.load(Relaxed);
        self.threshold.store(threshold - threshold / 4, Relaxed);
    }
}

/// The number of hashes.
const RANGE: f64 = 18_446_744_073_709_551_616.0;

impl Curves {
    /// No requests yet.
    pub fn new(options: CurveOptions) -> Self {
        let rate = options.rate.clamp(1e-9, 1.0);
        // The cast saturates.
        let threshold = Arc::new(AtomicU64::new((rate * RANGE) as u64));
        let seed = hash64(&options.seed.to_le_bytes());
        let threshold = SampleFilter { threshold, seed };
        Self { options, threshold, sample: Sample::default(), totals: Totals::default() }
    }

    /// Takes the next request. `size` is the size of the whole object as far as the response states it; the size of
    /// an object is the largest statement. An object whose size no response states is left out.
    pub fn request(&mut self, key: Key, size: StatedSize) {
        self.totals.count(size);
        self.keep(key, size);
    }

    /// Counts from here on: the requests so far only fill the caches.
    pub fn begin(&mut self) {
        self.totals = Totals::default();
        self.sample.filling = self.sample.runs.len();
        self.sample.objects.iter_mut().for_each(|object| object.stated = 0.0);
    }

    /// The filter for threads that prepare requests for [`Curves::keep`].
    pub fn filter(&self) -> SampleFilter {
        self.threshold.clone()
    }

    /// Counts requests whose sampled ones are passed to [`Curves::keep`].
    pub fn count(&mut self, totals: Totals) {
        self.totals.add(totals);
    }

    /// Keeps a request if it is in the sample, and does not count it.
    pub fn keep(&mut self, key: Key, size: StatedSize) {
        if !self.threshold.takes(key) {
            return;
        }
        self.sample.take(key, size);
        while self.sample.runs.len() > self.options.sample.max(LEAST_SAMPLE) {
            self.threshold.lower();
            self.sample.retain(|key| self.threshold.takes(key));
        }
    }

    /// The share of the objects that are sampled now.
    pub fn rate(&self) -> f64 {
        self.threshold.rate()
    }
}

/// With fewer requests the rate would fall to that of a single object.
const LEAST_SAMPLE: usize = 1000;

impl Sample {
    fn take(&mut self, key: Key, size: StatedSize) {
        let next = self.objects.len() as u32;
        let id = match self.ids.entry(key) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(free) => {
                self.objects.push(SampledObject { key, size, stated: 0.0 });
                *free.insert(next)
            }
        };
        let object = &mut self.objects[id as usize];
        object.size = object.size.max(size);
        object.stated += size.bytes().unwrap_or(0) as f64;
        let count = self.runs.len();
        match self.runs.last_mut() {
            Some(run) if run.object == id && run.requests < u32::MAX && self.filling < count => {
                run.requests += 1;
            }
            _ => self.runs.push(Run { object: id, requests: 1 }),
        }
    }

    /// Drops the objects that are no longer in the sample, and their requests.
    fn retain(&mut self, is_in: impl Fn(Key) -> bool) {
        let mut before = std::mem::take(&mut self.objects);
        let mut ids = vec![u32::MAX; before.len()];
        self.ids.clear();
        let in_sample = ids.iter_mut().zip(&before).filter(|(_, object)| is_in(object.key));
        for (next, (id, object)) in (0..).zip(in_sample) {
            self.ids.insert(object.key, next);
            *id = next;
        }
        before.retain(|object| is_in(object.key));
        self.objects = before;
        let (mut kept, mut filling) = (0, 0);
        for at in 0..self.runs.len() {
            if at == self.filling {
                filling = kept;
            }
            let run = self.runs[at];
            let object = ids[run.object as usize];
            if object == u32::MAX {
                continue;
            }
            // The requests between them may be gone.
            if kept > filling && self.runs[kept - 1].object == object {
                let last = &mut self.runs[kept - 1];
                last.requests = last.requests.saturating_add(run.requests);
            } else {
                self.runs[kept] = Run { object, ..run };
                kept += 1;
            }
        }
        self.filling = if self.filling < self.runs.len() { filling } else { kept };
        self.runs.truncate(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curves(rate: f64, sample: usize) -> Curves {
        Curves::new(CurveOptions { rate, sample, ..CurveOptions::default() })
    }

    #[test]
    fn all_requests_of_an_object_are_in_or_none() {
        let mut curves = curves(0.25, 1_000_000);
        for n in 0..40_000u64 {
            curves.request(Key(n % 10_000), StatedSize::Whole(1));
        }
        let objects = curves.sample.objects.len();
        assert!((2_300..2_700).contains(&objects), "{objects}");
        assert_eq!(curves.sample.runs.len(), 4 * objects);
        assert_eq!((curves.totals.requests, curves.rate()), (40_000, 0.25));
    }

    #[test]
    fn rate_falls_until_the_sample_fits() {
        let mut curves = curves(1.0, 5_000);
        let filter = curves.filter();
        for n in 0..200_000u64 {
            curves.request(Key(n), StatedSize::Whole(1));
            assert!(curves.sample.runs.len() <= 5_000 && curves.sample.objects.len() <= 5_000);
        }
        let (rate, kept) = (curves.rate(), curves.sample.runs.len() as f64);
        assert!(rate < 0.026 && (kept / rate / 200_000.0 - 1.0).abs() < 0.1, "{rate} {kept}");
        let below = (0..200_000).filter(|n| filter.takes(Key(*n))).count();
        assert_eq!(
            below,
            curves.sample.objects.len(),
            "those of the start are sampled like the last"
        );
    }

    #[test]
    fn requests_that_fill_are_not_mixed_with_those_that_count() {
        let mut curves = curves(1.0, 1_000);
        let request = |curves: &mut Curves, n| curves.request(Key(n), StatedSize::Whole(1));
        for n in 0..900 {
            request(&mut curves, n % 300);
        }
        request(&mut curves, 7);
        curves.begin();
        request(&mut curves, 7);
        let sample = &curves.sample;
        assert_eq!((sample.filling, sample.runs.len(), curves.totals.requests), (901, 902, 1));
        for n in 0..900 {
            request(&mut curves, 1_000 + n % 300);
        }
        let Curves { sample, .. } = &curves;
        assert!(curves.rate() < 1.0);
        let fills = sample.runs[..sample.filling].iter();
        assert!(fills.clone().all(|run| sample.objects[run.object as usize].key.0 < 300));
        let count: u32 = fills.map(|run| run.requests).sum();
        let kept = sample.objects.iter().filter(|object| object.key.0 < 300).count() as u32;
        assert!((3 * kept..=3 * kept + 1).contains(&count), "{count} of {kept}");
    }

    #[test]
    fn crowd_for_one_object_does_not_lower_the_rate() {
        let mut curves = curves(1.0, 1_000);
        for _ in 0..100_000 {
            curves.request(Key(7), StatedSize::Whole(1));
        }
        assert_eq!((curves.sample.runs.len(), curves.rate()), (1, 1.0));
    }

    #[test]
    fn largest_statement_is_the_size() {
        let mut curves = curves(1.0, 1_000);
        let sizes = [
            StatedSize::AtLeast(90),
            StatedSize::Unknown,
            StatedSize::Whole(50),
            StatedSize::Whole(70),
        ];
        sizes.into_iter().for_each(|size| curves.request(Key(7), size));
        assert_eq!(curves.sample.objects[0].size, StatedSize::Whole(70));
        assert_eq!(curves.totals, Totals { requests: 4, sizeless: 1, stated: 210.0 });
    }
}
