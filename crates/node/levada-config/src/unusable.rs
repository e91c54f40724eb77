//! Settings that no node could serve by. What other programs have or do at the moment is not looked at.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use levada_access::memory_bound;
use levada_store::disk::{DiskError, check_directory};
use levada_types::ByteSize;
use levada_upstream::Origin;

use crate::settings::{Settings, SiteSettings};

/// Why no node could serve by settings.
#[derive(Debug, thiserror::Error)]
pub enum UnusableSettings {
    /// An origin is a listener of the node.
    #[error(
        "the origin {origin} of the site {site} is this node itself, which listens on {listener}: \
         its requests would come back; write the address of the web server"
    )]
    OwnListener {
        /// The place of the site in the settings.
        number: usize,
        /// Its hosts.
        site: String,
        /// The origin.
        origin: String,
        /// The listener's address.
        listener: SocketAddr,
    },
    /// The bound on memory is below the memory of an idle node.
    #[error(
        "`limits.memory` is {limit}, less than an idle node needs: all clients would be turned \
         away; write at least {least}"
    )]
    Memory {
        /// The bound.
        limit: ByteSize,
        /// The least one.
        least: ByteSize,
    },
    /// The disk cache could never be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Whether a node could serve by these settings.
pub(crate) fn check(settings: &Settings) -> Result<(), UnusableSettings> {
    let least = memory_bound::least(settings.sites.len());
    if let Some(limit) = settings.limits.memory.filter(|limit| *limit < least) {
        return Err(UnusableSettings::Memory { limit: ByteSize(limit), least: ByteSize(least) });
    }
    if let Some(disk) = &settings.cache.disk {
        check_directory(&disk.path)?;
    }
    settings.sites.iter().enumerate().try_for_each(|(at, site)| comes_back(settings, at, site))
}

/// Finds an origin that is a listener of this node, where it would get the requests of the same site again.
fn comes_back(
    settings: &Settings,
    number: usize,
    site: &SiteSettings,
) -> Result<(), UnusableSettings> {
    let servers = &site.servers;
    // Another site of this node may be meant.
    let is_other = |host: &str| {
        let mut others = settings.sites.iter().enumerate().filter(|(other, _)| *other != number);
        !site.has_host(host) || others.any(|(_, other)| other.hosts.iter().any(|own| own == host))
    };
    if servers.origin_host.as_deref().is_some_and(is_other) {
        return Ok(());
    }
    let switched = servers.switch.iter().flat_map(|switch| &switch.servers);
    for origin in servers.origins.iter().chain(switched.map(|server| &server.origin)) {
        let Some(address) = address(origin) else { continue };
        let mut listeners = settings.listeners.iter().map(|listener| listener.address);
        if let Some(listener) = listeners.find(|listener| reaches(address, *listener)) {
            let (site, origin) = (site.hosts.join(", "), origin.to_string());
            return Err(UnusableSettings::OwnListener { number, site, origin, listener });
        }
    }
    Ok(())
}

fn address(origin: &Origin) -> Option<SocketAddr> {
    let Origin::Tcp { host, port, .. } = origin else { return None };
    let ip = match host.as_str() {
        "localhost" => IpAddr::from([127, 0, 0, 1]),
        host => host.trim_matches(['[', ']']).parse().ok()?,
    };
    Some(SocketAddr::new(ip, *port))
}

/// Whether a connection to `address` from this machine comes to the listener.
fn reaches(address: SocketAddr, listener: SocketAddr) -> bool {
    let is_here = |ip: IpAddr| ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok();
    address.port() == listener.port()
        && match listener.ip().is_unspecified() {
            true => is_here(address.ip()),
            false => address.ip() == listener.ip(),
        }
}
