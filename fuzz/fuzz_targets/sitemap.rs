//! Sitemaps of any bytes, packed ones too: they are read or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = levada_client::fuzzing::sitemap(bytes);
});
