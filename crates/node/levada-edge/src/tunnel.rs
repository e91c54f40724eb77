//! Connections, and streams of HTTP/2 and HTTP/3, that switch to WebSocket.
//!
//! ```text
//!   open ──> origin or server of the switch ──> 101 ──> connection: the socket without HTTP ──> run
//! ```
//!
//! The node that met the client serves its tunnel, like an unsafe request. A tunnel holds what its request holds, but
//! for its places in `capacity`, `misses` and `server_connections`: it may do nothing for hours.

use std::sync::Arc;

use http::{Response, StatusCode};
use levada_access::client_network;
use levada_failure::{Failed, Failure};
use levada_http::Http2Tunnel;
use levada_http::websocket::{EndReason, Tunnel};
use levada_net::stop::{Stop, spawn_until_cut};
use levada_observe::metrics::CacheResult;
use levada_redirector::ChosenServer;
use levada_upstream::{RequestBody, ServerEnd, ServerFailure, UpstreamResponse};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    access_record::AccessRecord,
    body::{OpenTunnel, ResponseBody, Source},
    node::Node,
    request::RequestContext,
};

/// Whether a request for WebSocket is answered as if it had not asked: by a file, or by the route itself. After a
/// CONNECT there is no such answer.
pub(crate) fn is_ignored(context: &RequestContext) -> bool {
    let by_connect = context.parts.version >= http::Version::HTTP_2;
    let resource = &context.resource;
    !by_connect && (resource.answer.is_some() || resource.site.files.is_some())
}

/// The answer of a server.
pub(crate) enum Answered {
    /// It has agreed.
    Switching(Response<ResponseBody>),
    /// It has answered as to any other request, which was this one.
    InHttp(UpstreamResponse, Box<RequestContext>),
}

/// Asks a server for WebSocket. The cache has no part in it, whatever the answer is.
pub(crate) async fn open(
    node: &Node,
    mut context: Box<RequestContext>,
    record: &mut AccessRecord,
) -> Result<(Answered, Option<ChosenServer>), Failed> {
    let Some(handshake) = context.websocket.take() else { return Err(Failure::NoWebSocket.into()) };
    let settings = context.resource.handling.websocket;
    let resource = &context.resource;
    if !settings.enabled || resource.answer.is_some() || resource.site.files.is_some() {
        return Err(Failure::NoWebSocket.into());
    }
    let handshake = handshake.map_err(Failure::Handshake)?;
    record.cache = CacheResult::Bypass;
    let (client, pressure) = (client_network::of(context.client), node.memory.pressure());
    record.in_service = Some(node.capacity.enter(client, pressure).ok_or(Failure::Overload)?);
    let place = node.tunnels.enter(client, pressure).ok_or(Failure::Overload)?;
    let request = (context.client, &context.parts.method, &context.resource.url);
    context.edits = context.resource.handling.request_edits(request, &context.parts.headers);
    if let Some(edits) = &context.edits {
        edits.apply_to_received(&mut context.parts.headers);
    }
    let headers = std::mem::take(&mut context.parts.headers);
    let mut head = node.forwarder.onward(&context, headers);
    handshake.ask(&mut head.headers);
    head.websocket = Some(handshake.accept().clone());
    let resource = &context.resource;
    let mut exchange =
        node.forwarder.to_origin(&resource.site, &mut head, RequestBody::None).await?;
    let chosen = exchange.extensions_mut().remove();
    if exchange.status() != StatusCode::SWITCHING_PROTOCOLS {
        // After a CONNECT the client would take it for the beginning of a tunnel.
        if handshake.is_by_connect() && exchange.status().is_success() {
            return Err(Failure::Server(ServerFailure::BadHandshake).into());
        }
        return Ok((Answered::InHttp(exchange, context), chosen));
    }
    let (mut parts, body) = exchange.into_parts();
    let server = body.into_switched().ok_or(Failure::Server(ServerFailure::BadHandshake))?;
    levada_cache::strip_response(&mut parts.headers);
    node.cache.purges.strip(&mut parts.headers);
    node.name.add_via(&mut parts.headers);
    parts.status = handshake.open(&mut parts.headers);
    record.switched();
    let tunnel = OpenTunnel { server, idle_timeout: settings.idle_timeout, place };
    let response = Response::from_parts(parts, ResponseBody::new(Source::Tunnel(Box::new(tunnel))));
    Ok((Answered::Switching(response), chosen))
}

/// The tunnel that a connection is to become, while its response is being sent.
#[derive(Default)]
pub(crate) struct TunnelSlot(Mutex<Option<Opened>>);

/// A tunnel whose handshake has been answered, and the record of its request.
pub(crate) type Opened = (Box<OpenTunnel>, Option<Box<AccessRecord>>);

impl TunnelSlot {
    pub(crate) fn put(&self, tunnel: Opened) {
        *self.0.lock() = Some(tunnel);
    }

    /// Moves the bytes of a client's connection, of which `ahead` have come already, until its tunnel has ended.
    pub(crate) async fn run(
        &self,
        node: &Node,
        client: impl AsyncRead + AsyncWrite,
        ahead: Vec<u8>,
        stop: &Stop,
    ) {
        let opened = self.0.lock().take();
        if let Some(opened) = opened {
            run(node, opened, client, ahead, stop).await;
        }
    }
}

/// The tunnel that the response to a CONNECT opens. A success that opens none would look like one.
pub(crate) fn opened(response: &mut Response<ResponseBody>) -> Option<Opened> {
    let opened = response.body_mut().take_tunnel();
    if opened.is_none() && response.status().is_success() {
        *response.status_mut() = StatusCode::NOT_IMPLEMENTED;
    }
    opened
}

/// Has a stream of HTTP/2 become a tunnel, if the response says so.
pub(crate) fn switch_stream(
    node: &Arc<Node>,
    response: &mut Response<ResponseBody>,
    client: Http2Tunnel,
    stop: &Stop,
) -> bool {
    let Some(opened) = opened(response) else { return false };
    let (node, stop) = (node.clone(), stop.clone());
    let tunnel = {
        let stop = stop.clone();
        async move { run(&node, opened, client, Vec::new(), &stop).await }
    };
    spawn_until_cut(stop, tunnel);
    true
}

/// Moves the bytes of a tunnel until it ends. `ahead` has come from the client already.
pub(crate) async fn run(
    node: &Node,
    (tunnel, mut record): Opened,
    client: impl AsyncRead + AsyncWrite,
    from_client: Vec<u8>,
    stop: &Stop,
) {
    let OpenTunnel { server, idle_timeout, place: _place } = *tunnel;
    let ServerEnd { io, ahead: from_server, hold } = server;
    let tunnel = Tunnel { from_client, from_server, idle_timeout };
    // Boxed, so that the tunnel's future has room for it once, not at each place that it moves to.
    let leaving = Box::pin(leaving(node, stop));
    let end = tunnel.run(client, io, leaving, &node.metrics.tunnels).await;
    if end.reason != EndReason::ServerBroke {
        hold.end();
    }
    if let Some(record) = &mut record {
        record.tunnelled(&end);
    }
}

/// Returns when a tunnel is to be closed because the node drains or stops: after a random part of the grace.
async fn leaving(node: &Node, stop: &Stop) {
    tokio::select! {
        () = stop.begun() => {}
        () = node.drain.begun() => {}
        () = node.drain.left() => {}
    }
    let grace = {
        let limits = &node.settings().limits;
        limits.tunnel_grace.min(limits.drain_timeout / 2)
    };
    levada_http::websocket::wait_part_of(grace).await;
}
