//! Messages to the name server, as any machine of the Internet may send them: there is no panic, no response to a
//! response, and none that is longer than its client takes.
#![no_main]

use std::{
    net::IpAddr,
    path::Path,
    sync::{Arc, LazyLock},
};

use levada_dns::{
    World,
    cookies::Cookies,
    rate::RateLimit,
    redirect::Redirects,
    route::{NodeState, Regions, Tables},
    serve::{DnsMetrics, Identity, Server, Transport},
    wire::{Name, Query},
    zone::{Routed, Routing, Zone, ZoneFile, Zones},
};
use levada_observe::metrics::Registry;
use libfuzzer_sys::fuzz_target;

const ZONE: &[u8] =
    b"$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n@ MX 10 mail\nalias CNAME ns\n\
    loop CNAME loop2\nloop2 CNAME loop\n* TXT x\nsub NS ns.sub\nns.sub AAAA 2001:db8::1\n";

static SERVER: LazyLock<Arc<Server>> = LazyLock::new(|| {
    let apex: Name = "a".parse().expect("a name");
    let records =
        ZoneFile { path: Path::new("a"), text: ZONE }.records(&apex).expect("a zone file");
    let name = apex.below("w").expect("a name");
    let routes = vec![Routed { name, federation: None, stated: true, of_node: false }];
    let routing = Routing { ttl: 20, max_answers: 2, hot_rate: 0, alpn: b"\x02h2".to_vec() };
    let mut zones = Zones::default();
    zones.add(Zone::new(apex, records, routes, routing, None).expect("a zone"));
    let regions = Regions::new(["eu"]);
    let tables = Tables { regions, fallbacks: vec![vec![0]], ..Tables::default() };
    let identity = Identity {
        nsid: b"n".to_vec(),
        cookies: Cookies::new([1; 16]),
        limit: RateLimit { responses: 0, slip: 0, signatures: 0 },
    };
    let metrics = DnsMetrics::registered(&mut Registry::default());
    let world = World { zones, tables, redirects: Redirects::default() };
    let server = Server::new(Arc::new(world), identity, metrics);
    let node = |at: u8| NodeState {
        name: format!("n{at}").into(),
        region: "eu".into(),
        v4: vec![[192, 0, 2, at].into()],
        v6: vec![],
        weight: 1.0,
        ready: true,
        draining: false,
        load: 0.0,
    };
    server.set_nodes((0..3).map(node).collect());
    server
});

fuzz_target!(|message: &[u8]| {
    let sender = IpAddr::from([198, 51, 100, 1]);
    for (transport, most) in [(Transport::Udp, 1232), (Transport::Tcp, 65_535)] {
        let mut buffer = vec![0; most];
        let answer = SERVER.respond(message, (sender, transport), &mut buffer);
        let Some(length) = answer else { continue };
        assert!(message[2] & 0x80 == 0 && buffer[2] & 0x80 != 0);
        assert_eq!(buffer[..2], message[..2]);
        if let Ok(query) = Query::parse(message, &mut [0; 255]) {
            let limit = query.edns.map_or(512, |edns| edns.size.clamp(512, 1232));
            assert!(transport == Transport::Tcp || length <= limit.into());
            assert_eq!(&buffer[12..12 + query.question.len()], query.question);
        }
    }
});
