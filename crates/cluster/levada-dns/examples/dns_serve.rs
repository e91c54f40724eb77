//! A name server with nodes that are always well, for measurements.
//!
//! `dns_serve ADDRESS COVERAGE ZONES`: zone files `NAME.zone` in the directory `ZONES`; `www` of each is routed to four
//! nodes in each of the regions r0 to r3. On each line of standard input it loads all files again.

use std::{env, io::BufRead as _, path::PathBuf, sync::Arc, time::Instant};

use levada_dns::{
    cookies::Cookies,
    load::{WorldSource, ZoneFiles, ZoneSource},
    rate::RateLimit,
    route::NodeState,
    serve::{DnsMetrics, Identity, Server, receive},
    zone::Routing,
};
use levada_observe::metrics::Registry;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, coverage, zones] = &arguments[..] else {
        eprintln!("dns_serve ADDRESS COVERAGE ZONES");
        std::process::exit(2);
    };
    let regions: Vec<Arc<str>> = (0..4).map(|at| format!("r{at}").into()).collect();
    let source = WorldSource {
        zones: vec![ZoneSource {
            files: ZoneFiles::Directory(PathBuf::from(zones)),
            names: vec!["www".to_owned()],
            sites: false,
            redirects: Vec::new(),
            routing: Routing { ttl: 20, max_answers: 1, hot_rate: 100, alpn: Vec::new() },
            signed: env::var_os("SIGNED").is_some(),
        }],
        regions: regions.clone(),
        coverage: Some(PathBuf::from(coverage)),
        keys: env::var_os("KEYS").map(PathBuf::from),
        ..WorldSource::default()
    };
    let load = || source.load().unwrap_or_else(|wrong| panic!("{wrong:?}")).world;
    let begin = Instant::now();
    let world = load();
    let limit = RateLimit { responses: 0, slip: 0, signatures: 0 };
    let identity = Identity { nsid: Vec::new(), cookies: Cookies::new([1; 16]), limit };
    let metrics = DnsMetrics::registered(&mut Registry::default());
    let server = Server::new(world, identity.clone(), metrics);
    let node = |at: u8| NodeState {
        name: format!("node-{at}").into(),
        region: regions[usize::from(at / 4)].clone(),
        v4: vec![[192, 0, 2, at].into()],
        v6: Vec::new(),
        weight: 1.0,
        ready: true,
        draining: false,
        load: 0.0,
    };
    server.set_nodes((0..16).map(node).collect());
    let socket =
        levada_net::datagrams::bind(address.parse().expect("an address")).expect("a socket");
    let _receiving = receive(&server, vec![socket]).expect("a thread");
    println!("ready after {:.2} s", begin.elapsed().as_secs_f64());
    for _ in std::io::stdin().lock().lines() {
        let begin = Instant::now();
        server.set_world(load(), identity.clone());
        println!("loaded in {:.2} s", begin.elapsed().as_secs_f64());
    }
}
