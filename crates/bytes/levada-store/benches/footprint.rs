//! The memory that a stored object takes in addition to the bytes of its head and its body, as the system
//! counts it for this process.
//!
//! `cargo bench -p levada-store --bench footprint` fills a store that has room for all objects, with the
//! allocator of the binary.

use std::{sync::Arc, time::SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use levada_cache::{
    CacheName, CacheRules, CacheStatus, OriginExchange, Validators, may_store, strip_fields,
};
use levada_observe::metrics::Registry;
use levada_store::{CacheSettings, HitFields, Label, Object, Store, StoredHead, disk::DiskMetrics};
use levada_types::Key;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const OBJECTS: usize = 100_000;

fn main() {
    // Each row has a process of its own: what one has freed, another would use again.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if let [vary, body] = &arguments[..] {
        return row(vary == "vary", body.parse().expect("bytes"));
    }
    println!("{OBJECTS} objects      body   head  resident  beside  counted");
    for vary in ["plain", "vary"] {
        for body in ["100", "1000", "4000"] {
            let this = std::env::current_exe().expect("a path");
            std::process::Command::new(this).args([vary, body]).status().expect("a row");
        }
    }
}

fn row(vary: bool, body: usize) {
    let name = if vary { "with Vary" } else { "without Vary" };
    let settings = CacheSettings { memory: 2 << 30, ..CacheSettings::default() };
    let via = HeaderValue::from_static("1.1 levada");
    let store = Store::open(&settings, &DiskMetrics::registered(&mut Registry::default()))
        .expect("no disk");
    let (mut head_bytes, before) = (0, resident());
    for n in 0..OBJECTS {
        let fields = fields(n, vary, body);
        head_bytes += fields.iter().map(|(n, v)| n.as_str().len() + v.len()).sum::<usize>();
        let (key, identity) = named(n);
        let body = Bytes::from(vec![b'x'; body]);
        let head = head(fields);
        let object = Object::new(&identity, head, std::iter::once(&body), body.len() as u64);
        store.put(key, Arc::new(object));
    }
    // The first hit may allocate what later ones share.
    let (status, node) = (&CacheStatus::default(), &CacheName::new("levada"));
    let own = HitFields { age: Some(1), status, node, via: &via };
    for n in 0..OBJECTS {
        let (key, identity) = named(n);
        let object = store.get(key, &identity, &request()).object.expect("there is room for all");
        drop((object.reply(&own), object.body().to_vec()));
    }
    let resident = (resident() - before) / OBJECTS as f64;
    let head = head_bytes as f64 / OBJECTS as f64;
    let beside = resident - head - body as f64;
    let counted = store.bytes() as f64 / OBJECTS as f64;
    println!("{name:20} {body:6} {head:6.0} {resident:9.0} {beside:7.0} {counted:8.0}");
}

fn named(n: usize) -> (Key, String) {
    let identity = format!("http://www.example.com/static/images/{n}/picture.jpg");
    (Key::of(identity.as_bytes()), identity)
}

fn request() -> HeaderMap {
    [(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip, br"))].into_iter().collect()
}

/// The head of an image from an object store.
fn fields(n: usize, vary: bool, body: usize) -> HeaderMap {
    let mut fields = vec![
        ("date", "Fri, 15 Jan 2027 08:00:00 GMT".to_owned()),
        ("server", "nginx/1.29.3".into()),
        ("content-type", "image/jpeg".into()),
        ("content-length", body.to_string()),
        ("last-modified", "Fri, 15 Jan 2026 08:00:00 GMT".into()),
        ("etag", format!("\"6787a0f0-{n:016x}\"")),
        ("cache-control", "public, max-age=31536000, immutable".into()),
        ("accept-ranges", "bytes".into()),
        ("strict-transport-security", "max-age=63072000; includeSubDomains; preload".into()),
        ("x-content-type-options", "nosniff".into()),
        ("x-request-id", format!("0d1f3c5a-77aa-4b0e-9d5e-{n:012x}")),
        ("access-control-allow-origin", "*".into()),
    ];
    if vary {
        fields.push(("vary", "accept-encoding".into()));
    }
    let field = |(name, value): (&str, String)| {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        (name, HeaderValue::try_from(value).expect("a value"))
    };
    fields.into_iter().map(field).collect()
}

fn head(mut fields: HeaderMap) -> StoredHead {
    let (now, request) = (SystemTime::now(), request());
    let exchange = OriginExchange {
        method: &Method::GET,
        request: &request,
        status: StatusCode::OK,
        response: &fields,
        requested: now,
        received: now,
    };
    let storable = may_store(&exchange, &CacheRules::default()).expect("it may be stored");
    let (validators, variant) = (Validators::of(&fields, now), storable.vary.key(&request));
    strip_fields(&mut fields, &storable.strip);
    StoredHead {
        status: StatusCode::OK,
        headers: fields,
        freshness: storable.freshness,
        validators,
        vary: storable.vary,
        variant,
        label: Label::new(1, 1),
        copies: 0,
    }
}

/// Bytes of this process that are in the machine's memory.
fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("it is Linux");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("pages");
    (pages * 4096) as f64
}
