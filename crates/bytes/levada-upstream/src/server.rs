//! One server, and the exchange of one request with it: wait for a place, take or make a connection, send,
//! await the head.

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use levada_http::{Io, UpstreamConnection, UpstreamRequest};
use levada_net::proxy_protocol::ProxyVersion;
use levada_observe::metrics::TimeHistogram;
use levada_policy::ClientShare;
use levada_tls::origin::OriginTls;
use rustls::pki_types::ServerName;

use crate::{
    Address, AdmittedRequest, FairQueue, Health, HealthCheck, Inbound, Origin, QueueCounts,
    REFUSED, RequestBody, STRANGER, ServerFailure, ServerProtocols, UpstreamHead, UpstreamResponse,
    Wire, connect, head_time::HeadTime, http2::Http2Pool, inbound::InboundSource,
    notices::take_interim, pool::Pool, request_body::Progress, switched,
};

/// The longest body of a probe that is read.
const MOST_OF_PROBE: usize = 4 << 10;
/// Header fields of an origin's response.
const HEADERS: usize = 100;
/// Header fields of a peer's response: as many, and those that the peer adds.
const PEER_HEADERS: usize = 116;

/// A server with the state that all requests to it share.
pub struct Server {
    /// The name by which logs and metrics know it.
    pub name: Arc<str>,
    /// Where it is.
    pub address: Address,
    /// Whether it is up.
    pub health: Arc<Health>,
    wire: Wire,
    /// The settings of TLS for new connections.
    tls: ArcSwapOption<rustls::ClientConfig>,
    pub(crate) pool: Pool,
    /// The connections over HTTP/2, if it is reached by it.
    http2: Option<Http2Pool>,
    queue: Arc<FairQueue<()>>,
    head_time: HeadTime,
    head_histogram: OnceLock<TimeHistogram>,
    bounds: ArcSwap<ServerBounds>,
}

/// The limits of one server.
#[derive(Clone, Copy, Debug)]
pub struct ServerBounds {
    /// Requests that it gets at once, and idle connections that are kept.
    pub connections: usize,
    /// Requests that may wait for their turn.
    pub queue: usize,
    /// The time that they may wait.
    pub queue_timeout: Duration,
    /// The time to connect, TLS included.
    pub connect_timeout: Duration,
    /// The time from a request to the head of its response.
    pub response_timeout: Duration,
}

impl Server {
    /// A server that is up. With as many pools of connections as there are `workers`.
    pub fn new(
        name: Arc<str>,
        address: Address,
        wire: Wire,
        bounds: ServerBounds,
        workers: usize,
    ) -> Arc<Self> {
        Self::with_health(name, address, wire, bounds, workers, Arc::default())
    }

    /// A server that is up and gets requests of the node itself. The timeout is for each step of an exchange.
    pub fn of_node(
        origin: &Origin,
        [connections, queue]: [usize; 2],
        timeout: Duration,
        workers: usize,
    ) -> Arc<Self> {
        let address = Address::from(origin);
        let tls = origin.tls().then(|| levada_tls::origin::client(false));
        let bounds = ServerBounds {
            connections,
            queue,
            queue_timeout: timeout,
            connect_timeout: timeout,
            response_timeout: timeout,
        };
        let wire = Wire { tls, ..Wire::default() };
        Self::new(address.to_string().into(), address, wire, bounds, workers)
    }

    /// The same server at another address or with other protocols: with this one's name and health, and with
    /// connections of its own.
    pub fn moved(&self, address: Address, wire: Wire) -> Arc<Self> {
        let (name, health, workers) = (self.name.clone(), self.health.clone(), self.pool.workers());
        Self::with_health(name, address, wire, **self.bounds.load(), workers, health)
    }

    fn with_health(
        name: Arc<str>,
        address: Address,
        wire: Wire,
        bounds: ServerBounds,
        workers: usize,
        health: Arc<Health>,
    ) -> Arc<Self> {
        let ServerBounds { connections, queue, queue_timeout, .. } = bounds;
        Arc::new(Self {
            name,
            address,
            health,
            tls: ArcSwapOption::new(wire.tls.clone()),
            http2: wire.h2.then(|| Http2Pool::new(workers, connections)),
            wire,
            pool: Pool::new(workers, connections),
            queue: FairQueue::new(ClientShare::All, connections, queue, queue_timeout),
            head_time: HeadTime::default(),
            head_histogram: OnceLock::new(),
            bounds: ArcSwap::from_pointee(bounds),
        })
    }

    /// Changes its limits, except for the number of idle connections that are kept.
    pub fn set_bounds(&self, bounds: ServerBounds) {
        self.queue.limit(bounds.connections);
        self.queue.bound(bounds.queue, bounds.queue_timeout);
        self.bounds.store(Arc::new(bounds));
    }

