//! The parser of the own server side reads the requests that the scanner lets pass, and finds the same
//! fault, however the bytes are split into reads.
#![no_main]

use levada_http::fuzzing::{judge, read_requests};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The first byte selects the size of the reads.
    let Some((&piece, stream)) = bytes.split_first() else {
        return;
    };
    let (scanned, mut whole) = (judge(stream, []), read_requests(stream, []));
    let pieces = std::iter::repeat_n(usize::from(piece) + 1, stream.len());
    let mut cut = read_requests(stream, pieces);
    if whole.fault.is_some() {
        // The lines before a fault are taken.
        (whole.accepted, cut.accepted) = (scanned.accepted, scanned.accepted);
    }
    assert_eq!(cut, whole);
    // Targets that are no URI are refused too.
    if whole.fault != Some("target") || whole.heads == scanned.heads {
        assert_eq!(whole, scanned);
    }
});
