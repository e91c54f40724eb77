//! The memory tier counts the bytes that it has allocated. A program of its own, since its allocator
//! counts the whole program.

use std::alloc::System;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use levada_cache::eviction::EVICTIONS;
use levada_store::measuring::Tier;
use levada_types::Key;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn allocated() -> f64 {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated as f64 - stats.bytes_deallocated as f64
}

/// Typical heads of servers.
const HEADS: [&[(&str, &str)]; 3] = [
    &[("content-type", "text/plain"), ("cache-control", "max-age=60")],
    &[
        ("date", "Fri, 15 Jan 2027 08:00:00 GMT"),
        ("server", "nginx/1.29.3"),
        ("content-type", "image/jpeg"),
        ("last-modified", "Fri, 15 Jan 2026 08:00:00 GMT"),
        ("etag", "\"6787a0f0-10400\""),
        ("cache-control", "public, max-age=31536000, immutable"),
        ("accept-ranges", "bytes"),
    ],
    &[
        ("date", "Fri, 15 Jan 2027 08:00:00 GMT"),
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "public, max-age=600, stale-while-revalidate=60, stale-if-error=86400"),
        ("etag", "W/\"0815-deadbeefdeadbeefdeadbeefdeadbeef\""),
        ("content-language", "en"),
        ("content-security-policy", "default-src 'self'; img-src https: data:; script-src 'self'"),
        ("strict-transport-security", "max-age=63072000; includeSubDomains; preload"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("x-request-id", "0d1f3c5a-77aa-4b0e-9d5e-3f3a9a1b2c3d"),
        ("link", "</style.css>; rel=preload; as=style"),
        ("link", "</app.js>; rel=preload; as=script"),
        ("referrer-policy", "strict-origin-when-cross-origin"),
    ],
];

/// Fields as they come from the network: all of them in one buffer.
fn received(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut buffer = bytes::BytesMut::with_capacity(8 << 10);
    let value = |text: &str| {
        buffer.extend_from_slice(text.as_bytes());
        HeaderValue::from_maybe_shared(buffer.split().freeze()).unwrap()
    };
    let values: Vec<_> = fields.iter().map(|field| field.1).map(value).collect();
    let name = |field: &(&'static str, _)| HeaderName::from_bytes(field.0.as_bytes()).unwrap();
    fields.iter().map(name).zip(values).collect()
}

#[test]
fn counted_bytes_are_allocated_bytes() {
    for (size, limit, evictions) in [
        (1 << 10, 4 << 20, EVICTIONS),
        (10 << 10, 8 << 20, &EVICTIONS[..1]),
        (1 << 20, 32 << 20, &EVICTIONS[..1]),
    ] {
        let body = Bytes::from(vec![b'x'; size]);
        for fields in HEADS {
            for eviction in evictions {
                let before = allocated();
                let tier = Tier::new(limit, 1 << 20, eviction);
                // Enough to fill the tier once and to evict as many again.
                let puts = 2 * limit / size as u64;
                for n in 0..puts {
                    let identity = format!("http://www.example.com/static/images/{n}/picture.jpg");
                    tier.put(Key::of(identity.as_bytes()), &identity, &received(fields), &body);
                }
                // The first hit on a body allocates its reference count.
                for n in 0..puts {
                    let identity = format!("http://www.example.com/static/images/{n}/picture.jpg");
                    tier.touch_body(Key::of(identity.as_bytes()));
                }
                let (counted, allocated) = (tier.bytes() as f64, allocated() - before);
                let off = counted / allocated;
                println!(
                    "{:12} {size:8} B, {:2} fields: {:6} kept, counted / allocated {off:.3}",
                    eviction.name,
                    fields.len(),
                    tier.len()
                );
                assert!((0.92..1.08).contains(&off), "{counted} for {allocated}");
                assert!(counted <= limit as f64 && allocated <= 1.05 * limit as f64);
            }
        }
    }
}