    /// The name that is asked for in TLS, if it is not the host.
    pub fn server_name(&self) -> Option<&ServerName<'static>> {
        self.wire.server_name.as_ref()
    }

    pub(crate) fn tls_settings(&self) -> Option<&Arc<OriginTls>> {
        self.wire.tls_settings.as_ref()
    }

    /// Changes the settings of TLS for new connections: a certificate was renewed.
    pub fn set_tls(&self, tls: Option<Arc<rustls::ClientConfig>>) {
        self.tls.store(tls);
    }

    /// Sends a request and awaits the head of its response.
    ///
    /// A pooled connection may be about to close, which shows when the request is on its way. An idempotent
    /// request without a body (RFC 9110 Sec. 9.2.2) is then sent again on a fresh connection. Any other request
    /// of a client gets a fresh connection at once, or one that has just carried several others.
    ///
    /// # Errors
    /// The reason, and the body for another server if no byte of it was sent.
    pub async fn exchange(
        self: &Arc<Self>,
        head: &UpstreamHead,
        body: RequestBody,
    ) -> Result<UpstreamResponse, (ServerFailure, Option<RequestBody>)> {
        let admitted = match self.queue.enter(()).await {
            Ok(admitted) => admitted,
            Err(failure) => return Err((failure, Some(body))),
        };
        let exchanged = self.exchange_at(Some(admitted), head, body).await;
        exchanged.map_err(|Unsent { failure, back }| (failure, back))
    }

    async fn exchange_at(
        self: &Arc<Self>,
        admitted: Option<AdmittedRequest<()>>,
        head: &UpstreamHead,
        mut body: RequestBody,
    ) -> Result<UpstreamResponse, Unsent> {
        if let Some(pool) = self.http2.as_ref().filter(|_| head.websocket.is_none()) {
            return Box::pin(self.exchange_over_http2(pool, admitted, head, body)).await;
        }
        let upload = body.progress();
        let repeatable = body.is_none() && head.method.is_idempotent();
        let proved = !repeatable && !matches!(body, RequestBody::Text(_));
        let client = self.wire.states_client.and(head.stated_client);
        // A connection that becomes a tunnel is taken from no other request.
        let mut pooled = head.websocket.is_none();
        loop {
            let reused = if pooled { self.pool.take(proved, client) } else { None };
            let fresh = reused.is_none();
            let link = match reused {
                Some(link) => link,
                None => {
                    if self.wire.states_client.is_some() {
                        self.pool.make_room(self.counts().admitted);
                    }
                    // Boxed: rarely needed, and larger than all the rest of an exchange.
                    match Box::pin(self.dial_for(head, client)).await {
                        Ok(io) => Box::new(UpstreamConnection::new(io, self.fields())),
                        Err(failure) => return Err(Unsent { failure, back: Some(body) }),
                    }
                }
            };
            match self.send(link, head, body, upload.as_deref()).await {
                Ok(response) => {
                    // The connection of a refused peer ends here: it will not be accepted later.
                    if let Err(failure) = self.takes_for_peer(response.headers()) {
                        return Err(Unsent { failure, back: None });
                    }
                    let body = |source| Inbound::new(self.clone(), source, client, admitted);
                    return Ok(response.map(body));
                }
                Err(unsent) if fresh => return Err(unsent),
                Err(Unsent { back: Some(unsent), .. }) => body = unsent,
                Err(Unsent { failure: ServerFailure::NoResponse, .. }) if repeatable => {
                    pooled = false;
                    body = RequestBody::None;
                }
                Err(unsent) => return Err(unsent),
            }
        }
    }

    /// An error if the response says that this node is no peer. It answers no request then.
    pub(crate) fn takes_for_peer(&self, headers: &HeaderMap) -> Result<(), ServerFailure> {
        if !self.wire.peer || headers.get(REFUSED).is_none_or(|why| *why != STRANGER) {
            return Ok(());
        }
        let failure = ServerFailure::Stranger;
        // Requests come by thousands, and the reason stays.
        if self.health.fault.set(Some(failure.as_str())) {
            let (peer, address) = (&*self.name, &self.address);
            tracing::warn!(peer, %address, reason = failure.as_str(), "a peer refuses this node");
        }
        Err(failure)
    }

    /// Opens a connection over HTTP/1.1 that is ready for this request.
    async fn dial_for(
        &self,
        head: &UpstreamHead,
        client: Option<IpAddr>,
    ) -> Result<Io, ServerFailure> {
        if head.websocket.is_none() {
            return self.dial(client).await;
        }
        let within = self.bounds.load().connect_timeout;
        let (wire, tls) = switched::way(&self.wire, self.tls.load_full());
        connect::dial(&self.address, &wire, (tls, &self.health.fault), client, within).await
    }

    /// Opens a connection that is ready for requests of this client.
    pub(crate) async fn dial(&self, client: Option<IpAddr>) -> Result<Io, ServerFailure> {
        let within = self.bounds.load().connect_timeout;
        let tls = (self.tls.load_full(), &self.health.fault);
        connect::dial(&self.address, &self.wire, tls, client, within).await
    }

    /// The header fields that a response may have.
    pub(crate) fn fields(&self) -> usize {
        if self.wire.peer { PEER_HEADERS } else { HEADERS }
    }

    /// The time from a request to the head of its response.
    pub fn response_timeout(&self) -> Duration {
        self.bounds.load().response_timeout
    }

    /// Takes in the time of the head of a response.
    pub(crate) fn took(&self, time: Duration) {
        self.head_time.took(time);
    }

    /// The histogram of the times of heads, for operators; `make` makes it at first.
    pub(crate) fn head_histogram(&self, make: impl FnOnce() -> TimeHistogram) -> &TimeHistogram {
        self.head_histogram.get_or_init(make)
    }

    /// The time that the head of a response usually takes, as far as is known, while it is up.
    pub fn usual_time(&self) -> Option<Duration> {
        self.head_time.usual().filter(|_| self.health.is_up())
    }

    /// Takes in that a response was late, and was not waited for.
    pub(crate) fn outrun(&self) {
        self.head_time.outrun();
    }

    /// The time after which the head of a response is late.
    pub fn late_after(&self) -> Duration {
        self.head_time.late_after(self.bounds.load().response_timeout)
    }

    /// Requests that have a connection or make one, and those that wait for one.
    pub fn counts(&self) -> QueueCounts {
        self.queue.counts()
    }

    async fn send(
        &self,
        mut link: Box<UpstreamConnection<RequestBody>>,
        head: &UpstreamHead,
        body: RequestBody,
        upload: Option<&Progress>,
    ) -> Result<Response<InboundSource>, Unsent> {
        let (method, uri) = (&head.method, &head.uri);
        let request = UpstreamRequest { method, uri, headers: &head.over_http1() };
        // The server may wait for the end of the request, or for its turn at the origin: its time has not started.
        let waits = || head.notices.as_ref().is_some_and(|notices| notices.excuse());
        let extends = || upload.is_some_and(Progress::excuses) || waits();
        let interim = |status, headers: &HeaderMap| take_interim(head, status, headers);
        match link.ask(&request, body, self.response_timeout(), extends, interim).await {
            Ok(response) => match switched::check(head, &response) {
                Ok(()) => Ok(response.map(|()| InboundSource::Http1(Some(link)))),
                Err(failure) => Err(Unsent { failure, back: None }),
            },
            Err(error) => {
                let failure = ServerFailure::from(error);
                let closed = failure == ServerFailure::NoResponse;
                Err(Unsent { failure, back: link.take_back().filter(|_| closed) })
            }
        }
    }
}

