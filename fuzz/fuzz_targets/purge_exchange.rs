//! A message about purge logs from a peer must be refused, or be equal when it is written again.
#![no_main]

use levada_cluster::purge::Exchange;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(message) = Exchange::from_json(bytes) else { return };
    assert_eq!(Exchange::from_json(&message.to_json()).unwrap(), message);
});
