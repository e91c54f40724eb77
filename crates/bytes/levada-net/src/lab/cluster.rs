//! The hosts of a cluster whose front-end hands connections off: clients behind a router, the
//! front-end, and back-ends. All nodes have the service's address and answer through the router.
//!
//! ```text
//!   client ──── router ──┬── front       SERVICE on lo
//!                        ├── back 0      SERVICE on lo
//!                        └── ...
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Access, Ethernet, Host, LabError, Network};
use crate::wire::{Shape, Wire};

/// The hosts, without programs.
pub struct LabCluster {
    /// The host of the clients.
    pub client: Host,
    /// The router between the clients and all other hosts.
    pub router: Host,
    /// The front-end, to which the router sends packets for the service.
    pub front: Host,
    /// The back-ends.
    pub backs: Vec<Host>,
    _inner: Ethernet,
    _outer: OuterLink,
    _network: Network,
}

/// The link between the client and the router; kept while the cluster exists.
enum OuterLink {
    Plain { _wire: Ethernet },
    Shaped { _wire: Wire },
}

impl LabCluster {
    /// The service address, to which clients connect.
    pub const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
    /// The client's own address.
    pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
    /// The front-end's own address.
    pub const FRONT: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 1);
    /// The default gateway of the front-end and the back-ends.
    pub const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 254);
    /// The network device of every host, except for the router's second device.
    pub const DEVICE: &str = "eth0";

    /// The service address over IPv6.
    pub const SERVICE6: Ipv6Addr = ipv6(9, 9);
    /// The client's own address over IPv6.
    pub const CLIENT6: Ipv6Addr = ipv6(1, 2);
    /// The front-end's own address over IPv6.
    pub const FRONT6: Ipv6Addr = ipv6(2, 1);
    /// The default gateway over IPv6.
    pub const ROUTER6: Ipv6Addr = ipv6(2, 0x254);

    /// The own address of a back-end.
    pub const fn back(at: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 2, 11 + at)
    }

    /// The own address of a back-end over IPv6.
    pub const fn back6(at: u8) -> Ipv6Addr {
        ipv6(2, 0x11 + at as u16)
    }

    /// Creates a cluster with this many back-ends.
    ///
    /// # Errors
    /// When there can be no network.
    pub fn new(backs: u8) -> Result<Self, LabError> {
        Self::behind(backs, None)
    }

    /// The same with a link to the client that loses, delays or reorders packets, each way.
    ///
    /// # Errors
    /// When there can be no network.
    pub fn behind(backs: u8, shape: Option<Shape>) -> Result<Self, LabError> {
        let mut network = Network::new(1);
        let (client, router) = (network.host("client")?, network.host("router")?);
        let front = network.host("front")?;
        let names = (0..backs).map(|at| network.host(&format!("back{at}")));
        let backs: Vec<Host> = names.collect::<Result<_, _>>()?;
        let near = Ipv4Addr::new(10, 0, 1, 1);
        let (outer, outer_device) = match shape {
            None => {
                let ends = [(&client, Self::DEVICE, Self::CLIENT), (&router, Self::DEVICE, near)];
                (OuterLink::Plain { _wire: network.ethernet(&ends)? }, Self::DEVICE)
            }
            Some(shape) => {
                let ends = [(&client, Self::CLIENT), (&router, near)]
                    .map(|(host, address)| (host, Access::at(address).sending(shape)));
                (OuterLink::Shaped { _wire: network.join(&ends)? }, "wire0")
            }
        };
        let mut ends = vec![(&router, "eth1", Self::ROUTER), (&front, Self::DEVICE, Self::FRONT)];
        ends.extend((0..).zip(&backs).map(|(at, back)| (back, Self::DEVICE, Self::back(at))));
        let inner = network.ethernet(&ends)?;
        client.ip(&[&format!("route add default via {near}")])?;
        // One connection per request needs as many ports as possible, each reusable at once.
        client.set("net.ipv4.ip_local_port_range", "1024 65535")?;
        client.set("net.ipv4.tcp_max_tw_buckets", "0")?;
        router.forward()?;
        router.ip(&[&format!("route add {} via {}", Self::SERVICE, Self::FRONT)])?;
        for host in backs.iter().chain([&front]) {
            let own = format!("addr add {}/32 dev lo", Self::SERVICE);
            host.ip(&[&own, &format!("route add default via {}", Self::ROUTER)])?;
            host.set("net.ipv4.tcp_max_tw_buckets", "0")?;
        }
        let cluster =
            Self { client, router, front, backs, _inner: inner, _outer: outer, _network: network };
        cluster.add_ipv6(outer_device)?;
        Ok(cluster)
    }

    fn add_ipv6(&self, outer_device: &'static str) -> Result<(), LabError> {
        let near = ipv6(1, 1);
        let mut own = vec![
            (&self.client, outer_device, Self::CLIENT6),
            (&self.router, outer_device, near),
            (&self.router, "eth1", Self::ROUTER6),
            (&self.front, Self::DEVICE, Self::FRONT6),
        ];
        own.extend((0..).zip(&self.backs).map(|(at, back)| (back, Self::DEVICE, Self::back6(at))));
        for (host, device, address) in own {
            host.set("net.ipv6.conf.all.disable_ipv6", "0")?;
            host.ip(&[&format!("addr add {address}/64 dev {device}")])?;
        }
        self.client.ip(&[&format!("route add default via {near}")])?;
        self.router.set("net.ipv6.conf.all.forwarding", "1")?;
        self.router.ip(&[&format!("route add {} via {}", Self::SERVICE6, Self::FRONT6)])?;
        for host in self.backs.iter().chain([&self.front]) {
            let own = format!("addr add {}/128 dev lo", Self::SERVICE6);
            host.ip(&[&own, &format!("route add default via {}", Self::ROUTER6)])?;
        }
        Ok(())
    }
}

/// An address in one of the networks.
const fn ipv6(network: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, network, 0, 0, 0, host)
}
