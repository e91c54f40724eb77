//! One connection: TLS if any, then HTTP/1.1 or HTTP/2, until it ends.

use std::{
    convert::Infallible,
    io,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{HeaderValue, Request, Version, header::CONNECTION};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use levada_access::client_shares::ClientShares;
use levada_handoff::ArrivedConnection;
use levada_http1::{
    ConnectionEnd, ConnectionLimits, EndReason, Guarded, HeadBounds, Ledger, Outlet, TimedHeads,
    Watchdog,
};
use levada_net::{
    client::{ClientSocket, OpenConnection},
    proxy_protocol::ProxyHeader,
    stop::Stop,
};
use levada_upstream::PeerProof;
use prometheus_client::metrics::gauge::Gauge;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Notify, Semaphore},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    client_connection::{ClientConnection, ListenerKind},
    drain::Drain,
    failure::Failure,
    listener,
    metrics::Metrics,
    node::Node,
    pipeline,
    settings::Limits,
};

/// Bytes that a connection gathers before it writes, and reads at once at most. With a quarter of it a
/// hit of 1 MB costs 1.4 times as much CPU.
const BUFFER: usize = 256 << 10;

/// The purpose of a listener, and the protocols that it speaks.
pub(crate) struct ListenerRole {
    pub(crate) listener: ListenerKind,
    pub(crate) tls: Option<TlsAcceptor>,
    /// The proof that peers give; `None`: TLS has one, or clients need none.
    pub(crate) proof: Option<Arc<PeerProof>>,
    /// HTTP/2 without TLS, by prior knowledge.
    pub(crate) h2c: bool,
    /// How many connections may be open.
    pub(crate) places: Arc<Semaphore>,
    /// The same number, as clients share it; `None`: they do not.
    pub(crate) shares: Option<Arc<ClientShares>>,
    /// The number of unanswered retransmissions after which a connection is given up; `None`: never.
    pub(crate) dormant_retries: Option<u8>,
}

impl ListenerRole {
    /// Whether connections that come in here may be handed to a back-end.
    pub(crate) fn may_hand_over(&self) -> bool {
        self.tls.is_none() && self.listener != ListenerKind::Peer
    }
}

/// Streams of one HTTP/2 connection at once: a browser's worth.
const STREAMS: u32 = 128;
/// Streams that a client may reset before they were answered (the "rapid reset" of CVE-2023-44487).
const RESET_STREAMS: usize = 64;
/// Header fields that hyper accepts by default.
const HEADERS: usize = 100;
/// How long a connection may still bring its first request when the node stops.
const LAST_CALL: Duration = Duration::from_secs(1);
/// Bytes that a node adds to a head on its way to a peer, at most.
const ADDED_BYTES: usize = 4 << 10;
/// The fields among it.
const ADDED_FIELDS: usize = 16;
/// How an HTTP/2 connection begins (RFC 9113 Sec. 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves a connection to its end, or until it is handed to a back-end. `read` has come already.
///
/// The futures of the protocols are boxed. A task is moved as a whole several times until it runs and
/// when it ends, and would be as large as the largest of them.
pub(crate) async fn serve(
    node: Arc<Node>,
    role: &ListenerRole,
    mut stream: ClientSocket,
    read: Vec<u8>,
    mut open: OpenConnection,
) {
    // The watch for dormant connections drops this future at any await.
    let _counted = CountedConnection::new(&node.metrics.connections);
    let limit = node.settings.limits.head_timeout;
    let announced = role.listener != ListenerKind::Peer && node.trust.announces(open.client);
    if announced {
        let header = Box::pin(ProxyHeader::take(&mut stream));
        match in_time(limit, open.client, &open.stop, header).await {
            Ok(header) => open.client = header.client.unwrap_or(open.client),
            Err(ending) => return node.metrics.ended(ending),
        }
        let Some(share) = listener::share(&node, role, open.client) else { return };
        open.place = Box::new((open.place, share));
    }
    let is_peer = match &role.proof {
        None => role.listener == ListenerKind::Peer,
        Some(proof) => {
            match in_time(limit, open.client, &open.stop, Box::pin(proves(proof, &mut stream)))
                .await
            {
                Ok(is_peer) => is_peer,
                Err(ending) => return node.metrics.ended(ending),
            }
        }
    };
    let encrypts = role.tls.is_some();
    let h2c = !encrypts
        && role.h2c
        && read.is_empty()
        && Box::pin(speaks_h2(&node.settings.limits, &stream, &open.stop)).await;
    let client_connection =
        ClientConnection::new(role.listener, open.client, is_peer, !encrypts && !h2c);
    stream.connection().about.keeps_key_in(&client_connection.last_key);
    if node.front.is_some() && role.may_hand_over() && !h2c && !announced {
        let ending =
            Box::pin(levada_handoff::serve(&node, &client_connection, stream, read, open)).await;
        ending.into_iter().for_each(|ending| ended(&node.metrics, &client_connection, ending));
        return;
    }
    let OpenConnection { place: _place, stop, .. } = open;
    let ending = match &role.tls {
        Some(tls) => Box::pin(encrypted(&node, &client_connection, tls, stream, stop)).await,
        None if h2c => Box::pin(http2(&node, &client_connection, stream, stop)).await,
        None => Box::pin(http1(&node, &client_connection, stream, stop)).await,
    };
    ended(&node.metrics, &client_connection, ending);
}

