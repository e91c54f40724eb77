//! The sockets of a name server.

use std::{
    io,
    net::{SocketAddr, TcpListener, UdpSocket},
    os::fd::OwnedFd,
};

use levada_config::DnsSettings;
use levada_dns::HttpListener;
use levada_net::{datagrams, listening};

use crate::upgrade::{OpenSockets, PassedSockets, SocketError};

/// The sockets of all addresses.
#[derive(Debug, Default)]
pub(crate) struct DnsSockets {
    pub(crate) udp: Vec<UdpSocket>,
    pub(crate) tcp: Vec<TcpListener>,
    /// For HTTP requests, with their numbers in the settings.
    pub(crate) http: Vec<(usize, TcpListener)>,
}

impl DnsSockets {
    /// Opens the sockets, unless the process before has passed them: it reads them as well until it ends, so that no
    /// query is lost. `alone`: the process is nothing but a name server.
    ///
    /// # Errors
    /// When an address cannot be used.
    pub(crate) fn open(
        settings: &DnsSettings,
        alone: bool,
        passed: &mut PassedSockets,
    ) -> Result<Self, SocketError> {
        let mut all = Self::default();
        for wanted in &settings.listen {
            let failed = |why| SocketError::Dns { address: *wanted, why };
            let former: Vec<_> =
                passed.take(&udp_name(*wanted)).into_iter().map(UdpSocket::from).collect();
            let udp = match former.is_empty() {
                true => bind(*wanted, settings.threads).map_err(failed)?,
                false => former,
            };
            let address = udp[0].local_addr().map_err(failed)?;
            let former = passed.take(&tcp_name(*wanted)).pop().map(TcpListener::from);
            let tcp = former.map_or_else(|| listen(address), Ok).map_err(failed)?;
            all.udp.extend(udp);
            all.tcp.push(tcp);
        }
        for (number, listener) in settings.http.iter().enumerate() {
            let HttpListener { address, alone: not_at_nodes, .. } = listener;
            if *not_at_nodes && !alone {
                continue;
            }
            let former = passed.take(&http_name(*address)).pop().map(TcpListener::from);
            let failed = |why| SocketError::Dns { address: *address, why };
            let listener = former.map_or_else(|| listen(*address), Ok).map_err(failed)?;
            all.http.push((number, listener));
        }
        Ok(all)
    }

    /// Copies for the next process, those of each address by its name.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub(crate) fn offer(&self, settings: &DnsSettings, to: &mut OpenSockets) -> io::Result<()> {
        for ((wanted, tcp), udp) in
            settings.listen.iter().zip(&self.tcp).zip(self.udp.chunks(settings.threads))
        {
            let copies = udp.iter().map(|socket| Ok(OwnedFd::from(socket.try_clone()?)));
            to.add(udp_name(*wanted), copies.collect::<io::Result<_>>()?);
            to.add(tcp_name(*wanted), vec![tcp.try_clone()?.into()]);
        }
        for (number, http) in &self.http {
            to.add(http_name(settings.http[*number].address), vec![http.try_clone()?.into()]);
        }
        Ok(())
    }
}

/// As many sockets at one address.
fn bind(wanted: SocketAddr, count: usize) -> io::Result<Vec<UdpSocket>> {
    let first = datagrams::bind(wanted)?;
    // Port 0 has taken a free port.
    let address = first.local_addr()?;
    let others = (1..count).map(|_| datagrams::bind(address));
    std::iter::once(Ok(first)).chain(others).collect()
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = listening::bind(address, false)?;
    listening::listen(&listener)?;
    Ok(listener)
}

fn udp_name(wanted: SocketAddr) -> String {
    format!("dns-udp:{wanted}")
}

fn tcp_name(wanted: SocketAddr) -> String {
    format!("dns-tcp:{wanted}")
}

fn http_name(wanted: SocketAddr) -> String {
    format!("dns-http:{wanted}")
}
