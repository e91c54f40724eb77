//! One connection: TLS if any, then HTTP/1.1 or HTTP/2, until it ends.

use std::{
    fmt, io,
    net::IpAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{HeaderValue, Request, Response, header::CONNECTION};
use levada_access::{client_shares::ClientShares, peer_places::PeerPlaces};
use levada_cluster::announce::drain::Drain;
use levada_http::{
    ConnectionEnd, Http1Conduct, Http1Service, Http2Service, Http2Tunnel, IncomingBody, Outlet,
    Pause, QUIET, Served, rest, serve_http1, serve_http2,
};
use levada_net::{
    client::{ClientSocket, OpenConnection},
    first_bytes,
    proxy_protocol::ProxyHeader,
    resting::RestingConnections,
    stop::Stop,
};
use levada_redirector::handoff::ArrivedConnection;
use levada_tls::{
    acme::PROOF_PROTOCOL,
    client_certificates::CertifiedClient,
    door::{Accepted, Door},
};
use levada_upstream::{ClientBody, PeerProof};
use tokio::{
    io::AsyncRead,
    sync::{Notify, Semaphore},
    time::Instant,
};
use tokio_rustls::server::TlsStream;

use crate::{
    body::ResponseBody,
    client_connection::{ClientConnection, ListenerKind, Who},
    listener,
    metrics::Metrics,
    node::Node,
    pipeline,
    tunnel::{self, TunnelSlot},
};
use levada_failure::{BodyError, Failure};

/// The purpose of a listener, and the protocols that it speaks.
pub struct ListenerRole {
    /// For clients or for peers.
    pub listener: ListenerKind,
    /// TLS; `None`: plain text.
    pub tls: Option<Door>,
    /// The proof that peers give; `None`: TLS has one, or clients need none.
    pub proof: Option<Arc<PeerProof>>,
    /// HTTP/2 without TLS, by prior knowledge.
    pub h2c: bool,
    /// HTTP/3 at the same address.
    pub http3: Option<Http3>,
    /// How many connections may be open.
    pub places: Arc<Semaphore>,
    /// Instead, at the listener for peers.
    pub peer_places: Option<Arc<PeerPlaces>>,
    /// The same number, as clients share it; `None`: they do not.
    pub shares: Option<Arc<ClientShares>>,
    /// The number of unanswered retransmissions after which a connection is given up; `None`: never.
    pub dormant_retries: Option<u8>,
}

/// HTTP/3 at one listener.
pub struct Http3 {
    /// How it is served.
    pub config: levada_http3::ServerConfig,
    /// The offer in responses over TCP.
    pub alt_svc: HeaderValue,
}

impl ListenerRole {
    /// Whether connections that come in here may be handed to a back-end.
    pub(crate) fn may_hand_over(&self) -> bool {
        self.tls.is_none() && self.listener != ListenerKind::Peer
    }
}

/// How long a connection may still bring its first request when the node stops.
const LAST_CALL: Duration = Duration::from_secs(1);
/// How an HTTP/2 connection begins (RFC 9113 Sec. 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection that is about to speak HTTP.
struct Begun {
    client: IpAddr,
    is_peer: bool,
    /// Whether it speaks HTTP/2.
    h2: bool,
    stream: ClientStream,
    certified: Option<Arc<CertifiedClient>>,
    place: Box<dyn fmt::Debug + Send>,
    stop: Stop,
}

enum ClientStream {
    Plain(ClientSocket),
    Encrypted(Box<TlsStream<ClientSocket>>),
}

/// Serves a connection to its end, or until it is handed to a back-end. `read` has come already.
///
/// All that is not needed while a connection rests is boxed: a task has room for the largest of its states,
/// and is moved as a whole several times until it runs.
pub(crate) async fn serve(
    node: Arc<Node>,
    role: Arc<ListenerRole>,
    stream: ClientSocket,
    read: Vec<u8>,
    open: OpenConnection,
) {
    // The watch for dormant connections drops this future at any await.
    let _counted = node.metrics.connections.open.hold();
    let socket = stream.connection().clone();
    let Some(begun) = Box::pin(begin(&node, &role, stream, read, open)).await else { return };
    let Begun { client, is_peer, h2, stream, certified, place: _place, stop } = begun;
    let plain = !h2 && matches!(stream, ClientStream::Plain(_));
    let connection = || {
        let last_key = socket.about.last_key().clone();
        // A site that asks for certificates is not served over HTTP/3.
        let http3 = role.http3.as_ref().filter(|_| certified.is_none());
        let alt_svc = http3.map(|http3| http3.alt_svc.clone());
        let who = Who { client, is_peer, certified: certified.clone(), alt_svc };
        ClientConnection::new(role.listener, who, plain, last_key)
    };
    let ending = match stream {
        ClientStream::Plain(stream) if h2 => {
            Box::pin(http2(&node, connection(), stream, &stop)).await
        }
        ClientStream::Plain(stream) => Box::pin(http1(&node, &connection, stream, &stop)).await,
        ClientStream::Encrypted(stream) if h2 => {
            Box::pin(http2(&node, connection(), stream, &stop)).await
        }
        ClientStream::Encrypted(stream) => Box::pin(http1(&node, &connection, stream, &stop)).await,
    };
    ended(&node.metrics, client, ending);
}

/// Brings a connection to HTTP. `None` if it has ended, or was served by way of handoff.
async fn begin(
    node: &Arc<Node>,
    role: &ListenerRole,
    mut stream: ClientSocket,
    read: Vec<u8>,
    mut open: OpenConnection,
) -> Option<Begun> {
    let ended_early = |ending| node.metrics.connections.ended(ending);
    let announced = role.listener != ListenerKind::Peer && node.trust.load().announces(open.client);
    if announced {
        let header = ProxyHeader::take(&mut stream);
        let header =
            in_time(node, open.client, &open.stop, header).await.map_err(ended_early).ok()?;
        open.client = header.client.unwrap_or(open.client);
        let share = listener::share(node, role, open.client)?;
        open.place = Box::new((open.place, share));
    }
    let is_peer = match &role.proof {
        None => role.listener == ListenerKind::Peer,
        Some(proof) => {
            let proves = proves(proof, &mut stream);
            in_time(node, open.client, &open.stop, proves).await.map_err(ended_early).ok()?
        }
    };
    if role.tls.is_none() && is_peer {
        keep_place(role, &mut open).await?;
    }
    let h2c = role.tls.is_none()
        && role.h2c
        && read.is_empty()
        && speaks_h2(node, &stream, &open.stop).await.map_err(ended_early).ok()?;
    let client = open.client;
    if node.front.get().is_some() && role.may_hand_over() && !h2c && !announced {
        let last_key = stream.connection().about.last_key().clone();
        let who = Who { client, is_peer, certified: None, alt_svc: None };
        let connection = ClientConnection::new(role.listener, who, true, last_key);
        let ending = levada_redirector::handoff::serve(node, &connection, stream, read, open).await;
        ending.into_iter().for_each(|ending| ended(&node.metrics, client, ending));
        return None;
    }
    let (stream, h2, certified) = match &role.tls {
        None => (ClientStream::Plain(stream), h2c, None),
        Some(door) => {
            let handshake = async {
                let failed = |error| io::Error::other(format!("TLS handshake: {error}"));
                let accepting = door.accept(stream, client, &node.metrics.tls);
                node.metrics.cpu.handshake(accepting).await.map_err(failed)
            };
            let accepted = in_time(node, client, &open.stop, handshake).await;
            let accepted = accepted.map_err(|ending| ended(&node.metrics, client, ending)).ok()?;
            let Accepted { stream, client: certified } = accepted;
            let protocol = stream.get_ref().1.alpn_protocol();
            if protocol == Some(PROOF_PROTOCOL) {
                return None;
            }
            let h2 = protocol == Some(b"h2");
            if is_peer {
                keep_place(role, &mut open).await?;
            }
            (ClientStream::Encrypted(Box::new(stream)), h2, certified)
        }
    };
    let OpenConnection { place, stop, .. } = open;
    Some(Begun { client, is_peer, h2, stream, certified, place, stop })
}

/// Exchanges the place of an unproven connection for that of a peer. Until there is one, the connection may
/// have to give way as before.
async fn keep_place(role: &ListenerRole, open: &mut OpenConnection) -> Option<()> {
    if let Some(places) = &role.peer_places {
        open.place = Box::new(places.proven().await?);
    }
    Some(())
}

/// Counts a connection that has ended, and logs why if that is unusual.
pub fn ended(metrics: &Metrics, client: IpAddr, ending: ConnectionEnd) {
    metrics.connections.ended(ending);
    match ending {
        ConnectionEnd::Finished
        | ConnectionEnd::Closed
        | ConnectionEnd::IdleTimeout
        | ConnectionEnd::Dormant
        | ConnectionEnd::GaveWay => {}
        other => {
            tracing::info!(%client, reason = other.as_str(), "connection ended")
        }
    }
}

/// Serves HTTP/1.1, with a rest whenever there is no request for a while.
async fn http1<S>(
    node: &Arc<Node>,
    connection: &(impl Fn() -> Arc<ClientConnection> + Sync),
    mut stream: S,
    stop: &Stop,
) -> ConnectionEnd
where
    S: AsyncRead + Outlet + Unpin + Send + 'static,
{
    let (asked, mut idle_until) = (AtomicBool::new(false), None::<Instant>);
    let (switched, mut gives_way) = (TunnelSlot::default(), false);
    loop {
        let until = match idle_until {
            // A connection that has rested has a moment for a request that is on its way. A client that connects
            // during a drain gets a response first: it would only connect again.
            Some(until) if node.drain.is_on() && asked.load(Relaxed) => {
                Some(until.min(Instant::now() + QUIET))
            }
            until => until,
        };
        let rests_after = (!stop.has_begun() && !node.drain.is_on()).then_some(QUIET);
        let pause = Pause::Between { rests_after, idle_until: until };
        let served = Box::pin(async {
            requests(node, &connection(), stream, stop, (&asked, &switched), pause).await
        });
        match served.await {
            Served::Ended(ConnectionEnd::IdleTimeout) if gives_way => {
                return ConnectionEnd::GaveWay;
            }
            Served::Ended(ending) => return ending,
            Served::Resting(rested, until) => (stream, idle_until) = (rested, Some(until)),
            Served::Switched(stream, ahead) => {
                Box::pin(switched.run(node, stream, ahead, stop)).await;
                return ConnectionEnd::Finished;
            }
        }
        let _counted = node.metrics.connections.resting.hold();
        let resting = node.resting.enter();
        let mut roused = pin!(node.drain.roused());
        roused.as_mut().enable();
        if !stop.has_begun() && !node.drain.is_on() {
            let over = async {
                tokio::select! {
                    () = roused => {}
                    () = resting.gives_way() => {}
                }
            };
            rest(&mut stream, idle_until, over).await;
        }
        gives_way = resting.has_to_give_way();
        if gives_way {
            // A request that has come is answered.
            idle_until = Some(Instant::now());
        }
    }
}

/// Serves only the requests that have come, and gives the stream back when they are answered. If it can
/// continue then, the end is [`ConnectionEnd::Resting`].
pub(crate) async fn http1_once(
    node: &Arc<Node>,
    client_connection: &Arc<ClientConnection>,
    stream: ArrivedConnection,
    stop: &Stop,
) -> ConnectionEnd {
    let (asked, switched) = (AtomicBool::new(false), TunnelSlot::default());
    let state = (&asked, &switched);
    match requests(node, client_connection, stream, stop, state, Pause::AfterResponse).await {
        Served::Ended(ending) => ending,
        Served::Resting(..) => ConnectionEnd::Resting,
        Served::Switched(stream, ahead) => {
            Box::pin(switched.run(node, stream, ahead, stop)).await;
            ConnectionEnd::Finished
        }
    }
}

async fn requests<S>(
    node: &Arc<Node>,
    client_connection: &Arc<ClientConnection>,
    stream: S,
    stop: &Stop,
    (asked, switched): (&AtomicBool, &TunnelSlot),
    pause: Pause,
) -> Served<S>
where
    S: AsyncRead + Outlet + Unpin + Send + 'static,
{
    let limits = client_connection.limits(&node.settings().limits).of_connection();
    let conduct = Http1Conduct {
        limits,
        interims: client_connection.interims.clone(),
        zero_copy: client_connection.zero_copy.clone(),
        pause,
    };
    let over = pin!(async {
        stop.begun().await;
        // The first request may be on its way.
        if !asked.load(Relaxed) {
            tokio::time::sleep(LAST_CALL).await;
        }
    });
    let service = Requests { node, client_connection, stop, asked, switched };
    serve_http1(stream, &service, conduct, over).await
}

/// The service of the requests of one connection of HTTP/1.
struct Requests<'a> {
    node: &'a Arc<Node>,
    client_connection: &'a Arc<ClientConnection>,
    stop: &'a Stop,
    asked: &'a AtomicBool,
    switched: &'a TunnelSlot,
}

