//! The life of a request, top to bottom: identify, redirect, look up, fill, respond.
//!
//! Read [`serve`] first. Every stage returns a value; this file owns all branching between them.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::SystemTime,
};

use http::{
    HeaderMap, Method, Request, Response, StatusCode,
    header::{ACCEPT_RANGES, ALT_SVC, ETAG},
};
use levada_access::{
    access::Access,
    cdn_loop, client_network,
    pass::{self, PassScope},
};
use levada_body::{FetchLeader, FlightStart, ReadError, partial};
use levada_cache::{
    CacheStatus, ForwardReason, Freshness, OriginFailure, RequestDirectives, ServeDecision,
    serve_instead_of_error,
};
use levada_cluster::{events::unix_time, nodes::Membership};
use levada_failure::{Failed, Failure, grpc};
use levada_observe::metrics::{CacheResult, Work};
use levada_policy::{NodeIndex, Pick, PickReason};
use levada_rules::{Adjustments, CacheUse, SentFields};
use levada_store::{Label, Object, StoredHead, TAGS};
use levada_types::{Request as PolicyRequest, ServiceClass};
use levada_upstream::{ClientBody, ServerFailure, UpstreamHead, UpstreamResponse};

use crate::{
    access_record::AccessRecord,
    adjust::{self, Adjusting},
    admission::{Admitted, admit},
    body::{ResponseBody, Source},
    bypass::{bypass, finish_passed, from_origin, pass, passed_on},
    cache::{
        Cache,
        copies::{arriving, coded_copy, from_copy, whole_or_head},
        fetch::Fetch,
        fill::{FetchOutcome, FillFollower},
        lookup::{FillRequest, LookupResult, PartRequest, lookup, recall, recall_late},
        part_origin, stored,
    },
    client_connection::{ClientConnection, ListenerKind},
    compress, crossing, error_page, files, large,
    node::Node,
    request::RequestContext,
    resource::Resource,
    respond::{self, PipelineResult},
    stand_in::{Found, StandIn},
    subject, tunnel,
};

/// Answers one request.
///
/// Futures that wait for a server are boxed, and a request is admitted before its future exists: a
/// future is moved whole before it first runs, and a hit must not pay for the size of other paths.
pub(crate) fn serve<'a>(
    node: &'a Arc<Node>,
    connection: &'a Arc<ClientConnection>,
    request: Request<ClientBody>,
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
    let (mut is_get, mut is_call, mut client) = (false, false, connection.client);
    let answer = match admission {
        Admitted::Context(mut context) => {
            if node.purging.stood_still() {
                Box::pin(node.purging.wake()).await;
            }
            record.note(&mut context, &node.trust);
            client = context.client;
            is_get = context.parts.method == Method::GET;
            is_call = grpc::is_call(&context.parts);
            match context.resource.handling.adjustments.clone() {
                None => admitted(node, context, &mut record).await,
                Some(with) => Box::pin(adjusted(node, &with, context, &mut record)).await,
            }
        }
        Admitted::Answered(response) => Ok(*response),
        Admitted::Certificates(message) => {
            Ok(Box::pin(node.certificates.answer_peer(*message)).await.map(ResponseBody::text))
        }
        Admitted::Purging(message) => {
            let answer = Box::pin(node.purging.handle_peer(*message)).await;
            Ok(answer.into_response(ResponseBody::text))
        }
        Admitted::Refused(failure) => Err(failure.into()),
    };
    let mut response = answer.unwrap_or_else(|failed| {
        record.failed(client, &failed);
        failed.answer(&node.name.token, None).map(ResponseBody::text)
    });
    if let Some(alt_svc) = &connection.alt_svc {
        response.headers_mut().insert(ALT_SVC, alt_svc.clone());
    }
    record.head(&response);
    if is_call {
        response = respond::to_call(response);
    }
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
    context.takes_text = false;
    if let Some(to) = &with.without_file
        && files::lack(&context).await
    {
        context.go_on(&node.identifier.load(), (to, "no file"))?;
        return entered(node, context, record).await;
    }
    let adjusting = Adjusting::begin(node, with, &mut context, record);
    let page = if with.pages.is_empty() { None } else { error_page::Asked::of(with, &context) };
    let answer = match adjust::closed(with, &context, record) {
        Some(response) => Ok(response),
        None => admitted(node, context, record).await,
    };
    let has_failed = answer.is_err();
    let mut response = answer.unwrap_or_else(|failed| {
        record.failed(client, &failed);
        failed.answer(&node.name.token, adjusting.id()).map(ResponseBody::text)
    });
    if let Some(page) = page {
        let replacing = page.replace(node, with, has_failed, &mut response, adjusting.id());
        if let Some((context, status)) = replacing.await
            && let Ok(mut answer) = entered(node, context, record).await
        {
            *answer.status_mut() = status.unwrap_or(answer.status());
            adjusting.finish(&mut answer, None);
            return Ok(answer);
        }
    }
    adjusting.finish(&mut response, Some(record.cache));
    Ok(response)
}

