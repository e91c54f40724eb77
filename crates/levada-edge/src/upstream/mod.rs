//! One server that this node sends requests to: an origin or a peer.
//!
//! `Server::exchange` is the whole story: wait for a place, take or make a connection, send, await
//! the head. Retries and the choice of the server are the callers' (`forward`).

mod budget;
mod connect;
mod health;
mod pool;

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use budget::RetryBudget;
pub(crate) use connect::{Address, Wire};
pub(crate) use health::{Change, Health, Watched, report, watch};
pub(crate) use pool::set_worker;
use pool::{Pool, Sender};

use crate::{
    body::{Progress, RequestBody},
    failure::Failure,
    guard::Interim,
    misses::Miss,
    settings::Limits,
};

/// What is read of an answer of which only the status counts.
const LARGEST_REPLY: usize = 64 << 10;

/// An origin or a peer, with everything that is shared by the requests to it.
pub(crate) struct Server {
    pub(crate) name: Arc<str>,
    pub(crate) address: Address,
    pub(crate) health: Health,
    wire: Wire,
    pool: Pool,
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    bounds: Bounds,
}

/// The limits that concern one server.
#[derive(Clone, Copy)]
struct Bounds {
    connections: usize,
    queue: usize,
    queue_timeout: Duration,
    connect_timeout: Duration,
    response_timeout: Duration,
}

/// The head of a request to a server: kept, so that a second try can send it again.
#[derive(Clone)]
pub(crate) struct Head {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) version: Version,
    /// Who is behind it, where requests to an origin take turns.
    pub(crate) client: IpAddr,
    /// Where interim responses go.
    pub(crate) interim: Option<Interim>,
}

impl Head {
    /// A plain GET.
    pub(crate) fn get(path: &str) -> Self {
        Self {
            method: Method::GET,
            uri: path.parse().unwrap_or_default(),
            headers: HeaderMap::new(),
            version: Version::HTTP_11,
            client: Ipv4Addr::UNSPECIFIED.into(),
            interim: None,
        }
    }

    fn with(&self, body: RequestBody) -> Request<RequestBody> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        *request.version_mut() = self.version;
        if let Some(interim) = self.interim.clone() {
            hyper::ext::on_informational(&mut request, move |response| {
                interim.pass(response.status(), response.headers());
            });
        }
        request
    }
}

/// A response whose body still occupies its connection.
pub(crate) struct Exchange {
    pub(crate) response: Response<Incoming>,
    pub(crate) lease: Lease,
}

/// The connection that a response body arrives on. Return it when the body has ended, so that the
/// next request may use it; dropped earlier, the connection is closed.
pub(crate) struct Lease {
    server: Arc<Server>,
    sender: Option<Sender>,
    /// The request's body, which may go on after its response.
    upload: Option<Arc<Progress>>,
    _place: Option<OwnedSemaphorePermit>,
    /// The place among the site's requests at its origins.
    miss: Option<Miss>,
}

impl Lease {
    /// Holds a place at the origin until the body has ended.
    pub(crate) fn hold(&mut self, miss: Miss) {
        self.miss = Some(miss);
    }

    /// Gives the connection back: the body has been read to its end.
    pub(crate) fn give_back(&mut self) {
        self.miss = None;
        let Some(sender) = self.sender.take() else { return };
        // Whoever got a connection that is still busy with an upload would wait for a stranger.
        if self.upload.as_ref().is_none_or(|upload| upload.ended()) {
            self.server.pool.put(sender);
        }
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
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
            places: Arc::new(Semaphore::new(limits.server_connections)),
            waiting: AtomicUsize::new(0),
            bounds: Bounds {
                connections: limits.server_connections,
                queue: limits.queue,
                queue_timeout: limits.queue_timeout,
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
    pub(crate) async fn exchange(
        self: &Arc<Self>,
        head: &Head,
        body: RequestBody,
    ) -> Result<Exchange, Failure> {
        let place = self.place().await?;
        self.exchange_at(Some(place), head, body).await
    }

    async fn exchange_at(
        self: &Arc<Self>,
        place: Option<OwnedSemaphorePermit>,
        head: &Head,
        mut body: RequestBody,
    ) -> Result<Exchange, Failure> {
        let upload = body.progress();
        let repeatable = body.is_none() && head.method.is_idempotent();
        let mut pooled = true;
        loop {
            let reused = if pooled { self.pool.take().await } else { None };
            let fresh = reused.is_none();
            let mut sender = match reused {
                Some(sender) => sender,
                None => {
                    let within = self.bounds.connect_timeout;
                    // Boxed: rarely needed, and larger than all the rest of an exchange.
                    Box::pin(connect::open(&self.address, &self.wire, within)).await?
                }
            };
            match self.send(&mut sender, head.with(body), upload.as_deref()).await {
                Ok(mut response) => {
                    check(&mut response)?;
                    let (server, sender) = (self.clone(), Some(sender));
                    let lease = Lease { server, sender, upload, _place: place, miss: None };
                    return Ok(Exchange { response, lease });
                }
                Err(Unsent { failure, .. }) if fresh => return Err(failure),
                Err(Unsent { back: Some(request), .. }) => body = request.into_body(),
                Err(Unsent { failure: Failure::NoResponse, .. }) if repeatable => {
                    pooled = false;
                    body = RequestBody::None;
                }
                Err(Unsent { failure, .. }) => return Err(failure),
            }
        }
    }

    /// Requests that have a connection now, or make one.
    pub(crate) fn busy(&self) -> usize {
        self.bounds.connections.saturating_sub(self.places.available_permits())
    }

    /// Requests that wait for a connection.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    async fn place(&self) -> Result<OwnedSemaphorePermit, Failure> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Ok(place);
        }
        let _waiting =
            Waiting::enter(&self.waiting, self.bounds.queue).ok_or(Failure::QueueFull)?;
        match tokio::time::timeout(self.bounds.queue_timeout, self.places.clone().acquire_owned())
            .await
        {
            Ok(Ok(place)) => Ok(place),
            _ => Err(Failure::QueueTimeout),
        }
    }