impl Http1Service for Requests<'_> {
    type Body = ResponseBody;

    async fn call(&self, request: Request<IncomingBody>) -> Option<Response<ResponseBody>> {
        self.asked.store(true, Relaxed);
        let is_safe = request.method().is_safe();
        let request = request.map(ClientBody::Tcp);
        let mut response = pipeline::serve(self.node, self.client_connection, request).await;
        if let Some(silenced) = &self.client_connection.silenced
            && response.extensions().get().is_some_and(|failure: &Failure| failure.worth_retrying())
        {
            if silenced.refuse() {
                // The front-end goes on with the request, and this connection is dropped.
                std::future::pending::<()>().await;
            }
            // The connection has carried responses before. A client retries a request whose connection
            // ends without a response (RFC 9112 Sec. 9.3.1), and the front-end then asks another
            // back-end.
            if is_safe {
                return None;
            }
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(tunnel) = response.body_mut().take_tunnel() {
            self.switched.put(tunnel);
        }
        Some(response)
    }

    fn written_fields(&self, body: &mut ResponseBody) -> Option<Vec<u8>> {
        body.take_fields()
    }

    fn ends(&self) -> bool {
        let silenced = self.client_connection.silenced.as_ref();
        self.node.drain.ends_connections()
            || self.stop.has_begun()
            || silenced.is_some_and(|one| one.ends_soon())
    }

    fn leaves(&self, error: &BodyError) -> bool {
        matches!(error, BodyError::Moved)
    }
}

