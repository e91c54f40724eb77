//! The clients of one node: HTTP/1 on kept and on new connections, with and without TLS, and HTTP/2.
//!
//! A server may close a kept connection that has no request, and may tell so by `Connection: close` or GOAWAY. A
//! request that meets the end of a kept connection before any response is sent once more on a new connection, as
//! browsers do with such requests, and counted. Nothing else is sent again.

use std::{cell::RefCell, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, header::CONNECTION};
use http_body_util::Empty;
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::TcpStream, task::spawn_local};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        client::Resumption,
        crypto::ring,
        pki_types::{CertificateDer, ServerName},
    },
};

use levada_testbed::cluster::{
    client::{Connection, IdleConnections, fields, handshake, request},
    problems::Problem,
};
use levada_types::Rng;

use super::{counts::Counts, settings::HOST_NAME};

/// How a client sends its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientKind {
    Kept,
    New,
    KeptTls,
    NewTls,
    Http2,
    /// A kept connection at the front-end, which hands it off.
    HandedKept,
    /// A new one.
    HandedNew,
}

/// The kinds of clients of nodes, which send alike often.
const OF_NODES: [ClientKind; 5] =
    [ClientKind::Kept, ClientKind::New, ClientKind::KeptTls, ClientKind::NewTls, ClientKind::Http2];
/// The kinds of clients of a front-end.
const OF_FRONT: [ClientKind; 2] = [ClientKind::HandedKept, ClientKind::HandedNew];

impl ClientKind {
    /// One of all kinds; those of a front-end only if there is one.
    pub(super) fn choose(with_front: bool, rng: &mut Rng) -> Self {
        let count = OF_NODES.len() + if with_front { OF_FRONT.len() } else { 0 };
        let at = rng.below(count);
        OF_NODES.get(at).copied().unwrap_or_else(|| OF_FRONT[at - OF_NODES.len()])
    }

    pub(super) fn is_of_front(self) -> bool {
        OF_FRONT.contains(&self)
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "HTTP/1, kept connection",
            Self::New => "HTTP/1, new connection",
            Self::KeptTls => "HTTP/1 over TLS, kept connection",
            Self::NewTls => "HTTP/1 over TLS, new connection",
            Self::Http2 => "HTTP/2 over TLS",
            Self::HandedKept => "handed off, kept connection",
            Self::HandedNew => "handed off, new connection",
        }
    }

    fn is_kept(self) -> bool {
        matches!(self, Self::Kept | Self::KeptTls | Self::HandedKept)
    }
}

/// A connection that has answered.
pub(super) enum ChangedConnection {
    Http1(Connection),
    /// It is kept from the beginning.
    Http2,
}

/// The connections to one node.
pub(super) struct NodeClient {
    http: SocketAddr,
    https: SocketAddr,
    tls: [Arc<ClientConfig>; 2],
    kept: IdleConnections,
    kept_tls: IdleConnections,
    http2: RefCell<Option<http2::SendRequest<Empty<Bytes>>>>,
}

type Answered = (ChangedConnection, Response<Incoming>);
type Failure = (Problem, String);

impl NodeClient {
    /// Connects to these addresses, and trusts this authority.
    ///
    /// # Errors
    /// If the certificate of the authority cannot be used.
    pub(super) fn new(
        http: SocketAddr,
        https: SocketAddr,
        authority: &CertificateDer<'static>,
    ) -> anyhow::Result<Self> {
        let tls = [tls(authority, b"http/1.1")?, tls(authority, b"h2")?];
        let (kept, kept_tls, http2) = Default::default();
        Ok(Self { http, https, tls, kept, kept_tls, http2 })
    }

    /// Sends a GET and receives the head of the response.
    pub(super) async fn exchange(
        &self,
        kind: ClientKind,
        target: &str,
        counts: &Counts,
    ) -> Result<Answered, Failure> {
        match kind {
            ClientKind::Http2 => self.over_http2(target, counts).await,
            kind => self.over_http1(kind, target, counts).await,
        }
    }

