//! Requests to other servers: what they carry, and the tries until one has answered.

use std::sync::Arc;

use http::{
    HeaderMap, HeaderName, HeaderValue, Version,
    header::{self, COOKIE, HOST, VIA},
};
use levada_cache::strip_fields;
use levada_policy::{NodeIndex, Pick};
use levada_types::Request as PolicyRequest;

use crate::{
    access_record::AccessRecord,
    body::RequestBody,
    client_connection::{ClientConnection, Door},
    client_network,
    failure::{Failed, Failure},
    fields::{CDN_ID, CDN_LOOP, FORWARDED_PROTO, LARGE, PEER, PIECE, REFUSED},
    large,
    node::Node,
    peers::Peers,
    redirect::retried,
    request::RequestContext,
    resource::Resource,
    sites::Site,
    switch::{self, Subject},
    upstream::{UpstreamHead, UpstreamResponse},
};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The head that goes on, made from the one that came: end-to-end fields only, and what a proxy adds.
pub(crate) fn onward(
    node: &Node,
    context: &RequestContext,
    mut headers: HeaderMap,
) -> UpstreamHead {
    let RequestContext { connection, resource, parts, .. } = context;
    // Room for what is added, at once.
    headers.reserve(8);
    static ENDS_HERE: [HeaderName; 4] = [PEER, LARGE, PIECE, header::EXPECT];
    strip_fields(&mut headers, &ENDS_HERE);
    if parts.version == Version::HTTP_2 {
        join_crumbs(&mut headers);
    }
    let client = client_network::of(connection, &headers);
    let subject = Subject::of(resource, parts, &headers);
    let interim = connection.interim();
    // An absolute form, or a pass, is not for the next server to see.
    let plain = parts.uri.authority().is_none() && !resource.passed && resource.piece.is_none();
    let named = |host: &&HeaderValue| plain && host.as_bytes() == resource.host().as_bytes();
    let mut host = headers.get(HOST).filter(named).cloned();
    if host.is_none() {
        host = HeaderValue::from_str(resource.host()).ok();
        if let Some(host) = &host {
            headers.insert(HOST, host.clone());
        }
    }
    if connection.door != Door::Peer {
        forwarded(&mut headers, resource, connection, host);
    }
    headers.append(CDN_LOOP, HeaderValue::from_static(CDN_ID));
    headers.append(VIA, node.via.clone());
    let uri = if plain { parts.uri.clone() } else { resource.target().parse().unwrap_or_default() };
    UpstreamHead {
        method: parts.method.clone(),
        uri,
        headers,
        version: Version::HTTP_11,
        client,
        subject,
        interim,
    }
}

/// HTTP/2 lets a client divide its cookies over several fields; HTTP/1.1 knows one (RFC 9113
/// Sec. 8.2.3).
fn join_crumbs(headers: &mut HeaderMap) {
    let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() > 1
        && let Ok(cookie) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]))
    {
        headers.insert(COOKIE, cookie);
    }
}

/// Whether a request has passed this very node before, by what it wrote into `Via`. To share a fetch
/// with it could be to wait for itself.
pub(crate) fn has_passed(node: &Node, headers: &HeaderMap) -> bool {
    let own = node.via.as_bytes();
    let mut members = headers.get_all(VIA).iter().flat_map(|v| v.as_bytes().split(|b| *b == b','));
    members.any(|member| member.trim_ascii().eq_ignore_ascii_case(own))
}

/// Who asked, by which name and protocol: a client's own claims are replaced where they would be
/// believed, and kept as history in `X-Forwarded-For`.
fn forwarded(
    headers: &mut HeaderMap,
    resource: &Resource,
    connection: &ClientConnection,
    host: Option<HeaderValue>,
) {
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static(resource.scheme));
    if let Some(host) = host {
        headers.insert(FORWARDED_HOST, host);
    }
    headers.append(FORWARDED_FOR, connection.address().clone());
}

/// Fields that only peers say of themselves.
pub(crate) static PEERS_ONLY: [HeaderName; 3] = [REFUSED, LARGE, PIECE];

