//! The life of a request, top to bottom: identify, redirect, look up, fill, respond.
//!
//! Read [`serve`] first. Every stage returns a value; this file owns all branching between them.

use std::{sync::Arc, time::Duration};

use http::{
    HeaderMap, Method, Request, Response, StatusCode, Version,
    header::{ACCEPT_RANGES, ETAG},
};
use hyper::body::{Body, Incoming};
use levada_access::{access::Access, client_network, memory_bound::MemoryPressure, pass};
use levada_body::{BlockedBody, FetchLeader, FlightStart, ReadError, partial};
use levada_cache::{
    CacheStatus, ForwardReason, Freshness, OriginFailure, RequestCacheFields, RequestDirectives,
    ServeDecision, serve_instead_of_error, strip_request,
};
use levada_compress::Accepts;
use levada_failure::{Failed, Failure};
use levada_http1::{ZeroCopyQueue, check_parsed, max_forwards};
use levada_metrics::CacheResult;
use levada_peers::{Membership, PROBE};
use levada_policy::{NodeIndex, Pick};
use levada_redirector::SwitchMetrics;
use levada_rules::{Adjustments, CacheUse};
use levada_store::{Label, NodeName, Object};
use levada_types::{Request as PolicyRequest, ServiceClass};
use levada_upstream::{Relay, RequestBody, ServerFailure, UpstreamHead, UpstreamResponse};

use crate::{
    access_record::AccessRecord,
    adjust::{self, Adjusting},
    body::{ResponseBody, Source},
    cache::{
        Cache,
        fetch::Fetch,
        fill::{FetchOutcome, FillFollower},
        lookup::{FillRequest, LookupResult, PartRequest, lookup, recall},
        part_origin,
        posted::Posted,
        rest, stored,
    },
    client_connection::{ClientConnection, ListenerKind},
    clock,
    compress::{self, CodedCopy, Original},
    connection::{self, head_bounds},
    crossing,
    effects::Effects,
    error_page, files, large,
    node::Node,
    purge::{self, exchange, invalidation},
    request::RequestContext,
    resource::Resource,
    respond, subject,
};

pub(crate) type PipelineResult = Result<Response<ResponseBody>, Failed>;

/// Answers one request.
///
/// Futures that wait for a server are boxed, and a request is admitted before its future exists: a
/// future is moved whole before it first runs, and a hit must not pay for the size of other paths.
pub(crate) fn serve<'a>(
    node: &'a Arc<Node>,
    connection: &'a Arc<ClientConnection>,
    request: Request<Incoming>,
) -> impl Future<Output = Response<ResponseBody>> + Send + use<'a> {
    let record = AccessRecord::begin(&node.telemetry, connection.listener == ListenerKind::Peer);
    let admission = admit(node, connection, request);
    answer(node, connection, admission, record)
}

async fn answer(
    node: &Arc<Node>,
    connection: &ClientConnection,
    admission: Admitted,
    mut record: Box<AccessRecord>,
) -> Response<ResponseBody> {
    let (mut is_get, mut client) = (false, connection.client);
    let answer = match admission {
        Admitted::Context(context) => {
            if node.purging.stood_still() {
                Box::pin(node.purging.wake()).await;
            }
            record.note(&context);
            client = context.client;
            is_get = context.parts.method == Method::GET;
            match context.resource.handling.adjustments.clone() {
                None => admitted(node, context, &mut record).await,
                Some(with) => Box::pin(adjusted(node, &with, context, &mut record)).await,
            }
        }
        Admitted::Answered(response) => Ok(*response),
        Admitted::Purging(message) => {
            let answer = Box::pin(node.purging.handle_peer(*message)).await;
            Ok(answer.into_response(ResponseBody::text))
        }
        Admitted::Refused(failure) => Err(failure.into()),
    };
    let mut response = answer.unwrap_or_else(|failed| {
        record.failed(client, &failed);
        respond::failure(&node.name, &failed)
    });
    record.head(response.status());
    if is_get && connection.listener != ListenerKind::Peer && can_be_resumed(&response) {
        response.body_mut().may_move(&node.drain);
    }
    response.body_mut().take_along(record);
    response
}

