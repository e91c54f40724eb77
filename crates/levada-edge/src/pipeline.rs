//! The life of a request, top to bottom: identify, redirect, look up, fill, respond.
//!
//! Read [`serve`] first. Every stage returns a value; this file owns all branching between them.

use std::{sync::Arc, time::Duration};

use http::{
    HeaderMap, Method, Request, Response, StatusCode,
    header::{ACCEPT_RANGES, ETAG},
    request::Parts,
};
use hyper::body::{Body, Incoming};
use levada_cache::{
    Asked as Wants, CacheStatus, Forwarded as Why, RequestDirectives, Serve, Trouble,
    serve_instead_of_error, strip_request,
};
use levada_policy::{NodeIndex, Pick};
use levada_types::{Request as PolicyRequest, ServiceClass};

use crate::{
    blocks::Blocked,
    body::{BodyError, Relay, RequestBody, ResponseBody, Source},
    clock,
    connection::{Door, Visit},
    effects::Effects,
    failure::Failure,
    fetch::Fetch,
    fill::{Reader, Verdict, Writer},
    forward::{self, Failed},
    guard::Parcels,
    identify::{Asked, identify},
    large,
    lead::Lead,
    lookup::{Found, Order, lookup, recall},
    node::Node,
    partial,
    passage::{CacheResult, Passage},
    peers::{self, PROBE, Peers},
    posted::Posted,
    purge::{self, Label},
    respond,
    store::{Object, StoredHead},
    stored,
    switch::{self, Chosen},
    upstream::Exchange,
};

type Answer = Result<Response<ResponseBody>, Failed>;

/// Answers one request.
///
/// What waits for a server is boxed, and a request is admitted before there is a future: futures are
/// moved whole before they first run, and a hit must not pay for the room that others need.
pub(crate) fn serve<'a>(
    node: &'a Arc<Node>,
    visit: &'a Arc<Visit>,
    request: Request<Incoming>,
) -> impl Future<Output = Response<ResponseBody>> + Send + use<'a> {
    let passage = Passage::begin(node, visit.door == Door::Peer);
    let admission = admit(node, visit, request);
    answer(node, visit, admission, passage)
}

async fn answer(
    node: &Arc<Node>,
    visit: &Visit,
    admission: Admission,
    mut passage: Box<Passage>,
) -> Response<ResponseBody> {
    let mut is_get = false;
    let answer = match admission {
        Admission::Errand(errand) => {
            passage.note(node, &errand);
            is_get = errand.parts.method == Method::GET;
            route(node, errand, &mut passage).await
        }
        Admission::Answered(response) => Ok(*response),
        Admission::Order(order) => {
            let answer = Box::pin(purge::door::peer(node, *order)).await;
            Ok(answer.into_response(ResponseBody::text))
        }
        Admission::Refused(failure) => Err(failure.into()),
    };
    let mut response = answer.unwrap_or_else(|failed| {
        passage.failed(visit.client, &failed);
        respond::failure(node, &failed)
    });
    passage.head(response.status());
    if is_get && visit.door != Door::Peer && can_be_resumed(&response) {
        response.body_mut().may_move(&node.drain);
    }
    response.body_mut().take_along(passage);
    response
}

/// Whether a client that got a part of it can ask another node for the rest: what passes by the cache may
/// be another each time, unless a validator says that it has versions.
fn can_be_resumed(response: &Response<ResponseBody>) -> bool {
    let told = || [ACCEPT_RANGES, ETAG].iter().any(|name| response.headers().contains_key(name));
    match response.status() {
        StatusCode::PARTIAL_CONTENT => true,
        StatusCode::OK => !response.body().passes_by() || told(),
        _ => false,
    }
}

