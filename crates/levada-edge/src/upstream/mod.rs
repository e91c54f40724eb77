//! Servers that this node sends requests to: origins, peers, the servers of a switch.
//!
//! [`Server::exchange`] sends one request to one server: it waits for a place, takes or makes a connection,
//! sends, and awaits the head. [`send`] tries the servers of a [`Group`] until one answers.

mod budget;
mod connect;
mod group;
mod guard;
mod health;
mod pool;
mod queue;
mod request;

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, client::conn::http2};
use levada_http1::{UpstreamConnection, UpstreamRequest, ZeroCopyQueue};
use levada_policy::ClientShare;

pub(crate) use budget::RetryBudget;
pub(crate) use connect::{Address, Wire, way_to};
pub(crate) use group::{Group, OutcomeCounter, Retries, ServerKind, send};
pub(crate) use guard::ResponseGuard;
pub(crate) use health::{Change, Health, WatchedServer, report_outcome, watch};
pub(crate) use pool::set_worker;
use pool::{Pool, PooledSender};
pub(crate) use queue::{AdmittedRequest, FairQueue, QueueCounts};
use request::pass_interim;
pub(crate) use request::{Subject, UpstreamHead};

use crate::{
    body::{BodyError, Progress, RequestBody},
    failure::Failure,
    settings::Limits,
};

/// Bytes that are read at most of a response whose status alone counts.
const LARGEST_REPLY: usize = 64 << 10;

/// An origin or a peer, with everything that is shared by the requests to it.
pub(crate) struct Server {
    pub(crate) name: Arc<str>,
    pub(crate) address: Address,
    pub(crate) health: Health,
    wire: Wire,
    pool: Pool,
    queue: Arc<FairQueue<()>>,
    bounds: ServerBounds,
}

/// The limits that concern one server.
#[derive(Clone, Copy)]
struct ServerBounds {
    connect_timeout: Duration,
    response_timeout: Duration,
}

/// A response whose body is still arriving.
pub(crate) type UpstreamResponse = Response<Inbound>;

/// A response's body and the connection that it arrives on, which the next request may use when the
/// body has ended. Dropped earlier, the connection is closed.
pub(crate) struct Inbound {
    server: Arc<Server>,
    source: InboundSource,
    _admitted: Option<AdmittedRequest<()>>,
    /// Lasts until the body has ended.
    guard: Option<Box<dyn ResponseGuard>>,
}

enum InboundSource {
    /// `None` when the body has ended.
    Http1(Option<Box<UpstreamConnection<RequestBody>>>),
    Http2(Incoming, Option<http2::SendRequest<RequestBody>>),
}

impl Inbound {
    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let item = match &mut self.source {
            InboundSource::Http1(None) => return Poll::Ready(None),
            InboundSource::Http1(Some(link)) => {
                ready!(link.poll_frame(cx)).map(|frame| frame.map_err(BodyError::from))
            }
            InboundSource::Http2(body, _) => {
                ready!(Pin::new(body).poll_frame(cx)).map(|frame| frame.map_err(BodyError::from))
            }
        };
        let ended = match &item {
            Some(Ok(_)) => self.is_end_stream(),
            Some(Err(_)) => false,
            None => true,
        };
        if ended {
            self.give_back();
        }
        Poll::Ready(item)
    }

    /// Bounds the bytes of the body that are read at once, for callers with a memory budget.
    pub(crate) fn read_at_most(&mut self, bytes: usize) {
        if let InboundSource::Http1(Some(link)) = &mut self.source {
            link.read_at_most(bytes);
        }
    }

    /// Lets the system move the body to the client that has this queue, if it is long. Returns whether it
    /// does.
    pub(crate) fn convey(&mut self, zero_copy: &Arc<ZeroCopyQueue>) -> bool {
        let InboundSource::Http1(Some(link)) = &mut self.source else { return false };
        link.convey(zero_copy)
    }

    /// Whether reading waits for the client to take the previous piece.
    pub(crate) fn waits_for_client(&self) -> bool {
        matches!(&self.source, InboundSource::Http1(Some(link)) if link.waits_for_client())
    }

    /// Holds `guard` until the body has ended.
    pub(crate) fn hold(&mut self, guard: Box<dyn ResponseGuard>) {
        match self.is_end_stream() {
            true => guard.complete(),
            false => self.guard = Some(guard),
        }
    }

    /// Releases what the body held. It has been read to its end.
    fn give_back(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.complete();
        }
        match &mut self.source {
            InboundSource::Http1(link) => {
                if let Some(mut link) = link.take()
                    && link.rest()
                {
                    self.server.pool.put(PooledSender::Http1(link));
                }
            }
            InboundSource::Http2(_, sender) => {
                if let Some(sender) = sender.take() {
                    self.server.pool.put(PooledSender::Http2(sender));
                }
            }
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        match &self.source {
            InboundSource::Http1(link) => link.as_ref().is_none_or(|link| link.is_ended()),
            InboundSource::Http2(body, _) => body.is_end_stream(),
        }
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match &self.source {
            InboundSource::Http1(None) => SizeHint::with_exact(0),
            InboundSource::Http1(Some(link)) => link.size_hint(),
            InboundSource::Http2(body, _) => body.size_hint(),
        }
    }
}

