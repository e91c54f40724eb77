//! Connections, always to the same address of a server until there is an outage.
//!
//! Reconnecting to the same address makes the client anycast-aware (WWW'09, Sec. 3): another node
//! may have this address by then. So a name is resolved once, and only an outage discards the
//! address.

mod exchange;
mod quic;

use std::{
    collections::{HashMap, HashSet},
    io,
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, Version, header};
use http_body_util::Empty;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use quinn::crypto::rustls::QuicClientConfig;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite, BufReader},
    net::TcpStream,
    time::{Instant, timeout},
};
use tokio_rustls::TlsConnector;

pub(crate) use self::exchange::{ExchangeError, ResponseBody};
use self::{exchange::Http3Body, quic::Offers};
use crate::{
    get::{DisconnectReason, RateLimiter},
    proxy::Proxy,
    redirect,
    tls::{self, Roots, TlsError},
};

/// The versions of HTTP that a client uses over TLS. Through a proxy HTTP/3 is not one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// HTTP/1.1.
    Http1,
    /// HTTP/1.1 and HTTP/2, and after the route has moved HTTP/3 where the server offers it (`Alt-Svc`,
    /// RFC 7838).
    #[default]
    All,
    /// HTTP/3 from the first connection on, and the others where that fails.
    Http3,
}

/// Settings that all transfers of a client share.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The trusted certificate authorities.
    pub roots: Roots,
    /// A proxy for all requests.
    pub proxy: Option<Proxy>,
    /// The host and port of all connections, instead of those in URLs.
    pub connect_to: Option<(String, u16)>,
    /// The versions of HTTP for https servers.
    pub versions: Versions,
    /// The time limit for opening a connection, including handshakes.
    pub connect_timeout: Duration,
    /// Bytes per second, for all transfers together.
    pub limit_rate: Option<u64>,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            roots: Roots::System,
            proxy: None,
            connect_to: None,
            versions: Versions::default(),
            connect_timeout: Duration::from_secs(30),
            limit_rate: None,
        }
    }
}

/// Fetches files, and keeps connections for the next request.
pub struct Client {
    pub(crate) settings: ClientSettings,
    tls: OnceLock<Arc<ClientConfig>>,
    quic: OnceLock<Arc<QuicClientConfig>>,
    offers: Offers,
    addresses: Mutex<HashMap<Origin, SocketAddr>>,
    /// Servers to which [`ClientSettings::connect_to`] does not apply.
    direct: Mutex<HashSet<Origin>>,
    idle: Mutex<HashMap<Origin, Vec<HttpConnection>>>,
    pub(crate) pace: RateLimiter,
}

/// Whether it uses TLS, host, port.
pub(crate) type Origin = (bool, String, u16);

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name has no address.
    #[error("{host} has no address: {why}")]
    Name {
        /// The name.
        host: String,
        /// The error of the resolver.
        why: io::Error,
    },
    /// TCP or TLS failed.
    #[error("no connection to {address}: {why}")]
    Io {
        /// The address of the server.
        address: SocketAddr,
        /// The error.
        why: io::Error,
    },
    /// The time limit was exceeded.
    #[error("no connection to {host} within {} s", .limit.as_secs_f64())]
    Slow {
        /// The server.
        host: String,
        /// The time limit.
        limit: Duration,
    },
    /// The proxy refused to connect.
    #[error("the proxy refuses to connect to {host}: it answered {status}")]
    Proxy {
        /// The server.
        host: String,
        /// The status of the proxy's response.
        status: u16,
    },
    /// The HTTP handshake failed.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The server's certificate is not trusted.
    #[error("the certificate of {host} is not trusted: {why}; --cacert adds authorities")]
    Certificate {
        /// The server.
        host: String,
        /// The error of rustls.
        why: String,
    },
    /// TLS cannot be configured.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl ConnectError {
    /// Whether a later attempt may succeed.
    pub(crate) fn is_outage(&self) -> bool {
        !matches!(self, Self::Certificate { .. } | Self::Tls(_))
    }

    /// Whether the server was reached, and the connection ended within a handshake: as one does when
    /// the route moves at that moment.
    pub(crate) fn is_cut(&self) -> bool {
        match self {
            Self::Io { why, .. } => matches!(
                why.kind(),
                io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::UnexpectedEof
            ),
            Self::Http(error) => DisconnectReason::of(error) != DisconnectReason::Broken,
            _ => false,
        }
    }
}

