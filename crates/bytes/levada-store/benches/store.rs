//! The cost of a hit in the memory tier, side by side with quick_cache, which has one algorithm and
//! keeps no exact account.
//!
//! `cargo bench -p levada-store --bench store` prints nanoseconds on the processor per hit; the best of
//! several rounds counts, since neighbours only ever add time.

use std::{
    hint::black_box,
    sync::{Arc, Barrier},
    time::Instant,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use levada_cache::eviction::{DEFAULT_EVICTION, EVICTIONS, EvictionEntry};
use levada_store::measuring::Tier;
use levada_types::{Key, Rng, hash64};
use quick_cache::sync::Cache;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const OBJECTS: usize = 50_000;
/// Long enough for a clock that moves in milliseconds.
const GETS: usize = 1 << 22;
const ROUNDS: usize = 5;

fn main() {
    println!("ns per hit      1 thread  2 threads");
    // Values of the same size, so that the entries of both lie equally far apart in memory.
    let size = filled(DEFAULT_EVICTION).bytes() as usize / OBJECTS;
    let quick = Cache::new(4 * OBJECTS);
    (0..OBJECTS).for_each(|n| quick.insert(key(n), Arc::<[u8]>::from(vec![0; size])));
    row("quick_cache", |key| quick.get(&key).is_some());
    drop(quick);
    let tier = filled(DEFAULT_EVICTION);
    row("with its fields", |key| {
        tier.touch_body(key);
        true
    });
    drop(tier);
    for eviction in EVICTIONS {
        let tier = filled(eviction);
        row(eviction.name, |key| tier.hit(key));
    }
}

fn filled(eviction: &EvictionEntry) -> Tier {
    let body = Bytes::from_static(&[b'x'; 64]);
    let mut fields = HeaderMap::new();
    let head = [
        ("date", "Fri, 15 Jan 2027 08:00:00 GMT"),
        ("server", "nginx/1.29.3"),
        ("content-type", "image/jpeg"),
        ("content-length", "64"),
        ("last-modified", "Fri, 15 Jan 2026 08:00:00 GMT"),
        ("etag", "\"6787a0f0-10400\""),
        ("cache-control", "public, max-age=31536000"),
        ("accept-ranges", "bytes"),
        ("strict-transport-security", "max-age=63072000; includeSubDomains; preload"),
        ("x-content-type-options", "nosniff"),
        ("x-request-id", "0d1f3c5a-77aa-4b0e-9d5e-3f3a9a1b2c3d"),
        ("access-control-allow-origin", "*"),
    ];
    for (name, value) in head {
        fields.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let tier = Tier::new(1 << 30, 1 << 20, eviction);
    (0..OBJECTS).for_each(|n| tier.put(key(n), "a.example/", &fields, &body));
    tier
}

fn row(name: &str, get: impl Fn(Key) -> bool + Sync) {
    println!("{name:15} {:8.0}  {:9.0}", best(1, &get), best(2, &get));
}

/// The time of a hit while `threads` threads do nothing else.
fn best(threads: usize, get: &(impl Fn(Key) -> bool + Sync)) -> f64 {
    let round = |round: u64| {
        let together = Barrier::new(threads);
        let thread = |n: usize| {
            let keys = zipf(round * 10 + n as u64);
            together.wait();
            let clock = Clock::start();
            let hits = keys.iter().filter(|&&key| get(key)).count();
            let seconds = clock.seconds();
            assert_eq!(black_box(hits), GETS, "everything is there");
            seconds * 1e9 / GETS as f64
        };
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads)
                .map(|n| {
                    scope.spawn({
                        let thread = &thread;
                        move || thread(n)
                    })
                })
                .collect();
            let times = running.into_iter().map(|thread| thread.join().expect("no panic"));
            times.fold(0.0, f64::max)
        })
    };
    (0..ROUNDS as u64).map(round).fold(f64::INFINITY, f64::min)
}

fn key(n: usize) -> Key {
    Key(hash64(&n.to_le_bytes()))
}

/// Ranks with density 1/rank.
fn zipf(seed: u64) -> Vec<Key> {
    let mut rng = Rng::new(seed);
    (0..GETS).map(|_| key((OBJECTS as f64).powf(rng.unit()) as usize % OBJECTS)).collect()
}

/// Processor time on Linux; elsewhere wall-clock time.
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