/// Answers a request that its site or route changes, or whose response they change.
async fn adjusted(
    node: &Arc<Node>,
    with: &Adjustments,
    mut context: Box<RequestContext>,
    record: &mut AccessRecord,
) -> PipelineResult {
    let client = context.client;
    let adjusting = Adjusting::begin(node, with, &mut context, record);
    let page = if with.pages.is_empty() { None } else { error_page::Asked::of(&context) };
    let answer = match adjust::closed(with, &context, record) {
        Some(response) => Ok(response),
        None => admitted(node, context, record).await,
    };
    let has_failed = answer.is_err();
    let mut response = answer.unwrap_or_else(|failed| {
        record.failed(client, &failed);
        respond::failure(&node.name, &failed)
    });
    if let Some(page) = page {
        page.replace(node, &with.pages, has_failed, &mut response).await;
    }
    adjusting.finish(&mut response, record.cache);
    Ok(response)
}

/// Answers an admitted request.
async fn admitted(
    node: &Arc<Node>,
    mut context: Box<RequestContext>,
    record: &mut AccessRecord,
) -> PipelineResult {
    match crossing::rules(&mut context) {
        None => route(node, context, record).await,
        Some(access) => Box::pin(bounded(node, access, context, record)).await,
    }
}

/// Routes a request of a site with rules of access, if they let it pass.
async fn bounded(
    node: &Arc<Node>,
    access: Arc<Access>,
    mut context: Box<RequestContext>,
    record: &mut AccessRecord,
) -> PipelineResult {
    let client = context.client;
    let granted = match crossing::cross(node, &access, &mut context, record).await {
        Ok(granted) => granted,
        Err(answer) => return Ok(crossing::answer(node, client, *answer, record)),
    };
    match route(node, context, record).await {
        Ok(mut response) => {
            granted.add_to(&mut response);
            Ok(response)
        }
        Err(failed) => Err(granted.failed(failed)),
    }
}

/// Whether a client that has a part of the response can request the rest from another node. A response
/// that is not stored may differ each time, unless a validator identifies its version.
fn can_be_resumed(response: &Response<ResponseBody>) -> bool {
    let is_resumable =
        || [ACCEPT_RANGES, ETAG].iter().any(|name| response.headers().contains_key(name));
    match response.status() {
        StatusCode::PARTIAL_CONTENT => true,
        StatusCode::OK => !response.body().passes_by() || is_resumable(),
        _ => false,
    }
}

enum Admitted {
    Context(Box<RequestContext>),
    Answered(Box<Response<ResponseBody>>),
    /// A message about purges from a peer.
    Purging(Box<Request<Incoming>>),
    Refused(Failure),
}

/// Checks whether the client may send this request.
fn admit(
    node: &Node,
    connection: &Arc<ClientConnection>,
    mut request: Request<Incoming>,
) -> Admitted {
    if request.version() == Version::HTTP_2
        && let Err(fault) =
            check_parsed(&request, head_bounds(&node.settings().limits, connection.listener))
    {
        return Admitted::Refused(Failure::Malformed(fault));
    }
    if connection.listener == ListenerKind::Peer {
        if !connection.is_peer {
            return Admitted::Refused(Failure::NoPeer);
        }
        let is_about_purges = [exchange::PATH, invalidation::PATH].contains(&request.uri().path());
        if is_about_purges && *request.method() == Method::POST {
            return Admitted::Purging(Box::new(request));
        }
        if !node.purging.serves() {
            return Admitted::Refused(Failure::Starting);
        }
        if request.uri().path() == PROBE {
            let well = respond::plain(StatusCode::OK, "well\n".to_owned());
            return Admitted::Answered(Box::new(well));
        }
    }
    if node.memory.pressure() == MemoryPressure::Full {
        return Admitted::Refused(Failure::Overload);
    }
    let is_peer = connection.listener == ListenerKind::Peer;
    let client = node.trust.load().cross(connection.client, is_peer, request.headers_mut());
    if *request.method() == Method::OPTIONS && request.uri().path() == "*" {
        return Admitted::Answered(Box::new(respond::options()));
    }
    let resource = match node.identifier.load().identify(connection.listener, client, &request) {
        Ok(resource) => resource,
        Err(failure) => return Admitted::Refused(failure),
    };
    let (mut parts, body) = request.into_parts();
    // Before a key is made or a variant is selected: fields that the origin does not see must not
    // select one.
    strip_request(&mut parts.headers);
    let resource = resource.keyed(client, &parts);
    connection.set_last_key(resource.key);
    if max_forwards::ends_here(&parts.method, &mut parts.headers) {
        return Admitted::Answered(Box::new(respond::options()));
    }
    let wants = RequestCacheFields::of(&parts.headers);
    if wants.range && node.given_up.returns(connection.client, resource.key) {
        node.metrics.dormant_returned.inc();
    }
    let head_is_enough = large::asks_for_head(connection.listener, &parts.headers);
    let anew = head_is_enough && large::asks_anew(&parts.headers);
    let body = (!body.is_end_stream()).then_some(body);
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
        head_is_enough,
        anew,
        zero_copy,
    };
    Admitted::Context(Box::new(context))
}

