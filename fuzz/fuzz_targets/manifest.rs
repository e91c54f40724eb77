//! Any text must parse as a manifest or be refused. A manifest that parses must be equal when
//! written again, and its paths must stay within the tree.
#![no_main]

use levada_fetch::{Algorithm, Digest, manifest::Manifest};
use libfuzzer_sys::fuzz_target;

/// A digest function that always agrees, so that the last line of the manifest is no obstacle.
fn any(_: &[u8]) -> Digest {
    Digest::from_hex(Algorithm::Sha256, &"0".repeat(64)).expect("64 digits")
}

fuzz_target!(|lines: &str| {
    let count = lines.lines().count();
    let lines = lines.trim_end_matches('\n');
    let text = format!("levada-manifest 2\nroot t/\n{lines}\nend {count} {}\n", any(b""));
    if let Ok(manifest) = Manifest::parse(&text, any) {
        assert_eq!(Manifest::parse(&manifest.write(any), any), Ok(manifest.clone()));
        for path in manifest.entries.keys() {
            let parts: Vec<_> = path.split(|&byte| byte == b'/').collect();
            assert!(parts.iter().all(|part| ![&b""[..], b".", b".."].contains(part)));
        }
    }
});
