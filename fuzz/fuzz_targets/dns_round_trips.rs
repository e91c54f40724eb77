//! The round trips that a node tells a name server: they are bounded, and no line speaks for more than a network.
#![no_main]

use levada_dns::route::round_trips;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let all = round_trips(text);
    assert!(all.len() <= 1024);
    assert!(all.iter().all(|(network, _)| [24, 48].contains(&network.length())));
});
