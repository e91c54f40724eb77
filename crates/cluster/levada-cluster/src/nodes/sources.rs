//! The nodes of the cluster from where they already are: a source that names them, and the addresses of those that
//! are called by a host name.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use levada_discovery::{Discovery, DiscoverySettings, DnsSource, Followed, Member, Source};

use crate::nodes::{Peer, Peering};

/// The sources of a cluster's nodes.
#[derive(Default)]
pub struct PeerSources {
    /// The source that names nodes.
    nodes: Option<Arc<Followed>>,
    /// The addresses of the nodes of the configuration that are called by a host name, by the node's name.
    named: BTreeMap<String, Arc<Followed>>,
}

impl PeerSources {
    /// Follows the sources of the nodes other than this one, `me`.
    pub fn follow(
        me: &str,
        peering: &Peering,
        settings: &DiscoverySettings,
        discovery: &Discovery,
    ) -> Self {
        let by_name = |name: &Arc<str>| settings.sources.iter().find(|named| named.name == *name);
        let nodes = peering.discovery.as_ref().and_then(by_name);
        let nodes = nodes.map(|named| discovery.follow(&named.source, &named.name));
        let named = peering.peers.iter().filter(|peer| peer.name != me).filter_map(|peer| {
            let source = source_of(&peer.address)?;
            Some((peer.name.clone(), discovery.follow(&source, &peer.address)))
        });
        Self { nodes, named: named.collect() }
    }

    /// Whether any of them is one of `changed`.
    pub fn are_among(&self, changed: &[Source]) -> bool {
        let mut all = self.nodes.iter().chain(self.named.values());
        all.any(|followed| changed.contains(followed.source()))
    }

    /// Why the source that names nodes has named none, if it has not.
    pub fn silence(&self) -> Option<String> {
        Some(format!("no node of the cluster is known: {}", self.nodes.as_ref()?.silence()?))
    }

    /// The cluster with the nodes and addresses that the sources name now. This node, `me`, stays whatever they say.
    pub fn nodes(&self, me: &str, peering: &Peering) -> Peering {
        self.merged(Some(me), &peering.region_of(me), peering)
    }

    /// The same for an observer with the configuration of the node `of`. Without a source the nodes of the configuration
    /// are all that there are; with one, `of` stands among them only because each node counts itself in.
    pub fn observed(&self, of: &str, peering: &Peering) -> Peering {
        let own = peering.region_of(of);
        let mut peering = peering.clone();
        let counts_itself = |peer: &Peer| {
            peer.name == of && peer.public.is_empty() && peer.address == peering.listen.to_string()
        };
        let stays: Vec<_> = peering.peers.iter().map(|peer| !counts_itself(peer)).collect();
        if self.nodes.is_some() {
            let mut stays = stays.into_iter();
            peering.peers.retain(|_| stays.next().unwrap_or(true));
        }
        self.merged(None, &own, &peering)
    }

    /// The cluster for the node `me` or an observer, whose region is `own`.
    fn merged(&self, me: Option<&str>, own: &Arc<str>, peering: &Peering) -> Peering {
        let mut nodes = peering.clone();
        for peer in &mut nodes.peers {
            let Some(followed) = self.named.get(&peer.name) else { continue };
            // With several, each connection tries them all.
            if let [only] = &followed.members()[..] {
                peer.at = Some(only.address);
            }
        }
        let Some(source) = &self.nodes else { return nodes };
        // A member without a region is of this node's. Where this node has none, there are no regions.
        let region = |member: &Member| match &member.region {
            Some(region) if !own.is_empty() => region.clone(),
            _ => own.clone(),
        };
        for member in source.members().iter() {
            let name = node_name(&member.name);
            if me == Some(name) {
                continue;
            }
            if let Some(me) = me.filter(|_| member.address == peering.listen) {
                tracing::warn!(name, me, "the source calls this node by another name than its own");
                continue;
            }
            match nodes.peers.iter_mut().find(|peer| peer.name == name) {
                Some(peer) => peer.at = Some(member.address),
                None => nodes.peers.push(peer(name, member, region(member))),
            }
        }
        // The same order on every node.
        nodes.peers.sort_by(|one, other| one.name.cmp(&other.name));
        nodes
    }
}

fn peer(name: &str, member: &Member, region: Arc<str>) -> Peer {
    let host = member.host.as_ref().map(ToString::to_string);
    let host = host.unwrap_or_else(|| member.address.ip().to_string());
    let port = member.address.port();
    Peer {
        name: name.to_owned(),
        address: if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        },
        at: Some(member.address),
        weight: member.weight,
        rtt: None,
        client_url: None,
        region,
        public: for_clients(member.address.ip()).into_iter().collect(),
    }
}

/// The address at which clients reach a node that nodes reach at `address`: the same, unless it is of a network that is
/// not on the Internet.
fn for_clients(address: IpAddr) -> Option<IpAddr> {
    let is_inner = match address.to_canonical() {
        IpAddr::V4(v4) => {
            // Shared address space: RFC 6598.
            let is_shared = v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64;
            v4.is_private() || v4.is_loopback() || v4.is_link_local() || is_shared
        }
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    };
    (!is_inner && !address.is_unspecified()).then_some(address)
}

/// The name of a member without a port.
fn node_name(member: &str) -> &str {
    let host = match member.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() && !host.contains(':') => host,
        Some((host, _)) if member.parse::<SocketAddr>().is_ok() => host,
        _ => member,
    };
    host.trim_start_matches('[').trim_end_matches(']')
}

/// The addresses of `host:port`, if the host is a name.
fn source_of(address: &str) -> Option<Source> {
    let (host, port) = address.rsplit_once(':')?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if bare.parse::<IpAddr>().is_ok() {
        return None;
    }
    let (host, port) = (host.to_ascii_lowercase().into(), port.parse().ok()?);
    Some(Source::Dns(DnsSource { host, port, resolver: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_of_a_source_has_its_address_for_clients_unless_it_is_of_an_inner_network() {
        let of = |text: &str| for_clients(text.parse().unwrap()).is_some();
        assert!(["192.0.2.1", "2001:db8::1", "100.128.0.1"].into_iter().all(of));
        let inner = ["10.0.0.1", "192.168.0.1", "172.16.0.1", "127.0.0.1", "169.254.0.1"];
        assert!(!inner.into_iter().any(of));
        assert!(!["100.64.0.1", "fd00::1", "fe80::1", "::1", "0.0.0.0"].into_iter().any(of));
    }

    #[test]
    fn node_is_called_as_its_member_without_the_port() {
        for (member, node) in [
            ("10.0.0.1", "10.0.0.1"),
            ("10.0.0.1:7070", "10.0.0.1"),
            ("fd00::1", "fd00::1"),
            ("[fd00::1]:7070", "fd00::1"),
            ("b", "b"),
            ("b.example:7070", "b.example"),
        ] {
            assert_eq!(node_name(member), node);
        }
    }
}
