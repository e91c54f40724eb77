//! The summary of a census: what a report shows, in all its forms.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::{
    Census,
    ranking::{Ranked, Ranking},
};

/// A report as JSON has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Lines that are requests.
    pub requests: u64,
    /// Their bytes as logged.
    pub bytes: u64,
    /// The time of the first request, in seconds since 1970.
    pub first: Option<f64>,
    /// The time of the last request.
    pub last: Option<f64>,
    /// Lines that are not readable.
    pub unreadable_lines: u64,
    /// The first of them.
    pub unreadable: Vec<Unreadable>,
    /// Requests by status; the status 0 stands for none.
    pub statuses: Vec<StatusCount>,
    /// Requests that the cache answered.
    pub hits: u64,
    /// Requests of which the log says whether the cache answered.
    pub hits_or_misses: u64,
    /// Hits among them, from 0 to 1.
    pub hit_ratio: Option<f64>,
    /// Requests by the result of the cache.
    pub cache_results: Vec<CacheCount>,
    /// Requests by method.
    pub methods: Ranked,
    /// The length of an interval in seconds.
    pub interval_seconds: u64,
    /// Intervals with requests.
    pub intervals: Vec<Interval>,
    /// Times of all requests that have one.
    pub latency: Option<LatencySummary>,
    /// Times of hits.
    pub latency_of_hits: Option<LatencySummary>,
    /// Times of misses.
    pub latency_of_misses: Option<LatencySummary>,
    /// The part of the times that end with the response; the others end with its head.
    pub latency_to_the_end: f64,
    /// The slowest requests.
    pub slowest: Vec<SlowRequest>,
    /// Hosts with path and query.
    pub objects: Ranked,
    /// Paths without query.
    pub paths: Ranked,
    /// Hosts.
    pub hosts: Ranked,
    /// Addresses of clients.
    pub clients: Ranked,
    /// User agents.
    pub user_agents: Ranked,
    /// Referrers.
    pub referers: Ranked,
    /// Statuses of 400 and above with their paths.
    pub errors: Ranked,
}

/// A line that is not readable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unreadable {
    /// Its number in its file.
    pub line: u64,
    /// Why, and how it begins.
    pub problem: String,
}

/// Requests with a status.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StatusCount {
    /// The status.
    pub status: u16,
    /// Its requests.
    pub requests: u64,
}

/// Requests with a result of the cache.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CacheCount {
    /// The result as logged.
    pub result: String,
    /// Its requests.
    pub requests: u64,
}

/// The requests of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Its first second since 1970.
    pub begins: u64,
    /// Its requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests with a status of 500 or above.
    pub errors: u64,
    /// Hits from 0 to 1, if the log says.
    pub hit_ratio: Option<f64>,
}

/// Percentiles in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Requests with a time.
    pub requests: u64,
    /// The mean.
    pub mean: f64,
    /// Half of the requests took no longer.
    pub p50: f64,
    /// 90 % took no longer.
    pub p90: f64,
    /// 99 % took no longer.
    pub p99: f64,
    /// 99.9 % took no longer.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

/// A slow request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowRequest {
    /// Its seconds.
    pub seconds: f64,
    /// Its time in seconds since 1970.
    pub time: Option<f64>,
    /// Its status.
    pub status: Option<u16>,
    /// Its host.
    pub host: Option<String>,
    /// Path and query.
    pub target: String,
}

impl Summary {
    /// Summarises; rankings have this many rows.
    pub fn of(census: &Census, rows: usize) -> Self {
        let latency = &census.latency;
        let timed = latency.all.len();
        let first = |ranking: &Ranking| ranking.first(rows);
        Self {
            requests: census.requests,
            bytes: census.bytes,
            first: census.first,
            last: census.last,
            unreadable_lines: census.unreadable,
            unreadable: (census.problems.iter())
                .map(|error| Unreadable { line: error.line, problem: error.to_string() })
                .collect(),
            statuses: (census.statuses.iter())
                .map(|(status, requests)| StatusCount { status: *status, requests: *requests })
                .collect(),
            hits: census.hits,
            hits_or_misses: census.decided,
            hit_ratio: ratio(census.hits, census.decided),
            cache_results: (census.caches.first(30).by_requests.into_iter())
                .map(|row| CacheCount { result: row.name, requests: row.requests.unwrap_or(0) })
                .collect(),
            methods: first(&census.methods),
            interval_seconds: census.timeline.seconds(),
            intervals: (census.timeline.intervals())
                .map(|(begins, counts)| Interval {
                    begins,
                    requests: counts.requests,
                    bytes: counts.bytes,
                    errors: counts.errors,
                    hit_ratio: ratio(counts.hits, counts.decided),
                })
                .collect(),
            latency: percentiles(&latency.all),
            latency_of_hits: percentiles(&latency.hits),
            latency_of_misses: percentiles(&latency.misses),
            latency_to_the_end: ratio(latency.in_all, timed).unwrap_or(0.0),
            slowest: (latency.slowest.iter())
                .map(|slow| SlowRequest {
                    seconds: slow.seconds,
                    time: slow.time,
                    status: slow.status,
                    host: slow.host.clone(),
                    target: slow.target.clone(),
                })
                .collect(),
            objects: first(&census.objects),
            paths: first(&census.paths),
            hosts: first(&census.hosts),
            clients: first(&census.clients),
            user_agents: first(&census.agents),
            referers: first(&census.referers),
            errors: first(&census.errors),
        }
    }

    /// The rankings with their headings.
    pub(crate) fn rankings(&self) -> [(&'static str, &Ranked); 7] {
        [
            ("Objects", &self.objects),
            ("Paths", &self.paths),
            ("Hosts", &self.hosts),
            ("Clients", &self.clients),
            ("User agents", &self.user_agents),
            ("Referrers", &self.referers),
            ("Errors by path", &self.errors),
        ]
    }

    /// The latencies with their names.
    pub(crate) fn latencies(&self) -> impl Iterator<Item = (&'static str, LatencySummary)> {
        let all = [
            ("all", self.latency),
            ("hits", self.latency_of_hits),
            ("misses", self.latency_of_misses),
        ];
        all.into_iter().filter_map(|(name, latency)| Some((name, latency?)))
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn percentiles(histogram: &Histogram<u64>) -> Option<LatencySummary> {
    let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1e6;
    (!histogram.is_empty()).then(|| LatencySummary {
        requests: histogram.len(),
        mean: histogram.mean() / 1e6,
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: histogram.max() as f64 / 1e6,
    })
}