/// Routes the request: served on this node, by a peer through this node, or by a peer after a redirect.
async fn route(
    node: &Arc<Node>,
    context: Box<RequestContext>,
    record: &mut AccessRecord,
) -> PipelineResult {
    let RequestContext { resource, parts, .. } = &*context;
    if parts.method.as_str() == purge::endpoint::METHOD {
        let answer = Box::pin(node.purging.handle_client(resource, &parts.headers)).await;
        return Ok(answer.into_response(ResponseBody::text));
    }
    if let Some(answer) = &resource.answer {
        return Ok(respond::route(answer));
    }
    if resource.site.files.is_some() {
        return Box::pin(files::serve(node, context, record)).await;
    }
    resource.site.count();
    if large::may_be(&context) {
        let dispatch: Arc<dyn large::Dispatch> = node.clone();
        return Box::pin(large::serve(&node.large, context, record, &dispatch)).await;
    }
    dispatch(node, context, record).await
}

impl large::Dispatch for Node {
    fn dispatch<'a>(
        self: Arc<Self>,
        context: Box<RequestContext>,
        record: &'a mut AccessRecord,
    ) -> large::Dispatched<'a> {
        Box::pin(async move { dispatch(&self, context, record).await })
    }
}

/// Dispatches a request for an ordinary object, for a piece of a large file, or for the head of one.
async fn dispatch(
    node: &Arc<Node>,
    context: Box<RequestContext>,
    record: &mut AccessRecord,
) -> PipelineResult {
    let RequestContext { connection, resource, parts, body, .. } = &*context;
    // A request that was forwarded once is served on this node. An unsafe request goes to the origin. A
    // site with a switch has its own servers.
    let settled = connection.listener == ListenerKind::Peer
        || resource.passed
        || resource.site.switch.is_some();
    let peers =
        node.peers.as_ref().filter(|_| !settled && parts.method.is_safe() && body.is_none());
    let Some(peers) = peers else {
        return serve_locally(node, context, record).await;
    };
    let (class, _) = subject::class(&resource.site, resource, parts, &parts.headers);
    let (pick, chosen) = {
        let now = peers.now();
        let pick = redirect(node, &now, resource, class)?;
        record.decided(resource, pick, now.member(pick.node).slot);
        let is_me = pick.node == now.me();
        if resource.site.redirects() && resource.piece.is_none() && !is_me {
            return redirect_client(&now, resource, pick.node);
        }
        if is_me {
            record.outstanding = Some(now.loads().begin(now.me()));
        }
        (pick, (!is_me).then(|| arc_swap::Guard::into_inner(now)))
    };
    if let Some(members) = chosen {
        let sending = node.forwarder.to_peer(peers, members, &context, pick, record);
        if let Some((exchange, pick, head)) = Box::pin(sending).await {
            return Ok(relay(node, &context, (exchange, head), pick, record));
        }
        let now = peers.now();
        record.outstanding = Some(now.loads().begin(now.me()));
    }
    serve_locally(node, context, record).await
}

