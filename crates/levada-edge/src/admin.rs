//! The admin listener: metrics, health, status, explain, orders. Plain HTTP on an address that is never
//! public. `admin_access` says who may do what.

use std::{convert::Infallible, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE},
};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use levada_access::admin_access;
use levada_net::{admin_listener::AdminListener, stop::Stop};
use levada_upstream::Server;
use percent_encoding::percent_decode_str;
use serde::Serialize;

use crate::{explain, node::Node, reload::Reloader, servers, upgrade::upgrade};
use levada_metrics::{CacheResult, PageFormat};
use levada_upgrade::NotUpgraded;

/// The pages of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    All,
    /// Metrics and health only.
    Metrics,
}

/// How long an answer may take after the node has begun to stop.
const LAST_ANSWER: Duration = Duration::from_secs(1);
/// The paths of [`Pages::Metrics`].
const METRICS_PAGES: [&str; 3] = ["/metrics", "/healthz", "/readyz"];

/// Serves the admin listener, or the one for metrics, until the node stops.
pub(crate) async fn serve(
    reloader: Arc<Reloader>,
    pages: Pages,
    listener: AdminListener,
    stop: Stop,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.begun() => return,
        };
        let Ok((stream, client)) = accepted else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (reloader, cut) = (reloader.clone(), stop.clone());
        tokio::spawn(async move {
            let (reloader, stop) = (&reloader, &cut);
            let service = service_fn(|request: Request<Incoming>| async move {
                let answer = match pages {
                    Pages::All => administer(reloader, stop, client, request).await,
                    Pages::Metrics => metrics_page(&reloader.node, &request),
                };
                Ok::<_, Infallible>(answer)
            });
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(30))
                .serve_connection(TokioIo::new(stream), service);
            let mut served = pin!(served);
            // An admin connection works while the node drains, but does not delay its end. Who has asked for
            // an upgrade gets the answer.
            tokio::select! {
                served = served.as_mut() => if let Err(error) = served {
                    tracing::debug!(%error, "admin connection");
                },
                () = cut.begun() => {
                    served.as_mut().graceful_shutdown();
                    let _ = tokio::time::timeout(LAST_ANSWER, served).await;
                }
            }
        });
    }
}

/// Answers a request on the admin listener.
async fn administer(
    reloader: &Arc<Reloader>,
    stop: &Stop,
    client: Option<IpAddr>,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let node = &reloader.node;
    let settings = node.settings.load_full();
    let hosts = settings.admin.iter().flat_map(|admin| &admin.hosts);
    if client.is_some() && !admin_access::names_this_listener(request.headers(), hosts) {
        let message = "this Host is not an IP address, localhost or one of `hosts` in [admin]\n";
        return text(StatusCode::MISDIRECTED_REQUEST, message);
    }
    let (is_post, is_get) = (request.method() == Method::POST, request.method() == Method::GET);
    let path = request.uri().path();
    // A purge has a token of its own.
    let is_purge = is_post && path == "/purge";
    let token = settings.admin.as_ref().and_then(|admin| admin.token.as_deref());
    let by_socket = client.is_none();
    if is_post
        && !(is_purge && node.settings().purge.token.is_some())
        && let Err(refusal) = admin_access::may_order(token, client, request.headers())
    {
        return text(refusal.status(), refusal.as_str());
    }
    if is_purge {
        let answer = node.purging.handle_operator(request, by_socket).await;
        return answer.into_response(|text| Full::new(Bytes::from(text)));
    }
    if is_get && path == "/purge" {
        let order = argument(&request, "order").unwrap_or_default();
        let answer = node.purging.handle_question(&order);
        return answer.into_response(|text| Full::new(Bytes::from(text)));
    }
    if is_get && path == "/route" {
        return routed(node, &request).await;
    }
    if is_post && ORDERS.contains(&path) {
        return carry_out(reloader, stop, &request).await;
    }
    answer(node, &request)
}