async fn http2<S>(
    node: &Arc<Node>,
    client_connection: Arc<ClientConnection>,
    stream: S,
    stop: &Stop,
) -> ConnectionEnd
where
    S: AsyncRead + Outlet + Unpin,
{
    let limits = client_connection.limits(&node.settings().limits).of_connection();
    let asked = Notify::new();
    // Pinned here: a future that is handed on has room for its arguments and for their later places.
    let leaving = pin!(async {
        tokio::select! {
            () = stop.begun() => {}
            () = drained(&node.drain, &asked) => {}
            () = node.drain.left() => {}
        }
    });
    let service = Streams { node, client_connection: &client_connection, stop, asked: &asked };
    serve_http2(stream, &service, limits, leaving).await
}

/// The service of the streams of one connection of HTTP/2.
struct Streams<'a> {
    node: &'a Arc<Node>,
    client_connection: &'a Arc<ClientConnection>,
    stop: &'a Stop,
    asked: &'a Notify,
}

impl Http2Service for Streams<'_> {
    type Body = ResponseBody;

    async fn call(&self, request: Request<IncomingBody>) -> Response<ResponseBody> {
        self.asked.notify_one();
        pipeline::serve(self.node, self.client_connection, request.map(ClientBody::Tcp)).await
    }

    fn written_fields(&self, body: &mut ResponseBody) -> Option<Vec<u8>> {
        body.take_fields()
    }

    fn resting(&self) -> &RestingConnections {
        &self.node.resting
    }

    fn switch(&self, response: &mut Response<ResponseBody>, client: Http2Tunnel) -> bool {
        tunnel::switch_stream(self.node, response, client, self.stop)
    }
}

