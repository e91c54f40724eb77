//! Counts of requests, taken one at a time; counts of parts can be merged.

use std::collections::BTreeMap;

use levada_trace::{LineError, LogRecord};

use crate::{
    latency::Latency,
    ranking::Ranking,
    timeline::{Counts, Timeline},
};

/// The counts of some requests. Their memory is bounded: by 65,536 names of at most 200 bytes for each
/// ranking, and by constants for all else.
#[derive(Clone, Default)]
pub struct Census {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) first: Option<f64>,
    pub(crate) last: Option<f64>,
    pub(crate) unreadable: u64,
    /// The first lines that are not readable.
    pub(crate) problems: Vec<LineError>,
    pub(crate) statuses: BTreeMap<u16, u64>,
    pub(crate) methods: Ranking,
    pub(crate) caches: Ranking,
    pub(crate) hits: u64,
    pub(crate) decided: u64,
    pub(crate) timeline: Timeline,
    pub(crate) latency: Latency,
    pub(crate) objects: Ranking,
    pub(crate) paths: Ranking,
    pub(crate) hosts: Ranking,
    pub(crate) clients: Ranking,
    pub(crate) agents: Ranking,
    pub(crate) referers: Ranking,
    /// Status and path of requests with a status of 400 or above.
    pub(crate) errors: Ranking,
}

/// The most unreadable lines that are shown.
const PROBLEMS: usize = 5;

impl Census {
    /// Counts a line.
    pub fn take(&mut self, line: Result<LogRecord, LineError>) {
        match line {
            Ok(record) => self.count(&record),
            Err(problem) => {
                self.unreadable += 1;
                if self.problems.len() < PROBLEMS {
                    self.problems.push(problem);
                }
            }
        }
    }

    fn count(&mut self, record: &LogRecord) {
        let bytes = record.bytes.unwrap_or(0);
        let is_hit = record.cache.as_deref().and_then(is_hit);
        let status = record.status.unwrap_or(0);
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        *self.statuses.entry(status).or_default() += 1;
        self.hits += u64::from(is_hit == Some(true));
        self.decided += u64::from(is_hit.is_some());
        if let Some(time) = record.time.filter(|time| (0.0..1e12).contains(time)) {
            self.first = Some(self.first.map_or(time, |first| first.min(time)));
            self.last = Some(self.last.map_or(time, |last| last.max(time)));
            let counts = Counts {
                requests: 1,
                bytes,
                errors: u64::from(status >= 500),
                hits: u64::from(is_hit == Some(true)),
                decided: u64::from(is_hit.is_some()),
            };
            self.timeline.add(time, counts);
        }
        if let Some(taken) = record.taken {
            self.latency.add(record, taken, is_hit);
        }
        self.rank(record, status, bytes);
    }

    fn rank(&mut self, record: &LogRecord, status: u16, bytes: u64) {
        let path = record.target.split('?').next().unwrap_or_default();
        self.methods.add(&record.method, bytes);
        self.paths.add(path, bytes);
        match &record.host {
            Some(host) => {
                self.hosts.add(host, bytes);
                self.objects.add(&format!("{host}{}", record.target), bytes);
            }
            None => self.objects.add(&record.target, bytes),
        }
        let named = [
            (&mut self.caches, &record.cache),
            (&mut self.clients, &record.client),
            (&mut self.agents, &record.user_agent),
            (&mut self.referers, &record.referer),
        ];
        for (ranking, name) in named {
            if let Some(name) = name {
                ranking.add(name, bytes);
            }
        }
        if status >= 400 {
            self.errors.add(&format!("{status} {path}"), bytes);
        }
    }

    /// Adds the counts of other requests.
    pub fn merge(&mut self, other: Self) {
        let earliest =
            |a: Option<f64>, b: Option<f64>| a.zip(b).map_or(a.or(b), |(a, b)| Some(a.min(b)));
        let latest =
            |a: Option<f64>, b: Option<f64>| a.zip(b).map_or(a.or(b), |(a, b)| Some(a.max(b)));
        self.requests += other.requests;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.first = earliest(self.first, other.first);
        self.last = latest(self.last, other.last);
        self.unreadable += other.unreadable;
        self.problems.extend(other.problems);
        self.problems.sort_by_key(|problem| problem.line);
        self.problems.truncate(PROBLEMS);
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.hits += other.hits;
        self.decided += other.decided;
        self.timeline.merge(other.timeline);
        self.latency.merge(other.latency);
        for (own, other) in [
            (&mut self.methods, other.methods),
            (&mut self.caches, other.caches),
            (&mut self.objects, other.objects),
            (&mut self.paths, other.paths),
            (&mut self.hosts, other.hosts),
            (&mut self.clients, other.clients),
            (&mut self.agents, other.agents),
            (&mut self.referers, other.referers),
            (&mut self.errors, other.errors),
        ] {
            own.merge(other);
        }
    }
}

/// Whether a cache answered without the body from elsewhere, by the result in the words of Levada, nginx or
/// Squid. `None` where another server's cache decided.
pub fn is_hit(result: &str) -> Option<bool> {
    let result = result.to_ascii_lowercase();
    match result.as_str() {
        "none" | "relayed" | "pieces" | "tag_none" | "none_none" => None,
        "stale" | "updating" | "revalidated" | "tcp_refresh_unmodified" => Some(true),
        other => Some(other.contains("hit")),
    }
}

/// Whether the result says that the hit came from memory, where a cache tells it from a hit on disk: Squid and Traffic
/// Server do.
pub fn is_memory_hit(result: &str) -> bool {
    result.to_ascii_lowercase().contains("mem_hit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_caches_are_hits_or_misses_or_say_nothing() {
        for hit in ["hit", "HIT", "STALE", "revalidated", "TCP_MEM_HIT", "TCP_REFRESH_UNMODIFIED"] {
            assert_eq!(is_hit(hit), Some(true), "{hit}");
        }
        for miss in ["miss", "EXPIRED", "bypass", "collapsed", "TCP_MISS", "TCP_DENIED"] {
            assert_eq!(is_hit(miss), Some(false), "{miss}");
        }
        let memory = ["TCP_MEM_HIT", "TCP_HIT", "hit", "MISS"].map(is_memory_hit);
        assert_eq!(memory, [true, false, false, false]);
        for other in ["none", "relayed", "pieces"] {
            assert_eq!(is_hit(other), None, "{other}");
        }
    }
}
