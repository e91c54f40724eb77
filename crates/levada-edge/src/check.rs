//! Settings that no node could serve by, found before one starts.
//!
//! `levada run` refuses them, and `levada validate` and a reload do so by the same function. What other programs have
//! or do at the moment is not looked at: a node may run beside a check of its next settings.

use std::net::{IpAddr, SocketAddr};

use levada_access::memory_bound;
use levada_acme::{CertificateMetrics, Certificates};
use levada_net::listening;
use levada_store::disk::check_directory;
use levada_types::ByteSize;

use crate::{
    listeners::Listeners,
    settings::{Origin, Settings, SiteSettings},
    start_error::StartError,
};

/// Whether a node could serve by these settings. It reads certificates.
///
/// # Errors
/// With the first reason why it could not.
pub fn check(settings: &Settings) -> Result<(), StartError> {
    if let Some(limit) = settings.limits.memory.filter(|limit| *limit < memory_bound::LEAST) {
        let (limit, least) = (ByteSize(limit), ByteSize(memory_bound::LEAST));
        return Err(StartError::Memory { limit, least });
    }
    if let Some(disk) = &settings.cache.disk {
        check_directory(&disk.path)?;
    }
    settings.sites.iter().enumerate().try_for_each(|(at, site)| comes_back(settings, at, site))?;
    Listeners::new(0, &Certificates::new(CertificateMetrics::default())).check(settings)
}

/// Finds an origin that is a listener of this node, where it would get the requests of the same site again.
fn comes_back(settings: &Settings, number: usize, site: &SiteSettings) -> Result<(), StartError> {
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
            return Err(StartError::OwnListener { number, site, origin, listener });
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
    let is_here = |ip: IpAddr| ip.is_loopback() || listening::bind((ip, 0).into(), false).is_ok();
    address.port() == listener.port()
        && match listener.ip().is_unspecified() {
            true => is_here(address.ip()),
            false => address.ip() == listener.ip(),
        }
}
