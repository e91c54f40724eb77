//! The time of each caching decision, and the requests per second that each eviction algorithm
//! handles.
//!
//! `cargo bench -p levada-cache` prints both, in CPU time if the system provides it. The best of
//! several rounds counts, because other processes can only add time.
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use levada_cache::{
    CacheName, CacheRules, CacheStatus, OriginExchange, RangeSet, RequestCacheFields,
    RequestDirectives, Validators, Vary,
    eviction::{EVICTIONS, Keyed},
    may_store, serve,
};
use levada_types::{Key, Rng};
use std::{
    hint::black_box,
    time::{Duration, Instant, SystemTime},
};

const ROUNDS: usize = 5;

fn main() {
    decisions();
    evictions();
}

fn decisions() {
    let browser = headers(&[
        ("host", "a.example"),
        ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
        ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
        ("accept-language", "en-US,en;q=0.5"),
        ("accept-encoding", "gzip, deflate, br, zstd"),
        ("connection", "keep-alive"),
    ]);
    let reload = headers(&[("cache-control", "max-age=0")]);
    let response = headers(&[
        ("date", "Fri, 15 Jan 2027 08:00:00 GMT"),
        ("last-modified", "Fri, 15 Jan 2026 08:00:00 GMT"),
        ("cache-control", "public, max-age=3600, stale-while-revalidate=60"),
        ("etag", "\"abcdef\""),
        ("vary", "accept-encoding"),
    ]);
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let exchange = OriginExchange {
        method: &Method::GET,
        request: &browser,
        status: StatusCode::OK,
        response: &response,
        requested: now,
        received: now,
    };
    let rules = CacheRules::default();
    let stored = may_store(&exchange, &rules).expect("storable");
    let validators = Validators::of(&response, now);
    let key = stored.vary.key(&browser);
    let node = CacheName::new("edge-1");
    let later = now + Duration::from_secs(10);
    let mut scratch = Vec::new();

    println!("decision                        ns");
    time("request directives, none", || RequestDirectives::of(black_box(&browser)));
    time("request directives, max-age=0", || RequestDirectives::of(black_box(&reload)));
    time("serve", || serve(black_box(&stored.freshness), &RequestDirectives::NONE, later));
    time("conditions, none", || validators.evaluate(black_box(&browser)));
    time("range, none", || RangeSet::of(black_box(&browser)));
    time("whole hit", || {
        let asked = RequestCacheFields::of(black_box(&browser));
        let served = serve(&stored.freshness, &asked.directives, later);
        (served, asked.conditional, asked.range)
    });
    time("vary, accept-encoding", || stored.vary.matches(black_box(&browser), &key, &mut scratch));
    time("vary, none", || Vary::default().matches(black_box(&browser), b"", &mut Vec::new()));
    let status = CacheStatus { ttl: Some(3590), ..CacheStatus::default() };
    time("cache status", || status.value(black_box(&node)));
    time("may store", || may_store(black_box(&exchange), &rules));
}

fn time<T>(name: &str, mut decide: impl FnMut() -> T) {
    const TIMES: u32 = 1_000_000;
    let round = |_| {
        let begun = Clock::start();
        (0..TIMES).for_each(|_| drop(black_box(decide())));
        begun.seconds() * 1e9 / f64::from(TIMES)
    };
    println!("{name:30} {:4.0}", (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min));
}

/// Zipf-distributed popularity (0.9) over 200,000 objects of 100 bytes to 1 MB; the cache holds 10
/// %.
fn evictions() {
    let requests = workload(2_000_000, 200_000);
    let mut sizes: Vec<(u64, u64)> = requests.clone();
    sizes.sort_unstable();
    sizes.dedup();
    let distinct: u64 = sizes.iter().map(|(_, bytes)| bytes).sum();
    println!("\neviction         M requests/s  hits %");
    for entry in EVICTIONS {
        let (mut best, mut hits) = (f64::INFINITY, 0usize);
        for _ in 0..ROUNDS {
            let mut cache = Keyed::new((entry.build)(distinct / 10));
            let begun = Clock::start();
            hits = requests.iter().filter(|(key, bytes)| cache.request(Key(*key), *bytes)).count();
            best = best.min(begun.seconds());
        }
        let (speed, ratio) =
            (requests.len() as f64 / best / 1e6, hits as f64 / requests.len() as f64);
        println!("{:16} {speed:12.1}  {:6.1}", entry.name, ratio * 100.0);
    }
}

fn workload(requests: usize, objects: usize) -> Vec<(u64, u64)> {
    let mut rng = Rng::new(1);
    let mut sum = 0.0;
    let cumulative: Vec<f64> = (1..=objects)
        .map(|rank| {
            sum += (rank as f64).powf(-0.9);
            sum
        })
        .collect();
    let sizes: Vec<u64> =
        (0..objects).map(|_| (100.0 * 10f64.powf(4.0 * rng.unit().powi(2))) as u64).collect();
    (0..requests)
        .map(|_| {
            let at = cumulative.partition_point(|&c| c < rng.unit() * sum).min(objects - 1);
            (levada_types::hash64(&at.to_le_bytes()), sizes[at])
        })
        .collect()
}

/// CPU time on Linux, otherwise wall-clock time.
struct Clock {
    wall: Instant,
    processor: Option<u64>,
}

impl Clock {
    fn start() -> Self {
        Self { wall: Instant::now(), processor: processor_nanos() }
    }

    fn seconds(&self) -> f64 {
        match self.processor.zip(processor_nanos()) {
            Some((begun, now)) => (now - begun) as f64 / 1e9,
            None => self.wall.elapsed().as_secs_f64(),
        }
    }
}

fn processor_nanos() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    stat.split(' ').next()?.parse().ok()
}

fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    lines.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
}