/// Answers a request where it has gone on, as its route there says.
fn entered<'a>(
    node: &'a Arc<Node>,
    context: Box<RequestContext>,
    record: &'a mut AccessRecord,
) -> large::Dispatched<'a> {
    Box::pin(async move {
        match context.resource.handling.adjustments.clone() {
            None => admitted(node, context, record).await,
            Some(with) => adjusted(node, &with, context, record).await,
        }
    })
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
    context.takes_text = false;
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

/// Routes the request: served on this node, by a peer through this node, or by a peer after a redirect.
async fn route(
    node: &Arc<Node>,
    mut context: Box<RequestContext>,
    record: &mut AccessRecord,
) -> PipelineResult {
    let RequestContext { resource, parts, .. } = &*context;
    if parts.method.as_str() == levada_cluster::orders::METHOD {
        let mut urls = vec![resource.url.as_str().to_owned(), resource.stored_url().to_owned()];
        urls.dedup();
        let purging = node.purging.handle_client(urls, resource.host(), &parts.headers);
        let answer = Box::pin(purging).await;
        return Ok(answer.into_response(ResponseBody::text));
    }
    if context.websocket.is_some() && !tunnel::is_ignored(&context) {
        resource.site.count();
        return Box::pin(switch_protocol(node, context, record)).await;
    }
    if let Some(answer) = &resource.answer {
        return Ok(respond::route(answer));
    }
    if resource.site.files.is_some() {
        return Box::pin(files::serve(node, context, record)).await;
    }
    resource.site.count();
    if node.popular.takes_this_one() {
        note_popular(node, &context);
    }
    if large::may_be(&context) {
        context.takes_text = false;
        let dispatch: Arc<dyn large::Dispatch> = node.clone();
        return Box::pin(large::serve(&node.large, context, record, &dispatch)).await;
    }
    dispatch(node, context, record).await
}

/// Asks a server for WebSocket, and opens a tunnel if it agrees.
async fn switch_protocol(
    node: &Node,
    context: Box<RequestContext>,
    record: &mut AccessRecord,
) -> PipelineResult {
    let resource = context.resource.clone();
    let (answered, chosen) = tunnel::open(node, context, record).await?;
    let mut response = match answered {
        tunnel::Answered::Switching(response) => response,
        tunnel::Answered::InHttp(exchange, context) => {
            from_origin(node, (exchange, None), &context, ForwardReason::Bypass, "websocket")
        }
    };
    if let Some(chosen) = chosen {
        let (server, pick) = (&chosen.server, chosen.pick);
        respond::next_hop(&node.name, response.headers_mut(), server, &resource, pick);
        record.switched_to(chosen);
    }
    Ok(response)
}

