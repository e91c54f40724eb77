//! The model against the log: a size of memory that explains the first half predicts the second.

use levada_cache::eviction::EvictionEntry;
use serde::Serialize;

use crate::{one_cache::one_cache, read::Log};

/// A prediction and the truth.
#[derive(Debug, Serialize)]
pub(crate) struct Backtest {
    /// The memory that explains the first half, all nodes together.
    pub(crate) memory: u64,
    /// The eviction of the model.
    pub(crate) eviction: &'static str,
    /// Requests of the second half.
    pub(crate) requests: u64,
    /// The hit ratio that the log states for them.
    pub(crate) logged_hit: f64,
    /// The predicted one.
    pub(crate) predicted_hit: f64,
    /// By bytes.
    pub(crate) logged_byte_hit: f64,
    pub(crate) predicted_byte_hit: f64,
}

/// Steps of the search for the memory.
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
    let stated = log.requests.iter().filter(|request| request.hit.is_some()).count();
    if stated * 2 < log.requests.len() || log.requests.len() < 100 {
        return Ok(None);
    }
    let middle = log.requests.len() / 2;
    let logs = &log.requests[middle.saturating_sub(MOST)..log.requests.len().min(middle + MOST)];
    let middle = middle.min(MOST);
    let size = |id: u32| log.objects[id as usize].bytes();
    let logged = |range: &[crate::read::Request]| {
        let (mut hits, mut count, mut byte_hits, mut bytes) = (0.0, 0.0, 0.0, 0.0);
        for request in range {
            let Some(hit) = request.hit else { continue };
            let (hit, size) = (f64::from(u8::from(hit)), size(request.object) as f64);
            (hits, count, byte_hits, bytes) =
                (hits + hit, count + 1.0, byte_hits + hit * size, bytes + size);
        }
        (hits / f64::max(count, 1.0), byte_hits / f64::max(bytes, 1.0))
    };
    let model = |end: usize, filling: usize, memory: u64| {
        let objects = logs[..end].iter().map(|request| &log.objects[request.object as usize]);
        let requests = objects.map(|object| (object.key, object.bytes()));
        let report = one_cache(requests, filling, vec![eviction], vec![memory.max(1)])?;
        anyhow::Ok(report.curves[0].points[0])
    };
    // The log may begin with memories that were full already: the first quarter of it fills the model's.
    let (aim, _) = logged(&logs[middle / 2..middle]);
    let (mut low, mut high) = (1.0f64, all.max(2) as f64);
    for _ in 0..STEPS {
        let memory = (low * high).sqrt();
        match model(middle, middle / 2, memory as u64)?.hit_ratio < aim {
            true => low = memory,
            false => high = memory,
        }
    }
    let memory = (low * high).sqrt() as u64;
    let (logged_hit, logged_byte_hit) = logged(&logs[middle..]);
    let predicted = model(logs.len(), middle, memory)?;
    Ok(Some(Backtest {
        memory,
        eviction: eviction.name,
        requests: (logs.len() - middle) as u64,
        logged_hit,
        predicted_hit: predicted.hit_ratio,
        logged_byte_hit,
        predicted_byte_hit: predicted.byte_hit_ratio,
    }))
}
