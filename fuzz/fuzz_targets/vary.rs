//! Any `Vary` and any request must give a key that the same request matches.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue, header};
use levada_cache::Vary;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The first line is `Vary`, the others are fields of the request.
    let mut lines = bytes.split(|&b| b == b'\n');
    let mut response = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_bytes(lines.next().unwrap_or_default()) {
        response.insert(header::VARY, value);
    }
    let mut request = HeaderMap::new();
    for line in lines.take(64) {
        let colon = line.iter().position(|&b| b == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(value))
        {
            request.append(name, value);
        }
    }
    if let Ok(vary) = Vary::of(&response) {
        let key = vary.key(&request);
        assert!(vary.matches(&request, &key, &mut Vec::new()));
    }
});
