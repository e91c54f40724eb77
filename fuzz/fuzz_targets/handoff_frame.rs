//! A frame of the handoff channel, with a connection's state in it, must be refused, or be equal
//! when it is written again.
#![no_main]

use levada_redirector::handoff::fuzzing::Frame;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(frame) = Frame::read(bytes) else { return };
    let mut written = Vec::new();
    frame.write(&mut written);
    assert_eq!(written, bytes);
});
