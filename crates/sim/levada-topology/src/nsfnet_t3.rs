//! The NSFNET T3 backbone of 1992 as OSDI'02 simulates it (Sec. 4.2, Fig. 4): 16 core routers, 20
//! regional routers, servers behind eight of them and clients behind the other twelve.
//!
//! Core routers and their links are those of the T3 backbone; the paper gives the ranges of latency
//! and bandwidth, and which regional routers have servers (R0, R1, R7, R8, R9, R10, R15, R19). The
//! core router of each regional router is a reconstruction inside those ranges, and so are the
//! latencies: of a backbone link 8 to 28 ms in proportion to its great-circle distance, of a regional
//! router 1 to 10 ms.

use levada_policy::{Kind, Parameter, Parameters, Setting};

use super::{
    Entry, PlaceIndex, Role, Shape, Topology,
    access::{
        BACKBONE_QUEUE, CLIENT_MBPS_HIGH, CLIENT_MBPS_LOW, QUEUE, SERVER_MBPS, add_clients,
        add_servers, link, number, whole,
    },
};

pub(super) const ENTRY: Entry = Entry {
    name: "nsfnet_t3",
    source: "OSDI'02 Sec. 4.2",
    summary: "the NSFNET T3 backbone of OSDI'02 (Fig. 4): 16 core and 20 regional routers, 8 of them with servers",
    parameters: &[REDIRECTORS, BANDWIDTH, SERVER_MBPS, CLIENT_MBPS_LOW, CLIENT_MBPS_HIGH],
    build,
};

const REDIRECTORS: Parameter = Parameter {
    name: "redirectors",
    kind: Kind::Integer(1, 12),
    default: Setting::Integer(12),
    unit: "redirectors",
    help: "At how many of the twelve regional routers without servers there are clients and a redirector; the paper does not say.",
};

const BANDWIDTH: Parameter = Parameter {
    name: "bandwidth",
    kind: Kind::Number(0.01, 1000.0),
    default: Setting::Number(1.0),
    unit: "times",
    help: "The bandwidth of backbone and regional links, relative to OC-48 and OC-12; 2 is the doubling for 128 servers (OSDI'02 Sec. 5.1.4).",
};

/// OC-48 between core routers, OC-12 from regional routers to the core (OSDI'02 Sec. 4.2).
const BACKBONE_MBPS: f64 = 2488.0;
const REGIONAL_MBPS: f64 = 622.0;

const CORE: [&str; 16] = [
    "Seattle",
    "PaloAlto",
    "LosAngeles",
    "SaltLakeCity",
    "Denver",
    "Lincoln",
    "StLouis",
    "Chicago",
    "Cleveland",
    "NewYork",
    "WashingtonDC",
    "Greensboro",
    "Atlanta",
    "Houston",
    "AnnArbor",
    "Hartford",
];

/// Ends and latency in milliseconds.
const BACKBONE: [(&str, &str, f64); 20] = [
    ("NewYork", "Cleveland", 11.5),
    ("Cleveland", "Chicago", 10.4),
    ("Chicago", "PaloAlto", 28.0),
    ("NewYork", "WashingtonDC", 9.2),
    ("WashingtonDC", "Greensboro", 9.7),
    ("Greensboro", "Atlanta", 10.4),
    ("Atlanta", "Houston", 14.9),
    ("Houston", "LosAngeles", 22.5),
    ("LosAngeles", "PaloAlto", 10.5),
    ("Seattle", "PaloAlto", 14.9),
    ("Seattle", "SaltLakeCity", 14.9),
    ("SaltLakeCity", "Denver", 11.1),
    ("Denver", "Lincoln", 11.9),
    ("Lincoln", "StLouis", 11.2),
    ("StLouis", "Chicago", 9.9),
    ("Cleveland", "StLouis", 12.5),
    ("Chicago", "AnnArbor", 9.2),
    ("AnnArbor", "Cleveland", 8.2),
    ("Hartford", "NewYork", 8.0),
    ("Hartford", "WashingtonDC", 10.3),
];

/// Regional routers R0 to R19: core router, latency in milliseconds, whether servers are there.
const REGIONAL: [(&str, f64, bool); 20] = [
    ("Seattle", 7.5, true),
    ("PaloAlto", 5.5, true),
    ("PaloAlto", 8.0, false),
    ("LosAngeles", 6.1, false),
    ("LosAngeles", 8.9, false),
    ("SaltLakeCity", 9.0, false),
    ("Denver", 6.4, false),
    ("Denver", 1.0, true),
    ("Lincoln", 3.4, true),
    ("Houston", 5.6, true),
    ("StLouis", 9.9, true),
    ("Chicago", 1.5, false),
    ("AnnArbor", 8.0, false),
    ("Cleveland", 8.9, false),
    ("Cleveland", 1.2, false),
    ("NewYork", 1.1, true),
    ("Hartford", 2.6, false),
    ("WashingtonDC", 4.6, false),
    ("Greensboro", 4.3, false),
    ("Atlanta", 5.6, true),
];

fn build(shape: &Shape, parameters: &Parameters) -> Topology {
    let mut topology = Topology::default();
    let bandwidth = number(parameters, BANDWIDTH);
    for name in CORE {
        topology.place(name, Role::Router);
    }
    for (a, b, ms) in BACKBONE {
        topology.links.push(link(core(a), core(b), ms, BACKBONE_MBPS * bandwidth, BACKBONE_QUEUE));
    }
    let (mut with_servers, mut with_clients) = (Vec::new(), Vec::new());
    for (n, (at, ms, servers)) in REGIONAL.into_iter().enumerate() {
        let redirector = !servers && with_clients.len() < whole(parameters, REDIRECTORS);
        let role = if redirector { Role::Redirector } else { Role::Router };
        let router = topology.place(format!("R{n}"), role);
        topology.links.push(link(router, core(at), ms, REGIONAL_MBPS * bandwidth, QUEUE));
        if servers {
            with_servers.push(router);
        } else if redirector {
            with_clients.push(router);
        }
    }
    add_servers(&mut topology, shape, parameters, &with_servers);
    add_clients(&mut topology, shape, parameters, &with_clients);
    topology
}

/// The number of a core router: they are the first places.
fn core(name: &str) -> PlaceIndex {
    CORE.iter().position(|core| *core == name).expect("the tables name core routers only")
        as PlaceIndex
}