/// A request that has been admitted, on its way down this file.
pub(crate) struct Errand {
    pub(crate) visit: Arc<Visit>,
    pub(crate) asked: Asked,
    /// What it asks of a cache.
    pub(crate) wants: Wants,
    pub(crate) parts: Parts,
    /// `None` when there is none.
    pub(crate) body: Option<Incoming>,
    /// Whether the head of a large file is enough, without its body.
    pub(crate) head_is_enough: bool,
    /// Whether what is stored is known to be wrong, so that the origin is not to be asked whether it still holds.
    pub(crate) anew: bool,
    /// Where bodies go that the system is to send, if what answers this request goes straight to its client.
    /// Whoever reads the answer here must have the bytes.
    pub(crate) parcels: Option<Arc<Parcels>>,
}

enum Admission {
    Errand(Box<Errand>),
    Answered(Box<Response<ResponseBody>>),
    /// A peer's order to purge.
    Order(Box<Incoming>),
    Refused(Failure),
}

/// Who may ask, and for what.
fn admit(node: &Node, visit: &Arc<Visit>, request: Request<Incoming>) -> Admission {
    if visit.door == Door::Peer {
        if !node.peers.as_ref().is_some_and(|peers| peers.recognises(request.headers())) {
            return Admission::Refused(Failure::NoPeer);
        }
        if request.uri().path() == PROBE {
            let well = respond::plain(StatusCode::OK, "well\n".to_owned());
            return Admission::Answered(Box::new(well));
        }
        if request.uri().path() == purge::door::PATH && *request.method() == Method::POST {
            return Admission::Order(Box::new(request.into_body()));
        }
    }
    if *request.method() == Method::OPTIONS && request.uri().path() == "*" {
        return Admission::Answered(Box::new(respond::options()));
    }
    let asked = match identify(node, visit.door, &request) {
        Ok(asked) => asked,
        Err(failure) => return Admission::Refused(failure),
    };
    visit.asks_for(asked.key);
    let (mut parts, body) = request.into_parts();
    // Before anything is selected by them: what the origin does not see must not choose a variant.
    strip_request(&mut parts.headers);
    let wants = Wants::of(&parts.headers);
    if wants.range && node.lost.returns(visit.client, asked.key) {
        node.metrics.dormant_returned.inc();
    }
    let head_is_enough = large::asks_for_head(visit.door, &parts.headers);
    let anew = head_is_enough && large::asks_anew(&parts.headers);
    let body = (!body.is_end_stream()).then_some(body);
    let (visit, parcels) = (visit.clone(), visit.parcels.clone());
    let errand = Errand { visit, asked, wants, parts, body, head_is_enough, anew, parcels };
    Admission::Errand(Box::new(errand))
}

/// Where the request is served: here, by a peer through this node, or by a peer that the client is
/// sent to.
async fn route(node: &Arc<Node>, errand: Box<Errand>, passage: &mut Passage) -> Answer {
    let Errand { asked, parts, .. } = &*errand;
    if parts.method.as_str() == purge::door::METHOD {
        let answer = Box::pin(purge::door::client(node, asked, &parts.headers)).await;
        return Ok(answer.into_response(ResponseBody::text));
    }
    asked.site.count();
    if large::may_be(&errand) {
        return Box::pin(large::serve(node, errand, passage)).await;
    }
    directly(node, errand, passage).await
}

/// The same for what is no large file, for a piece of one, and for the head of one.
pub(crate) async fn directly(
    node: &Arc<Node>,
    errand: Box<Errand>,
    passage: &mut Passage,
) -> Answer {
    let Errand { visit, asked, parts, body, .. } = &*errand;
    // A request that was forwarded once is served here; one that changes something is the origin's.
    // One whose site has servers of its own is for this node to switch.
    let settled = visit.door == Door::Peer || asked.passed || asked.site.switch.is_some();
    let peers =
        node.peers.as_ref().filter(|_| !settled && parts.method.is_safe() && body.is_none());
    let Some(peers) = peers else {
        return here(node, errand, passage).await;
    };
    let (class, _) = switch::class(&asked.site, asked, parts, &parts.headers);
    let pick = redirect(node, peers, asked, class)?;
    passage.decided(asked, pick);
    if asked.site.redirects() && asked.piece.is_none() && pick.node != peers.me() {
        return away(node, peers, asked, pick.node);
    }
    let Some((exchange, pick)) =
        Box::pin(forward::to_peer(node, peers, &errand, pick, passage)).await
    else {
        passage.outstanding = Some(peers.loads().begin(peers.me()));
        return here(node, errand, passage).await;
    };
    Ok(relay(node, &errand, exchange, pick, passage))
}

