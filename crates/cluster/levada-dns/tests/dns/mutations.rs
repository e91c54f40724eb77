//! Queries with changed bytes, of all kinds that the server knows: none does harm.

use levada_dns::{
    route::{Regions, Tables},
    serve::{DnsMetrics, Server, Transport},
    wire::{Name, Query},
};
use levada_observe::metrics::Registry;
use proptest::prelude::*;

use crate::support::{ZONE, identity, node, world, zone};

/// A query with a client subnet, a cookie and NSID.
fn whole(name: &str, kind: u16) -> Vec<u8> {
    let name: Name = name.parse().unwrap();
    let [high, low] = kind.to_be_bytes();
    let options = [
        &[0, 8, 0, 7, 0, 1, 24, 0, 198, 51, 100][..],
        &[0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0, 3, 0, 0],
    ];
    let options = options.concat();
    let opt = [0, 0, 41, 4, 208, 0, 0, 128, 0, 0, options.len() as u8];
    let head = [0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    [&head[..], name.wire(), &[high, low, 0, 1], &opt, &options].concat()
}

const NAMES: [&str; 8] = [
    "a.test",
    "www.a.test",
    "alias.a.test",
    "x.wild.a.test",
    "none.a.test",
    "x.sub.a.test",
    "long.a.test",
    "b.test",
];
const KINDS: [u16; 10] = [1, 2, 5, 6, 15, 28, 43, 65, 255, 252];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn changed_bytes_do_no_harm(seed in any::<u64>()) {
        let tables = Tables { regions: Regions::new(["eu"]), fallbacks: vec![vec![0]], ..Tables::default() };
        let zones = vec![zone("a.test", ZONE, &[("www", None)], None)];
        let server =
            Server::new(world(zones, tables), identity(), DnsMetrics::registered(&mut Registry::default()));
        server.set_nodes(vec![node("eu-1", "eu", "192.0.2.1", "2001:db8::1")]);
        let mut state = seed | 1;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as usize % below
        };
        for _ in 0..2000 {
            let mut message = whole(NAMES[random(NAMES.len())], KINDS[random(KINDS.len())]);
            for _ in 0..random(4) {
                let at = random(message.len());
                message[at] = random(256) as u8;
            }
            message.truncate(message.len() - random(4) * random(8));
            for (transport, most) in [(Transport::Udp, 1232), (Transport::Tcp, 65_535)] {
                let mut buffer = vec![0; most];
                let answer = server.respond(&message, ([192, 0, 2, 7].into(), transport), &mut buffer);
                let Some(length) = answer else { continue };
                prop_assert!(message[2] & 0x80 == 0 && buffer[2] & 0x80 != 0);
                if let Ok(query) = Query::parse(&message, &mut [0; 255]) {
                    let limit = query.edns.map_or(512, |edns| edns.size.clamp(512, 1232));
                    prop_assert!(transport == Transport::Tcp || length <= limit.into());
                    prop_assert_eq!(&buffer[12..12 + query.question.len()], query.question);
                }
            }
        }
    }
}