/// Asks the site's origins when it is the client's turn, one after another where that is safe, until one
/// answers; or the servers that its policy chooses.
pub(crate) async fn to_origin(
    node: &Node,
    site: &Site,
    head: &mut UpstreamHead,
    mut body: RequestBody,
) -> Result<UpstreamResponse, Failed> {
    let safe = head.method.is_safe() && body.is_none();
    if let Some(host) = &site.origin_host {
        head.headers.insert(HOST, host.clone());
    }
    if let Some(switch) = &site.switch {
        return Box::pin(switch::to_server(node, site, switch, head, body)).await;
    }
    let mut miss = Some(site.misses.enter(head.client).await?);
    let mut failed = Failed::from(Failure::AllDown);
    for (tried, origin) in
        site.origins_in_order().take(node.settings.limits.tries as usize).enumerate()
    {
        if tried > 0 && !site.may_retry(&node.clock) {
            break;
        }
        let sending = std::mem::replace(&mut body, RequestBody::None);
        match origin.server.exchange(head, sending).await {
            Ok(mut exchange) => {
                // Only a peer says so of itself.
                strip_fields(exchange.headers_mut(), &PEERS_ONLY);
                if let Some(miss) = miss.take() {
                    exchange.body_mut().hold(miss);
                }
                origin.report_outcome(None);
                node.metrics.upstream("origin", exchange.status());
                return Ok(exchange);
            }
            Err(failure) => {
                origin.report_outcome(Some(failure));
                node.metrics.upstream_failure("origin", failure);
                let origin = &origin.server.name;
                tracing::info!(%origin, reason = failure.as_str(), "origin failed");
                failed = Failed { failure, next_hop: Some(origin.clone()) };
            }
        }
        if !safe || !failed.failure.worth_retrying() {
            break;
        }
    }
    Err(failed)
}

/// Asks the chosen peer, and those that the policy chooses after it, until one answers.
///
/// Only requests without a body that are safe to repeat come here, and only until the first byte of an
/// answer's head. The passage counts as outstanding at the peer that is being asked.
///
/// `None` when the request is this node's to serve: by choice, or because the peers failed.
pub(crate) async fn to_peer(
    node: &Arc<Node>,
    peers: &Arc<Peers>,
    context: &RequestContext,
    first: Pick,
    record: &mut AccessRecord,
) -> Option<(UpstreamResponse, Pick)> {
    let mut pick = first;
    if pick.node == peers.me() {
        return None;
    }
    let (mut head, resource) =
        (onward(node, context, context.parts.headers.clone()), &context.resource);
    large::address(&mut head, context);
    let mut tried: Vec<NodeIndex> = Vec::new();
    while pick.node != peers.me() {
        record.outstanding = Some(peers.loads().begin(pick.node));
        let failure = match ask(peers, pick.node, &head).await {
            Ok(mut exchange) => {
                peers.report_outcome(pick.node, None);
                node.metrics.upstream("peer", exchange.status());
                if resource.piece.is_some() {
                    exchange.body_mut().read_at_most(large::READ);
                }
                return Some((exchange, pick));
            }
            Err(failure) => failure,
        };
        record.outstanding = None;
        peers.report_outcome(pick.node, Some(failure));
        node.metrics.upstream_failure("peer", failure);
        let peer = &peers.server(pick.node).name;
        tracing::info!(%peer, reason = failure.as_str(), "peer failed");
        tried.push(pick.node);
        pick = next(node, peers, resource, &tried);
        record.decided(resource, pick);
    }
    None
}

async fn ask(
    peers: &Peers,
    peer: NodeIndex,
    head: &UpstreamHead,
) -> Result<UpstreamResponse, Failure> {
    let server = peers.server(peer);
    let exchange = server.exchange(&peers.address_to(server, head), RequestBody::None).await?;
    match exchange.headers().contains_key(REFUSED) {
        true => Err(Failure::PeerFull),
        false => Ok(exchange),
    }
}

/// The policy's choice among the nodes that have not been tried; this node when the tries or the
/// budget are used up: it can always ask the origin itself.
fn next(node: &Node, peers: &Peers, resource: &Resource, tried: &[NodeIndex]) -> Pick {
    let here = Pick {
        node: peers.me(),
        reason: levada_policy::PickReason::Retry,
        set_size: tried.len() as u32,
    };
    let last = tried.len() + 1 >= node.settings.limits.tries as usize;
    if last || !resource.site.may_retry(&node.clock) {
        return here;
    }
    let avoided = resource.piece.iter().flat_map(|piece| &piece.avoided);
    let avoided: Vec<NodeIndex> = avoided.chain(tried).copied().collect();
    let rest = peers.cluster().without(&avoided);
    let request = PolicyRequest::new(resource.key);
    resource.decider().pick(&request, &rest, node.clock.now()).map_or(here, retried)
}