/// A request that got no response. `back` is its body if no byte of it was sent.
pub(crate) struct Unsent {
    pub(crate) failure: ServerFailure,
    pub(crate) back: Option<RequestBody>,
}

impl Server {
    /// Whether the server answers the path of `check` with a status below 400; without a path, whether it can be
    /// connected to.
    pub async fn passes(self: &Arc<Self>, check: &HealthCheck, host: Option<&HeaderValue>) -> bool {
        let Some(path) = &check.path else { return connect::is_possible(&self.address).await };
        let mut head = UpstreamHead::get(path);
        let own = HeaderValue::from_str(&self.address.host()).ok();
        if let Some(host) = host.or(own.as_ref()) {
            head.headers.insert(http::header::HOST, host.clone());
        }
        self.probe(&head).await
    }

    /// Sends a probe and returns whether the status of the response is below 400. A probe takes no place
    /// among the requests, so that a busy server is not taken for a dead one.
    pub async fn probe(self: &Arc<Self>, head: &UpstreamHead) -> bool {
        let response = self.exchange_at(None, head, RequestBody::None).await;
        let Ok(response) = response else { return false };
        let is_good = response.status().as_u16() < 400;
        if is_good {
            self.health.fault.set(None);
        }
        // With a body that has come along, the connection serves the next probe as well.
        tokio::select! {
            biased;
            _ = response.into_body().whole(MOST_OF_PROBE) => {}
            () = std::future::ready(()) => {}
        }
        is_good
    }

    /// Closes connections that have been idle for too long.
    pub fn sweep(&self) {
        self.pool.sweep();
        if let Some(pool) = &self.http2 {
            pool.sweep();
        }
    }

    /// Sends a short request without a place among the others, and returns the status of the response
    /// and up to `most` bytes of its body.
    ///
    /// # Errors
    /// The reason why there is no whole response.
    pub async fn ask(
        self: &Arc<Self>,
        head: &UpstreamHead,
        body: Bytes,
        most: usize,
    ) -> Result<(StatusCode, Bytes), ServerFailure> {
        let response = self.exchange_at(None, head, RequestBody::Text(body)).await;
        let response = response.map_err(|unsent| unsent.failure)?;
        Ok((response.status(), response.into_body().whole(most).await?))
    }

    /// The version of the PROXY protocol by which it gets to know clients.
    pub fn states_client(&self) -> Option<ProxyVersion> {
        self.wire.states_client
    }

    /// The protocols by which it is reached.
    pub fn protocols(&self) -> ServerProtocols {
        ServerProtocols { h2: self.wire.h2, states_client: self.wire.states_client }
    }
}
