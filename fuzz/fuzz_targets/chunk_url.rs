//! Every piece has exactly one request target: a target that parses must be equal when written
//! again.
#![no_main]

use levada_fetch::{ChunkUrl, Digest};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Some((file, piece)) = ChunkUrl::split(text) {
        assert!(!piece.range.is_empty());
        assert_eq!(piece.affix(file), text);
    }
    if let Some(digest) = Digest::parse(text) {
        assert_eq!(Digest::parse(&digest.to_string()), Some(digest));
    }
});