/// The node that the policy chooses.
fn redirect(
    node: &Node,
    peers: &Peers,
    asked: &Asked,
    class: ServiceClass,
) -> Result<Pick, Failure> {
    let request = PolicyRequest { key: asked.key, class, size: node.sizes.get(asked.key) };
    let (decider, now) = (asked.decider(), node.clock.now());
    let pick = match &asked.piece {
        Some(piece) if !piece.avoided.is_empty() => decider
            .pick(&request, &peers.cluster().without(&piece.avoided), now)
            // Better one that was slow than none.
            .or_else(|| decider.pick(&request, &peers.cluster(), now)),
        _ => decider.pick(&request, &peers.cluster(), now),
    };
    let pick = pick.ok_or(Failure::AllDown)?;
    node.metrics.decision(decider.name(), pick);
    Ok(pick)
}

/// Sends the client to the chosen node, with a pass that only this cluster can have made.
fn away(node: &Node, peers: &Peers, asked: &Asked, chosen: NodeIndex) -> Answer {
    let (Some(base), Some(secret)) = (peers.client_url(chosen), peers.secret()) else {
        return Err(Failure::AllDown.into());
    };
    let name = &peers.server(chosen).name;
    let target = peers::pass::issue(secret, name, asked.host(), asked.target(), node.unix_time());
    let location = format!("{}{target}", base.trim_end_matches('/'));
    respond::away(&location).ok_or_else(|| Failure::BadHost.into())
}

/// A peer's answer, as it came.
fn relay(
    node: &Node,
    errand: &Errand,
    exchange: Exchange,
    pick: Pick,
    passage: &mut Passage,
) -> Response<ResponseBody> {
    let Errand { asked, parcels, .. } = errand;
    let peer = exchange.body().server().name.clone();
    let mut response = passed_on(node, exchange, parcels.as_ref());
    respond::next_hop(node, response.headers_mut(), &peer, asked, pick);
    node.sizes.learn(asked.key, response.status(), response.headers());
    passage.relayed_by(peer, pick);
    response
}

/// Served by this node: from its store, by a fetch, or by the origin for this request alone.
async fn here(node: &Arc<Node>, errand: Box<Errand>, passage: &mut Passage) -> Answer {
    passage.in_service = Some(node.capacity.enter().ok_or(Failure::Overload)?);
    let key = errand.asked.key;
    let switched = errand.asked.site.switch.is_some().then(|| errand.asked.site.clone());
    let mut found = lookup(node, &errand);
    if let Found::OnDisk = found {
        found = Box::pin(recall(node, &errand)).await;
    }
    let mut response = match found {
        Found::Stored { object, age, ttl, refresh } => {
            passage.cache = CacheResult::Hit;
            if let Some(order) = refresh {
                drop(join(node, &errand, &order));
            }
            let status = CacheStatus { ttl: Some(ttl), ..CacheStatus::default() };
            match object.blocks() {
                None => stored::answer(node, &errand, &object, Some(age), &status),
                Some(_) if large::head_is_enough(node, &errand, &object) => {
                    large::head(node, &errand, &object, Some(age), status)
                }
                Some(_) => Box::pin(in_blocks(node, errand, object, age, status, passage)).await?,
            }
        }
        Found::Fetch(order) => Box::pin(filled(node, errand, order, passage)).await?,
        Found::Bypass(why, detail) => {
            passage.cache = CacheResult::Bypass;
            Box::pin(bypass(node, errand, why, detail)).await?
        }
        Found::Nothing | Found::OnDisk => return Err(Failure::OnlyIfCached.into()),
    };
    if let Some(site) = &switched
        && let Some(chosen) =
            response.extensions_mut().remove::<Chosen>().or_else(|| passage.chosen.take())
    {
        respond::server(node, response.headers_mut(), site, &chosen);
        passage.switched_to(chosen);
    }
    if node.peers.is_some() || switched.is_some() {
        node.sizes.learn(key, response.status(), response.headers());
    }
    response.body_mut().slow_down(node.pace());
    Ok(response)
}

