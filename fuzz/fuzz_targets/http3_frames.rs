//! The frames of a request over HTTP/3 must pass or be refused alike, however the stream is cut into chunks, and pass
//! again once they have passed; padding is cut off a packet and nothing else, and a ClientHello is read within its
//! bounds.
#![no_main]

use levada_http3::fuzzing::{has_extension, length_of_frames, passed};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], u8)| {
    let (stream, at_once) = input;
    let whole = passed(stream, usize::MAX);
    assert_eq!(passed(stream, usize::from(at_once) + 1), whole);
    if let Some(whole) = whole {
        assert_eq!(passed(&whole, usize::MAX).as_ref(), Some(&whole));
    }
    let length = length_of_frames(stream);
    assert!(stream[length..].iter().all(|byte| *byte == 0) && (length > 0 || stream.is_empty()));
    has_extension(stream, 57);
});
