//! An archive must be refused, or have only files that a fleet reads, within its directory.
#![no_main]

use levada_fleet::archive::unpack;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(files) = unpack(bytes) else { return };
    for path in files.keys() {
        let is_within = path.split('/').all(|part| !["", ".", ".."].contains(&part));
        assert!(is_within && !path.starts_with('.'), "{path}");
    }
});
