//! The listening sockets of a node that the lab holds, as systemd does for a service with a socket unit: connections
//! that come while the node does not run wait in them.

use std::{io, net::SocketAddr, os::fd::OwnedFd, process::Command};

use anyhow::Context as _;
use levada_client::command::node::Node;
use levada_net::{activation, listening};

/// Listens at these addresses, and lets each process of the node start with the sockets.
///
/// # Errors
/// If an address is in use.
pub(super) fn hold(node: Node, addresses: &[SocketAddr]) -> anyhow::Result<Node> {
    let sockets = addresses.iter().map(|address| listen(*address));
    let sockets = sockets.collect::<anyhow::Result<Vec<_>>>()?;
    let pass = move |command: &mut Command| activation::pass_sockets(command, &sockets);
    Ok(node.wrapped_by(activation::WRAPPER.map(Into::into).to_vec()).prepared_by(pass))
}

fn listen(address: SocketAddr) -> anyhow::Result<OwnedFd> {
    let listened = || -> io::Result<OwnedFd> {
        let socket = listening::bind(address, false)?;
        listening::listen(&socket)?;
        Ok(socket.into())
    };
    listened().with_context(|| format!("cannot listen on {address}"))
}