/// The node that the policy chooses.
fn redirect(
    node: &Node,
    members: &Membership,
    resource: &Resource,
    class: ServiceClass,
) -> Result<Pick, Failure> {
    let request =
        PolicyRequest { key: resource.key, class, size: node.forwarder.sizes.get(resource.key) };
    let (decider, now) = (resource.decider(), node.clock.now());
    let pick = match &resource.piece {
        Some(piece) if !piece.avoided.is_empty() => decider
            .pick(&request, &members.without(&piece.avoided), now)
            // A slow node is better than none.
            .or_else(|| decider.pick(&request, members.cluster(), now)),
        _ => decider.pick(&request, members.cluster(), now),
    };
    let pick = pick.ok_or(Failure::Server(ServerFailure::AllDown))?;
    node.metrics.decision(decider.name(), pick);
    Ok(pick)
}

/// Redirects the client to the chosen node, with a signed pass.
fn redirect_client(members: &Membership, resource: &Resource, chosen: NodeIndex) -> PipelineResult {
    let (Some(base), Some(secret)) = (members.client_url(chosen), members.secret()) else {
        return Err(Failure::Server(ServerFailure::AllDown).into());
    };
    let name = &members.member(chosen).server.name;
    let target =
        pass::issue(secret, name, resource.host(), resource.target(), clock::unix_seconds());
    let location = format!("{}{target}", base.trim_end_matches('/'));
    respond::redirect_client(&location).ok_or_else(|| Failure::BadHost.into())
}

/// Forwards a peer's answer.
fn relay(
    node: &Node,
    context: &RequestContext,
    (exchange, head): (UpstreamResponse, UpstreamHead),
    pick: Pick,
    record: &mut AccessRecord,
) -> Response<ResponseBody> {
    let RequestContext { resource, zero_copy, .. } = context;
    let peer = exchange.body().server().name.clone();
    let mut response = passed_on(node, (exchange, Some(head)), resource, zero_copy.as_ref());
    respond::next_hop(&node.name, response.headers_mut(), &peer, resource, pick);
    if let Some(size) = large::stated_size(response.status(), response.headers()) {
        node.forwarder.sizes.learn(resource.key, size);
    }
    record.relayed_by(peer, pick);
    response
}

/// Serves the request on this node: from its store, by a fetch, or from the origin for this request
/// alone.
async fn serve_locally(
    node: &Arc<Node>,
    mut context: Box<RequestContext>,
    record: &mut AccessRecord,
) -> PipelineResult {
    context.edits = adjust::request_edits(&context);
    compress::negotiate(&mut context);
    apply_caching_rules(&mut context);
    if let Some(edits) = &context.edits {
        edits.apply_to_received(&mut context.parts.headers);
    }
    let client = client_network::of(context.client);
    let pressure = node.memory.pressure();
    record.in_service = Some(node.capacity.enter(client, pressure).ok_or(Failure::Overload)?);
    let key = context.resource.key;
    let switched = context.resource.site.switch.is_some().then(|| context.resource.clone());
    let mut found = lookup(&node.cache, &context);
    if let LookupResult::OnDisk = found {
        found = Box::pin(recall(&node.cache, &context)).await;
    }
    let is_asked_for = matches!(found, LookupResult::Fetch(_) | LookupResult::Bypass(..));
    if is_asked_for
        && !node.memory.allows_fetch()
        && !Box::pin(node.memory.makes_room_for_fetch()).await
    {
        return Err(Failure::Overload.into());
    }
    let mut response = match found {
        LookupResult::Stored { object, age, ttl, refresh } => {
            record.cache = CacheResult::Hit;
            if let Some(order) = refresh {
                drop(lead_or_follow(&node.cache, &context, &order));
            }
            let status = CacheStatus { ttl: Some(ttl), ..CacheStatus::default() };
            let (object, being_made) = coded_copy(&node.cache, &context, object).await;
            match (being_made, object.blocks()) {
                (Some(copy), _) => {
                    Box::pin(from_copy(&node.name, &context, &copy, Some(age), status))
                        .await
                        .map_err(|_| Failure::Server(ServerFailure::NoResponse))?
                }
                (None, None) => stored::answer(&node.name, &context, &object, Some(age), &status),
                (None, Some(_)) if large::head_is_enough(&node.cache, &context, &object) => {
                    large::head(&node.name, &context, &object, Some(age), status)
                }
                (None, Some(_)) => {
                    Box::pin(in_blocks(node, context, object, age, status, record)).await?
                }
            }
        }
        LookupResult::Fetch(order) if context.cache_use == CacheUse::ReadOnly => {
            record.cache = CacheResult::Bypass;
            Box::pin(pass(node, context, order.why, "no-store-rule", record)).await?
        }
        LookupResult::Fetch(order) => {
            Box::pin(serve_from_fill(node, context, order, record)).await?
        }
        LookupResult::Bypass(why, detail) => {
            record.cache = CacheResult::Bypass;
            Box::pin(bypass(node, context, why, detail, record)).await?
        }
        LookupResult::Nothing | LookupResult::OnDisk => return Err(Failure::OnlyIfCached.into()),
    };
    if let Some(resource) = &switched
        && let Some(chosen) = record.chosen.take()
    {
        respond::server(&node.name, response.headers_mut(), resource, &chosen);
        record.switched_to(chosen);
    }
    if (node.peers.is_some() || switched.is_some())
        && let Some(size) = large::stated_size(response.status(), response.headers())
    {
        node.forwarder.sizes.learn(key, size);
    }
    response.body_mut().slow_down(node.pace());
    Ok(response)
}

