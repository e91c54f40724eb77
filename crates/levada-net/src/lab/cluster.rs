//! The hosts of a cluster whose front-end hands connections over: clients behind a router, the
//! front-end, and back-ends, which all have the service's address and answer by way of the router.
//!
//! ```text
//!   client ──── router ──┬── front       SERVICE on lo
//!                        ├── back 0      SERVICE on lo
//!                        └── ...
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Ethernet, Host, LabError, Network};

/// Hosts without programs.
pub struct Cluster {
    /// Where clients are.
    pub client: Host,
    /// Between the clients and all the others.
    pub router: Host,
    /// To whom the router sends what is for the service.
    pub front: Host,
    /// Those who answer.
    pub backs: Vec<Host>,
    _wires: [Ethernet; 2],
    _network: Network,
}

impl Cluster {
    /// What clients connect to.
    pub const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
    /// The clients' own address.
    pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
    /// The front-end's own.
    pub const FRONT: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 1);
    /// Where everything but the clients leaves for elsewhere.
    pub const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 254);
    /// The device of every host, but for the router's second.
    pub const DEVICE: &str = "eth0";

    /// The same over IPv6.
    pub const SERVICE6: Ipv6Addr = ipv6(9, 9);
    /// The same over IPv6.
    pub const CLIENT6: Ipv6Addr = ipv6(1, 2);
    /// The same over IPv6.
    pub const FRONT6: Ipv6Addr = ipv6(2, 1);
    /// The same over IPv6.
    pub const ROUTER6: Ipv6Addr = ipv6(2, 0x254);

    /// A back-end's own address.
    pub const fn back(at: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 2, 11 + at)
    }

    /// The same over IPv6.
    pub const fn back6(at: u8) -> Ipv6Addr {
        ipv6(2, 0x11 + at as u16)
    }

    /// With so many back-ends.
    ///
    /// # Errors
    /// Where there can be no network.
    pub fn new(backs: u8) -> Result<Self, LabError> {
        let network = Network::new(1);
        let (client, router) = (network.host("client")?, network.host("router")?);
        let front = network.host("front")?;
        let names = (0..backs).map(|at| network.host(&format!("back{at}")));
        let backs: Vec<Host> = names.collect::<Result<_, _>>()?;
        let near = Ipv4Addr::new(10, 0, 1, 1);
        let outer = network
            .ethernet(&[(&client, Self::DEVICE, Self::CLIENT), (&router, Self::DEVICE, near)])?;
        let mut ends = vec![(&router, "eth1", Self::ROUTER), (&front, Self::DEVICE, Self::FRONT)];
        ends.extend((0..).zip(&backs).map(|(at, back)| (back, Self::DEVICE, Self::back(at))));
        let inner = network.ethernet(&ends)?;
        client.ip(&[&format!("route add default via {near}")])?;
        // A connection for each request needs as many ports as there can be, each at once again.
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
            Self { client, router, front, backs, _wires: [outer, inner], _network: network };
        cluster.add_ipv6()?;
        Ok(cluster)
    }

    fn add_ipv6(&self) -> Result<(), LabError> {
        let near = ipv6(1, 1);
        let mut own = vec![
            (&self.client, Self::DEVICE, Self::CLIENT6),
            (&self.router, Self::DEVICE, near),
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

    /// The same for a test: nothing where there can be none, which is said.
    ///
    /// # Panics
    /// Where there could be one.
    pub fn for_test(backs: u8) -> Option<Self> {
        match Self::new(backs) {
            Ok(cluster) => Some(cluster),
            Err(why @ (LabError::NotRoot | LabError::Tun(_) | LabError::Ip(_))) => {
                eprintln!("skipped: {why}");
                None
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// An address of one of the networks.
const fn ipv6(network: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, network, 0, 0, 0, host)
}
