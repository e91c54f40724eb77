//! The admission of a request: whether it is for clients of this node, for the node itself, or refused.

use std::sync::Arc;

use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use levada_access::{max_forwards, memory_bound::MemoryPressure};
use levada_body::compress::Accepts;
use levada_cache::{RequestCacheFields, strip_request};
use levada_cluster::nodes::{PROBE, Standing};
use levada_cluster::orders::PurgeEndpoint;
use levada_control::status::STATUS_PATH;
use levada_failure::Failure;
use levada_http::check_parsed;
use levada_http::websocket::Handshake;
use levada_rules::CacheUse;
use levada_upstream::ClientBody;

use crate::{
    body::ResponseBody,
    client_connection::{ClientConnection, ListenerKind},
    crossing, large,
    node::Node,
    request::RequestContext,
    respond,
};

/// The outcome of an admission.
pub(crate) enum Admitted {
    Context(Box<RequestContext>),
    Answered(Box<Response<ResponseBody>>),
    /// A message about certificates from a peer.
    Certificates(Box<Request<ClientBody>>),
    /// A message about purges from a peer.
    Purging(Box<Request<ClientBody>>),
    Refused(Failure),
}

/// Checks whether the client may send this request.
pub(crate) fn admit(
    node: &Node,
    connection: &Arc<ClientConnection>,
    mut request: Request<ClientBody>,
) -> Admitted {
    let is_peer = connection.listener == ListenerKind::Peer;
    // Tunnels begin at the node that the client has met.
    let websocket = if is_peer { None } else { Handshake::of(&mut request).map(Box::new) };
    if matches!(request.version(), Version::HTTP_2 | Version::HTTP_3)
        && let Err(fault) =
            check_parsed(&request, connection.limits(&node.settings().limits).of_head())
    {
        return Admitted::Refused(Failure::Malformed(fault));
    }
    if is_peer {
        if !connection.is_peer {
            return Admitted::Refused(Failure::NoPeer);
        }
        if PurgeEndpoint::is_for(&request) {
            return Admitted::Purging(Box::new(request));
        }
        if levada_tls::acme::is_message(&request) {
            return Admitted::Certificates(Box::new(request));
        }
        if request.uri().path() == STATUS_PATH {
            let text = serde_json::to_string(&node.status()).unwrap_or_default();
            return Admitted::Answered(Box::new(respond::plain(StatusCode::OK, text)));
        }
        if !node.purging.serves() {
            return Admitted::Refused(Failure::Starting);
        }
        if request.uri().path() == PROBE {
            let (held, capacity) = (node.capacity.held(), node.settings().limits.capacity);
            let standing = Standing::new(node.drain.is_on(), held, capacity)
                .with(node.route.as_deref(), capacity);
            let told = node.given_up.round_trips.told(request.uri().query());
            let well = respond::plain(StatusCode::OK, standing.to_string() + &told);
            return Admitted::Answered(Box::new(well));
        }
    }
    if let Some(proof) = node.certificates.proof(request.uri().path()) {
        return Admitted::Answered(Box::new(respond::plain(StatusCode::OK, proof)));
    }
    if node.memory.pressure() == MemoryPressure::Full {
        return Admitted::Refused(Failure::Overload);
    }
    let client = node.trust.load().cross(connection.client, is_peer, request.headers_mut());
    if *request.method() == Method::OPTIONS && request.uri().path() == "*" {
        return Admitted::Answered(Box::new(respond::options()));
    }
    let routed = match node.identifier.load().identify(connection.listener, client, &request) {
        Ok(routed) => routed,
        Err(failure) => return Admitted::Refused(failure),
    };
    if let Err(failure) = crossing::certified(connection, &routed, request.headers_mut()) {
        return Admitted::Refused(failure);
    }
    let (mut parts, body) = request.into_parts();
    // Before a key is made or a variant is selected: fields that the origin does not see must not
    // select one.
    let takes_trailers = strip_request(&mut parts.headers);
    let resource = routed.identified(client, &parts);
    connection.set_last_key(resource.key());
    if max_forwards::ends_here(&parts.method, &mut parts.headers) {
        return Admitted::Answered(Box::new(respond::options()));
    }
    let wants = RequestCacheFields::of(&parts.headers);
    if wants.range && node.given_up.returns(connection.client, resource.key()) {
        node.metrics.dormant_returned.inc();
    }
    let head_is_enough = large::asks_for_head(connection.listener, &parts.headers);
    let anew = head_is_enough && large::asks_anew(&parts.headers);
    let body = (!body.is_end_stream()).then_some(body);
    let takes_text = parts.version <= Version::HTTP_2 && connection.alt_svc.is_none();
    let (connection, zero_copy) = (connection.clone(), connection.zero_copy.clone());
    let context = RequestContext {
        connection,
        client,
        resource,
        wants,
        parts,
        accepts: Accepts::default(),
        cache_use: CacheUse::Full,
        edits: None,
        body,
        body_bound: None,
        takes_trailers,
        websocket,
        head_is_enough,
        anew,
        zero_copy,
        takes_text,
        answers_error: false,
    };
    Admitted::Context(Box::new(context))
}