/// Decides what a request does with the cache, and removes cookies that must not count.
fn apply_caching_rules(context: &mut RequestContext) {
    let RequestContext { client, resource, parts, cache_use, .. } = context;
    let Some(rules) = &resource.handling.caching else { return };
    if levada_cache::is_cache_method(&parts.method) {
        let facts = || resource.facts(*client, &parts.method, &parts.headers);
        *cache_use = rules.cache_use(resource.target(), &parts.headers, facts);
        if *cache_use == CacheUse::Full {
            rules.strip_request(&mut parts.headers);
        }
    }
}

/// Serves a stored response in blocks, some of which may have to be fetched. If one of them cannot be
/// fetched, the object is fetched anew.
async fn in_blocks(
    node: &Arc<Node>,
    context: Box<RequestContext>,
    object: Arc<Object>,
    age: u32,
    mut status: CacheStatus<'_>,
    record: &mut AccessRecord,
) -> PipelineResult {
    let body = part_origin::stored(&node.cache, &context, &object, context.zero_copy.as_ref());
    match stored::from_blocks(&node.name, &context.parts, &body, Some(age), &mut status).await {
        Ok(response) => {
            if status.forwarded.is_some() {
                record.cache = CacheResult::Miss;
            }
            return Ok(response);
        }
        Err(error) => match Failure::of_fetch(&error) {
            Some(failure) => return Err(failure.into()),
            None => node.cache.store.remove(context.resource.key),
        },
    }
    let part =
        partial::first_byte(&context.parts).map(|first| PartRequest::Block(first / body.of.block));
    let part = part.filter(|_| body.origin().is_some());
    let order = FillRequest { part, ..FillRequest::of(context.resource.key) };
    serve_from_fill(node, context, order, record).await
}

/// Follows the fetch of an object, or leads one. `None` when another URI is being fetched
/// under the same key.
fn lead_or_follow(
    cache: &Arc<Cache>,
    context: &RequestContext,
    order: &FillRequest,
) -> Option<(FillFollower, Option<FetchLeader>)> {
    let (identity, site) = (&context.resource.identity, context.resource.site.id);
    let pending = cache.purges.begin();
    let start = FlightStart::now(Label::new(site, pending.born()), pending.begun());
    let late = context.resource.site.fetch_is_late_after();
    let may_follow = |start: &FlightStart, outcome: Option<&FetchOutcome>| {
        if outcome.is_none() && start.since.elapsed() >= late {
            return false;
        }
        let label = outcome.and_then(FetchOutcome::label).unwrap_or(&start.label);
        cache.purges.may_follow(label, start.begun, identity)
    };
    let (follower, leader) = if order.detached {
        let (follower, leader) = cache.fills.detached(order.key, identity, start);
        (follower, Some(leader))
    } else {
        cache.fills.join(order.key, identity, start, may_follow)?
    };
    let lead = leader.map(|leader| {
        let identity = leader.identity().clone();
        let fetch = Fetch::new(cache, context, order.clone(), identity, pending);
        FetchLeader::new(fetch.run(leader))
    });
    Some((follower, lead))
}

