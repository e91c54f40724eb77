//! Header blocks of HTTP/2 must be read alike every time, and be no larger than what was sent allows: each field costs
//! a byte at least, and none is larger than the dynamic table or its block.
#![no_main]

use levada_http::fuzzing::http2_fields;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|blocks: Vec<Vec<u8>>| {
    let read = || http2_fields(blocks.iter().map(Vec::as_slice));
    let fields = read();
    assert_eq!(read(), fields);
    let sent: usize = blocks.iter().map(Vec::len).sum();
    for (number, (_, size)) in fields.into_iter().flatten().enumerate() {
        assert!(number < sent && size <= 32 + 4096.max(2 * sent));
    }
});