/// A connection on which a request can be sent.
pub(crate) struct HttpConnection {
    sender: Sender,
    origin: Origin,
    pub(crate) address: SocketAddr,
    pub(crate) opened: Instant,
    /// The time in which the TCP connection was opened.
    pub(crate) round_trip: Duration,
    /// Whether it has carried a response before.
    pub(crate) used: bool,
    /// Whether its receive window is limited.
    pub(crate) is_limited: bool,
}

enum Sender {
    Http1(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
    Http3(h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>, quinn::Connection),
}

/// The connection that a transfer wants.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    /// It receives at most about so many bytes in a round trip.
    pub(crate) window: Option<usize>,
    /// Whether the route has moved lately.
    pub(crate) is_restless: bool,
}

impl Client {
    /// Creates a client without connections.
    ///
    /// # Errors
    /// When the configured certificates cannot be used.
    pub fn new(settings: ClientSettings) -> Result<Self, TlsError> {
        let tls = OnceLock::new();
        // Certificates of the command line are read now, so that an error is reported early. The
        // system's certificates are read when they are needed.
        if !matches!(settings.roots, Roots::System) {
            let config = tls::config(&settings.roots, tls::over_tcp(settings.versions))?;
            let _ = tls.set(Arc::new(config));
        }
        let pace = RateLimiter::new(settings.limit_rate);
        let (quic, offers, addresses, direct, idle) = <(_, _, _, _, _)>::default();
        Ok(Self { settings, tls, quic, offers, addresses, direct, idle, pace })
    }

    /// A connection to the server of `uri`: an idle one, unless it must be `fresh`, or a new one.
    pub(crate) async fn link(
        &self,
        uri: &Uri,
        fresh: bool,
    ) -> Result<HttpConnection, ConnectError> {
        let origin = redirect::origin(uri);
        let idle = if fresh { None } else { self.idle(&origin) };
        match idle {
            Some(link) => Ok(link),
            None => self.fresh_link(origin, Wanted::default()).await,
        }
    }

    /// A new connection to `origin`.
    pub(crate) async fn fresh_link(
        &self,
        origin: Origin,
        wanted: Wanted,
    ) -> Result<HttpConnection, ConnectError> {
        let limit = self.settings.connect_timeout;
        match timeout(limit, self.connect(&origin, wanted)).await {
            Ok(Ok(link)) => Ok(link),
            Ok(Err(error)) => {
                if !error.is_cut() {
                    self.addresses.lock().remove(&origin);
                }
                Err(error)
            }
            Err(_) => {
                self.addresses.lock().remove(&origin);
                Err(ConnectError::Slow { host: origin.1, limit })
            }
        }
    }

    /// Takes note of the offer of HTTP/3 in a response of `link`.
    pub(crate) fn heard(&self, link: &HttpConnection, headers: &HeaderMap) {
        self.offers.heard(&link.origin, headers);
    }

    /// Connects to the server of `uri` itself from now on.
    pub(crate) fn connect_directly(&self, uri: &Uri) {
        self.direct.lock().insert(redirect::origin(uri));
    }

    /// A connection that was kept.
    pub(crate) fn idle(&self, origin: &Origin) -> Option<HttpConnection> {
        let mut idle = self.idle.lock();
        let links = idle.get_mut(origin)?;
        while let Some(link) = links.pop() {
            if link.is_open() {
                return Some(link);
            }
        }
        None
    }

    /// Keeps a connection whose last response was read to its end.
    pub(crate) fn keep(&self, link: HttpConnection) {
        let mut idle = self.idle.lock();
        let links = idle.entry(link.origin.clone()).or_default();
        if link.is_open() && !link.is_limited && links.len() < MOST_IDLE {
            links.push(link);
        }
    }

