//! Opens a connection to a server: resolve, connect, TLS.

use std::{
    fmt,
    io::ErrorKind,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use levada_http::Io;
use levada_net::{open_files::when_one_is_free, proxy_protocol::ProxyVersion};
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
    time::error::Elapsed,
};
use tokio_rustls::TlsConnector;

use levada_tls::{
    fault::{TlsFault, io_in_words},
    origin::OriginTls,
};

use crate::{Origin, PeerProof, ServerFailure, fault::LastFault};

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// The name is resolved for every connection, so that a changed record is followed without a
    /// restart.
    Tcp {
        /// A name or an IP address.
        host: String,
        /// The port.
        port: u16,
    },
    /// An address that a source has found for a name. Certificates are checked for the name.
    Found {
        /// The name.
        host: Arc<str>,
        /// The port of the name.
        port: u16,
        /// The address.
        at: SocketAddr,
    },
    /// A socket of this machine. Its path is resolved for every connection as well.
    Unix(PathBuf),
}

impl Address {
    /// The value of `Host` for requests that have none.
    pub fn host(&self) -> String {
        match self {
            Self::Tcp { .. } => self.to_string(),
            Self::Found { host, port, .. } => host_and_port(host, *port),
            Self::Unix(_) => "localhost".to_owned(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => f.write_str(&host_and_port(host, *port)),
            Self::Found { at, .. } => at.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl From<&Origin> for Address {
    fn from(origin: &Origin) -> Self {
        match origin {
            Origin::Tcp { host, port, .. } => Self::Tcp { host: host.clone(), port: *port },
            Origin::Member { host, port, at, .. } => {
                Self::Found { host: host.clone(), port: *port, at: *at }
            }
            // Its members stand in its place.
            Origin::Discovered { source, .. } => Self::Tcp { host: source.to_string(), port: 0 },
            Origin::Unix(path) => Self::Unix(path.clone()),
        }
    }
}

impl Address {
    /// The address that a source has found, if this is one.
    pub fn found(&self) -> Option<SocketAddr> {
        match self {
            Self::Found { at, .. } => Some(*at),
            _ => None,
        }
    }
}

/// A host and a port, as in a URL.
fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The protocols by which a configuration has servers reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServerProtocols {
    /// HTTP/2 rather than HTTP/1.1.
    pub h2: bool,
    /// The version of the PROXY protocol by which they get to know clients.
    pub states_client: Option<ProxyVersion>,
}

/// The protocols by which a server is reached, with what they need.
#[derive(Clone, Default)]
pub struct Wire {
    /// TLS settings; plain text when `None`.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// The settings that these were made from, if the configuration has them.
    pub tls_settings: Option<Arc<OriginTls>>,
    /// The name to ask for and to find in the certificate; `None`: the host.
    pub server_name: Option<ServerName<'static>>,
    /// HTTP/2 rather than HTTP/1.1: with TLS by ALPN, without it by prior knowledge (RFC 9113 Sec. 3).
    pub h2: bool,
    /// The proof that this node is a peer, if the server asks for one.
    pub proof: Option<Arc<PeerProof>>,
    /// The version of the PROXY protocol by which a connection states its client. Such a connection takes
    /// requests of one client only.
    pub states_client: Option<ProxyVersion>,
    /// Whether the server is a peer. A peer adds fields to a response that was within the bounds for origins,
    /// and it must not exceed the bounds by them.
    pub peer: bool,
}

/// The wait between two attempts at a Unix socket with a full queue. Its server takes connections in far less.
const BACKLOG_BACKOFF: Duration = Duration::from_millis(2);

/// Whether the server accepts a connection, which is then closed. The caller bounds the time.
pub(crate) async fn is_possible(address: &Address) -> bool {
    match address {
        Address::Tcp { host, port } => tcp(host, *port, Duration::MAX).await.is_ok(),
        Address::Found { at, .. } => found(*at, Duration::MAX).await.is_ok(),
        Address::Unix(path) => unix(path, Duration::MAX).await.is_ok(),
    }
}

/// Connects a TCP socket, tuned as every connection of a node is.
async fn tcp(host: &str, port: u16, within: Duration) -> Result<TcpStream, ServerFailure> {
    let connecting = async {
        let mut last = ServerFailure::Dns;
        let found = tokio::net::lookup_host((host, port)).await.map_err(|_| ServerFailure::Dns)?;
        for candidate in found {
            match when_one_is_free(|| TcpStream::connect(candidate)).await {
                Ok(stream) => return Ok(stream),
                Err(_) => last = ServerFailure::Connect,
            }
        }
        Err(last)
    };
    tuned(tokio::time::timeout(within, connecting).await)
}

/// Connects a TCP socket to an address.
async fn found(at: SocketAddr, within: Duration) -> Result<TcpStream, ServerFailure> {
    let connecting = async {
        let connected = when_one_is_free(|| TcpStream::connect(at)).await;
        connected.map_err(|_| ServerFailure::Connect)
    };
    tuned(tokio::time::timeout(within, connecting).await)
}

fn tuned(
    connected: Result<Result<TcpStream, ServerFailure>, Elapsed>,
) -> Result<TcpStream, ServerFailure> {
    let stream = connected.map_err(|_| ServerFailure::ConnectTimeout)??;
    stream.set_nodelay(true).map_err(|_| ServerFailure::Connect)?;
    Ok(stream)
}

/// Connects a Unix socket. When the server's queue of connections is full, the system refuses another one at
/// once; over TCP it would wait, so this function waits too.
async fn unix(path: &Path, within: Duration) -> Result<UnixStream, ServerFailure> {
    let connecting = async {
        loop {
            match when_one_is_free(|| UnixStream::connect(path)).await {
                Ok(stream) => return Ok(stream),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => tokio::time::sleep(BACKLOG_BACKOFF).await,
                    ErrorKind::NotFound => return Err(ServerFailure::NoSocket),
                    ErrorKind::PermissionDenied => return Err(ServerFailure::SocketForbidden),
                    _ => return Err(ServerFailure::Connect),
                },
            }
        }
    };
    let connected = tokio::time::timeout(within, connecting).await;
    connected.unwrap_or(Err(ServerFailure::ConnectTimeout))
}

/// Opens a connection that is ready for requests of this client.
pub(crate) async fn dial(
    address: &Address,
    wire: &Wire,
    tls: (Option<Arc<rustls::ClientConfig>>, &LastFault),
    client: Option<IpAddr>,
    within: Duration,
) -> Result<Io, ServerFailure> {
    let (host, mut stream) = match address {
        Address::Tcp { host, port } => (host.as_str(), tcp(host, *port, within).await?),
        Address::Found { host, at, .. } => (&**host, found(*at, within).await?),
        Address::Unix(path) => {
            let mut stream = unix(path, within).await?;
            if let Some(version) = wire.states_client {
                send(&mut stream, &version.header(client, None)).await?;
            }
            return Ok(Io::Unix(stream));
        }
    };
    if let Some(version) = wire.states_client {
        let header = version.header(client, stream.peer_addr().ok());
        send(&mut stream, &header).await?;
    }
    if let Some(proof) = &wire.proof {
        match tokio::time::timeout(within, proof.give(&mut stream)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(ServerFailure::NoResponse),
            Err(_) => return Err(ServerFailure::ConnectTimeout),
        }
    }
    let (Some(tls), fault) = tls else {
        return Ok(Io::Plain(stream));
    };
    let name = match &wire.server_name {
        Some(name) => name.clone(),
        None => ServerName::try_from(host.to_owned())
            .map_err(|_| ServerFailure::Tls(TlsFault::OtherName))?,
    };
    let connecting = TlsConnector::from(tls).connect(name, stream);
    match tokio::time::timeout(within, connecting).await {
        Ok(Ok(stream)) if wire.h2 && stream.get_ref().1.alpn_protocol() != Some(b"h2") => {
            Err(ServerFailure::NotHttp2)
        }
        Ok(Ok(stream)) => {
            fault.set(None);
            Ok(Io::Tls(Box::new(stream)))
        }
        Ok(Err(error)) => {
            let reason = io_in_words(&error);
            // Requests come by thousands, and the reason stays.
            if fault.set(Some(&format!("TLS: {reason}"))) {
                tracing::warn!(server = %address, reason, "TLS with a server failed");
            }
            Err(ServerFailure::Tls(TlsFault::of_io(&error)))
        }
        Err(_) => Err(ServerFailure::ConnectTimeout),
    }
}

/// Sends the first bytes of a connection. They find room in the socket's buffer at once.
async fn send(stream: &mut (impl AsyncWrite + Unpin), header: &[u8]) -> Result<(), ServerFailure> {
    stream.write_all(header).await.map_err(|_| ServerFailure::NoResponse)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt as _,
    };

    use tokio::net::UnixSocket;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn full_queue_of_a_socket_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let socket = UnixSocket::new_stream().unwrap();
        socket.bind(&path).unwrap();
        let listener = socket.listen(1).unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = UnixStream::connect(&path).await {
            waiting.push(stream);
        }
        let short = Duration::from_millis(20);
        assert_eq!(unix(&path, short).await.unwrap_err(), ServerFailure::ConnectTimeout);
        let (connected, accepted) = tokio::join!(unix(&path, TIMEOUT), listener.accept());
        assert!(connected.is_ok() && accepted.is_ok());
    }

    #[test]
    fn socket_that_this_process_may_not_use_is_told_from_one_that_refuses() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        // Another user, in this thread only, for the rest of its life.
        let asking = std::thread::spawn(move || {
            if rustix::process::geteuid().is_root() {
                let nobody = rustix::process::Uid::from_raw(65534);
                rustix::thread::set_thread_uid(nobody).unwrap();
            } else {
                fs::set_permissions(&path, Permissions::from_mode(0o000)).unwrap();
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(unix(&path, TIMEOUT)).unwrap_err()
        });
        assert_eq!(asking.join().unwrap(), ServerFailure::SocketForbidden);
    }
}
