//! The last minutes of a node: one sample per second, in fixed memory.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::status::latency::LatencyCounts;
use levada_cluster::events::unix_time;

/// One second of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// The end of the second: Unix time in seconds, with milliseconds.
    pub time: f64,
    /// The seconds that it stands for; usually 1.
    pub seconds: f64,
    /// Requests of clients and peers that were answered, per second.
    pub requests: f64,
    /// The requests of peers among them.
    pub peer_requests: f64,
    /// Bytes of bodies sent, per second.
    pub bytes: f64,
    /// Requests answered from the cache, per second.
    pub hits: f64,
    /// Requests for which an origin was asked, per second.
    pub misses: f64,
    /// Bytes of bodies from origins and servers of switches, per second.
    pub origin_bytes: f64,
    /// Requests that were refused because the node was full, per second.
    pub refused: f64,
    /// Hits per hit and miss, from 0 to 1; `None` without either.
    pub hit_ratio: Option<f64>,
    /// The seconds within which half of the responses to clients ended; `None` without responses.
    pub p50: Option<f64>,
    /// The same for 90 %.
    pub p90: Option<f64>,
    /// The same for 99 %.
    pub p99: Option<f64>,
    /// Requests in flight.
    pub in_flight: i64,
    /// Requests that the node serves itself, as its capacity counts them.
    pub in_service: u32,
    /// Open connections.
    pub connections: i64,
    /// Resident memory in bytes; 0 if it is not known.
    pub memory_bytes: u64,
}

/// The counts of a node since its start, and its state at this moment.
#[derive(Clone, Default)]
pub struct Totals {
    /// Requests of clients that were answered.
    pub client_requests: u64,
    /// Requests of peers that were answered.
    pub peer_requests: u64,
    /// Bytes of bodies sent.
    pub bytes: u64,
    /// Requests answered from the cache.
    pub hits: u64,
    /// Requests for which an origin was asked.
    pub misses: u64,
    /// Bytes of bodies from origins and servers of switches.
    pub origin_bytes: u64,
    /// Requests that were refused because the node was full.
    pub refused: u64,
    /// The times of responses to clients.
    pub latencies: LatencyCounts,
    /// Requests in flight.
    pub in_flight: i64,
    /// Requests that the node serves itself.
    pub in_service: u32,
    /// Open connections.
    pub connections: i64,
    /// Resident memory in bytes.
    pub memory_bytes: u64,
}

/// The samples of the last [`History::SECONDS`] seconds.
pub struct History {
    state: Mutex<HistoryState>,
}

struct HistoryState {
    samples: VecDeque<Sample>,
    before: Option<(f64, Totals)>,
}

impl Default for History {
    fn default() -> Self {
        let samples = VecDeque::with_capacity(Self::SECONDS);
        Self { state: Mutex::new(HistoryState { samples, before: None }) }
    }
}

impl History {
    /// The samples that are kept: 15 minutes.
    pub const SECONDS: usize = 15 * 60;

    /// Adds the sample from the totals before to these. Call it once per second.
    pub fn add(&self, totals: Totals) {
        self.add_at(unix_time(), totals);
    }

    fn add_at(&self, time: f64, totals: Totals) {
        let mut state = self.state.lock();
        if let Some((then, before)) = &state.before {
            let sample = Sample::between((*then, before), (time, &totals));
            if state.samples.len() == Self::SECONDS {
                state.samples.pop_front();
            }
            state.samples.push_back(sample);
        }
        state.before = Some((time, totals));
    }

    /// The samples whose second ended after `time`, oldest first.
    pub fn since(&self, time: f64) -> Vec<Sample> {
        let state = self.state.lock();
        let from = state.samples.partition_point(|sample| sample.time <= time);
        state.samples.range(from..).copied().collect()
    }

    /// The last sample.
    pub fn last(&self) -> Option<Sample> {
        self.state.lock().samples.back().copied()
    }
}

impl Sample {
    fn between((then, before): (f64, &Totals), (time, now): (f64, &Totals)) -> Self {
        // The clock may have been set.
        let seconds = if time > then { time - then } else { 1.0 };
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let (hits, misses) = (rate(now.hits, before.hits), rate(now.misses, before.misses));
        let latencies = now.latencies.since(&before.latencies);
        let peer_requests = rate(now.peer_requests, before.peer_requests);
        Self {
            time,
            seconds,
            requests: rate(now.client_requests, before.client_requests) + peer_requests,
            peer_requests,
            bytes: rate(now.bytes, before.bytes),
            hits,
            misses,
            origin_bytes: rate(now.origin_bytes, before.origin_bytes),
            refused: rate(now.refused, before.refused),
            hit_ratio: (hits + misses > 0.0).then(|| hits / (hits + misses)),
            p50: latencies.percentile(0.5),
            p90: latencies.percentile(0.9),
            p99: latencies.percentile(0.99),
            in_flight: now.in_flight,
            in_service: now.in_service,
            connections: now.connections,
            memory_bytes: now.memory_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::status::LatencyBuckets;

    #[test]
    fn sample_is_the_difference_of_totals_per_second() {
        let (history, latencies) = (History::default(), LatencyBuckets::default());
        latencies.count(Duration::from_secs(9));
        history
            .add_at(10.0, Totals { hits: 5, latencies: latencies.counts(), ..Totals::default() });
        assert_eq!(history.last(), None);
        latencies.count(Duration::from_millis(100));
        let totals = Totals {
            client_requests: 60,
            peer_requests: 20,
            hits: 65,
            misses: 20,
            latencies: latencies.counts(),
            in_flight: 3,
            ..Totals::default()
        };
        history.add_at(12.0, totals);
        let sample = history.last().unwrap();
        assert_eq!((sample.requests, sample.peer_requests, sample.hits), (40.0, 10.0, 30.0));
        assert_eq!((sample.hit_ratio, sample.in_flight, sample.seconds), (Some(0.75), 3, 2.0));
        assert!(sample.p99.is_some_and(|p99| (0.1..0.125).contains(&p99)), "{sample:?}");
    }

    #[test]
    fn fifteen_minutes_are_kept() {
        let history = History::default();
        (0..2_000).for_each(|second| history.add_at(f64::from(second), Totals::default()));
        let kept = history.since(0.0);
        assert_eq!((kept.len(), kept[0].time), (History::SECONDS, 1_100.0));
        assert_eq!(history.since(1_997.5).len(), 2);
    }
}