    async fn connect(
        &self,
        origin: &Origin,
        wanted: Wanted,
    ) -> Result<HttpConnection, ConnectError> {
        let (tls, host, port) = origin;
        let via_proxy = self.settings.proxy.as_ref();
        let (to_host, to_port) = match (via_proxy, &self.settings.connect_to) {
            (Some(proxy), _) => (&proxy.host, proxy.port),
            (None, Some((host, port))) if !self.direct.lock().contains(origin) => (host, *port),
            (None, _) => (host, *port),
        };
        if let Some(link) = self.over_quic(origin, to_host, to_port, wanted).await {
            return Ok(link);
        }
        let Opened { stream, address, round_trip } = self.tcp(origin, to_host, to_port).await?;
        if let Some(window) = wanted.window {
            let limited = set_socket_recv_buffer_size(&stream, window);
            limited.map_err(|why| ConnectError::Io { address, why: why.into() })?;
        }
        let sender = match via_proxy {
            _ if !tls => http1_over(TokioIo::new(stream)).await?,
            None => secured(self.tls_config()?, host, address, stream).await?,
            Some(proxy) => {
                let tunnel = tunnel(proxy, host, *port, stream).await?;
                secured(self.tls_config()?, host, address, tunnel).await?
            }
        };
        Ok(HttpConnection::new(sender, origin, address, round_trip, wanted))
    }

    /// A connection over QUIC, where it is wanted and the server answers there.
    async fn over_quic(
        &self,
        origin: &Origin,
        host: &str,
        port: u16,
        wanted: Wanted,
    ) -> Option<HttpConnection> {
        if !origin.0 || self.settings.proxy.is_some() {
            return None;
        }
        let otherwise = match self.settings.versions {
            Versions::Http3 => Some(port),
            Versions::All if wanted.is_restless => None,
            _ => return None,
        };
        let port = self.offers.port(origin, otherwise)?;
        let mut address = *self.addresses_of(origin, host, port).await.ok()?.first()?;
        address.set_port(port);
        let crypto = self.quic_config().ok()?;
        match quic::open(crypto, &origin.1, address, wanted.window).await {
            Ok(quic::Opened { sender, connection }) => {
                self.offers.worked(origin, port);
                let round_trip = connection.rtt();
                let sender = Sender::Http3(sender, connection);
                Some(HttpConnection::new(sender, origin, address, round_trip, wanted))
            }
            Err(error) => {
                self.offers.failed(origin, &error);
                None
            }
        }
    }

    /// The address that was used before, or the first one that answers.
    async fn tcp(&self, origin: &Origin, host: &str, port: u16) -> Result<Opened, ConnectError> {
        let opened = first_of(self.addresses_of(origin, host, port).await?, host).await?;
        let address = opened.address;
        opened.stream.set_nodelay(true).map_err(|why| ConnectError::Io { address, why })?;
        self.addresses.lock().insert(origin.clone(), address);
        Ok(opened)
    }

    async fn addresses_of(
        &self,
        origin: &Origin,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, ConnectError> {
        let known = self.addresses.lock().get(origin).copied();
        if let Some(address) = known {
            return Ok(vec![address]);
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let found = tokio::net::lookup_host((bare, port)).await;
        let found = found.map_err(|why| ConnectError::Name { host: host.to_owned(), why })?;
        Ok(interleaved(found.collect()))
    }

    fn tls_config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        if let Some(config) = self.tls.get() {
            return Ok(config.clone());
        }
        let config = tls::config(&self.settings.roots, tls::over_tcp(self.settings.versions))?;
        Ok(self.tls.get_or_init(|| Arc::new(config)).clone())
    }

    fn quic_config(&self) -> Result<Arc<QuicClientConfig>, TlsError> {
        if let Some(config) = self.quic.get() {
            return Ok(config.clone());
        }
        let config = tls::config(&self.settings.roots, &[b"h3"])?;
        let config = QuicClientConfig::try_from(config).map_err(|_| TlsError::Quic)?;
        Ok(self.quic.get_or_init(|| Arc::new(config)).clone())
    }
}

impl HttpConnection {
    fn new(
        sender: Sender,
        origin: &Origin,
        address: SocketAddr,
        round_trip: Duration,
        wanted: Wanted,
    ) -> Self {
        let (origin, opened) = (origin.clone(), Instant::now());
        let is_limited = wanted.window.is_some();
        Self { sender, origin, address, opened, round_trip, used: false, is_limited }
    }

    pub(crate) fn protocol(&self) -> &'static str {
        match self.sender {
            Sender::Http1(_) => "HTTP/1.1",
            Sender::Http2(_) => "HTTP/2",
            Sender::Http3(..) => "HTTP/3",
        }
    }

