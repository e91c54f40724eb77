//! A network without servers: the responses of transfers are available as soon as they are
//! requested.

use levada_topology::{Role, RouteError, Topology};
use levada_types::Timestamp;

use super::{Arrival, Network, NetworkEvent};
use crate::{kernel::Agenda, scenario::NetworkModel};

/// A request and its response. Clients and servers are numbered in the order of the topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The time of the request.
    pub at: Timestamp,
    /// The client.
    pub client: u32,
    /// The server.
    pub server: u32,
    /// Size of the response.
    pub bytes: u64,
}

/// The times of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transferred {
    /// The server received the request.
    pub asked: Timestamp,
    /// The client received the first segment.
    pub first: Timestamp,
    /// The client received the last segment.
    pub last: Timestamp,
    /// The server received the last acknowledgement.
    pub over: Timestamp,
}

/// Plays `transfers` over a network and returns the times of each.
///
/// # Errors
/// When the topology has no routes.
pub fn transfer(
    topology: &Topology,
    model: &NetworkModel,
    transfers: &[Transfer],
) -> Result<Vec<Transferred>, RouteError> {
    let routes = topology.routes()?;
    let places = |role| topology.places_of(role).collect::<Vec<_>>();
    let (servers, clients) = (places(Role::Server), places(Role::Client));
    let mut network = Network::new(model, topology, &routes, &servers, &clients);
    let mut agenda = Agenda::default();
    for (n, transfer) in (0..).zip(transfers) {
        agenda.schedule(transfer.at, TransferEvent::Open(n));
    }
    let mut results = vec![Transferred::default(); transfers.len()];
    let mut arrivals = Vec::new();
    while let Some((now, event)) = agenda.next() {
        match event {
            TransferEvent::Open(n) => {
                let Transfer { client, server, .. } = transfers[n as usize];
                network.open(n, client, server, now, &mut agenda);
            }
            TransferEvent::Network(event) => {
                let until = Timestamp(u64::MAX);
                network.handle(event, now, until, &mut agenda, &mut arrivals);
            }
        }
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Request(n) => {
                    results[n as usize].asked = now;
                    let bytes = transfers[n as usize].bytes;
                    network.ready(n, bytes, bytes, now, &mut agenda);
                }
                Arrival::LastByte { transfer, first, at } => {
                    let result = &mut results[transfer as usize];
                    (result.first, result.last) = (first, at);
                }
                Arrival::Acknowledged(n) => results[n as usize].over = now,
            }
        }
    }
    Ok(results)
}

#[derive(Clone, Copy)]
enum TransferEvent {
    Network(NetworkEvent),
    Open(u32),
}

impl From<NetworkEvent> for TransferEvent {
    fn from(event: NetworkEvent) -> Self {
        Self::Network(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fidelity;
    use levada_topology::{Shape, build};

    /// Both networks on an idle path, from nothing to long transfers. They differ by less than a
    /// millisecond: packets include the request's bytes, its acknowledgement, and short last
    /// segments.
    #[test]
    fn both_networks_agree_on_an_idle_path() {
        let shape = Shape { servers: 1, slow: 0.0, slow_bits_per_second: 1, clients: 1, seed: 1 };
        let topology = build("star", &Default::default(), &shape).unwrap();
        for bytes in [0, 1, 536, 537, 8_000, 20_000, 44_000, 1_000_000] {
            let one = [Transfer { at: Timestamp::ZERO, client: 0, server: 0, bytes }];
            let took = |fidelity| {
                let model = NetworkModel { fidelity, ..NetworkModel::default() };
                transfer(&topology, &model, &one).unwrap()[0]
            };
            let (bulk, packets) = (took(Fidelity::Flow), took(Fidelity::Packet));
            let off = packets.last.as_secs_f64() - bulk.last.as_secs_f64();
            assert!(off.abs() < 0.001, "{bytes} bytes: {bulk:?} {packets:?}");
        }
    }

    #[test]
    fn persistent_connections_save_a_round_trip_in_both_networks() {
        let shape = Shape { servers: 1, slow: 0.0, slow_bits_per_second: 1, clients: 1, seed: 1 };
        let topology = build("star", &Default::default(), &shape).unwrap();
        let one = [Transfer { at: Timestamp::ZERO, client: 0, server: 0, bytes: 8_000 }];
        let saved = [Fidelity::Flow, Fidelity::Packet].map(|fidelity| {
            let [opened, kept] = [false, true].map(|persistent| {
                let model = NetworkModel { fidelity, persistent, ..NetworkModel::default() };
                transfer(&topology, &model, &one).unwrap()[0].last.as_secs_f64()
            });
            opened - kept
        });
        let [flow, packets] = saved;
        assert!(flow > 0.001 && (flow - packets).abs() < 0.001, "{saved:?}");
    }
}
