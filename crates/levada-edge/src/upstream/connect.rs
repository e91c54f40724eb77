//! Opening a connection to a server: resolve, connect, TLS, HTTP handshake.

use std::{fmt, sync::Arc, time::Duration};

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{
    http1::{Io, Link},
    pool::Sender,
};
use crate::failure::Failure;

/// Where a server is. The name is resolved anew for every connection, so that a changed record is
/// followed without a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// How a server is spoken to.
#[derive(Clone, Default)]
pub(crate) struct Wire {
    /// TLS settings; plain text when `None`.
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
    /// HTTP/2 over one connection rather than a pool of HTTP/1.1.
    pub(crate) h2: bool,
    /// Whether a peer is at the other end: what came to it within the bounds for origins must not go
    /// beyond them by what it has added.
    pub(crate) peer: bool,
}

/// Header fields of an origin's response.
const HEADERS: usize = 100;
/// Those of a peer's: as many, and what the peer adds.
const PEER_HEADERS: usize = 116;

/// Connects a TCP socket, tuned as every connection of a node is.
pub(crate) async fn tcp(address: &Address, within: Duration) -> Result<TcpStream, Failure> {
    let connecting = async {
        let mut last = Failure::Dns;
        let found = tokio::net::lookup_host((address.host.as_str(), address.port))
            .await
            .map_err(|_| Failure::Dns)?;
        for candidate in found {
            match TcpStream::connect(candidate).await {
                Ok(stream) => return Ok(stream),
                Err(_) => last = Failure::Connect,
            }
        }
        Err(last)
    };
    let stream = match tokio::time::timeout(within, connecting).await {
        Ok(result) => result?,
        Err(_) => return Err(Failure::ConnectTimeout),
    };
    stream.set_nodelay(true).map_err(|_| Failure::Connect)?;
    Ok(stream)
}

/// Opens a connection that is ready for requests.
pub(super) async fn open(
    address: &Address,
    wire: &Wire,
    within: Duration,
) -> Result<Sender, Failure> {
    let stream = tcp(address, within).await?;
    let Some(tls) = &wire.tls else {
        return handshake(Io::Plain(stream), wire).await;
    };
    let name = ServerName::try_from(address.host.clone()).map_err(|_| Failure::Tls)?;
    let connecting = TlsConnector::from(tls.clone()).connect(name, stream);
    match tokio::time::timeout(within, connecting).await {
        Ok(Ok(stream)) => handshake(Io::Tls(Box::new(stream)), wire).await,
        Ok(Err(_)) => Err(Failure::Tls),
        Err(_) => Err(Failure::ConnectTimeout),
    }
}

async fn handshake(io: Io, wire: &Wire) -> Result<Sender, Failure> {
    if !wire.h2 {
        let fields = if wire.peer { PEER_HEADERS } else { HEADERS };
        return Ok(Sender::Http1(Box::new(Link::new(io, fields))));
    }
    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(10))
        .adaptive_window(true)
        .handshake(TokioIo::new(io))
        .await
        .map_err(|_| Failure::NoResponse)?;
    tokio::spawn(async { drop(connection.await) });
    Ok(Sender::Http2(sender))
}
