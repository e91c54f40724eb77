//! The hosts: nodes and clients of a region share a LAN, and the regions a wide network with delays.
//!
//! ```text
//!   LAN of eu            LAN of us               LAN of ap
//!   eu-1 ... eu-4        us-1 ... us-4, origin   ap-1 ... ap-4
//!     │ 32.5 ms            │ 7.5 ms                │ 67.5 ms      each way, on the access of every host
//!     └────────────────────┴── wide network ───────┘
//! ```
//!
//! The hub has the clients of all regions. It is on every LAN, and not on the wide network.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use levada_client::command::node::Addresses;
use levada_net::{
    lab::{Access, Ethernet, Host, LabError, Network},
    wire::{Shape, Wire},
};

/// A region, and the delay between its hosts and the middle of the wide network.
pub(super) struct Region {
    pub(super) name: &'static str,
    delay: Duration,
}

/// The hosts, without programs.
pub(super) struct RegionHosts {
    pub(super) hub: Host,
    pub(super) origin: Host,
    /// Region by region.
    pub(super) nodes: Vec<Host>,
    wide: Wire,
    _lans: Vec<Ethernet>,
    _network: Network,
}

impl RegionHosts {
    /// Creates the hosts.
    ///
    /// # Errors
    /// If the network cannot be created, for example without root.
    pub(super) fn new(seed: u64) -> anyhow::Result<Self> {
        let mut network = Network::new(seed);
        let (hub, origin) = (network.host("hub")?, network.host("origin")?);
        let nodes = (0..NODES).map(|at| network.host(&name(at)));
        let nodes = nodes.collect::<Result<Vec<_>, LabError>>()?;
        let mut lans = Vec::new();
        for (region, Region { name, .. }) in REGIONS.iter().enumerate() {
            let mut ends = vec![(&hub, *name, in_region(region, CLIENTS))];
            if region == HOME {
                ends.push((&origin, *name, in_region(region, ORIGIN)));
            }
            let own = (0..NODES).filter(|at| region_of(*at) == region);
            ends.extend(own.map(|at| (&nodes[at], *name, address(at))));
            lans.push(network.ethernet(&ends)?);
        }
        let mut ends = Vec::new();
        for (at, host) in nodes.iter().enumerate() {
            ends.push((host, access(region_of(at), address(at))?));
        }
        ends.push((&origin, access(HOME, in_region(HOME, ORIGIN))?));
        let wide = network.join(&ends)?;
        for (at, host) in nodes.iter().enumerate() {
            reach_others(host, region_of(at))?;
        }
        reach_others(&origin, HOME)?;
        Ok(Self { hub, origin, nodes, wide, _lans: lans, _network: network })
    }

    /// Cuts the wide network off from a region, or connects it again.
    pub(super) fn cut(&self, region: usize, cut: bool) {
        for at in (0..NODES).filter(|at| region_of(*at) == region) {
            self.wide.up(at).cut(cut);
            self.wide.down(at).cut(cut);
        }
    }
}

/// The access of a host to the wide network, at the address that it has on its LAN.
fn access(region: usize, address: Ipv4Addr) -> anyhow::Result<Access> {
    let shape = Shape { delay: REGIONS[region].delay, ..Shape::default() }.checked()?;
    Ok(Access { prefix: 32, ..Access::at(address).sending(shape).receiving(shape) })
}

/// Sends a host's packets for other regions to the wide network, the only wire that it has.
fn reach_others(host: &Host, own: usize) -> Result<(), LabError> {
    let others = (0..REGIONS.len()).filter(|region| *region != own);
    let routes = others.map(|region| format!("route add {}/24 dev wire0", in_region(region, 0)));
    let routes: Vec<_> = routes.collect();
    host.ip(&routes.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The region of a node.
pub(super) const fn region_of(node: usize) -> usize {
    node / IN_REGION
}

/// The name of a node.
pub(super) fn name(node: usize) -> String {
    format!("{}-{}", REGIONS[region_of(node)].name, node % IN_REGION + 1)
}

/// The addresses of a node's listeners.
pub(super) fn addresses(node: usize) -> Addresses {
    let [clients, peers, admin] =
        [8080, 7070, 9180].map(|port| SocketAddr::from((address(node), port)));
    Addresses { clients, peers, admin }
}

/// The address of the origin.
pub(super) fn origin() -> SocketAddr {
    SocketAddr::from((in_region(HOME, ORIGIN), 80))
}

fn address(node: usize) -> Ipv4Addr {
    in_region(region_of(node), (11 + node % IN_REGION) as u8)
}

fn in_region(region: usize, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 1 + region as u8, 0, host)
}

/// All regions. The delays add up to round trips of 80 ms (eu, us), 150 ms (us, ap) and 200 ms (eu, ap).
pub(super) const REGIONS: [Region; 3] = [
    Region { name: "eu", delay: Duration::from_micros(32_500) },
    Region { name: "us", delay: Duration::from_micros(7_500) },
    Region { name: "ap", delay: Duration::from_micros(67_500) },
];
/// The region of the origin, which is the shield where there is one.
pub(super) const HOME: usize = 1;
/// The region that is cut off: the one farthest from the others.
pub(super) const FAR: usize = 2;
const IN_REGION: usize = 4;
/// All nodes.
pub(super) const NODES: usize = IN_REGION * REGIONS.len();
/// The last byte of the addresses of a region's clients, and of the origin.
const CLIENTS: u8 = 1;
const ORIGIN: u8 = 2;
