//! Hosts for faults of links: clients and origin reach all nodes over one wire, and the nodes each
//! other over another, whose links become slow or lose packets.
//!
//! ```text
//!   hub: clients, origins ── wire, no limits ──┬──────┬──────┬──────┐
//!                                            node0  node1  node2  node3
//!                            wire, 100 Mbit/s ─┴──────┴──────┴──────┘
//! ```

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use levada_client::command::node::Addresses;
use levada_net::{
    lab::{Access, Host, LabError, Network},
    wire::{Meter, Shape, Wire},
};

/// The hosts, without programs.
pub(super) struct FaultHosts {
    pub(super) hub: Host,
    pub(super) nodes: Vec<Host>,
    peers: Wire,
    _clients: Wire,
    _network: Network,
}

impl FaultHosts {
    /// Creates the hosts.
    ///
    /// # Errors
    /// If the network cannot be created, for example without root.
    pub(super) fn new(seed: u64) -> anyhow::Result<Self> {
        let mut network = Network::new(seed);
        let hub = network.host("hub")?;
        let names = (0..NODES).map(|at| network.host(&format!("node{at}")));
        let nodes = names.collect::<Result<Vec<_>, LabError>>()?;
        let mut ends = vec![(&hub, Access::at(HUB))];
        ends.extend(nodes.iter().enumerate().map(|(at, node)| (node, Access::at(front(at)))));
        let clients = network.join(&ends)?;
        let shape = Shape { rate: Some(RATE), queue: QUEUE, ..Shape::default() }.checked()?;
        let link = |at| Access::at(back(at)).sending(shape).receiving(shape);
        let ends: Vec<_> = nodes.iter().enumerate().map(|(at, node)| (node, link(at))).collect();
        let peers = network.join(&ends)?;
        Ok(Self { hub, nodes, peers, _clients: clients, _network: network })
    }

    /// The addresses of all nodes.
    pub(super) fn addresses() -> Vec<Addresses> {
        let of = |at| Addresses {
            clients: SocketAddr::from((front(at), 8080)),
            peers: SocketAddr::from((back(at), 7070)),
            admin: SocketAddr::from((front(at), 9180)),
        };
        (0..NODES).map(of).collect()
    }

    /// The packets that a node sends to its peers, and those that it receives from them.
    pub(super) fn link(&self, node: usize) -> [&Meter; 2] {
        [self.peers.up(node), self.peers.down(node)]
    }
}

/// The hub's address, where the origins are.
pub(super) fn hub() -> IpAddr {
    HUB.into()
}

/// A node's address for clients.
fn front(at: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, 0, 11 + at as u8)
}

/// A node's address for peers.
fn back(at: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 2, 0, 11 + at as u8)
}

/// Nodes of a cluster.
pub(super) const NODES: usize = 4;
const HUB: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
/// Bits per second.
const RATE: u64 = 100_000_000;
/// Packets that may wait for a link: 60 ms of 100 Mbit/s.
const QUEUE: usize = 500;
