//! One request over HTTP/2, up to the head of its response.

use std::{
    future::Future as _,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
    time::Duration,
};

use h2::{Reason, RecvStream, client::ResponseFuture};
use http::{
    HeaderValue, Request, Response, Uri, Version,
    header::{CONTENT_LENGTH, HOST, TE},
    uri::{self, Authority, PathAndQuery, Scheme},
};
use http_body::Body as _;
use levada_http::after;

use super::{
    Http2Pool,
    body::Http2Body,
    connection::{Http2Connection, StreamPlace},
    outgoing::{Halt, OutgoingBody, Upload},
    pool::{Opening, Placed},
};
use crate::{
    AdmittedRequest, Inbound, RequestBody, Server, ServerFailure, UpstreamHead, UpstreamResponse,
    inbound::InboundSource, notices::take_interim, request_body::Progress, server::Unsent,
};

/// How often a request is sent that connections have not taken.
const TRIES: usize = 3;
/// Interim responses to one request.
const INTERIMS: usize = 100;

/// A request without a response.
struct Unanswered {
    failure: ServerFailure,
    /// Its body, when the server has certainly not processed the request.
    back: Option<RequestBody>,
    /// Whether the connection takes no further request.
    closes: bool,
}

impl Server {
    /// Sends a request over HTTP/2 and awaits the head of its response.
    ///
    /// A request that the server has refused (REFUSED_STREAM), or that is newer than the last one of its GOAWAY, was
    /// not processed: it is sent again on another connection, whatever its method is (RFC 9113 Sec. 8.7). A
    /// connection may also close without a word about the requests on it. An idempotent one without a body is then
    /// sent again on a fresh connection, as over HTTP/1.1.
    pub(crate) async fn exchange_over_http2(
        self: &Arc<Self>,
        pool: &Http2Pool,
        admitted: Option<AdmittedRequest<()>>,
        head: &UpstreamHead,
        mut body: RequestBody,
    ) -> Result<UpstreamResponse, Unsent> {
        let repeatable = body.is_none() && head.method.is_idempotent();
        let client = self.states_client().and(head.stated_client);
        let (mut fresh, mut tries) = (false, 0);
        loop {
            let open = || -> Opening<'_> { Box::pin(self.open_http2(client)) };
            let placed = match pool.place(client, fresh, open).await {
                Ok(placed) => placed,
                Err(failure) => return Err(Unsent { failure, back: Some(body) }),
            };
            let (was_fresh, state) = (placed.is_fresh, placed.place.0.clone());
            tries += 1;
            let Unanswered { failure, back, closes } =
                match ask(placed, head, body, self.response_timeout()).await {
                    Ok(response) => {
                        if let Err(failure) = self.takes_for_peer(response.headers()) {
                            state.close();
                            return Err(Unsent { failure, back: None });
                        }
                        let body = |body| {
                            let source = InboundSource::Http2(Some(Box::new(body)));
                            Inbound::new(self.clone(), source, client, admitted)
                        };
                        return Ok(response.map(body));
                    }
                    Err(unanswered) => unanswered,
                };
            if closes {
                state.close();
            }
            let may_repeat = repeatable && failure == ServerFailure::NoResponse && !was_fresh;
            match back {
                Some(back) if tries < TRIES && (closes || !was_fresh) => {
                    // A server that refuses one request of a connection may refuse the next one there.
                    (body, fresh) = (back, !closes || tries > 1);
                }
                None if may_repeat => (body, fresh) = (RequestBody::None, true),
                back => return Err(Unsent { failure, back }),
            }
        }
    }

    async fn open_http2(&self, client: Option<IpAddr>) -> Result<Http2Connection, ServerFailure> {
        let io = self.dial(client).await?;
        Http2Connection::open(io, self.fields()).await
    }
}

async fn ask(
    Placed { mut connection, place, .. }: Placed,
    head: &UpstreamHead,
    body: RequestBody,
    timeout: Duration,
) -> Result<Response<Http2Body>, Unanswered> {
    let state = place.0.clone();
    let (progress, is_whole) = (body.progress(), body.is_end_stream());
    let request = request(head, &body, state.secure);
    let (response, stream) = match connection.sender.send_request(request, is_whole) {
        Ok(sent) => sent,
        Err(error) => {
            // It is closing, or all numbers of streams were used.
            tracing::debug!(%error, "a connection over HTTP/2 takes no request");
            let failure = ServerFailure::NoResponse;
            return Err(Unanswered { failure, back: Some(body), closes: true });
        }
    };
    let outgoing = (!is_whole).then(|| OutgoingBody::new(stream, body));
    let mut awaited = AwaitedHead { response, outgoing, interims: 0 };
    let extends = || progress.as_deref().is_some_and(Progress::excuses);
    let mut timer = state.timers.lock().pop().unwrap_or_default();
    let mut deadline = after(timeout);
    let answered = std::future::poll_fn(|cx| {
        loop {
            if let Poll::Ready(answered) = awaited.poll(cx, head) {
                return Poll::Ready(answered);
            }
            ready!(timer.poll(cx, deadline));
            // The server may wait for the end of the request: its time has not started.
            if !extends() {
                return Poll::Ready(Err(Halted::Timeout));
            }
            deadline = after(timeout);
        }
    })
    .await;
    state.timers.lock().push(timer);
    let AwaitedHead { outgoing, .. } = awaited;
    match answered {
        Ok(response) if response.headers().len() > state.fields => {
            let failure = ServerFailure::BadResponse;
            Err(Unanswered { failure, back: None, closes: false })
        }
        Ok(response) => {
            state.answered.store(true, Relaxed);
            state.hear();
            let upload = outgoing.and_then(|outgoing| outgoing.go_on(progress));
            Ok(received(response, place, upload))
        }
        Err(halted) => Err(halted.blame(outgoing, state.answered.load(Relaxed))),
    }
}