pub(crate) fn ended(
    metrics: &Metrics,
    client_connection: &ClientConnection,
    ending: ConnectionEnd,
) {
    metrics.ended(ending);
    match ending {
        ConnectionEnd::Finished | ConnectionEnd::Closed | ConnectionEnd::IdleTimeout => {}
        other => {
            tracing::info!(client = %client_connection.client, reason = other.as_str(), "connection ended")
        }
    }
}

/// Counts a connection as long as it is kept.
pub(crate) struct CountedConnection<'a>(&'a Gauge);

impl<'a> CountedConnection<'a> {
    pub(crate) fn new(gauge: &'a Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for CountedConnection<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

async fn encrypted(
    node: &Arc<Node>,
    client_connection: &Arc<ClientConnection>,
    tls: &TlsAcceptor,
    stream: ClientSocket,
    stop: Stop,
) -> ConnectionEnd {
    let handshake = tokio::time::timeout(node.settings.limits.head_timeout, tls.accept(stream));
    let handshake = tokio::select! {
        done = handshake => done,
        () = stop.begun() => return ConnectionEnd::Finished,
    };
    let stream = match handshake {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::info!(client = %client_connection.client, %error, "TLS handshake failed");
            return ConnectionEnd::Broken;
        }
        Err(_) => return ConnectionEnd::HeadTimeout,
    };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        Box::pin(http2(node, client_connection, stream, stop)).await
    } else {
        Box::pin(http1(node, client_connection, stream, stop)).await
    }
}

async fn http1<S>(
    node: &Arc<Node>,
    client_connection: &Arc<ClientConnection>,
    stream: S,
    stop: Stop,
) -> ConnectionEnd
where
    S: AsyncRead + Outlet + Unpin + Send + 'static,
{
    requests(node, client_connection, stream, stop, |guarded| guarded).await
}

/// Serves only the requests that have come, and gives the stream back when they are answered. If it can
/// continue then, the end is [`ConnectionEnd::Resting`].
pub(crate) async fn http1_once(
    node: &Arc<Node>,
    client_connection: &Arc<ClientConnection>,
    stream: ArrivedConnection,
    stop: &Stop,
) -> ConnectionEnd {
    requests(node, client_connection, stream, stop.clone(), Guarded::lent).await
}

