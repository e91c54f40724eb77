//! The model against the log: a size of the cache that explains the first half predicts the second.
//!
//! Memory and disk of the logged caches are one cache here, which is the disk tier's size when that keeps what the
//! memory has. Where the log says which hits came from memory, the memory alone is explained and predicted as well:
//! it sees all requests, and keeps what it keeps without a disk below it.

use levada_cache::eviction::{EvictionEntry, Keyed};
use serde::Serialize;

use crate::{
    expiry::Expiry,
    read::{Log, LoggedResult, Request},
};

/// A prediction and the truth.
#[derive(Debug, Serialize)]
pub struct Backtest {
    /// The cache that explains the first half, all nodes and tiers together, in bytes.
    pub cache: u64,
    /// The eviction of the model.
    pub eviction: &'static str,
    /// Requests of the second half.
    pub requests: u64,
    /// The hit ratio that the log states for them.
    pub logged_hit: f64,
    /// The predicted one.
    pub predicted_hit: f64,
    /// The logged one by bytes.
    pub logged_byte_hit: f64,
    /// The predicted one by bytes.
    pub predicted_byte_hit: f64,
    /// The memory alone, if the log tells its hits from those on disk.
    pub memory: Option<MemoryTest>,
}

/// The same for the memory alone.
#[derive(Debug, Serialize)]
pub struct MemoryTest {
    /// The memory that explains the first half, all nodes together, in bytes.
    pub bytes: u64,
    /// The ratio of hits in memory that the log states for the second half.
    pub logged_hit: f64,
    /// The predicted one.
    pub predicted_hit: f64,
}

/// Steps of the search for a size.
const STEPS: u32 = 14;
/// Most requests of each half.
const MOST: usize = 2_000_000;

/// Checks the model, if the log has results of a cache for half of its requests at least. Also returns how long objects
/// are fresh, which the first half shows if `expiry` was not given.
pub(crate) fn backtest(
    log: &Log,
    eviction: &'static EvictionEntry,
    all: u64,
    expiry: Expiry,
) -> (Option<Backtest>, Expiry) {
    let count = |result: fn(&Request) -> bool| log.requests.iter().filter(|r| result(r)).count();
    let stated = count(|request| request.result().is_some());
    if stated * 2 < log.requests.len() || log.requests.len() < 100 {
        return (None, expiry);
    }
    let middle = log.requests.len() / 2;
    let requests =
        &log.requests[middle.saturating_sub(MOST)..log.requests.len().min(middle + MOST)];
    let halves = Halves { log, requests, middle: middle.min(MOST), eviction };
    let cache = halves.size(all, expiry, LoggedResult::is_found, |model| model.found);
    let expiry = expiry.learn(&halves, cache);
    let (logged, predicted) =
        (halves.logged_last(LoggedResult::is_hit), halves.predict(cache, expiry));
    let tells = count(|request| request.result() == Some(LoggedResult::MemoryHit)) > 0
        && count(|request| request.result() == Some(LoggedResult::Hit)) > 0;
    let memory = tells.then(|| {
        let is_hit = |result| result == LoggedResult::MemoryHit;
        let bytes = halves.size(all, expiry, is_hit, |model| model.found - model.expired);
        let model = halves.predict(bytes, expiry);
        let predicted_hit = (model.found - model.expired) / model.requests.max(1.0);
        MemoryTest { bytes, logged_hit: halves.logged_last(is_hit).0, predicted_hit }
    });
    let test = Backtest {
        cache,
        eviction: eviction.name,
        requests: (requests.len() - halves.middle) as u64,
        logged_hit: logged.0,
        predicted_hit: predicted.hits / predicted.requests.max(1.0),
        logged_byte_hit: logged.1,
        predicted_byte_hit: predicted.byte_hits / predicted.bytes.max(1.0),
        memory,
    };
    (Some(test), expiry)
}

/// The requests that explain, and from `middle` on those that are predicted.
pub(crate) struct Halves<'a> {
    log: &'a Log,
    requests: &'a [Request],
    middle: usize,
    eviction: &'static EvictionEntry,
}

/// The requests that count in a model.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Modelled {
    pub(crate) requests: f64,
    /// Requests whose object was in the cache.
    pub(crate) found: f64,
    /// Found ones whose copy had expired.
    pub(crate) expired: f64,
    /// Found ones without those that had changed.
    pub(crate) hits: f64,
    pub(crate) byte_hits: f64,
    pub(crate) bytes: f64,
}