    async fn over_http1(
        &self,
        kind: ClientKind,
        target: &str,
        counts: &Counts,
    ) -> Result<Answered, Failure> {
        let ask = || get(target, !kind.is_kept());
        let kept = self.idle(kind).take().filter(|_| kind.is_kept());
        if let Some(mut kept) = kept {
            match kept.send_request(ask()).await {
                Ok(response) => return Ok((ChangedConnection::Http1(kept), response)),
                Err(_) => counts.resent(),
            }
        }
        let mut connection = match kind {
            ClientKind::KeptTls | ClientKind::NewTls => {
                handshake(self.secured(&self.tls[0]).await?).await
            }
            _ => handshake(connect(self.http).await?).await,
        }
        .map_err(no_response)?;
        let response = connection.send_request(ask()).await.map_err(no_response)?;
        Ok((ChangedConnection::Http1(connection), response))
    }

    async fn over_http2(&self, target: &str, counts: &Counts) -> Result<Answered, Failure> {
        let url = format!("https://{HOST_NAME}{target}");
        let kept = self.http2.borrow().clone().filter(http2::SendRequest::is_ready);
        if let Some(mut kept) = kept {
            match kept.send_request(get(&url, false)).await {
                Ok(response) => return Ok((ChangedConnection::Http2, response)),
                Err(_) => counts.resent(),
            }
        }
        let io = TokioIo::new(self.secured(&self.tls[1]).await?);
        let shaken = http2::handshake(TokioExecutor::new(), io).await;
        let (mut sender, connection) = shaken.map_err(no_response)?;
        spawn_local(async move { drop(connection.await) });
        *self.http2.borrow_mut() = Some(sender.clone());
        let response = sender.send_request(get(&url, false)).await.map_err(no_response)?;
        Ok((ChangedConnection::Http2, response))
    }

    /// Keeps a connection for further requests, unless the server said that it closes it.
    pub(super) async fn keep(&self, kind: ClientKind, connection: ChangedConnection, closes: bool) {
        if let ChangedConnection::Http1(connection) = connection
            && kind.is_kept()
            && !closes
        {
            self.idle(kind).keep(connection).await;
        }
    }

    /// The certificate that a new connection is shown.
    pub(super) async fn certificate(&self) -> anyhow::Result<CertificateDer<'static>> {
        // A session that is resumed shows none: it keeps the one that it began with.
        let mut tls = ClientConfig::clone(&self.tls[0]);
        tls.resumption = Resumption::disabled();
        let stream = self.secured(&Arc::new(tls)).await;
        let stream = stream.map_err(|(_, why)| anyhow::anyhow!(why))?;
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        Ok(shown.ok_or_else(|| anyhow::anyhow!("no certificate was shown"))?.clone().into_owned())
    }

    fn idle(&self, kind: ClientKind) -> &IdleConnections {
        if kind == ClientKind::KeptTls { &self.kept_tls } else { &self.kept }
    }

    async fn secured(&self, tls: &Arc<ClientConfig>) -> Result<TlsStream<TcpStream>, Failure> {
        let stream = connect(self.https).await?;
        let name = ServerName::try_from(HOST_NAME);
        let name = name.map_err(|error| (Problem::Failed, error.to_string()))?;
        let shaken = TlsConnector::from(tls.clone()).connect(name, stream).await;
        shaken.map_err(|error| (Problem::Failed, format!("TLS: {error}")))
    }
}

fn tls(authority: &CertificateDer<'static>, protocol: &[u8]) -> anyhow::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone())?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(Arc::new(config))
}

async fn connect(address: SocketAddr) -> Result<TcpStream, Failure> {
    let stream = TcpStream::connect(address).await;
    let stream = stream.map_err(|error| (Problem::Refused, error.to_string()))?;
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// A GET of the site.
pub(super) fn get(target: &str, closes: bool) -> Request<Empty<Bytes>> {
    let mut fields =
        if target.starts_with("https:") { HeaderMap::new() } else { fields(HOST_NAME) };
    if closes {
        fields.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    request(target, &fields)
}

fn no_response(error: hyper::Error) -> Failure {
    let cause = std::error::Error::source(&error).map(|cause| format!(" ({cause})"));
    (Problem::Failed, format!("{error}{}", cause.unwrap_or_default()))
}
