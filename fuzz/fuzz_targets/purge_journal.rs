//! Bytes in the place of a purge journal must be read or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    levada_cluster::purge::fuzzing::journal(bytes);
});
