//! Sockets that a process got instead of opening them: from the process before it, or from systemd.

use std::{net::TcpListener, os::fd::OwnedFd, os::unix::net::UnixListener};

use levada_net::listening;
use listenfd::ListenFd;

use crate::upgrade::message::OfferedSockets;

/// Listening sockets by their addresses.
#[derive(Debug, Default)]
pub struct PassedSockets(Vec<Group>);

#[derive(Debug)]
struct Group {
    address: String,
    /// `None` when they were taken.
    sockets: Option<Vec<OwnedFd>>,
}

impl PassedSockets {
    /// The sockets that the process before has passed.
    pub(crate) fn offered(offered: &[OfferedSockets], sockets: Vec<OwnedFd>) -> Self {
        let mut sockets = sockets.into_iter();
        let group = |one: &OfferedSockets| {
            let sockets = sockets.by_ref().take(one.count).collect();
            Group { address: one.address.clone(), sockets: Some(sockets) }
        };
        Self(offered.iter().map(group).collect())
    }

    /// The sockets that systemd passes (sd_listen_fds(3)). Several sockets of one address belong together.
    pub fn from_systemd() -> Self {
        let mut passed = ListenFd::from_env();
        let mut groups: Vec<Group> = Vec::new();
        for at in 0..passed.len() {
            let tcp = passed.take_tcp_listener(at).ok().flatten().and_then(passed_tcp);
            let unix = passed.take_unix_listener(at).ok().flatten().and_then(passed_unix);
            let Some((address, socket)) = tcp.or(unix) else {
                tracing::warn!(
                    number = at,
                    "systemd has passed a socket that takes no connections"
                );
                continue;
            };
            match groups.iter_mut().find(|group| group.address == address) {
                Some(group) => group.sockets.get_or_insert_default().push(socket),
                None => groups.push(Group { address, sockets: Some(vec![socket]) }),
            }
        }
        Self(groups)
    }

    /// The sockets of an address.
    pub fn take(&mut self, address: &str) -> Vec<OwnedFd> {
        let mut groups = self.0.iter_mut();
        let group = groups.find(|group| group.address == address && group.sockets.is_some());
        group.and_then(|group| group.sockets.take()).unwrap_or_default()
    }

    /// Whether the sockets of each address were taken.
    pub(crate) fn taken(&self) -> Vec<bool> {
        self.0.iter().map(|group| group.sockets.is_none()).collect()
    }

    /// The addresses that were not taken.
    pub fn left(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|group| group.sockets.is_some()).map(|group| &*group.address)
    }
}

fn passed_tcp(listener: TcpListener) -> Option<(String, OwnedFd)> {
    listening::adopt(&listener).ok()?;
    Some((listener.local_addr().ok()?.to_string(), listener.into()))
}

fn passed_unix(listener: UnixListener) -> Option<(String, OwnedFd)> {
    let address = listener.local_addr().ok()?;
    Some((format!("unix:{}", address.as_pathname()?.display()), listener.into()))
}