/// Follows a fetch that another request began. If it is late, the request that has waited longest leads another
/// fetch, which the others follow, and the first outcome of both is used.
///
/// Returns whether this request leads the fetch of the outcome.
async fn follow(
    cache: &Arc<Cache>,
    context: &RequestContext,
    order: &FillRequest,
    follower: FillFollower,
) -> (FillFollower, bool, Option<FetchOutcome>) {
    let late = context.resource.site.fetch_is_late_after();
    if let Ok(outcome) = tokio::time::timeout(late, follower.outcome()).await {
        return (follower, false, outcome);
    }
    let Some((other, lead)) = lead_or_follow(cache, context, order) else {
        let outcome = follower.outcome().await;
        return (follower, false, outcome);
    };
    let leader = lead.is_some();
    let others = async {
        match lead {
            Some(lead) => lead.outcome(&other).await,
            None => other.outcome().await,
        }
    };
    tokio::select! {
        outcome = follower.outcome() => (follower, false, outcome),
        outcome = others => {
            outcome.iter().cloned().for_each(|outcome| follower.substitute(outcome));
            (other, leader, outcome)
        }
    }
}

/// Serves from the fill of an object that this request, or an earlier one, began.
async fn serve_from_fill(
    node: &Arc<Node>,
    context: Box<RequestContext>,
    mut order: FillRequest,
    record: &mut AccessRecord,
) -> PipelineResult {
    let (why, stale, directives) = (order.why, order.stored.clone(), order.directives);
    record.cache = if stale.is_some() { CacheResult::Expired } else { CacheResult::Miss };
    if node.forwarder.has_passed(&context.parts.headers) {
        return Box::pin(pass(node, context, why, "loop", record)).await;
    }
    let arrived = node.cache.purges.latest();
    let (follower, leader, outcome) = loop {
        let Some((follower, lead)) = lead_or_follow(&node.cache, &context, &order) else {
            return Box::pin(pass(node, context, why, "collision", record)).await;
        };
        let (follower, leader, outcome) = match lead {
            Some(lead) => {
                let outcome = lead.outcome(&follower).await;
                (follower, true, outcome)
            }
            None => {
                record.cache = CacheResult::Collapsed;
                Box::pin(follow(&node.cache, &context, &order, follower)).await
            }
        };
        let outcome = FetchOutcome::or_failed(outcome);
        // Tags arrive with the head. A fill that began before a purge must not serve requests that
        // arrived after it.
        let begun_before = |label: &Label| label.born() < arrived;
        let outdated = outcome.label().is_some_and(|label| {
            begun_before(label) && !node.cache.purges.may_join(label, &context.resource.identity)
        });
        if leader || !outdated {
            break (follower, leader, outcome);
        }
        let alive = |object: &Arc<Object>| node.cache.purges.may_keep(object);
        order.stored = order.stored.filter(alive);
    };
    let parts = &context.parts;
    // Other requests may share a response only if the store could serve it.
    let mine =
        |object: &Object| leader || may_share(&object.freshness(), object.answers(&parts.headers));
    let mut status = CacheStatus { forwarded: Some(why), collapsed: !leader, ..Default::default() };
    if leader {
        record.chosen = follower.own().chosen.take();
        status.forwarded_status = follower.own().answered;
    }
    if leader
        && matches!(outcome, FetchOutcome::Unshared)
        && let Some(passed) = follower.own().unshared.take()
    {
        status.detail = Some(passed.reason);
        let source = Source::Upstream(Box::new(passed.relay));
        let mut response = Response::from_parts(passed.head, ResponseBody::new(source));
        compress::stream(&node.cache, &context, &mut response);
        finish_passed(&node.cache, &mut response, &status);
        return Ok(response);
    }
    let served = match outcome {
        FetchOutcome::Body(body)
            if leader
                || may_share(&body.of.head.freshness(), body.of.head.answers(&parts.headers)) =>
        {
            let fields = if leader {
                std::mem::take(&mut follower.own().fields)
            } else {
                HeaderMap::default()
            };
            let response = arriving(&node.cache, &context, &body, fields, status).await;
            drop(follower);
            response
        }
        FetchOutcome::Renewed(object) if mine(&object) => {
            record.cache = CacheResult::Revalidated;
            whole_or_head(&node.cache, &context, &object, status).await
        }
        FetchOutcome::Large(object) if mine(&object) => {
            status.stored = true;
            whole_or_head(&node.cache, &context, &object, status).await
        }
        FetchOutcome::Failed(failed) => {
            let Some((object, age, status)) =
                stale.as_ref().and_then(|object| bridge(object, &directives, &failed, status))
            else {
                return Err(failed);
            };
            let bridged = from_object(&node.cache, &context, object, Some(age), status).await;
            return bridged.map_err(|_| failed);
        }
        // The fetched response is not for this request, which gets one of its own. Release the leader's
        // response first.
        _ => {
            drop(follower);
            Err(ReadError::Gone)
        }
    };
    match served {
        Ok(response) => Ok(response),
        Err(_) => Box::pin(pass(node, context, why, "not-shared", record)).await,
    }
}