async fn requests<S>(
    node: &Arc<Node>,
    client_connection: &Arc<ClientConnection>,
    stream: S,
    stop: Stop,
    guard: impl FnOnce(Guarded<S>) -> Guarded<S>,
) -> ConnectionEnd
where
    S: AsyncRead + Outlet + Unpin + Send + 'static,
{
    let limits = &bounds(&node.settings.limits, client_connection.listener);
    let ledger = Arc::new(Ledger::default());
    let (interims, zero_copy) =
        (client_connection.interims.clone(), client_connection.zero_copy.clone());
    let guarded =
        guard(Guarded::new(stream, ledger.clone(), interims, zero_copy, self::limits(limits)));
    let (asked, first) = (AtomicBool::new(false), Notify::new());
    let service = service_fn(|request: Request<Incoming>| {
        let exchange = ledger.begin();
        if !asked.swap(true, Relaxed) {
            first.notify_one();
        }
        // Older clients would take them for the final response (RFC 9110 Sec. 15.2).
        if request.version() == Version::HTTP_11 {
            client_connection.interims.begin();
        }
        let is_safe = request.method().is_safe();
        let response = pipeline::serve(node, client_connection, request);
        async move {
            let mut response = response.await;
            if let Some(silenced) = &client_connection.silenced
                && response
                    .extensions()
                    .get()
                    .is_some_and(|failure: &Failure| failure.worth_retrying())
            {
                if silenced.refuse() {
                    // The front-end goes on with the request, and this connection is dropped.
                    std::future::pending::<()>().await;
                }
                // The connection has carried responses before. A client retries a request whose connection
                // ends without a response (RFC 9112 Sec. 9.3.1), and the front-end then asks another
                // back-end.
                if is_safe {
                    return Err(io::Error::other("left to another back-end"));
                }
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            client_connection.interims.end();
            response.body_mut().hold(exchange);
            Ok(response)
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.max_buf_size((limits.head_size * 2).max(BUFFER)).half_close(true);
    // Up to hyper's default its table of fields costs no allocation.
    if limits.header_count > HEADERS {
        builder.max_headers(limits.header_count);
    }
    let connection = builder.serve_connection(TokioIo::new(guarded), service);
    let mut connection = std::pin::pin!(connection);
    let over = async {
        tokio::select! {
            () = stop.begun() => {}
            () = drained(&node.drain, &first) => {}
        }
    };
    let result = tokio::select! {
        biased;
        result = connection.as_mut() => result,
        () = over => {
            connection.as_mut().graceful_shutdown();
            // hyper waits for the first request of a connection, however long it takes to come.
            match tokio::time::timeout(LAST_CALL, connection.as_mut()).await {
                Err(_) if asked.load(Relaxed) => connection.await,
                Err(_) => Ok(()),
                Ok(result) => result,
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!(client = %client_connection.client, %error, "connection");
    }
    ledger.ending()
}

async fn http2<S>(
    node: &Arc<Node>,
    client_connection: &Arc<ClientConnection>,
    stream: S,
    stop: Stop,
) -> ConnectionEnd
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &bounds(&node.settings.limits, client_connection.listener);
    let (watchdog, asked) =
        (Watchdog::new(limits.idle_timeout, limits.send_timeout), Notify::new());
    let ledger = Arc::new(Ledger::default());
    let stream = TimedHeads::new(stream, limits.head_timeout, ledger.clone());
    let service = service_fn(|request: Request<Incoming>| {
        asked.notify_one();
        let (node, client_connection, stream) =
            (node.clone(), client_connection.clone(), watchdog.stream());
        async move {
            let response = pipeline::serve(&node, &client_connection, request).await;
            Ok::<_, Infallible>(response.map(|body| stream.watch(body)))
        }
    });
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_local_error_reset_streams(Some(RESET_STREAMS * 4))
        .max_pending_accept_reset_streams(RESET_STREAMS)
        .max_header_list_size(u32::try_from(limits.head_size).unwrap_or(u32::MAX))
        .adaptive_window(true)
        // A connection whose pings go unanswered is gone, whatever its streams are doing.
        .keep_alive_interval(limits.idle_timeout / 2)
        .keep_alive_timeout(Duration::from_secs(10))
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let (result, ending) = tokio::select! {
        result = connection.as_mut() => (result, ConnectionEnd::Finished),
        () = stop.begun() => {
            connection.as_mut().graceful_shutdown();
            (connection.await, ConnectionEnd::Finished)
        }
        () = drained(&node.drain, &asked) => {
            connection.as_mut().graceful_shutdown();
            (connection.await, ConnectionEnd::Finished)
        }
        over = watchdog.over() => match over {
            EndReason::Stalled => return ConnectionEnd::SendTimeout,
            EndReason::Idle => {
                connection.as_mut().graceful_shutdown();
                let farewell = tokio::time::timeout(limits.head_timeout, connection).await;
                (farewell.unwrap_or(Ok(())), ConnectionEnd::IdleTimeout)
            }
        },
    };
    match result {
        Ok(()) => ending,
        Err(error) => {
            tracing::debug!(client = %client_connection.client, %error, "connection");
            match ledger.ending() {
                ConnectionEnd::Finished => ConnectionEnd::Broken,
                known => known,
            }
        }
    }
}

/// Returns when the node drains and the connection has brought a request. A client that connects during a
/// drain gets its response first: it would only connect again.
async fn drained(drain: &Drain, asked: &Notify) {
    drain.begun().await;
    asked.notified().await;
}

/// Whether the other end proves that it is a peer. One that begins with HTTP does not, and is told so.
async fn proves(proof: &PeerProof, stream: &mut ClientSocket) -> io::Result<bool> {
    let mut first = [0];
    let seen = stream.stream().peek(&mut first).await?;
    if seen == 0 || first[0] != PeerProof::FIRST {
        return Ok(false);
    }
    proof.check(stream).await
}

/// The result of a step before HTTP, or the reason why the connection ends with it.
async fn in_time<T>(
    limit: Duration,
    client: IpAddr,
    stop: &Stop,
    step: impl Future<Output = io::Result<T>>,
) -> Result<T, ConnectionEnd> {
    tokio::select! {
        done = tokio::time::timeout(limit, step) => match done {
            Ok(done) => done.map_err(|error| {
                tracing::info!(%client, %error, "connection ended before HTTP");
                ConnectionEnd::Broken
            }),
            Err(_) => Err(ConnectionEnd::HeadTimeout),
        },
        () = stop.begun() => Err(ConnectionEnd::Finished),
    }
}

/// Whether the client opens with HTTP/2's preface. Looks at the first bytes without taking them.
async fn speaks_h2(limits: &Limits, stream: &ClientSocket, stop: &Stop) -> bool {
    let look = async {
        let mut bytes = [0; PREFACE.len()];
        loop {
            let seen = stream.stream().peek(&mut bytes).await.unwrap_or(0);
            if seen == 0 || bytes[..seen] != PREFACE[..seen] {
                return false;
            }
            if seen == PREFACE.len() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        looked = tokio::time::timeout(limits.head_timeout, look) => {
            looked.unwrap_or(false)
        }
        () = stop.begun() => false,
    }
}

/// The limits of a kind of listener. A head that a client may send must not be too large for the next
/// node when this one has added its own fields.
fn bounds(limits: &Limits, listener: ListenerKind) -> Limits {
    let limits = limits.clone();
    match listener {
        ListenerKind::Client { .. } => limits,
        ListenerKind::Peer => Limits {
            head_size: limits.head_size + ADDED_BYTES,
            header_count: limits.header_count + ADDED_FIELDS,
            ..limits
        },
    }
}

/// The bounds of a request head at a kind of listener.
pub(crate) fn head_bounds(limits: &Limits, listener: ListenerKind) -> HeadBounds {
    let limits = bounds(limits, listener);
    HeadBounds { head: limits.head_size, fields: limits.header_count }
}

/// The limits of a connection over HTTP/1.
pub(crate) fn limits(limits: &Limits) -> ConnectionLimits {
    ConnectionLimits {
        head: HeadBounds { head: limits.head_size, fields: limits.header_count },
        idle_timeout: limits.idle_timeout,
        head_timeout: limits.head_timeout,
        body_timeout: limits.body_timeout,
        send_timeout: limits.send_timeout,
    }
}
