//! `Accept-Encoding` of any bytes: the codings are those that are offered, each once, and the field that states them
//! is read as the same set.
#![no_main]

use http::{HeaderMap, HeaderValue, header::ACCEPT_ENCODING};
use levada_body::compress::{Accepts, Coding};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|lines: Vec<Vec<u8>>| {
    let values = lines.iter().filter_map(|line| HeaderValue::from_bytes(line).ok());
    let request: HeaderMap = values.map(|value| (ACCEPT_ENCODING, value)).collect();
    let accepts = Accepts::of(&request, &Coding::ALL);
    let stated = [(ACCEPT_ENCODING, accepts.as_value())].into_iter().collect();
    let again = Accepts::of(&stated, &Coding::ALL);
    let sorted = |accepts: &Accepts| {
        let mut names: Vec<_> = accepts.codings().map(Coding::as_str).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(sorted(&accepts), sorted(&again));
});
