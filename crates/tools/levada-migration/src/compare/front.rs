//! A server that was started.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use super::stage::Process;

/// A server that was started, with its addresses by those of the configuration.
pub(super) struct Front {
    pub(super) listeners: BTreeMap<String, SocketAddr>,
    pub(super) _process: Process,
}

impl Front {
    /// A server with one address in the place of all of a node.
    pub(super) fn for_all_of(node: &Self, address: SocketAddr, process: Process) -> Self {
        let listeners = node.listeners.keys().map(|own| (own.clone(), address)).collect();
        Self { listeners, _process: process }
    }
}

/// `*:80` and `:80` as the converters write them.
pub(super) fn listened(address: &str) -> String {
    let (host, port) = address.rsplit_once(':').unwrap_or(("", address));
    match host.trim_start_matches("ipv4@").trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(host) => SocketAddr::new(host, port.parse().unwrap_or_default()).to_string(),
        Err(_) => format!("0.0.0.0:{port}"),
    }
}