    pub(crate) fn is_to(&self, uri: &Uri) -> bool {
        self.origin == redirect::origin(uri)
    }

    fn is_open(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => !sender.is_closed(),
            Sender::Http2(sender) => !sender.is_closed(),
            Sender::Http3(_, connection) => connection.close_reason().is_none(),
        }
    }

    /// Sends a GET with these fields; `proxy` is the proxy at the other end, if any.
    pub(crate) async fn get(
        &mut self,
        uri: &Uri,
        fields: &[(http::HeaderName, HeaderValue)],
        proxy: Option<&Proxy>,
    ) -> Result<Response<ResponseBody>, ExchangeError> {
        let mut request = Request::new(Empty::new());
        *request.method_mut() = Method::GET;
        for (name, value) in fields {
            request.headers_mut().append(name.clone(), value.clone());
        }
        let absolute = proxy.is_some() && uri.scheme_str() == Some("http");
        if let (true, Some(credentials)) = (absolute, proxy.and_then(|p| p.authorization.clone())) {
            request.headers_mut().insert(header::PROXY_AUTHORIZATION, credentials);
        }
        match &mut self.sender {
            Sender::Http1(sender) => {
                // The field is the authority without the user name (RFC 9110, Sec. 7.2).
                let host = uri.authority().map_or("", |authority| authority.as_str());
                let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
                if let Ok(host) = HeaderValue::try_from(host) {
                    request.headers_mut().entry(header::HOST).or_insert(host);
                }
                *request.uri_mut() = if absolute { without_user(uri) } else { origin_form(uri) };
                sender.ready().await?;
                Ok(sender.send_request(request).await?.map(ResponseBody::Hyper))
            }
            Sender::Http2(sender) => {
                *request.version_mut() = Version::HTTP_2;
                *request.uri_mut() = without_user(uri);
                sender.ready().await?;
                Ok(sender.send_request(request).await?.map(ResponseBody::Hyper))
            }
            Sender::Http3(sender, connection) => {
                *request.version_mut() = Version::HTTP_3;
                *request.uri_mut() = without_user(uri);
                http3_get(sender, connection, request.map(|_| ())).await
            }
        }
    }
}

async fn http3_get(
    sender: &mut h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>,
    connection: &quinn::Connection,
    request: Request<()>,
) -> Result<Response<ResponseBody>, ExchangeError> {
    let failed = |error| ExchangeError::http3(error, connection);
    let mut stream = sender.send_request(request).await.map_err(failed)?;
    stream.finish().await.map_err(failed)?;
    let head = stream.recv_response().await.map_err(failed)?;
    let body = Http3Body::new(stream, connection.clone(), &head);
    Ok(head.map(|()| ResponseBody::Http3(Box::new(body))))
}

fn origin_form(uri: &Uri) -> Uri {
    uri.path_and_query().map_or_else(|| Uri::from_static("/"), |path| Uri::from(path.clone()))
}

fn without_user(uri: &Uri) -> Uri {
    let Some((_, host)) = uri.authority().and_then(|a| a.as_str().rsplit_once('@')) else {
        return uri.clone();
    };
    let mut parts = uri.clone().into_parts();
    parts.authority = host.parse().ok();
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

/// Alternates between address families, in the resolver's order within each (RFC 8305, Sec. 4).
fn interleaved(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut some, mut others): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    some.reverse();
    others.reverse();
    let mut mixed = Vec::with_capacity(some.len() + others.len());
    while let Some(address) = some.pop() {
        mixed.push(address);
        mixed.extend(others.pop());
    }
    mixed.extend(others.into_iter().rev());
    mixed
}

/// A TCP connection, and the time in which it was opened.
struct Opened {
    stream: TcpStream,
    address: SocketAddr,
    round_trip: Duration,
}