/// Returns when the node drains and the connection has brought a request. A client that connects during a
/// drain gets its response first: it would only connect again.
async fn drained(drain: &Drain, asked: &Notify) {
    drain.begun().await;
    asked.notified().await;
}

/// Whether the other end proves that it is a peer. One that begins with HTTP does not, and gets an answer that says so.
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
    node: &Node,
    client: IpAddr,
    stop: &Stop,
    step: impl Future<Output = io::Result<T>>,
) -> Result<T, ConnectionEnd> {
    let limit = node.settings().limits.head_timeout;
    tokio::select! {
        done = tokio::time::timeout(limit, step) => match done {
            Ok(done) => done.map_err(|error| {
                tracing::info!(%client, %error, "connection ended before HTTP");
                ConnectionEnd::Broken
            }),
            Err(_) => Err(ConnectionEnd::HeadTimeout),
        },
        () = last_call(stop) => Err(ConnectionEnd::Finished),
        () = node.resting.gives_way_after(QUIET) => Err(ConnectionEnd::GaveWay),
    }
}

/// Returns a moment after the stop has started.
async fn last_call(stop: &Stop) {
    stop.begun().await;
    tokio::time::sleep(LAST_CALL).await;
}

/// Whether the client opens with HTTP/2's preface. Looks at the first bytes without taking them.
async fn speaks_h2(node: &Node, stream: &ClientSocket, stop: &Stop) -> Result<bool, ConnectionEnd> {
    let limit = node.settings().limits.head_timeout;
    let look = async {
        let (mut bytes, mut seen) = ([0; PREFACE.len()], 0);
        while seen < PREFACE.len() {
            let before = seen;
            seen = first_bytes::beyond(stream.stream(), before, &mut bytes).await.unwrap_or(before);
            if seen == before || bytes[..seen] != PREFACE[..seen] {
                return false;
            }
        }
        true
    };
    tokio::select! {
        looked = tokio::time::timeout(limit, look) => Ok(looked.unwrap_or(false)),
        () = stop.begun() => Ok(false),
        () = node.resting.gives_way_after(QUIET) => Err(ConnectionEnd::GaveWay),
    }
}
