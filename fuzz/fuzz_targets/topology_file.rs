//! Any file must parse as a topology or be refused, without a panic. A topology that parses must be
//! equal when it is written and read again, and must connect all nodes that need it.
//!
//! `cargo +nightly fuzz run topology_file fuzz/corpus/topology_file fuzz/seeds/topology_file`
//! (create the first directory; new inputs are stored there)
#![no_main]

use levada_topology::{Role, from_graphml, from_json, to_json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for read in [from_json(text), from_graphml(text)] {
        let (topology, routes) = match read {
            Ok(read) => read,
            Err(errors) => {
                assert!(!errors.is_empty());
                errors.iter().for_each(|error| assert!(!error.to_string().is_empty()));
                continue;
            }
        };
        // Bandwidths may differ by rounding.
        let (again, _) = from_json(&to_json(&topology)).expect("what was read can be written");
        assert_eq!(again.places, topology.places);
        let mut path = Vec::new();
        for client in topology.places_of(Role::Client).take(8) {
            for server in topology.places_of(Role::Server).take(8) {
                path.clear();
                routes.path(client, server, &mut path);
                let latency = path.iter().map(|hop| topology.links[hop.link()].latency_ns);
                assert_eq!(latency.sum::<u64>(), routes.latency_ns(client, server));
            }
        }
    }
});