/// The request with its pseudo-header fields (RFC 9113 Sec. 8.3.1).
fn request(head: &UpstreamHead, body: &RequestBody, secure: bool) -> Request<()> {
    let mut headers = head.headers.clone();
    let host = headers.remove(HOST);
    let authority = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    // No field of a connection may be left (Sec. 8.2.2): edits of the configuration may have added one.
    levada_cache::strip_request(&mut headers);
    if head.takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(length @ 1..) = body.size_hint().exact() {
        headers.entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    let mut target = uri::Parts::default();
    target.scheme = Some(if secure { Scheme::HTTPS } else { Scheme::HTTP });
    target.authority = authority.or(Some(Authority::from_static("localhost")));
    let root = || PathAndQuery::from_static("/");
    target.path_and_query = Some(head.uri.path_and_query().cloned().unwrap_or_else(root));
    let mut request = Request::new(());
    *request.method_mut() = head.method.clone();
    // All parts are there.
    *request.uri_mut() = Uri::from_parts(target).unwrap_or_default();
    *request.version_mut() = Version::HTTP_2;
    *request.headers_mut() = headers;
    request
}

fn received(
    response: Response<RecvStream>,
    place: StreamPlace,
    upload: Option<Upload>,
) -> Response<Http2Body> {
    let length = response.headers().get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let mut response = response.map(|stream| Http2Body::new(stream, place, length, upload));
    // The version of a hop is of no interest to the next one.
    *response.version_mut() = Version::HTTP_11;
    response
}

/// The reason why no head came.
enum Halted {
    Timeout,
    /// The body of the request broke off.
    Body,
    /// The server sends more interim responses than anyone wants.
    Interims,
    Http2(h2::Error),
}

/// The response to a request, and the request's body on its way out.
struct AwaitedHead {
    response: ResponseFuture,
    outgoing: Option<OutgoingBody>,
    interims: usize,
}

impl AwaitedHead {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        head: &UpstreamHead,
    ) -> Poll<Result<Response<RecvStream>, Halted>> {
        if let Some(outgoing) = &mut self.outgoing
            && let Poll::Ready(Err(Halt::Body)) = outgoing.poll(cx)
        {
            return Poll::Ready(Err(Halted::Body));
        }
        while let Some(response) = ready!(self.response.poll_informational(cx)) {
            let response = response.map_err(Halted::Http2)?;
            self.interims += 1;
            if self.interims > INTERIMS {
                return Poll::Ready(Err(Halted::Interims));
            }
            take_interim(head, response.status(), response.headers());
        }
        Pin::new(&mut self.response).poll(cx).map_err(Halted::Http2)
    }
}

impl Halted {
    /// The party to blame, and whether the request may be sent again. `answered`: the server has spoken HTTP/2.
    fn blame(self, outgoing: Option<OutgoingBody>, answered: bool) -> Unanswered {
        let of = |failure| Unanswered { failure, back: None, closes: false };
        let error = match self {
            Self::Timeout => return of(ServerFailure::ResponseTimeout),
            Self::Body => return of(ServerFailure::RequestBody),
            Self::Interims => return of(ServerFailure::BadResponse),
            Self::Http2(error) => error,
        };
        let closes = error.is_go_away() || error.is_io();
        let is_refused = error.reason() == Some(Reason::REFUSED_STREAM);
        if error.is_remote() && (error.is_go_away() || is_refused) {
            let back = outgoing.map_or(Some(RequestBody::None), OutgoingBody::take_back);
            return Unanswered { failure: ServerFailure::NoResponse, back, closes };
        }
        let failure = match () {
            () if error.is_library() && closes && !answered => ServerFailure::NotHttp2,
            () if error.is_library() => ServerFailure::BadResponse,
            () if error.is_reset() => ServerFailure::StreamReset,
            () => ServerFailure::NoResponse,
        };
        Unanswered { failure, back: None, closes }
    }
}
