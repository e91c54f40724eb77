//! Any directives, plain or targeted, must be parsed or ignored, and give numbers within their
//! limits.
#![no_main]

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use levada_cache::{CacheRules, MAX_SECONDS, OriginExchange, RequestDirectives, may_store, serve};
use libfuzzer_sys::fuzz_target;

const FIELDS: [&str; 8] = [
    "cache-control",
    "cdn-cache-control",
    "levada-cache-control",
    "expires",
    "date",
    "age",
    "pragma",
    "last-modified",
];

fuzz_target!(|bytes: &[u8]| {
    // One field per line; the first byte selects the field.
    let mut headers = HeaderMap::new();
    for line in bytes.split(|&b| b == b'\n').take(32) {
        let Some((which, value)) = line.split_first() else { continue };
        let name = HeaderName::from_static(FIELDS[usize::from(*which) % FIELDS.len()]);
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(name, value);
        }
    }
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let request = HeaderMap::new();
    let exchange = OriginExchange {
        method: &Method::GET,
        request: &request,
        status: StatusCode::OK,
        response: &headers,
        requested: now,
        received: now,
    };
    if let Ok(stored) = may_store(&exchange, &CacheRules::default()) {
        assert!(stored.freshness.age(now) <= MAX_SECONDS);
        assert!(stored.freshness.lifetime().as_secs() <= u64::from(MAX_SECONDS));
        let _ = serve(&stored.freshness, &RequestDirectives::of(&headers), now);
    }
});