impl Halves<'_> {
    /// The log may begin with caches that were full already: the first quarter of it fills the model's.
    fn explaining(&self) -> (usize, usize) {
        (self.middle / 2, self.middle)
    }

    /// The size of the cache that explains a ratio of the first half, as logged and by the model.
    fn size(
        &self,
        all: u64,
        expiry: Expiry,
        is_counted: impl Fn(LoggedResult) -> bool,
        counted: impl Fn(&Modelled) -> f64,
    ) -> u64 {
        let (filling, middle) = self.explaining();
        let (aim, _) = self.logged(&self.requests[filling..middle], is_counted);
        let (mut low, mut high) = (1.0f64, all.max(2) as f64);
        for _ in 0..STEPS {
            let bytes = (low * high).sqrt();
            let model = self.explain(bytes as u64, expiry);
            match counted(&model) / model.requests.max(1.0) < aim {
                true => low = bytes,
                false => high = bytes,
            }
        }
        (low * high).sqrt() as u64
    }

    /// The share of expired copies among those that were found in the first half, as logged.
    pub(crate) fn logged_expired(&self) -> f64 {
        let (filling, middle) = self.explaining();
        let results = || self.requests[filling..middle].iter().filter_map(|r| r.result());
        let found = results().filter(|result| result.is_found()).count();
        results().filter(|result| result.is_expired()).count() as f64 / found.max(1) as f64
    }

    /// Seconds from the first request to the middle.
    pub(crate) fn seconds(&self) -> f64 {
        let (first, middle) = (self.requests.first(), self.requests.get(self.middle));
        first.zip(middle).map_or(0.0, |(first, middle)| middle.seconds() - first.seconds())
    }

    /// The model of the first half.
    pub(crate) fn explain(&self, bytes: u64, expiry: Expiry) -> Modelled {
        let (filling, middle) = self.explaining();
        self.model(middle, filling, bytes, expiry)
    }

    /// The model of the second half.
    fn predict(&self, bytes: u64, expiry: Expiry) -> Modelled {
        self.model(self.requests.len(), self.middle, bytes, expiry)
    }

    fn logged_last(&self, is_hit: impl Fn(LoggedResult) -> bool) -> (f64, f64) {
        self.logged(&self.requests[self.middle..], is_hit)
    }

    /// The hit ratios, by requests and by bytes, that the log states.
    fn logged(&self, range: &[Request], is_hit: impl Fn(LoggedResult) -> bool) -> (f64, f64) {
        let (mut hits, mut count, mut byte_hits, mut bytes) = (0.0, 0.0, 0.0, 0.0);
        for request in range {
            let Some(result) = request.result() else { continue };
            let hit = f64::from(u8::from(is_hit(result)));
            let size = self.log.objects[request.object as usize].bytes() as f64;
            (hits, count, byte_hits, bytes) =
                (hits + hit, count + 1.0, byte_hits + hit * size, bytes + size);
        }
        (hits / f64::max(count, 1.0), byte_hits / f64::max(bytes, 1.0))
    }

    /// A cache of so many bytes with the requests until `end`, of which the first ones only fill it. It is the code of
    /// a node; copies are as old as the log says.
    fn model(&self, end: usize, filling: usize, bytes: u64, expiry: Expiry) -> Modelled {
        let mut cache = Keyed::new((self.eviction.build)(bytes.max(1)));
        let mut since = vec![0.0; self.log.objects.len()];
        let mut model = Modelled::default();
        for (at, request) in self.requests[..end].iter().enumerate() {
            let (id, now) = (request.object as usize, request.seconds());
            let size = self.log.objects[id].bytes();
            let is_found = cache.request(self.log.objects[id].key, size);
            let is_expired = is_found && expiry.is_over(now - since[id]);
            if !is_found || is_expired {
                since[id] = now;
            }
            if at < filling {
                continue;
            }
            let changed = if is_expired { expiry.changed } else { 0.0 };
            let hit = if is_found { 1.0 - changed } else { 0.0 };
            model.requests += 1.0;
            model.found += f64::from(u8::from(is_found));
            model.expired += f64::from(u8::from(is_expired));
            model.hits += hit;
            model.byte_hits += hit * size as f64;
            model.bytes += size as f64;
        }
        model
    }
}
