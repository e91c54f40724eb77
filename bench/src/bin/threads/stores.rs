//! The memory store next to moka and quick_cache, which have one algorithm each and keep no exact
//! account of their bytes.
//!
//! All have the same keys, room for the same bytes, and values that weigh as much as one of our
//! entries. Others hash a key by two multiplications.

use std::{
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use levada_cache::eviction::{DEFAULT_EVICTION, EVICTIONS, EvictionEntry};
use levada_store::measuring::Tier;
use levada_types::{Key, weigh};

use crate::{Row, THREADS, all_hit, compare, key, zipf};

const OBJECTS: usize = 50_000;
/// Makes an entry of about 1 KB.
const BODY: usize = 400;

/// Hits with growing numbers of threads; everything is stored.
pub(crate) fn run() {
    let streams = zipf(OBJECTS);
    let size = entry_size();
    println!("{OBJECTS} objects of {size} bytes");
    let peers = Peers::new(OBJECTS, 4 * OBJECTS * size);
    peers.fill(OBJECTS, size);
    let tiers: Vec<_> =
        EVICTIONS.iter().map(|eviction| (eviction.name, filled(OBJECTS, eviction))).collect();
    let with_fields = filled(OBJECTS, DEFAULT_EVICTION);
    let mut others = Vec::new();
    let mut rows = peers.rows(&streams);
    for (name, tier) in &tiers {
        let rows = if *name == DEFAULT_EVICTION.name { &mut rows } else { &mut others };
        rows.push(row(name, &streams, |key| tier.hit(key)));
    }
    others.push(row("with its fields", &streams, |key| {
        with_fields.touch_body(key);
        true
    }));
    compare(&rows, &THREADS);
    compare(&others, &[1]);
}

/// Hit ratios of stores that have room for a quarter of all objects.
pub(crate) fn ratios() {
    let (all, size) = (4 * OBJECTS, entry_size());
    let room = OBJECTS * size;
    let streams = &zipf(all)[..4];
    let (value, peers) = (value(size), Peers::new(OBJECTS, room));
    let ratio = |name: &str, ask: &dyn Fn(Key) -> bool| {
        let (first, last) = streams.split_at(streams.len() / 2);
        first.iter().flatten().for_each(|key| _ = ask(*key));
        let hits = last.iter().flatten().filter(|key| ask(**key)).count();
        let asked = last.iter().map(Vec::len).sum::<usize>();
        println!("{name:24} {:.4}", hits as f64 / asked as f64);
    };
    ratio("moka", &|key| {
        let there = peers.moka.get(&key).is_some();
        if !there {
            peers.moka.insert(key, value.clone());
        }
        there
    });
    ratio("quick_cache", &|key| {
        let there = peers.quick.get(&key).is_some();
        if !there {
            peers.quick.insert(key, value.clone());
        }
        there
    });
    let (fields, body) = response();
    for eviction in EVICTIONS {
        let tier = Tier::new(room as u64, 1 << 20, eviction);
        ratio(eviction.name, &|key| {
            let there = tier.hit(key);
            if !there {
                tier.put(key, "a.example/", &fields, &body);
            }
            there
        });
    }
}

/// Hits among a thousand and among a million objects.
pub(crate) fn objects() {
    let [few, many] = [1_000, 1_000_000];
    let (of_few, of_many, size) = (zipf(few), zipf(many), entry_size());
    {
        let [small, large] = [few, many].map(|objects| filled(objects, DEFAULT_EVICTION));
        compare(
            &[
                row("levada, 10^3", &of_few, |key| small.hit(key)),
                row("levada, 10^6", &of_many, |key| large.hit(key)),
            ],
            &[1],
        );
    }
    let [small, large] = [few, many].map(|objects| {
        let peers = Peers::new(objects, 4 * objects * size);
        peers.fill(objects, size);
        peers
    });
    let rows = [(small.rows(&of_few), "10^3"), (large.rows(&of_many), "10^6")];
    let rows = rows.into_iter().flat_map(|(rows, objects)| {
        rows.into_iter().map(move |row| Row { name: format!("{}, {objects}", row.name), ..row })
    });
    compare(&rows.collect::<Vec<_>>(), &[1]);
}

/// What other libraries offer.
struct Peers {
    moka: moka::sync::Cache<Key, Arc<[u8]>, BuildHasherDefault<Mix>>,
    quick: quick_cache::sync::Cache<Key, Arc<[u8]>, Weight, BuildHasherDefault<Mix>>,
}

impl Peers {
    fn new(objects: usize, room: usize) -> Self {
        let moka = moka::sync::Cache::builder()
            .max_capacity(room as u64)
            .weigher(|_, value: &Arc<[u8]>| value.len() as u32)
            .build_with_hasher(BuildHasherDefault::default());
        let quick = quick_cache::sync::Cache::with(
            objects,
            room as u64,
            Weight,
            BuildHasherDefault::default(),
            quick_cache::sync::DefaultLifecycle::default(),
        );
        Self { moka, quick }
    }

    fn fill(&self, objects: usize, size: usize) {
        for n in 0..objects {
            self.moka.insert(key(n), value(size));
            self.quick.insert(key(n), value(size));
        }
        self.moka.run_pending_tasks();
    }

    fn rows<'a>(&'a self, streams: &'a [Vec<Key>]) -> Vec<Row<'a>> {
        vec![
            row("moka", streams, |key| self.moka.get(&key).is_some()),
            row("quick_cache", streams, |key| self.quick.get(&key).is_some()),
        ]
    }
}

fn row<'a>(name: &str, streams: &'a [Vec<Key>], get: impl Fn(Key) -> bool + Sync + 'a) -> Row<'a> {
    Row { name: name.to_owned(), streams, work: Box::new(move |keys| all_hit(keys, &get)) }
}

fn value(size: usize) -> Arc<[u8]> {
    vec![0; size].into()
}

#[derive(Clone)]
struct Weight;

impl quick_cache::Weighter<Key, Arc<[u8]>> for Weight {
    fn weight(&self, _: &Key, value: &Arc<[u8]>) -> u64 {
        value.len() as u64
    }
}

#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a key is one number");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = weigh(Key(key), 1);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The bytes that the store counts for one of its entries.
fn entry_size() -> usize {
    filled(OBJECTS, DEFAULT_EVICTION).bytes() as usize / OBJECTS
}

fn filled(objects: usize, eviction: &EvictionEntry) -> Tier {
    let (fields, body) = response();
    let tier = Tier::new(4 << 30, 1 << 20, eviction);
    (0..objects).for_each(|n| tier.put(key(n), "a.example/", &fields, &body));
    tier
}

fn response() -> (HeaderMap, Bytes) {
    let mut fields = HeaderMap::new();
    let head = [
        ("date", "Fri, 15 Jan 2027 08:00:00 GMT"),
        ("server", "nginx/1.29.3"),
        ("content-type", "image/jpeg"),
        ("content-length", "400"),
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
    (fields, Bytes::from_static(&[b'x'; BODY]))
}
