//! The model against the log: a size of the cache that explains the first half predicts the second.
//!
//! Memory and disk of the logged caches are one cache here, which is the disk tier's size when that keeps what the
//! memory has. Where the log says which hits came from memory, the memory alone is explained and predicted as well:
//! it sees all requests, and keeps what it keeps without a disk below it.

use levada_cache::eviction::EvictionEntry;
use levada_curves::CurvePoint;
use serde::Serialize;

use crate::{
    one_cache::one_cache,
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

/// Checks the model, if the log has results of a cache for half of its requests at least.
///
/// # Errors
/// If there is nothing to compute a curve from.
pub(crate) fn backtest(
    log: &Log,
    eviction: &'static EvictionEntry,
    all: u64,
) -> anyhow::Result<Option<Backtest>> {
    let count = |result: fn(&Request) -> bool| log.requests.iter().filter(|r| result(r)).count();
    let stated = count(|request| request.result().is_some());
    if stated * 2 < log.requests.len() || log.requests.len() < 100 {
        return Ok(None);
    }
    let middle = log.requests.len() / 2;
    let requests =
        &log.requests[middle.saturating_sub(MOST)..log.requests.len().min(middle + MOST)];
    let halves = Halves { log, requests, middle: middle.min(MOST), eviction };
    let (cache, logged, predicted) = halves.predict(all, |result| result != LoggedResult::Miss)?;
    let tells = count(|request| request.result() == Some(LoggedResult::MemoryHit)) > 0
        && count(|request| request.result() == Some(LoggedResult::Hit)) > 0;
    let memory = tells.then(|| {
        let (bytes, logged, predicted) =
            halves.predict(all, |result| result == LoggedResult::MemoryHit)?;
        anyhow::Ok(MemoryTest { bytes, logged_hit: logged.0, predicted_hit: predicted.hit_ratio })
    });
    Ok(Some(Backtest {
        cache,
        eviction: eviction.name,
        requests: (requests.len() - halves.middle) as u64,
        logged_hit: logged.0,
        predicted_hit: predicted.hit_ratio,
        logged_byte_hit: logged.1,
        predicted_byte_hit: predicted.byte_hit_ratio,
        memory: memory.transpose()?,
    }))
}

/// The requests that explain, and from `middle` on those that are predicted.
struct Halves<'a> {
    log: &'a Log,
    requests: &'a [Request],
    middle: usize,
    eviction: &'static EvictionEntry,
}

impl Halves<'_> {
    /// The size that explains the first half's hits, with the logged ratios and the predicted ones of the second.
    fn predict(
        &self,
        all: u64,
        is_hit: impl Fn(LoggedResult) -> bool,
    ) -> anyhow::Result<(u64, (f64, f64), CurvePoint)> {
        // The log may begin with caches that were full already: the first quarter of it fills the model's.
        let (middle, filling) = (self.middle, self.middle / 2);
        let (aim, _) = self.logged(&self.requests[filling..middle], &is_hit);
        let (mut low, mut high) = (1.0f64, all.max(2) as f64);
        for _ in 0..STEPS {
            let bytes = (low * high).sqrt();
            match self.model(middle, filling, bytes as u64)?.hit_ratio < aim {
                true => low = bytes,
                false => high = bytes,
            }
        }
        let bytes = (low * high).sqrt() as u64;
        let logged = self.logged(&self.requests[middle..], &is_hit);
        Ok((bytes, logged, self.model(self.requests.len(), middle, bytes)?))
    }

    /// The hit ratios, by requests and by bytes, that the log states.
    fn logged(&self, range: &[Request], is_hit: &impl Fn(LoggedResult) -> bool) -> (f64, f64) {
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

    /// A cache of so many bytes with the requests until `end`, of which the first ones only fill it.
    fn model(&self, end: usize, filling: usize, bytes: u64) -> anyhow::Result<CurvePoint> {
        let objects =
            self.requests[..end].iter().map(|request| &self.log.objects[request.object as usize]);
        let requests = objects.map(|object| (object.key, object.bytes()));
        let report = one_cache(requests, filling, vec![self.eviction], vec![bytes.max(1)])?;
        Ok(report.curves[0].points[0])
    }
}