impl Server {
    pub(crate) fn new(
        name: Arc<str>,
        address: Address,
        wire: Wire,
        limits: &Limits,
        workers: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            address,
            health: Health::default(),
            wire,
            pool: Pool::new(workers, limits.server_connections),
            queue: FairQueue::new(
                ClientShare::All,
                limits.server_connections,
                limits.queue,
                limits.queue_timeout,
            ),
            bounds: ServerBounds {
                connect_timeout: limits.connect_timeout,
                response_timeout: limits.response_timeout,
            },
        })
    }

    /// Sends a request and awaits the head of its response.
    ///
    /// A pooled connection that turns out to be closed costs a second try on a fresh one, where
    /// that is safe: nothing was sent, or the request is idempotent (RFC 9110 Sec. 9.2.2) and has no
    /// body.
    ///
    /// # Errors
    /// With the body when no byte of it was sent, for another server.
    pub(crate) async fn exchange(
        self: &Arc<Self>,
        head: &UpstreamHead,
        body: RequestBody,
    ) -> Result<UpstreamResponse, (Failure, Option<RequestBody>)> {
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
        let upload = body.progress();
        let repeatable = body.is_none() && head.method.is_idempotent();
        let mut pooled = true;
        loop {
            let reused = if pooled { self.pool.take().await } else { None };
            let fresh = reused.is_none();
            let sender = match reused {
                Some(sender) => sender,
                None => {
                    let within = self.bounds.connect_timeout;
                    // Boxed: rarely needed, and larger than all the rest of an exchange.
                    match Box::pin(connect::open(&self.address, &self.wire, within)).await {
                        Ok(sender) => sender,
                        Err(failure) => return Err(Unsent { failure, back: Some(body) }),
                    }
                }
            };
            match self.send(sender, head, body, upload.as_deref()).await {
                Ok(response) => {
                    return Ok(response.map(|source| {
                        let server = self.clone();
                        let mut body = Inbound { server, source, _admitted: admitted, guard: None };
                        if body.is_end_stream() {
                            body.give_back();
                        }
                        body
                    }));
                }
                Err(unsent) if fresh => return Err(unsent),
                Err(Unsent { back: Some(unsent), .. }) => body = unsent,
                Err(Unsent { failure: Failure::NoResponse, .. }) if repeatable => {
                    pooled = false;
                    body = RequestBody::None;
                }
                Err(unsent) => return Err(unsent),
            }
        }
    }

    /// Requests that have a connection or make one, and those that wait for one.
    pub(crate) fn counts(&self) -> QueueCounts {
        self.queue.counts()
    }

    async fn send(
        &self,
        sender: PooledSender,
        head: &UpstreamHead,
        body: RequestBody,
        upload: Option<&Progress>,
    ) -> Result<Response<InboundSource>, Unsent> {
        let patience = self.bounds.response_timeout;
        let mut sender = match sender {
            PooledSender::Http2(sender) => sender,
            PooledSender::Http1(mut link) => {
                let request = UpstreamRequest {
                    method: &head.method,
                    uri: &head.uri,
                    headers: &head.headers,
                };
                // The server may wait for the end of the request: its time has not begun.
                let extends = || upload.is_some_and(Progress::excuses);
                let interim = |status, headers: &HeaderMap| {
                    if let Some(interim) = &head.interim {
                        pass_interim(interim, status, headers);
                    }
                };
                return match link.ask(&request, body, patience, extends, interim).await {
                    Ok(response) => Ok(response.map(|()| InboundSource::Http1(Some(link)))),
                    Err(error) => {
                        let failure = Failure::from(error);
                        let closed = failure == Failure::NoResponse;
                        Err(Unsent { failure, back: link.take_back().filter(|_| closed) })
                    }
                };
            }
        };
        let mut sending = std::pin::pin!(sender.try_send_request(head.with(body)));
        loop {
            match tokio::time::timeout(patience, sending.as_mut()).await {
                Ok(Ok(response)) => {
                    return Ok(response.map(|body| InboundSource::Http2(body, Some(sender))));
                }
                Ok(Err(mut error)) => {
                    let back = error.take_message().map(Request::into_body);
                    return Err(Unsent { failure: blame(error.error()), back });
                }
                // The server may wait for the end of the request: its time has not begun.
                Err(_) if upload.is_some_and(Progress::excuses) => {}
                Err(_) => return Err(Unsent { failure: Failure::ResponseTimeout, back: None }),
            }
        }
    }
}

