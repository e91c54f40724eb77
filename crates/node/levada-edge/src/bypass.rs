//! Responses that pass by the cache: of a server for one request alone.

use std::{sync::Arc, time::Duration};

use http::{Method, Response, StatusCode, header::TRAILER};
use levada_cache::{CacheStatus, ForwardReason};
use levada_failure::{Failure, grpc};
use levada_http::ZeroCopyQueue;
use levada_redirector::InBody;
use levada_upstream::{Relay, RequestBody, ServerFailure, UpstreamHead, UpstreamResponse};

use crate::{
    access_record::AccessRecord,
    body::{ResponseBody, Source},
    cache::{Cache, copies::arriving, fill::FetchOutcome, posted::Posted, rest},
    compress,
    effects::Effects,
    node::Node,
    request::RequestContext,
    resource::Resource,
    respond::PipelineResult,
};

/// Gets a response from the origin for this request alone. The request has no body.
pub(crate) async fn pass(
    node: &Node,
    mut context: Box<RequestContext>,
    why: ForwardReason,
    detail: &'static str,
    record: &mut AccessRecord,
) -> PipelineResult {
    let headers = std::mem::take(&mut context.parts.headers);
    let mut head = node.forwarder.onward(&context, headers);
    compress::ask_for_originals(&context, &mut head.headers);
    head.takes_trailers = context.takes_trailers;
    let site = &context.resource.site;
    let mut exchange = node.forwarder.to_origin(site, &mut head, RequestBody::None).await?;
    record.chosen = exchange.extensions_mut().remove();
    Ok(from_origin(node, (exchange, Some(head)), &context, why, detail))
}

/// Bypasses the cache, with the request's body.
pub(crate) async fn bypass(
    node: &Arc<Node>,
    mut context: Box<RequestContext>,
    why: ForwardReason,
    detail: &'static str,
    record: &mut AccessRecord,
) -> PipelineResult {
    let effects = Effects::of(&context);
    // Boxed, since few requests have it and every bypassed request would carry its size.
    let posted = Posted::of(&node.cache, &context).map(Box::new);
    let headers = std::mem::take(&mut context.parts.headers);
    let mut head = node.forwarder.onward(&context, headers);
    compress::ask_for_originals(&context, &mut head.headers);
    head.takes_trailers = context.takes_trailers;
    // Over HTTP/1.1 the connection's deadline is a little shorter, and it can still send an error.
    let mut patience = node.settings().limits.of_connection().body;
    patience.time += Duration::from_secs(1);
    if grpc::is_call(&context.parts) {
        // Its client sends messages when there are some.
        patience.min_rate = 0;
    }
    let bound = context.body_bound.take();
    let read = |body| RequestBody::client(body, bound, patience);
    let mut body = context.body.take().map_or(RequestBody::None, read);
    let resource = &context.resource;
    match resource.site.settings.servers.key_from().in_body(&mut body).await? {
        InBody::Key(key) => head.subject.key = key,
        InBody::OfUrl => {}
        InBody::Missing => resource.site.fallbacks.inc(),
    }
    let mut exchange = node.forwarder.to_origin(&resource.site, &mut head, body).await?;
    record.chosen = exchange.extensions_mut().remove();
    let kept = posted.and_then(|posted| posted.judge(&node.cache, resource, &exchange));
    let invalid = effects.take(&node.cache, resource, exchange.status(), exchange.headers());
    let (growing, head) = match kept {
        Some(kept) => (kept.begin(&node.cache, resource, head).map(Box::new), None),
        None => (None, Some(head)),
    };
    if !invalid.is_empty() {
        Box::pin(node.purging.propagate_invalidation(invalid)).await;
    }
    match growing {
        Some(growing) => {
            let follower = growing.receive(exchange);
            let no_response = Failure::Server(ServerFailure::NoResponse);
            let Some(FetchOutcome::Body(body)) = follower.outcome().await else {
                return Err(no_response.into());
            };
            let own = std::mem::take(&mut follower.own().fields);
            let forwarded = Some(why);
            let status = CacheStatus { forwarded, detail: Some(detail), ..CacheStatus::default() };
            let response = Box::pin(arriving(&node.cache, &context, &body, own, status)).await;
            Ok(response.map_err(|_| no_response)?)
        }
        None => Ok(from_origin(node, (exchange, head), &context, why, detail)),
    }
}

/// The origin's answer to one request that is not shared.
pub(crate) fn from_origin(
    node: &Node,
    (mut exchange, head): (UpstreamResponse, Option<UpstreamHead>),
    context: &RequestContext,
    why: ForwardReason,
    detail: &'static str,
) -> Response<ResponseBody> {
    let status = CacheStatus {
        forwarded: Some(why),
        forwarded_status: Some(exchange.status().as_u16()),
        detail: Some(detail),
        ..CacheStatus::default()
    };
    let streams = compress::streams(context, exchange.status(), exchange.headers());
    let zero_copy = context.zero_copy.as_ref().filter(|_| !streams);
    if let Some(head) = head.as_ref().filter(|_| exchange.status() == StatusCode::NOT_MODIFIED) {
        context.accepts.name_as_held(&head.headers, exchange.headers_mut());
    }
    let mut response = passed_on(node, (exchange, head), &context.resource, zero_copy);
    compress::stream(&node.cache, context, &mut response);
    status.append_to(response.headers_mut(), &node.name.cache);
    response
}

/// Forwards a server's answer to the client: end-to-end fields only, and this node in `Via`. The kernel
/// moves a long body where that is possible (splice). A body that breaks off goes on at the origin.
pub(crate) fn passed_on(
    node: &Node,
    (exchange, head): (UpstreamResponse, Option<UpstreamHead>),
    resource: &Resource,
    zero_copy: Option<&Arc<ZeroCopyQueue>>,
) -> Response<ResponseBody> {
    let (mut parts, mut body) = exchange.into_parts();
    if let Some(zero_copy) = zero_copy.filter(|_| node.settings().splice)
        && body.convey(zero_copy)
    {
        node.metrics.spliced.inc();
    }
    // Over HTTP/1.1 trailers come behind a body in chunks only, whose length is not known.
    let trailer = body.size_hint().exact().map_or_else(|| parts.headers.remove(TRAILER), |_| None);
    levada_cache::strip_response(&mut parts.headers);
    parts.headers.extend(trailer.map(|names| (TRAILER, names)));
    let mut relay = Relay::new(body, node.settings().limits.response_body_timeout);
    if let Some(head) = head.filter(|head| head.method == Method::GET)
        && resource.piece.is_none()
        && !compress::may_be_coded(resource, &parts.headers)
    {
        let of = (&resource.site, resource.key(), resource.identity());
        rest::heal(&mut relay, &node.cache, of, (parts.status, &parts.headers), || head);
    }
    node.cache.purges.strip(&mut parts.headers);
    node.name.add_via(&mut parts.headers);
    Response::from_parts(parts, ResponseBody::new(Source::Upstream(Box::new(relay))))
}

/// Completes the head of a response that was fetched for the cache and passes by it.
pub(crate) fn finish_passed(
    cache: &Cache,
    response: &mut Response<ResponseBody>,
    status: &CacheStatus<'_>,
) {
    let name = &cache.forwarder.name;
    cache.purges.strip(response.headers_mut());
    name.add_via(response.headers_mut());
    status.append_to(response.headers_mut(), &name.cache);
}