/// A stored response in blocks, of which some may have to be fetched. When one of them cannot be had,
/// the object is fetched anew.
async fn in_blocks(
    node: &Arc<Node>,
    errand: Box<Errand>,
    object: Arc<Object>,
    age: u32,
    mut status: CacheStatus<'_>,
    passage: &mut Passage,
) -> Answer {
    let blocked = Arc::new(Blocked::stored(node, &errand, &object));
    match stored::from_blocks(node, &errand.parts, &blocked, Some(age), &mut status).await {
        Ok(response) => {
            if status.forwarded.is_some() {
                passage.cache = CacheResult::Miss;
            }
            return Ok(response);
        }
        Err(BodyError::Failed(failure)) => return Err(failure.into()),
        Err(_) => node.store.remove(errand.asked.key),
    }
    let why = Why::UriMiss;
    let directives = RequestDirectives::default();
    let part = partial::first_byte(&errand.parts).map(|first| first / blocked.block);
    let part = part.filter(|_| blocked.request.is_some());
    let order = Order { key: errand.asked.key, stored: None, why, directives, part, alone: false };
    filled(node, errand, order, passage).await
}

/// Joins the fetch of an object, or begins it and leads it. `None` when another URI is being fetched
/// under the same key.
fn join(node: &Arc<Node>, errand: &Errand, order: &Order) -> Option<(Reader, Option<Lead>)> {
    let (identity, site) = (&errand.asked.identity, errand.asked.site.id);
    let part = match order.alone {
        true => node.fills.detached(order.key, identity, site),
        false => node.fills.join(order.key, identity, site)?,
    };
    let lead = part.flight.map(|flight| {
        let fetch = Fetch::new(node, errand, order.clone(), flight);
        let writer = Writer::new(part.reader.fill().clone());
        Lead::new(fetch.run(writer))
    });
    Some((part.reader, lead))
}

