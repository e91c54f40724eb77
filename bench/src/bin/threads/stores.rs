//! The memory store next to moka and quick_cache, which have one algorithm each and keep no exact
//! account of their bytes.
//!
//! All have the same keys, and room for as many values of the size of one of our entries. Others hash
//! a key by two multiplications.

use std::{
    hash::{BuildHasherDefault, Hasher},
    hint::black_box,
    sync::Arc,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use levada_cache::eviction::{DEFAULT_EVICTION, EVICTIONS, EvictionEntry};
use levada_store::measuring::Tier;
use levada_types::{Key, weigh};
use quick_cache::{UnitWeighter, sync::DefaultLifecycle};

use crate::{Row, THREADS, compare, key, zipf};

const OBJECTS: usize = 50_000;
/// Makes an entry of about 1 KB.
const BODY: usize = 700;

type Value = Arc<[u8]>;
type Build = BuildHasherDefault<Mix>;
type Moka = moka::sync::Cache<Key, Value, Build>;
type Quick = quick_cache::sync::Cache<Key, Value, UnitWeighter, Build>;

/// Hits with growing numbers of threads; everything is stored.
pub(crate) fn run() {
    let streams = zipf(OBJECTS);
    let tiers = EVICTIONS.iter().map(|eviction| (eviction.name, filled(OBJECTS, eviction)));
    let tiers: Vec<_> = tiers.collect();
    let (moka, quick) = peers(4 * OBJECTS);
    for n in 0..OBJECTS {
        moka.insert(key(n), value());
        quick.insert(key(n), value());
    }
    moka.run_pending_tasks();
    let mut rows = vec![
        row("moka", &streams, |key| moka.get(&key).is_some()),
        row("quick_cache", &streams, |key| quick.get(&key).is_some()),
    ];
    rows.extend(tiers.iter().map(|(name, tier)| row(name, &streams, |key| tier.hit(key))));
    compare(&rows, &THREADS);
}

/// Hit ratios of stores that have room for a quarter of all objects.
pub(crate) fn ratios() {
    let streams = &zipf(4 * OBJECTS)[..4];
    let ratio = |name: &str, get: &dyn Fn(Key) -> bool, put: &dyn Fn(Key)| {
        let ask = |key: &Key| {
            let there = get(*key);
            if !there {
                put(*key);
            }
            there
        };
        let (first, last) = streams.split_at(2);
        let _ = first.iter().flatten().filter(|key| ask(key)).count();
        let hits = last.iter().flatten().filter(|key| ask(key)).count();
        println!("{name:24} {:.4}", hits as f64 / last.iter().flatten().count() as f64);
    };
    let (moka, quick) = peers(OBJECTS);
    let value = value();
    ratio("moka", &|key| moka.get(&key).is_some(), &|key| moka.insert(key, value.clone()));
    ratio("quick_cache", &|key| quick.get(&key).is_some(), &|key| quick.insert(key, value.clone()));
    let room = filled(OBJECTS, DEFAULT_EVICTION).bytes();
    let (fields, body) = response();
    for eviction in EVICTIONS {
        let tier = Tier::new(room, 1 << 20, eviction);
        let put = |key| tier.put(key, "a.example/", &fields, &body);
        ratio(eviction.name, &|key| tier.hit(key), &put);
    }
}

/// Hits among a thousand and among a million objects.
pub(crate) fn objects() {
    let [few, many] = [1_000, 1_000_000];
    let (of_few, of_many) = (zipf(few), zipf(many));
    let [small, large] = [few, many].map(|objects| filled(objects, DEFAULT_EVICTION));
    let rows =
        [row("10^3", &of_few, |key| small.hit(key)), row("10^6", &of_many, |key| large.hit(key))];
    compare(&rows, &[1]);
}

fn row<'a>(name: &str, streams: &'a [Vec<Key>], get: impl Fn(Key) -> bool + Sync + 'a) -> Row<'a> {
    let work = move |keys: &[Key]| {
        let hits = keys.iter().filter(|key| get(**key)).count();
        assert_eq!(black_box(hits), keys.len(), "everything is there");
    };
    Row { name: name.to_owned(), streams, work: Box::new(work) }
}

/// Stores with room for so many objects.
fn peers(room: usize) -> (Moka, Quick) {
    let moka =
        moka::sync::Cache::builder().max_capacity(room as u64).build_with_hasher(Build::default());
    let lifecycle = DefaultLifecycle::default();
    (moka, Quick::with(room, room as u64, UnitWeighter, Build::default(), lifecycle))
}

fn value() -> Value {
    vec![0; BODY + 500].into()
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

fn filled(objects: usize, eviction: &EvictionEntry) -> Tier {
    let (fields, body) = response();
    let tier = Tier::new(4 << 30, 1 << 20, eviction);
    (0..objects).for_each(|n| tier.put(key(n), "a.example/", &fields, &body));
    tier
}

fn response() -> (HeaderMap, Bytes) {
    let head = [
        ("date", "Fri, 15 Jan 2027 08:00:00 GMT"),
        ("content-type", "image/jpeg"),
        ("etag", "\"6787a0f0-10400\""),
        ("cache-control", "public, max-age=31536000"),
    ];
    let field = |(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    (head.into_iter().map(field).collect(), Bytes::from_static(&[b'x'; BODY]))
}
