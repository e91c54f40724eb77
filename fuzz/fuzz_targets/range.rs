//! Any ranges must be parsed or ignored. The parts to send must be within the length, and contain
//! no byte twice.
#![no_main]

use http::HeaderValue;
use levada_cache::{ContentRange, Multipart, RangeSet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((length, value)) = bytes.split_first_chunk::<8>() else { return };
    let length = u64::from_le_bytes(*length);
    if let Some(set) = RangeSet::parse(value) {
        let parts = set.resolve(length);
        let mut sorted = parts.as_slice().to_vec();
        sorted.sort_by_key(|part| part.start);
        assert!(sorted.iter().all(|part| part.start < part.end && part.end <= length));
        assert!(sorted.windows(2).all(|pair| pair[0].end < pair[1].start));
        let _ = Multipart { boundary: "b", content_type: None, length }.body_length(&parts);
    }
    if let Ok(value) = HeaderValue::from_bytes(value)
        && let Some(read) = ContentRange::parse(&value)
    {
        assert_eq!(ContentRange::parse(&read.to_value()), Some(read));
    }
});
