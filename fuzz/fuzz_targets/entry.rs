//! Any bytes that parse as a stored entry must parse to the same entry when it is written and read
//! again.
#![no_main]

use bytes::Bytes;
use levada_store::reread;
use libfuzzer_sys::fuzz_target;

/// A valid beginning of an object's head (kind, freshness), which random bytes rarely have.
fn object(rest: &[u8]) -> Bytes {
    [&[4][..], &[0; 38], rest].concat().into()
}

fuzz_target!(|input: (&[u8], &[u8], bool)| {
    let (head, body, front) = input;
    let head = if front { object(head) } else { Bytes::copy_from_slice(head) };
    let body: Box<[Bytes]> = body.chunks(100).map(Bytes::copy_from_slice).collect();
    let Some((head, kept)) = reread(&head, body.clone()) else { return };
    assert!(kept.is_empty() || kept == body);
    assert!(reread(&head, kept.clone()).is_some_and(|again| again == (head, kept)));
});