/// A response on its way into the store, or its coded copy. The leader's client also gets its `own` fields.
async fn arriving(
    cache: &Arc<Cache>,
    context: &RequestContext,
    body: &Arc<BlockedBody>,
    own: HeaderMap,
    status: CacheStatus<'static>,
) -> Result<Response<ResponseBody>, ReadError> {
    let copy = match context.accepts.is_empty() {
        true => None,
        false => Box::pin(compress::copy(cache, context, Original::Arriving(body))).await,
    };
    let body = match &copy {
        Some(CodedCopy::Stored(copy)) => {
            return from_object(cache, context, copy, None, status).await;
        }
        Some(CodedCopy::Arriving(copy)) => copy,
        None => body,
    };
    stored::arriving(&cache.forwarder.name, &context.parts, body, own, status).await
}

/// The response with an object that a fetch has renewed or found to be large: its head alone, where
/// that is enough.
async fn whole_or_head(
    cache: &Arc<Cache>,
    context: &RequestContext,
    object: &Arc<Object>,
    status: CacheStatus<'static>,
) -> Result<Response<ResponseBody>, ReadError> {
    if large::head_is_enough(cache, context, object) {
        return Ok(large::head(&cache.forwarder.name, context, object, None, status));
    }
    from_object(cache, context, object, None, status).await
}

/// A stored response, wherever its body is, unless that cannot be had.
async fn from_object(
    cache: &Arc<Cache>,
    context: &RequestContext,
    object: &Arc<Object>,
    age: Option<u32>,
    mut status: CacheStatus<'static>,
) -> Result<Response<ResponseBody>, ReadError> {
    let (object, being_made) = coded_copy(cache, context, object.clone()).await;
    if let Some(copy) = being_made {
        return from_copy(&cache.forwarder.name, context, &copy, age, status).await;
    }
    if object.blocks().is_none() {
        return Ok(stored::answer(&cache.forwarder.name, context, &object, age, &status));
    }
    let body = part_origin::stored(cache, context, &object, context.zero_copy.as_ref());
    stored::from_blocks(&cache.forwarder.name, &context.parts, &body, age, &mut status).await
}

/// The coded copy of a stored response, where its client gets one that is stored; otherwise the response itself, with
/// a copy that is being made.
async fn coded_copy(
    cache: &Arc<Cache>,
    context: &RequestContext,
    object: Arc<Object>,
) -> (Arc<Object>, Option<Arc<BlockedBody>>) {
    if context.accepts.is_empty() {
        return (object, None);
    }
    match Box::pin(compress::copy(cache, context, Original::Stored(&object))).await {
        None => (object, None),
        Some(CodedCopy::Stored(copy)) => (copy, None),
        Some(CodedCopy::Arriving(copy)) => (object, Some(copy)),
    }
}

/// A response with a coded copy that is being made.
async fn from_copy(
    name: &NodeName,
    context: &RequestContext,
    copy: &Arc<BlockedBody>,
    age: Option<u32>,
    mut status: CacheStatus<'static>,
) -> Result<Response<ResponseBody>, ReadError> {
    stored::from_blocks(name, &context.parts, copy, age, &mut status).await
}