/// A request that got no response. `back` is its body if no byte of it was sent.
struct Unsent {
    failure: Failure,
    back: Option<RequestBody>,
}

/// The failure that an error of the HTTP/2 client stands for.
fn blame(error: &hyper::Error) -> Failure {
    if error.is_user() {
        return Failure::RequestBody;
    }
    if error.is_parse() {
        return Failure::BadResponse;
    }
    Failure::NoResponse
}

/// Whether the server accepts a connection, which is then closed.
pub(crate) async fn reachable(server: &Server, within: Duration) -> bool {
    connect::is_possible(&server.address, within).await
}

/// Whether the server answers `path` with a status below 400.
pub(crate) async fn answers(server: &Arc<Server>, path: &str, host: Option<&HeaderValue>) -> bool {
    let mut head = UpstreamHead::get(path);
    let own = HeaderValue::from_str(&server.address.host()).ok();
    if let Some(host) = host.or(own.as_ref()) {
        head.headers.insert(http::header::HOST, host.clone());
    }
    server.asked(&head).await
}

impl Server {
    /// Sends a probe and says whether the answer was good; its body is not waited for. It takes no
    /// place among the requests: a server that is busy must not be taken for a dead one.
    pub(crate) async fn asked(self: &Arc<Self>, head: &UpstreamHead) -> bool {
        let exchange = self.exchange_at(None, head, RequestBody::None).await;
        exchange.is_ok_and(|response| response.status().as_u16() < 400)
    }

    /// Closes connections that have been idle for too long.
    pub(crate) fn sweep(&self) {
        self.pool.sweep();
    }

    /// Sends a short request beside all others, and returns the status of the answer.
    pub(crate) async fn told(
        self: &Arc<Self>,
        head: &UpstreamHead,
        body: Bytes,
    ) -> Result<StatusCode, Failure> {
        let answer = self.exchange_at(None, head, RequestBody::Text(body)).await;
        let answer = answer.map_err(|unsent| unsent.failure)?;
        let (status, mut reply) = (answer.status(), answer.into_body());
        let mut left = LARGEST_REPLY;
        // Read to its end, the connection can be used again.
        while let Some(Ok(frame)) = std::future::poll_fn(|cx| reply.poll_frame(cx)).await {
            match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(rest) => left = rest,
                None => break,
            }
        }
        Ok(status)
    }

    /// Whether requests must carry an absolute URI, as HTTP/2 wants it.
    pub(crate) fn speaks_h2(&self) -> bool {
        self.wire.h2
    }
}