/// Answers a request on the listener for metrics.
fn metrics_page(node: &Node, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if METRICS_PAGES.contains(&request.uri().path()) {
        return answer(node, request);
    }
    text(StatusCode::NOT_FOUND, "metrics and health only: /metrics /healthz /readyz\n")
}

fn answer(node: &Node, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let orders = ORDERS.join(", ");
        let message = format!("only GET, and POST to /purge, {orders}\n");
        return text(StatusCode::METHOD_NOT_ALLOWED, &message);
    }
    match request.uri().path() {
        "/" => text(
            StatusCode::OK,
            "/metrics /healthz /readyz /status /drain /route /servers /purge?order=ORDER /explain?url=URL, \
             POST /purge /reload /upgrade?binary=PATH /drain?rate=N /drain?undo /servers/drain?server=NAME /servers/resume?server=NAME\n",
        ),
        "/healthz" => text(StatusCode::OK, "alive\n"),
        "/readyz" => ready(node),
        "/metrics" => metrics(node, request.headers().get(ACCEPT)),
        "/status" => json(StatusCode::OK, &status(node)),
        "/drain" => json(StatusCode::OK, &draining(node)),
        "/servers" => json(StatusCode::OK, &servers::list(&node.sites.load())),
        "/explain" => explained(node, request),
        _ => text(StatusCode::NOT_FOUND, "no such page; / lists them\n"),
    }
}

/// The paths that operators post to, besides `/purge`.
const ORDERS: [&str; 5] = ["/reload", "/upgrade", "/drain", "/servers/drain", "/servers/resume"];