/// A stored response in place of the origin's failed one, where that is allowed, with its age and its
/// `Cache-Status`.
fn bridge<'a, 's>(
    object: &'a Arc<Object>,
    directives: &RequestDirectives,
    failed: &Failed,
    status: CacheStatus<'s>,
) -> Option<(&'a Arc<Object>, u32, CacheStatus<'s>)> {
    let (trouble, answered) = match failed.failure {
        Failure::ErrorAnswer(status) => (OriginFailure::Error, Some(status.as_u16())),
        _ => (OriginFailure::Unreachable, None),
    };
    let freshness = &object.freshness();
    let (age, ttl) = match serve_instead_of_error(freshness, directives, trouble, clock::wall())? {
        ServeDecision::Fresh { age, ttl } | ServeDecision::Stale { age, ttl, .. } => (age, ttl),
        ServeDecision::Validate | ServeDecision::GatewayTimeout => return None,
    };
    let status = CacheStatus {
        forwarded_status: answered.filter(|_| !status.collapsed),
        ttl: Some(ttl),
        detail: Some(trouble.as_str()),
        ..status
    };
    Some((object, age, status))
}

/// Whether a response that was fetched for another request may answer this one: it must be the right
/// variant, and one that the store could have served (RFC 9111 Sec. 4).
fn may_share(freshness: &Freshness, right_variant: bool) -> bool {
    let directives = RequestDirectives::default();
    let stored = levada_cache::serve(freshness, &directives, clock::wall());
    right_variant && matches!(stored, ServeDecision::Fresh { .. } | ServeDecision::Stale { .. })
}

/// Gets a response from the origin for this request alone. The request has no body.
async fn pass(
    node: &Node,
    mut context: Box<RequestContext>,
    why: ForwardReason,
    detail: &'static str,
    record: &mut AccessRecord,
) -> PipelineResult {
    let headers = std::mem::take(&mut context.parts.headers);
    let mut head = node.forwarder.onward(&context, headers);
    compress::ask_for_originals(&context, &mut head.headers);
    let site = &context.resource.site;
    let mut exchange = node.forwarder.to_origin(site, &mut head, RequestBody::None).await?;
    record.chosen = exchange.extensions_mut().remove();
    Ok(from_origin(node, (exchange, Some(head)), &context, why, detail))
}

/// Bypasses the cache, with the request's body.
async fn bypass(
    node: &Arc<Node>,
    mut context: Box<RequestContext>,
    why: ForwardReason,
    detail: &'static str,
    record: &mut AccessRecord,
) -> PipelineResult {
    let effects = Effects::of(&context.parts.method, &context.parts.headers);
    // Boxed, since few requests have it and every bypassed request would carry its size.
    let posted = Posted::of(&node.cache, &context).map(Box::new);
    let headers = std::mem::take(&mut context.parts.headers);
    let mut head = node.forwarder.onward(&context, headers);
    compress::ask_for_originals(&context, &mut head.headers);
    // Over HTTP/1.1 the guard's deadline is a little shorter, and it can still send an error.
    let mut patience = self::connection::limits(&node.settings().limits).body;
    patience.time += Duration::from_secs(1);
    let bound = context.body_bound.take();
    let read = |body| RequestBody::client(body, bound, patience);
    let mut body = context.body.take().map_or(RequestBody::None, read);
    let resource = &context.resource;
    if let Some(key) = subject::body_key(&resource.site, &mut body).await? {
        head.subject.key = key;
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
fn from_origin(
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
fn passed_on(
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
    levada_cache::strip_response(&mut parts.headers);
    let mut relay = Relay::new(body, node.settings().limits.response_body_timeout);
    if let Some(head) = head.filter(|head| head.method == Method::GET)
        && resource.piece.is_none()
        && !compress::may_be_coded(resource, &parts.headers)
    {
        let of = (&resource.site, resource.key, &*resource.identity);
        rest::heal(&mut relay, &node.cache, of, (parts.status, &parts.headers), || head);
    }
    node.cache.purges.strip(&mut parts.headers);
    respond::via(&node.name, &mut parts.headers);
    Response::from_parts(parts, ResponseBody::new(Source::Upstream(Box::new(relay))))
}

fn finish_passed(cache: &Cache, response: &mut Response<ResponseBody>, status: &CacheStatus<'_>) {
    let name = &cache.forwarder.name;
    cache.purges.strip(response.headers_mut());
    respond::via(name, response.headers_mut());
    status.append_to(response.headers_mut(), &name.cache);
}