/// Tries one address after the other; starts the next one when the last one has failed or does not
/// answer for a while (RFC 8305, Sec. 5).
async fn first_of(addresses: Vec<SocketAddr>, host: &str) -> Result<Opened, ConnectError> {
    let mut attempts = tokio::task::JoinSet::new();
    let mut addresses = addresses.into_iter();
    let mut last = ConnectError::Name {
        host: host.to_owned(),
        why: io::Error::new(io::ErrorKind::NotFound, "the resolver found none"),
    };
    loop {
        let next = addresses.next();
        let waiting = next.is_some();
        match next {
            Some(address) => {
                attempts.spawn(async move {
                    let begun = Instant::now();
                    let connected = TcpStream::connect(address).await;
                    let opened = |stream| Opened { stream, address, round_trip: begun.elapsed() };
                    connected.map(opened).map_err(|why| ConnectError::Io { address, why })
                });
            }
            None if attempts.is_empty() => return Err(last),
            None => {}
        }
        tokio::select! {
            Some(done) = attempts.join_next() => match done {
                Ok(Ok(opened)) => return Ok(opened),
                Ok(Err(error)) => last = error,
                Err(_) => {}
            },
            () = tokio::time::sleep(ATTEMPT_DELAY), if waiting => {}
        }
    }
}

async fn http1_over<S>(io: TokioIo<S>) -> Result<Sender, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::Builder::new().handshake(io).await?;
    // The reader of the body gets the error.
    tokio::spawn(connection);
    Ok(Sender::Http1(sender))
}

async fn secured<S>(
    config: Arc<ClientConfig>,
    host: &str,
    address: SocketAddr,
    stream: S,
) -> Result<Sender, ConnectError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(bare).map_err(|error| ConnectError::Certificate {
        host: host.to_owned(),
        why: error.to_string(),
    })?;
    // rustls reads 4 KiB at a time, which would be four system calls per record.
    let stream = BufReader::with_capacity(ENCRYPTED, stream);
    let connecting = TlsConnector::from(config).connect(name, stream).await;
    let stream = connecting.map_err(|why| {
        let refused = why.get_ref().and_then(|why| why.downcast_ref::<rustls::Error>());
        match refused {
            Some(rustls::Error::InvalidCertificate(why)) => {
                ConnectError::Certificate { host: host.to_owned(), why: format!("{why:?}") }
            }
            _ => ConnectError::Io { address, why },
        }
    })?;
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_frame_size(FRAME)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(connection);
        return Ok(Sender::Http2(sender));
    }
    Ok(http1_over(TokioIo::new(stream)).await?)
}

/// Asks `proxy`, at the other end of `stream`, to connect to the server.
async fn tunnel(
    proxy: &Proxy,
    host: &str,
    port: u16,
    stream: TcpStream,
) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static, ConnectError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection.with_upgrades());
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = Method::CONNECT;
    let authority = format!("{host}:{port}");
    if let Ok(value) = HeaderValue::try_from(&authority) {
        request.headers_mut().insert(header::HOST, value);
    }
    if let Some(credentials) = &proxy.authorization {
        request.headers_mut().insert(header::PROXY_AUTHORIZATION, credentials.clone());
    }
    let name = || host.to_owned();
    *request.uri_mut() =
        authority.parse().map_err(|_| ConnectError::Proxy { host: name(), status: 0 })?;
    let response = sender.send_request(request).await?;
    if !response.status().is_success() {
        let status = response.status().as_u16();
        return Err(ConnectError::Proxy { host: name(), status });
    }
    Ok(TokioIo::new(hyper::upgrade::on(response).await?))
}

/// The most idle connections to one server.
const MOST_IDLE: usize = 64;
/// How long to wait for one address before trying the next one in parallel (RFC 8305, Sec. 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// The HTTP/2 flow control window: 16 MiB is 1 Gbit/s over 130 ms.
const WINDOW: u32 = 16 << 20;
const FRAME: u32 = 256 << 10;
/// The size of a read from a TLS connection.
const ENCRYPTED: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns() {
        let addresses = ["[::1]:1", "[::2]:1", "127.0.0.1:1", "127.0.0.2:1", "127.0.0.3:1"]
            .map(|a| a.parse().unwrap());
        let mixed: Vec<String> =
            interleaved(addresses.to_vec()).iter().map(ToString::to_string).collect();
        let expected = ["[::1]:1", "127.0.0.1:1", "[::2]:1", "127.0.0.2:1", "127.0.0.3:1"];
        assert_eq!(mixed, expected);
    }

    #[test]
    fn a_users_name_is_not_sent_in_the_target() {
        let uri = "http://u:p@h:81/a?b".parse().unwrap();
        assert_eq!(without_user(&uri), "http://h:81/a?b");
        assert_eq!(origin_form(&uri), "/a?b");
    }
}
