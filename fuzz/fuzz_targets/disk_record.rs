//! A record file must be read exactly as it was written, or refused.
#![no_main]

use bytes::Bytes;
use levada_store::disk::{read_record, write_record};
use levada_types::Key;
use libfuzzer_sys::fuzz_target;

/// Key, head, other bytes, and how the record is changed and cut.
type Input<'a> = (u64, &'a [u8], &'a [u8], Vec<(u16, u8)>, u16);

fuzz_target!(|input: Input| {
    let (key, head, rest, changes, cut) = input;
    let key = Key(key);
    // Arbitrary bytes: a record that parses must be equal when it is written again.
    if let Some(record) = read_record(key, &Bytes::copy_from_slice(rest)) {
        assert_eq!(write_record(key, &record.head, &record.body), rest);
    }
    // A valid record, with some bytes changed, and truncated.
    let body: Vec<Bytes> = rest.chunks(1000).map(Bytes::copy_from_slice).collect();
    let good = write_record(key, head, &body);
    let mut bytes = good.clone();
    for (at, with) in changes {
        let at = usize::from(at) % bytes.len();
        bytes[at] ^= with;
    }
    bytes.truncate(bytes.len().saturating_sub(usize::from(cut)));
    match read_record(key, &Bytes::from(bytes.clone())) {
        Some(record) => {
            assert_eq!(bytes, good);
            assert_eq!((&record.head[..], record.body.concat()), (head, rest.to_vec()));
        }
        None => assert_ne!(bytes, good),
    }
});