/// From the growing copy of an object that this request, or one before it, had fetched.
async fn filled(
    node: &Arc<Node>,
    errand: Box<Errand>,
    mut order: Order,
    passage: &mut Passage,
) -> Answer {
    let (why, stale, directives) = (order.why, order.stored.clone(), order.directives);
    passage.cache = if stale.is_some() { CacheResult::Expired } else { CacheResult::Miss };
    if forward::has_passed(node, &errand.parts.headers) {
        return Box::pin(alone(node, errand, why, "loop")).await;
    }
    let arrived = node.purges.latest();
    let (reader, leader, verdict) = loop {
        let Some((reader, lead)) = join(node, &errand, &order) else {
            return Box::pin(alone(node, errand, why, "collision")).await;
        };
        let leader = lead.is_some();
        let verdict = match lead {
            Some(lead) => lead.verdict(&reader).await,
            None => {
                passage.cache = CacheResult::Collapsed;
                reader.verdict().await
            }
        };
        // Only now its tags are known: what was begun before a purge is for those who asked before.
        let begun_before = |label: &Label| label.born() < arrived;
        let outdated = verdict.label().is_some_and(|label| {
            begun_before(label) && !node.purges.may_join(label, &errand.asked.identity)
        });
        if leader {
            passage.chosen = reader.fill().take_chosen();
        }
        if leader || !outdated {
            break (reader, leader, verdict);
        }
        let alive = |object: &Arc<Object>| node.purges.may_keep(object);
        order.stored = order.stored.filter(alive);
    };
    let parts = &errand.parts;
    // Others may have a response only if it could be served from the store.
    let mine = |head: &StoredHead| leader || may_share(head, &parts.headers);
    let mut status = CacheStatus { forwarded: Some(why), collapsed: !leader, ..Default::default() };
    match verdict {
        Verdict::Share { .. } | Verdict::Blocked(_) if verdict.head().is_some_and(mine) => {
            match stored::arriving(node, parts, verdict, reader, status).await {
                Ok(response) => Ok(response),
                Err(_) => Box::pin(alone(node, errand, why, "not-shared")).await,
            }
        }
        Verdict::Renewed(object) if mine(&object.head) => {
            passage.cache = CacheResult::Revalidated;
            status.forwarded_status = leader.then_some(304);
            if large::head_is_enough(node, &errand, &object) {
                return Ok(large::head(node, &errand, &object, None, status));
            }
            match stored::from_object(node, &errand, &object, None, status).await {
                Ok(response) => Ok(response),
                Err(_) => Box::pin(alone(node, errand, why, "not-shared")).await,
            }
        }
        Verdict::Large(object) if mine(&object.head) => {
            status.forwarded_status = leader.then_some(200);
            status.stored = true;
            if large::head_is_enough(node, &errand, &object) {
                return Ok(large::head(node, &errand, &object, None, status));
            }
            match stored::from_object(node, &errand, &object, None, status).await {
                Ok(response) => Ok(response),
                Err(_) => Box::pin(alone(node, errand, why, "not-shared")).await,
            }
        }
        Verdict::Failed(failed) => {
            let Some((object, age, status)) =
                stale.as_ref().and_then(|object| bridge(object, &directives, &failed, status))
            else {
                return Err(failed);
            };
            stored::from_object(node, &errand, object, Some(age), status).await.map_err(|_| failed)
        }
        Verdict::Alone if leader && let Some(passed) = reader.fill().take_alone() => {
            status.forwarded_status = Some(passed.head.status.as_u16());
            status.detail = Some(passed.reason);
            let source = Source::Upstream(Box::new(passed.relay));
            let mut response = Response::from_parts(passed.head, ResponseBody::new(source));
            finish_passed(node, &mut response, &status);
            Ok(response)
        }
        // What was fetched is not for this request after all: it gets a response of its own. Whatever
        // its leader has left lying is let go first.
        _ => {
            drop(reader);
            Box::pin(alone(node, errand, why, "not-shared")).await
        }
    }
}