/// Counts the object among those that clients request.
#[cold]
fn note_popular(node: &Node, context: &RequestContext) {
    let RequestContext { connection, resource, .. } = context;
    // A request of a peer was counted there, and the servers of a route have a policy of their own.
    if connection.listener != ListenerKind::Peer && resource.site.route.is_none() {
        node.popular.note(resource.key(), resource.host(), resource.stored_url());
    }
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
    let is_peer = connection.listener == ListenerKind::Peer;
    let relays = is_peer && resource.piece.as_ref().is_some_and(|piece| piece.may_relay);
    let settled = is_peer && !relays || resource.passed || resource.site.switch.is_some();
    let peers =
        node.peers.as_ref().filter(|_| !settled && parts.method.is_safe() && body.is_none());
    let Some(peers) = peers else {
        return serve_locally(node, context, record).await;
    };
    let (class, _) = subject::class(&resource.site, resource, parts, &parts.headers);
    let (pick, chosen) = {
        let now = peers.now();
        let pick = redirect(node, &now, resource, class)?;
        let slot = now.member(pick.node).slot;
        record.decided(resource, pick, slot);
        let is_me = pick.node == now.me() || relays && !relays_from(node, slot, resource);
        let may_leave = resource.piece.is_none() && resource.redirects.count == 0;
        if resource.site.redirects() && may_leave && !is_me {
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

/// Whether a piece that this node was asked for in the place of the node in `slot` comes from there.
fn relays_from(node: &Node, slot: usize, resource: &Resource) -> bool {
    !node.cache.store.holds(resource.key())
        && node.large.sources.lock().vouches(slot, node.clock.now())
}

/// The node that the policy chooses.
fn redirect(
    node: &Node,
    members: &Arc<Membership>,
    resource: &Resource,
    class: ServiceClass,
) -> Result<Pick, Failure> {
    let request = PolicyRequest {
        key: resource.key(),
        class,
        size: node.forwarder.sizes.get(resource.key()),
    };
    let (decider, now) = (resource.decider(), node.clock.now());
    let pick = match &resource.piece {
        Some(piece) if !piece.avoided.is_empty() => decider
            .pick(&request, &members.without(&piece.avoided), now)
            // A slow node is better than none.
            .or_else(|| decider.pick(&request, members.cluster(), now)),
        _ => decider.pick(&request, members.cluster(), now),
    };
    let pick = pick.ok_or(Failure::Server(ServerFailure::AllDown))?;
    node.metrics.policies.decision(decider, pick);
    Ok(pick)
}

/// Redirects the client to the chosen node, with a signed pass.
fn redirect_client(members: &Membership, resource: &Resource, chosen: NodeIndex) -> PipelineResult {
    let (Some(base), Some(secrets)) = (members.client_url(chosen), members.secrets()) else {
        return Err(Failure::Server(ServerFailure::AllDown).into());
    };
    let name = &members.member(chosen).server.name;
    let of = PassScope { node: name, route: resource.route(), host: resource.host() };
    let target = pass::issue(secrets, of, resource.target(), unix_time() as u64);
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
        node.forwarder.sizes.learn(resource.key(), size);
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
    context.prepare();
    compress::negotiate(&mut context);
    let client = client_network::of(context.client);
    let pressure = node.memory.pressure();
    let places = if context.body.is_none() { &node.capacity } else { &node.uploads };
    record.in_service = Some(places.enter(client, pressure).ok_or(Failure::Overload)?);
    let key = context.resource.key();
    let switched = context.resource.site.switch.is_some().then(|| context.resource.clone());
    let mut found = lookup(&node.cache, &context);
    record.stage("lookup");
    if let LookupResult::OnDisk = found {
        found = Box::pin(recall(&node.cache, &context, false)).await;
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
            if context.is_from_region() {
                record.tags = object.label().for_other_region();
            }
            if let Some(order) = refresh {
                self::refresh(&node.cache, &context, &order);
            }
            let status = CacheStatus { ttl: Some(ttl), ..CacheStatus::default() };
            let (object, being_made) = coded_copy(&node.cache, &context, object).await;
            match (being_made, object.blocks()) {
                (Some(copy), _) => {
                    Box::pin(from_copy(&node.name, &context, &copy, Some(age), status))
                        .await
                        .map_err(|_| Failure::Server(ServerFailure::NoResponse))?
                }
                (None, None) if switched.is_none() && takes_text(&context, &object, record) => {
                    if node.peers.is_some() {
                        node.forwarder.sizes.learn(key, object.length());
                    }
                    stored::answer_in_text(&node.name, &mut context, &object, age, &status)
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
        let (server, pick) = (&chosen.server, chosen.pick);
        respond::next_hop(&node.name, response.headers_mut(), server, resource, pick);
        record.switched_to(chosen);
    }
    if (node.peers.is_some() || switched.is_some())
        && let Some(size) = large::stated_size(response.status(), response.headers())
    {
        node.forwarder.sizes.learn(key, size);
    }
    response.headers_mut().extend(record.tags.take().map(|tags| (TAGS, tags)));
    response.body_mut().slow_down(node.pace());
    Ok(response)
}

/// Whether a stored response is answered whole, with fields that are written at once.
fn takes_text(context: &RequestContext, object: &Object, record: &AccessRecord) -> bool {
    let RequestContext { wants, parts, .. } = context;
    context.takes_text
        && parts.method == Method::GET
        && !(wants.range || wants.conditional)
        && object.status() == StatusCode::OK
        && !record.reads_response()
}

/// Serves a stored response in blocks, some of which may have to be fetched. If one of them cannot be
/// fetched, the object is fetched again.
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
            None => node.cache.store.remove(context.resource.key()),
        },
    }
    let part =
        partial::first_byte(&context.parts).map(|first| PartRequest::Block(first / body.of.block));
    let part = part.filter(|_| body.origin().is_some());
    let order = FillRequest { part, ..FillRequest::of(context.resource.key()) };
    serve_from_fill(node, context, order, record).await
}

/// Follows the fetch of an object, or leads one. `None` when another URI is being fetched
/// under the same key.
fn lead_or_follow(
    cache: &Arc<Cache>,
    context: &RequestContext,
    order: &FillRequest,
) -> Option<(FillFollower, Option<FetchLeader>)> {
    let (identity, site) = (context.resource.identity(), context.resource.site.id);
    let pending = cache.purges.begin();
    let start = FlightStart::now(Label::new(site, pending.born()), pending.begun());
    let late = context.resource.fetch_is_late_after();
    let may_follow = |start: &FlightStart, outcome: Option<&FetchOutcome>| {
        if outcome.is_none() && start.since.elapsed() >= late
            || context.is_from_region() && start.asks_node.load(Relaxed)
        {
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
        leader.own().span = fetch.head.trace.as_ref().map(|trace| trace.context());
        let cpu = &cache.forwarder.metrics.cpu;
        FetchLeader::new(cpu.timed(Work::Miss, fetch.run(leader)))
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
    let late = context.resource.fetch_is_late_after();
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
    // A fetch that the request would share may be waiting for the request itself. A node that asks this one in the
    // place of the origin may have got the request by it, and shares no fetch that waits for a node.
    if !context.is_from_region() && cdn_loop::has_passed(&context.parts.headers, &node.name.via) {
        return Box::pin(pass(node, context, why, "loop", record)).await;
    }
    let arrived = node.cache.purges.latest();
    let mut stand_in = StandIn::of(node, &context, &order);
    if let Some(needed) = stand_in.take_if(|stand_in| stand_in.is_needed_at_once())
        && let Some(found) = needed.find().await
        && let Some(response) = stood_in(node, &context, &order, found, record).await
    {
        if context.resource.site.silence.tries(node.clock.now()) {
            refresh(&node.cache, &context, &order);
        }
        return Ok(response);
    }
    let (follower, leader, outcome) = loop {
        let Some((follower, lead)) = lead_or_follow(&node.cache, &context, &order) else {
            return Box::pin(pass(node, context, why, "collision", record)).await;
        };
        // Keeps the fetch going when a stand-in ends the waiting.
        let stays = stand_in.as_ref().map(|_| follower.another());
        if lead.is_none() {
            record.cache = CacheResult::Collapsed;
            record.follows(|| follower.own().span);
        }
        let fetched = async {
            match lead {
                Some(lead) => {
                    let outcome = large::awaited(&context, lead.outcome(&follower)).await;
                    (follower, true, outcome)
                }
                None => {
                    let following = follow(&node.cache, &context, &order, follower);
                    Box::pin(large::awaited(&context, following)).await
                }
            }
        };
        let fetched = match stand_in.take() {
            None => Ok(fetched.await),
            Some(stand_in) => Box::pin(stand_in.or(fetched)).await,
        };
        let (follower, leader, outcome) = match fetched {
            Ok(fetched) => fetched,
            Err(found) => {
                stays.into_iter().for_each(FillFollower::stay);
                match stood_in(node, &context, &order, found, record).await {
                    Some(response) => return Ok(response),
                    None => continue,
                }
            }
        };
        let outcome = FetchOutcome::or_failed(outcome);
        // Tags arrive with the head. A fill that began before a purge must not serve requests that
        // arrived after it.
        let begun_before = |label: &Label| label.born() < arrived;
        let outdated = outcome.label().is_some_and(|label| {
            begun_before(label) && !node.cache.purges.may_join(label, context.resource.identity())
        });
        let varies = |head: &StoredHead| !head.answers(&context.parts.headers);
        if let FetchOutcome::Body(body) = &outcome
            && leader
            && !matches!(order.fields, SentFields::Varying(_))
            && varies(&body.of.head)
        {
            // It varies by a field that was withheld. With that field, the response is another one, stored next to it.
            order.fields = SentFields::Varying(body.of.head.vary.fields().into());
            order.detached = true;
            continue;
        }
        if let FetchOutcome::Large(object) | FetchOutcome::Renewed(object) = &outcome
            && !leader
            && context.head_is_enough
            && !may_share(&object.freshness(), object.answers(&context.parts.headers))
        {
            // The head of a large file is confirmed for each request: to pass by the cache would fetch all of it.
            (order.stored, order.detached) = (Some(object.clone()), true);
            continue;
        }
        if leader || !outdated {
            break (follower, leader, outcome);
        }
        let alive = |object: &Arc<Object>| node.cache.purges.may_keep(object);
        order.stored = order.stored.filter(alive);
    };
    if context.is_from_region() {
        record.tags = outcome.label().and_then(Label::for_other_region);
    }
    let parts = &context.parts;
    // Other requests may share a response only if the store could serve it, as it could a piece at any time.
    let is_own = leader || context.resource.piece.is_some();
    let mine =
        |object: &Object| is_own || may_share(&object.freshness(), object.answers(&parts.headers));
    let mut status = CacheStatus { forwarded: Some(why), collapsed: !leader, ..Default::default() };
    if leader {
        record.chosen = follower.own().chosen.take();
        status.forwarded_status = follower.own().answered;
    }
    let unshared = if leader { follower.own().unshared.take() } else { None };
    if let Some(passed) = unshared {
        if !passed.is_whole {
            // A response that is not shared answers the request as it was asked.
            let reason = passed.reason;
            drop((passed, follower));
            return Box::pin(pass(node, context, why, reason, record)).await;
        }
        status.detail = Some(passed.reason);
        let source = Source::Upstream(Box::new(passed.relay));
        let mut response = Response::from_parts(passed.head, ResponseBody::new(source));
        compress::stream(&node.cache, &context, &mut response);
        finish_passed(&node.cache, &mut response, &status);
        return Ok(response);
    }
    let served = match outcome {
        FetchOutcome::Body(body)
            if body.of.head.answers(&parts.headers)
                && (is_own || may_share(&body.of.head.freshness(), true)) =>
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
            whole_or_head(&node.cache, &context, &object, None, status).await
        }
        FetchOutcome::Large(object) if mine(&object) => {
            status.stored = true;
            whole_or_head(&node.cache, &context, &object, None, status).await
        }
        FetchOutcome::Failed(failed) => {
            let stale = match stale {
                None => Box::pin(recall_late(&node.cache, &context)).await,
                known => known,
            };
            let bridged = match &stale {
                Some(object) => bridge(node, &context, object, &directives, &failed, status).await,
                None => None,
            };
            return bridged.ok_or(failed);
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

/// Begins a fetch for later requests, unless one is under way.
fn refresh(cache: &Arc<Cache>, context: &RequestContext, order: &FillRequest) {
    if let Some((follower, Some(lead))) = lead_or_follow(cache, context, order) {
        follower.stay();
        drop(lead);
    }
}

/// The response by a stand-in.
async fn stood_in(
    node: &Arc<Node>,
    context: &RequestContext,
    order: &FillRequest,
    found: Found,
    record: &mut AccessRecord,
) -> Option<Response<ResponseBody>> {
    match found {
        Found::Stale => {
            let (stored, directives) = (order.stored.as_ref()?, &order.directives);
            let late = Failure::Server(ServerFailure::Late).into();
            let status = CacheStatus { forwarded: Some(order.why), ..CacheStatus::default() };
            bridge(node, context, stored, directives, &late, status).await
        }
        Found::Near(found) => {
            let me = node.peers.as_ref()?.now().me();
            let pick = Pick { node: me, reason: PickReason::Retry, set_size: 0 };
            Some(relay(node, context, *found, pick, record))
        }
    }
}

/// A stored response in place of the origin's failed one, where that is allowed.
async fn bridge(
    node: &Node,
    context: &RequestContext,
    object: &Arc<Object>,
    directives: &RequestDirectives,
    failed: &Failed,
    status: CacheStatus<'static>,
) -> Option<Response<ResponseBody>> {
    let (trouble, answered) = match failed.failure {
        Failure::ErrorAnswer(status) => (OriginFailure::Error, Some(status.as_u16())),
        _ => (OriginFailure::Unreachable, None),
    };
    let freshness = &object.freshness();
    let (age, ttl) =
        match serve_instead_of_error(freshness, directives, trouble, SystemTime::now())? {
            ServeDecision::Fresh { age, ttl } | ServeDecision::Stale { age, ttl, .. } => (age, ttl),
            ServeDecision::Validate | ServeDecision::GatewayTimeout => return None,
        };
    let status = CacheStatus {
        forwarded_status: answered.filter(|_| !status.collapsed),
        ttl: Some(ttl),
        detail: Some(trouble.as_str()),
        ..status
    };
    whole_or_head(&node.cache, context, object, Some(age), status).await.ok()
}

/// Whether a response that was fetched for another request may answer this one: it must be the right
/// variant, and one that the store could have served (RFC 9111 Sec. 4).
fn may_share(freshness: &Freshness, right_variant: bool) -> bool {
    let directives = RequestDirectives::default();
    let stored = levada_cache::serve(freshness, &directives, SystemTime::now());
    right_variant && matches!(stored, ServeDecision::Fresh { .. } | ServeDecision::Stale { .. })
}
