//! Identifiers of requests.

use std::hash::{BuildHasher, RandomState};

use http::{HeaderMap, HeaderName, HeaderValue};

/// The most bytes of an identifier that a proxy states.
const LONGEST_ID: usize = 128;

/// The identifier that a trusted proxy states, or a new one, which is then in the request.
pub fn request_id(headers: &mut HeaderMap, name: &HeaderName, trusted: bool) -> HeaderValue {
    let is_one = |id: &&HeaderValue| {
        (1..=LONGEST_ID).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic)
    };
    let stated = headers.get(name).filter(is_one);
    if let Some(stated) = stated.filter(|_| trusted) {
        return stated.clone();
    }
    // Each has keys of its own, which are random.
    let half = || RandomState::new().hash_one(std::time::Instant::now());
    let made = HeaderValue::try_from(format!("{:016x}{:016x}", half(), half()));
    let made = made.unwrap_or(HeaderValue::from_static("-"));
    headers.insert(name, made.clone());
    made
}