    async fn send(
        &self,
        sender: &mut Sender,
        request: Request<RequestBody>,
        upload: Option<&Progress>,
    ) -> Result<Response<Incoming>, Unsent> {
        let mut sending = std::pin::pin!(sender.send(request));
        loop {
            match tokio::time::timeout(self.bounds.response_timeout, sending.as_mut()).await {
                Ok(result) => {
                    return result.map_err(|(error, back)| Unsent { failure: blame(&error), back });
                }
                // The server may wait for the end of the request: its time has not begun.
                Err(_) if upload.is_some_and(Progress::excuses) => {}
                Err(_) => return Err(Unsent { failure: Failure::ResponseTimeout, back: None }),
            }
        }
    }
}

/// A request that got no response; `back` when not a byte of it was sent.
struct Unsent {
    failure: Failure,
    back: Option<Request<RequestBody>>,
}

/// Whose fault an error of the HTTP client is.
fn blame(error: &hyper::Error) -> Failure {
    if error.is_user() {
        return Failure::RequestBody;
    }
    if error.is_parse() {
        return Failure::BadResponse;
    }
    Failure::NoResponse
}

/// Refuses responses whose framing could be understood in two ways: what hyper tolerates here, the
/// next recipient may read differently (RFC 9112 Sec. 6.3, 11.2).
fn check(response: &mut Response<Incoming>) -> Result<(), Failure> {
    // Nothing here asks for another protocol.
    if response.status().is_informational() {
        return Err(Failure::BadResponse);
    }
    let headers = response.headers_mut();
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let chunked = match (codings.next(), codings.next()) {
        (None, _) => false,
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => true,
        _ => return Err(Failure::BadResponse),
    };
    let Some(length) = headers.get(CONTENT_LENGTH) else { return Ok(()) };
    if chunked {
        return Err(Failure::BadResponse);
    }
    let one = headers.get_all(CONTENT_LENGTH).iter().count() == 1;
    if one && !length.is_empty() && length.as_bytes().iter().all(u8::is_ascii_digit) {
        return Ok(());
    }
    // Several that agree, in one field or more, become one (RFC 9110 Sec. 8.6).
    let lengths = length.to_str().map_err(|_| Failure::BadResponse)?;
    let length = lengths.split(',').next().unwrap_or_default().trim();
    let length: u64 = length.parse().map_err(|_| Failure::BadResponse)?;
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    Ok(())
}

/// Connects and hangs up: whether the server can be reached at all.
pub(crate) async fn reachable(server: &Server, within: Duration) -> bool {
    connect::tcp(&server.address, within).await.is_ok()
}

/// Whether the server answers `path` with a status below 400.
pub(crate) async fn answers(server: &Arc<Server>, path: &str, host: Option<&HeaderValue>) -> bool {
    let mut head = Head::get(path);
    let own = HeaderValue::from_str(&server.address.to_string()).ok();
    if let Some(host) = host.or(own.as_ref()) {
        head.headers.insert(http::header::HOST, host.clone());
    }
    server.asked(&head).await
}

impl Server {
    /// Sends a probe and says whether the answer was good; its body is not waited for. It takes no
    /// place among the requests: a server that is busy must not be taken for a dead one.
    pub(crate) async fn asked(self: &Arc<Self>, head: &Head) -> bool {
        let Ok(mut exchange) = self.exchange_at(None, head, RequestBody::None).await else {
            return false;
        };
        if hyper::body::Body::is_end_stream(exchange.response.body()) {
            exchange.lease.give_back();
        }
        exchange.response.status().as_u16() < 400
    }

    /// Sends a short request beside all others, and returns the status of the answer.
    pub(crate) async fn told(
        self: &Arc<Self>,
        head: &Head,
        body: Bytes,
    ) -> Result<StatusCode, Failure> {
        let sent = self.exchange_at(None, head, RequestBody::Text(body)).await?;
        let Exchange { response, mut lease } = sent;
        let status = response.status();
        if Limited::new(response.into_body(), LARGEST_REPLY).collect().await.is_ok() {
            lease.give_back();
        }
        Ok(status)
    }

    /// Whether requests must carry an absolute URI, as HTTP/2 wants it.
    pub(crate) fn speaks_h2(&self) -> bool {
        self.wire.h2
    }
}

/// One request in the queue; leaves it when dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn enter(count: &'a AtomicUsize, bound: usize) -> Option<Self> {
        let guard = (count.fetch_add(1, Relaxed) < bound, Self(count));
        guard.0.then_some(guard.1)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