/// A stored response instead of the one that the origin failed to give, where that is allowed: with
/// its age, and what is to be said of it.
fn bridge<'a, 's>(
    object: &'a Arc<Object>,
    directives: &RequestDirectives,
    failed: &Failed,
    status: CacheStatus<'s>,
) -> Option<(&'a Arc<Object>, u32, CacheStatus<'s>)> {
    let (trouble, answered) = match failed.failure {
        Failure::ErrorAnswer(status) => (Trouble::Error, Some(status.as_u16())),
        _ => (Trouble::Unreachable, None),
    };
    let freshness = &object.head.freshness();
    let (age, ttl) = match serve_instead_of_error(freshness, directives, trouble, clock::wall())? {
        Serve::Fresh { age, ttl } | Serve::Stale { age, ttl, .. } => (age, ttl),
        Serve::Validate | Serve::GatewayTimeout => return None,
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
fn may_share(head: &StoredHead, request: &HeaderMap) -> bool {
    let directives = RequestDirectives::default();
    let stored = levada_cache::serve(&head.freshness(), &directives, clock::wall());
    head.answers(request) && matches!(stored, Serve::Fresh { .. } | Serve::Stale { .. })
}

/// From the origin for this request alone, which has no body.
async fn alone(node: &Node, mut errand: Box<Errand>, why: Why, detail: &'static str) -> Answer {
    let headers = std::mem::take(&mut errand.parts.headers);
    let mut head = forward::onward(node, &errand, headers);
    let site = &errand.asked.site;
    let exchange = forward::to_origin(node, site, &mut head, RequestBody::None).await?;
    Ok(from_origin(node, exchange, errand.parcels.as_ref(), why, detail))
}

/// Past the cache, body and all.
async fn bypass(
    node: &Arc<Node>,
    mut errand: Box<Errand>,
    why: Why,
    detail: &'static str,
) -> Answer {
    let effects = Effects::of(&errand.parts.method, &errand.parts.headers);
    // Boxed, as what follows from it: few requests have it, and each that passes here would carry it.
    let posted = Posted::of(node, &errand).map(Box::new);
    let headers = std::mem::take(&mut errand.parts.headers);
    let mut head = forward::onward(node, &errand, headers);
    // Over HTTP/1.1 the guard is a little quicker, and can still say what is wrong.
    let patience = node.settings.limits.body_timeout + Duration::from_secs(1);
    let mut body =
        errand.body.map_or(RequestBody::None, |body| RequestBody::client(body, patience));
    let asked = &errand.asked;
    if let Some(key) = switch::body_key(&asked.site, &mut body).await? {
        head.subject.key = key;
    }
    let exchange = forward::to_origin(node, &asked.site, &mut head, body).await?;
    let kept = posted.and_then(|posted| posted.judge(node, asked, &exchange));
    let invalid = effects.take(node, asked, exchange.status(), exchange.headers());
    let growing = kept.and_then(|kept| kept.begin(node, asked, head)).map(Box::new);
    if !invalid.is_empty() {
        Box::pin(purge::door::invalidated(node, invalid)).await;
    }
    match growing {
        Some(growing) => {
            let reader = growing.receive(exchange);
            let verdict = reader.verdict().await;
            let chosen = reader.fill().take_chosen();
            let forwarded = Some(why);
            let status = CacheStatus { forwarded, detail: Some(detail), ..CacheStatus::default() };
            let response =
                Box::pin(stored::arriving(node, &errand.parts, verdict, reader, status)).await;
            let mut response = response.map_err(|_| Failure::NoResponse)?;
            chosen.map(|chosen| response.extensions_mut().insert(chosen));
            Ok(response)
        }
        None => Ok(from_origin(node, exchange, errand.parcels.as_ref(), why, detail)),
    }
}

/// The origin's answer to one request alone.
fn from_origin(
    node: &Node,
    exchange: Exchange,
    parcels: Option<&Arc<Parcels>>,
    why: Why,
    detail: &'static str,
) -> Response<ResponseBody> {
    let status = CacheStatus {
        forwarded: Some(why),
        forwarded_status: Some(exchange.status().as_u16()),
        detail: Some(detail),
        ..CacheStatus::default()
    };
    if let Some(length) = exchange.body().size_hint().exact() {
        node.metrics.origin_bytes.inc_by(length);
    }
    let mut response = passed_on(node, exchange, parcels);
    status.append_to(response.headers_mut(), &node.cache_name);
    response
}

/// A server's answer on its way to the client: end-to-end fields only, and this node in `Via`.
/// A long body is moved by the system, where that can be.
fn passed_on(
    node: &Node,
    exchange: Exchange,
    parcels: Option<&Arc<Parcels>>,
) -> Response<ResponseBody> {
    let (mut parts, mut body) = exchange.into_parts();
    if let Some(parcels) = parcels.filter(|_| node.settings.splice)
        && body.convey(parcels)
    {
        node.metrics.spliced.inc();
    }
    levada_cache::strip_response(&mut parts.headers);
    node.purges.strip(&mut parts.headers);
    respond::via(node, &mut parts.headers);
    let relay = Relay::new(body, node.settings.limits.response_body_timeout);
    Response::from_parts(parts, ResponseBody::new(Source::Upstream(Box::new(relay))))
}

fn finish_passed(node: &Node, response: &mut Response<ResponseBody>, status: &CacheStatus<'_>) {
    node.purges.strip(response.headers_mut());
    respond::via(node, response.headers_mut());
    status.append_to(response.headers_mut(), &node.cache_name);
}
