//! Any file must open or be refused, and be read to its end, without a panic.
//!
//! `cargo +nightly fuzz run access_log fuzz/corpus/access_log fuzz/seeds/access_log` (create the
//! first directory; new inputs are stored there)
#![no_main]

use std::io::Cursor;

use levada_trace::{FORMATS, Trace, TraceLimits, TraceReader};
use levada_types::ByteSize;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let line = String::from_utf8_lossy(bytes);
    for format in FORMATS {
        let _ = (format.parse)(&line);
    }
    // A small file may decompress to a large one; the limit keeps the run short.
    let limits = TraceLimits { memory: ByteSize(16 << 20), ..TraceLimits::default() };
    if let Ok(reader) = TraceReader::new(Cursor::new(bytes.to_vec()), "fuzz") {
        let (trace, skipped) = Trace::from_reader(reader.take(100_000), &limits);
        let _ = (trace.counts(), skipped.to_string());
    }
});
