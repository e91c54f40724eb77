//! However the bytes of a tunnel come, its place among the frames is the same.
#![no_main]

use levada_http::websocket::FramePosition;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<u8>, Vec<u8>)| {
    let (bytes, cuts) = input;
    let (mut whole, mut pieces) = (FramePosition::default(), FramePosition::default());
    whole.feed(&bytes);
    let mut rest = &bytes[..];
    for cut in cuts {
        let (piece, after) = rest.split_at(usize::from(cut).min(rest.len()));
        pieces.feed(piece);
        rest = after;
    }
    pieces.feed(rest);
    assert_eq!(whole.is_between(), pieces.is_between());
    assert_eq!(whole.has_closed(), pieces.has_closed());
    assert_eq!(whole.is_lost(), pieces.is_lost());
});