/// Carries out an operator's order.
async fn carry_out(
    reloader: &Arc<Reloader>,
    stop: &Stop,
    request: &Request<Incoming>,
) -> Response<Full<Bytes>> {
    // As for purges: a web page cannot make its reader's browser send this type.
    let kind = request.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if !kind.starts_with(b"application/json") {
        let message = "say that it is JSON: Content-Type: application/json\n";
        return text(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
    }
    let node = &reloader.node;
    let drained = match request.uri().path() {
        "/reload" => {
            return match reloader.reload(stop).await {
                Ok(changes) => json(StatusCode::OK, &serde_json::json!({ "changed": changes })),
                Err(reason) => text(StatusCode::UNPROCESSABLE_ENTITY, &format!("{reason}\n")),
            };
        }
        "/upgrade" => {
            let binary = argument(request, "binary").map(Into::into);
            return match upgrade(reloader, binary, stop).await {
                Ok(upgraded) => json(StatusCode::OK, &upgraded),
                Err(error @ NotUpgraded::Busy) => text(StatusCode::CONFLICT, &format!("{error}\n")),
                Err(error) => text(StatusCode::UNPROCESSABLE_ENTITY, &format!("{error}\n")),
            };
        }
        "/drain" => return drain(node, request),
        path => path == "/servers/drain",
    };
    let server = argument(request, "server").unwrap_or_default();
    match servers::drain(&node.sites.load(), &server, argument(request, "site").as_deref(), drained)
    {
        Ok(()) => json(StatusCode::OK, &servers::list(&node.sites.load())),
        Err(reason) => text(StatusCode::NOT_FOUND, &format!("{reason}\n")),
    }
}

/// Begins a drain, or undoes it.
fn drain(node: &Node, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if request.uri().query() == Some("undo") {
        node.drain.undo();
        tracing::info!("the drain is undone");
        return json(StatusCode::OK, &draining(node));
    }
    let rate = match argument(request, "rate").map(|rate| rate.parse()) {
        None => node.settings().limits.drain_rate,
        Some(Ok(rate @ 1..)) => rate,
        Some(_) => {
            let message = "rate is a number of downloads per second, at least 1\n";
            return text(StatusCode::BAD_REQUEST, message);
        }
    };
    node.drain.begin(rate);
    // A node with a route ends downloads only after the route is withdrawn.
    if node.route.is_none() {
        node.drain.close();
    }
    tracing::info!(downloads = node.drain.running(), "draining");
    json(StatusCode::OK, &draining(node))
}

/// The node's route, at once or, with `after`, when it has changed.
async fn routed(node: &Node, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let Some(route) = &node.route else {
        return text(StatusCode::NOT_FOUND, "the configuration has no [route]\n");
    };
    let after = argument(request, "after").and_then(|number| number.parse().ok());
    if let Some(number) = after {
        route.wait_for_change(number).await;
    }
    json(StatusCode::OK, &route.status(node.clock.uptime()))
}

/// The progress of a drain.
#[derive(Serialize)]
struct Draining {
    draining: bool,
    /// Long downloads that still run and can be moved.
    downloads: u64,
    /// Downloads that were moved since the node started.
    moved: u64,
    in_flight: i64,
}

fn draining(node: &Node) -> Draining {
    Draining {
        draining: node.drain.is_on(),
        downloads: node.drain.running(),
        moved: node.drain.moved(),
        in_flight: node.metrics.in_flight.get(),
    }
}

/// A query argument.
fn argument(request: &Request<Incoming>, name: &str) -> Option<String> {
    arguments(request, name).into_iter().next()
}

fn arguments(request: &Request<Incoming>, name: &str) -> Vec<String> {
    let query = request.uri().query().unwrap_or_default();
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let values = pairs.filter(|(key, _)| *key == name);
    values.map(|(_, value)| percent_decode_str(value).decode_utf8_lossy().into_owned()).collect()
}

/// Ready when the node serves clients, does not drain, and every site has an origin or server that is up.
fn ready(node: &Node) -> Response<Full<Bytes>> {
    let mut missing = node.awaited.missing();
    if missing.is_empty() && !node.purging.serves() {
        missing.push("start: the listeners for clients are not open yet".to_owned());
    }
    if node.drain.is_on() {
        missing.push("service: the node drains".to_owned());
    }
    missing.extend(node.cut_off().map(|why| format!("origins: {why}")));
    let ready = missing.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(status, &serde_json::json!({ "ready": ready, "missing": missing }))
}

fn metrics(node: &Node, accept: Option<&HeaderValue>) -> Response<Full<Bytes>> {
    let metrics = &node.metrics;
    let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    metrics.cache_bytes.set(whole(node.cache.store.bytes()));
    metrics.cache_objects.set(whole(node.cache.store.entries() as u64));
    metrics.filling_bytes.set(whole(node.cache.tiers.memory.bytes()));
    metrics.lent_bytes.set(whole(node.cache.tiers.loans.bytes()));
    metrics.draining.set(node.drain.is_on().into());
    metrics.purge_rules.set(whole(node.cache.purges.rule_count() as u64));
    metrics.purges_pending.set(whole(node.purging.pending()));
    let (misses, waiting) = node.misses();
    metrics.misses.set(whole(misses as u64));
    metrics.misses_waiting.set(whole(waiting as u64));
    let sites = node.sites.load();
    metrics.clear_switches();
    for site in sites.iter() {
        let Some(switch) = &site.switch else { continue };
        let (view, counts) = (switch.view(), switch.counts());
        let held =
            view.members.iter().map(|member| (member.server.name.to_string(), member.held()));
        metrics.set_switch(&site.name(), held, counts.waiting, counts.limit);
    }
    let mut deciders: Vec<_> = sites.iter().map(|site| &site.decider).collect();
    // Sites may share one.
    deciders.sort_by_key(|decider| Arc::as_ptr(decider));
    deciders.dedup_by_key(|decider| Arc::as_ptr(decider));
    let tracked = deciders.iter().map(|decider| decider.tracked());
    let (objects, bytes) = tracked.fold((0, 0), |(o, b), t| (o + t.objects, b + t.bytes));
    metrics.tracked_objects.set(whole(objects as u64));
    metrics.tracked_bytes.set(whole(bytes as u64));
    let names: Vec<_> = match &node.peers {
        Some(peers) => {
            let (now, name) = (peers.now(), |server: &Server| server.name.to_string());
            now.members().map(|(_, member)| (member.slot, name(&member.server))).collect()
        }
        None => vec![(0, node.settings().name.clone())],
    };
    metrics.large.look_at(&node.large.sources.lock().clone(), names.into_iter());
    let format = PageFormat::accepted(accept.and_then(|a| a.to_str().ok()).unwrap_or_default());
    let mut response = text(StatusCode::OK, &metrics.page(format));
    let kind = HeaderValue::from_static(format.content_type());
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn explained(node: &Node, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let url = argument(request, "url").unwrap_or_default();
    let mut asked = levada_settings::explained::ExplainedRequest::new(&url);
    asked.key = argument(request, "key");
    if let Some(client) = argument(request, "client").and_then(|text| text.parse().ok()) {
        asked.client = client;
    }
    // A line that is no field adds nothing.
    for line in arguments(request, "header") {
        asked.add_header(&line);
    }
    match explain::live(node, &asked) {
        Ok(explanation) => json(StatusCode::OK, &explanation),
        Err(error) => text(StatusCode::BAD_REQUEST, &format!("{error}\n")),
    }
}

/// The state of the node, for `levada demo` and scripts.
#[derive(Serialize)]
struct Status {
    name: String,
    uptime_seconds: f64,
    in_flight: i64,
    in_service: u32,
    capacity: u32,
    hits: u64,
    misses: u64,
    collapsed: u64,
    relayed: u64,
    bytes_sent: u64,
    origin_bytes: u64,
    cache_bytes: u64,
    cache_objects: usize,
    peers: Vec<ServerStatus>,
    origins: Vec<ServerStatus>,
}

#[derive(Serialize)]
struct ServerStatus {
    name: String,
    address: String,
    up: bool,
    /// Requests sent and not finished, as the policies count them.
    outstanding: Option<u32>,
    connections: usize,
    waiting: usize,
    /// The source that has named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
}

fn status(node: &Node) -> Status {
    let count = |result| node.metrics.count(false, result) + node.metrics.count(true, result);
    let members = node.peers.as_ref().map(|peers| peers.membership());
    let peers = members.iter().flat_map(|now| {
        now.members().map(|(n, member)| server_status(&member.server, Some(now.loads().of(n))))
    });
    let sites = node.sites.load();
    let lists: Vec<_> = sites.iter().map(|site| site.origins.list().clone()).collect();
    let origins = lists.iter().flat_map(|list| list.all());
    Status {
        name: node.settings().name.clone(),
        uptime_seconds: node.clock.uptime().as_secs_f64(),
        in_flight: node.metrics.in_flight.get(),
        in_service: node.capacity.held(),
        capacity: node.settings().limits.capacity,
        hits: count(CacheResult::Hit),
        misses: [CacheResult::Miss, CacheResult::Expired, CacheResult::Revalidated]
            .into_iter()
            .map(count)
            .sum(),
        collapsed: count(CacheResult::Collapsed),
        relayed: count(CacheResult::Relayed),
        bytes_sent: node.metrics.bytes_sent(),
        origin_bytes: node.metrics.origin_bytes.get(),
        cache_bytes: node.cache.store.bytes(),
        cache_objects: node.cache.store.entries(),
        peers: peers.collect(),
        origins: origins.map(origin_status).collect(),
    }
}

fn origin_status(origin: &Arc<levada_redirector::WatchedOrigin>) -> ServerStatus {
    let source = origin.source.as_ref().map(ToString::to_string);
    ServerStatus { source, ..server_status(&origin.server, None) }
}

fn server_status(server: &Server, outstanding: Option<u32>) -> ServerStatus {
    let counts = server.counts();
    ServerStatus {
        name: server.name.to_string(),
        address: server.address.to_string(),
        up: server.health.is_up(),
        outstanding,
        connections: counts.admitted,
        waiting: counts.waiting,
        source: None,
    }
}

fn json(status: StatusCode, body: &impl Serialize) -> Response<Full<Bytes>> {
    let text_body = serde_json::to_string_pretty(body).unwrap_or_default() + "\n";
    let mut response = text(status, &text_body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn text(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
