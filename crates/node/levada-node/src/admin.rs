//! The admin listener: metrics, health, status, explain, orders. Plain HTTP on an address that is never
//! public. `admin_access` says who may do what.

use std::{
    convert::Infallible,
    future::pending,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER},
};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use levada_cluster::admin_access::{self, OrderRefusal};
use levada_control::page::{Page, PageBody, Stalled};
use levada_edge::{node::Node, sites::Site, status::switched};
use levada_net::{admin_listener::AdminListener, owner, stop::Stop};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use tokio::sync::Mutex;

use crate::{
    admin_places::AdminPlaces,
    explain::{self, ExplainedRequest},
    fleet::{begin_drain, undo_drain},
    page::{self, NodePage},
    reload::Reloader,
    replace::upgrade,
    upgrade::NotUpgraded,
};
use levada_observe::metrics::PageFormat;

/// The pages of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    All,
    /// Metrics and health only.
    Metrics,
}

/// How long an answer may take after the node has started to stop.
const LAST_ANSWER: Duration = Duration::from_secs(1);
/// How long a new connection may take to send the head of its first request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a connection may wait for a further request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The pages that need no place among requests in work.
const HEALTH_PAGES: [&str; 2] = ["/healthz", "/readyz"];

/// Serves the admin listener, or the one for metrics, until the node stops.
pub(crate) async fn serve(
    reloader: Arc<Reloader>,
    pages: Pages,
    listener: AdminListener,
    stop: Stop,
) {
    let page = Arc::new(Page::new(Arc::new(NodePage::new(reloader.clone()))));
    let places = Arc::new(AdminPlaces::new());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.begun() => return,
        };
        let Ok((stream, client)) = accepted else {
            places.give_way();
            tokio::time::sleep(levada_net::listening::ACCEPT_BACKOFF).await;
            continue;
        };
        let (place, given_way) = places.enter(client);
        let (reloader, page, places) = (reloader.clone(), page.clone(), places.clone());
        let (cut, ends) = (stop.clone(), stream.ends());
        tokio::spawn(async move {
            let (reloader, page, places, place) = (&reloader, &page, &places, &place);
            // Held while a request is in work.
            let (stop, has_asked) = (&cut, &Mutex::new(false));
            let service = service_fn(|request: Request<Incoming>| async move {
                let mut has_asked = has_asked.lock().await;
                *has_asked = true;
                let _busy = place.busy();
                let shown = match pages {
                    Pages::All => page::answer(page, &reloader.node, client, &request),
                    Pages::Metrics => None,
                };
                let answer = match (shown, pages) {
                    (Some(shown), _) => return Ok::<_, Infallible>(shown),
                    (None, Pages::All) => administer(reloader, places, stop, ends, request).await,
                    (None, Pages::Metrics) => metrics_page(reloader, places, client, request).await,
                };
                Ok(answer.map(PageBody::Whole))
            });
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(IDLE_TIMEOUT)
                .serve_connection(TokioIo::new(Stalled::new(stream)), service);
            let mut served = pin!(served);
            let silent = async {
                tokio::time::sleep(HEAD_TIMEOUT).await;
                if *has_asked.lock().await {
                    pending::<()>().await;
                }
            };
            let displaced = async {
                if given_way.await.is_err() {
                    pending::<()>().await;
                }
                drop(has_asked.lock().await);
            };
            // A request that has come is answered before its connection gives way. An admin connection works while
            // the node drains, but does not delay its end. Who has asked for an upgrade gets the answer.
            tokio::select! {
                biased;
                served = served.as_mut() => if let Err(error) = served {
                    tracing::debug!(%error, "admin connection");
                },
                () = silent => {}
                () = displaced => {}
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
    places: &AdminPlaces,
    stop: &Stop,
    ends: Option<(SocketAddr, SocketAddr)>,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let node = &reloader.node;
    let client = ends.map(|(client, _)| client.ip());
    let settings = node.settings.load_full();
    if !page::names_this_listener(&settings, client, request.headers()) {
        let message = "this Host is not an IP address, localhost or one of `hosts` in [admin]\n";
        return text(StatusCode::MISDIRECTED_REQUEST, message);
    }
    let (is_post, is_get) = (request.method() == Method::POST, request.method() == Method::GET);
    let path = request.uri().path();
    if HEALTH_PAGES.contains(&path) {
        return answer_aside(reloader, request).await;
    }
    let Some(_work) = places.work(&settings, client, &request) else { return full() };
    // A purge has a token of its own.
    let is_purge = is_post && path == "/purge";
    let token = settings.admin.as_ref().and_then(|admin| admin.token.as_deref());
    let by_socket = client.is_none();
    if is_post
        && !(is_purge && takes_purges_by_token(node, request.headers()))
        && let Err(refusal) = may_order(token, ends, request.headers())
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
    if is_get && path == "/cluster" {
        return json(StatusCode::OK, &page::cluster(node).await);
    }
    if is_get && path == "/fleet" {
        return match reloader.fleet.get() {
            Some((status, _)) => json(StatusCode::OK, &status.lock().clone()),
            None => text(StatusCode::NOT_FOUND, "the node is of no fleet\n"),
        };
    }
    if is_get && path == "/route" {
        return routed(node, &request).await;
    }
    if is_post && ORDERS.contains(&path) {
        return carry_out(reloader, stop, &request).await;
    }
    answer_aside(reloader, request).await
}

/// Whether a token for purges decides about a purge, and not one for orders.
fn takes_purges_by_token(node: &Node, headers: &HeaderMap) -> bool {
    node.settings().purge.access.token.is_some() || node.purging.grant(headers).is_some()
}

/// Whether a client may change something. Without a token, that is for root and for the user of this process.
fn may_order(
    token: Option<&str>,
    ends: Option<(SocketAddr, SocketAddr)>,
    headers: &HeaderMap,
) -> Result<(), OrderRefusal> {
    admin_access::may_order(token, ends.map(|(client, _)| client.ip()), headers)?;
    let Some((client, here)) = ends.filter(|_| token.is_none()) else { return Ok(()) };
    if owner::is_own(client, here) { Ok(()) } else { Err(OrderRefusal::OtherUser) }
}

/// Answers a request on the listener for metrics.
async fn metrics_page(
    reloader: &Arc<Reloader>,
    places: &AdminPlaces,
    client: Option<IpAddr>,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    if HEALTH_PAGES.contains(&path) {
        return answer_aside(reloader, request).await;
    }
    if path != "/metrics" {
        let message = "metrics and health only: /metrics /healthz /readyz\n";
        return text(StatusCode::NOT_FOUND, message);
    }
    match places.work(&reloader.node.settings(), client, &request) {
        Some(_work) => answer_aside(reloader, request).await,
        None => full(),
    }
}

/// Answers on a thread that does not serve clients: pages of a node with thousands of sites take long to make.
async fn answer_aside(
    reloader: &Arc<Reloader>,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    // A node lives though all its threads wait for a disk.
    if request.uri().path() == "/healthz" {
        return answer(reloader, &request);
    }
    let reloader = reloader.clone();
    let answered = tokio::task::spawn_blocking(move || answer(&reloader, &request)).await;
    answered.unwrap_or_else(|error| text(StatusCode::SERVICE_UNAVAILABLE, &format!("{error}\n")))
}

fn answer(reloader: &Reloader, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let node = &reloader.node;
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let orders = ORDERS.join(", ");
        let message = format!("only GET, and POST to /purge, {orders}\n");
        return text(StatusCode::METHOD_NOT_ALLOWED, &message);
    }
    match request.uri().path() {
        "/" => text(
            StatusCode::OK,
            "a page for browsers; /live /metrics /healthz /readyz /status /cluster /fleet /events /drain /route /servers /purge?order=ORDER /explain?url=URL, \
             POST /purge /reload /upgrade?binary=PATH /drain?rate=N /drain?undo /servers/drain?server=NAME /servers/resume?server=NAME\n",
        ),
        "/healthz" => text(StatusCode::OK, "alive\n"),
        "/readyz" => ready(node),
        "/metrics" => page_of_metrics(reloader, request.headers().get(ACCEPT)),
        "/status" => json(StatusCode::OK, &node.status()),
        "/events" => json(StatusCode::OK, &node.events.since(0)),
        "/drain" => json(StatusCode::OK, &node.draining()),
        "/servers" => json(StatusCode::OK, &switched(&node.sites.load())),
        "/explain" => explained(node, request),
        _ => text(StatusCode::NOT_FOUND, "no such page; / lists them\n"),
    }
}

/// The paths that operators post to, in addition to `/purge`.
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
    match drain_server(node, &server, argument(request, "site").as_deref(), drained) {
        Ok(()) => json(StatusCode::OK, &switched(&node.sites.load())),
        Err(reason) => text(StatusCode::NOT_FOUND, &format!("{reason}\n")),
    }
}

/// Drains a server of switches, or undoes that, on every site or on the site of one host.
fn drain_server(
    node: &Node,
    server: &str,
    host: Option<&str>,
    drained: bool,
) -> Result<(), String> {
    let sites = node.sites.load();
    let wanted = |site: &&Arc<Site>| {
        host.is_none_or(|host| site.settings.hosts.iter().any(|own| own.eq_ignore_ascii_case(host)))
    };
    let switches = sites.iter().filter(wanted).filter_map(|site| site.switch.as_deref());
    let switches: Vec<_> = switches.collect();
    let sites = levada_control::status::drain_server(&switches, server, drained)?;
    tracing::info!(server, drained, sites, "an operator changed a server's drain");
    Ok(())
}

/// Begins a drain, or undoes it.
fn drain(node: &Node, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if request.uri().query() == Some("undo") {
        undo_drain(node);
        return json(StatusCode::OK, &node.draining());
    }
    let rate = match argument(request, "rate").map(|rate| rate.parse()) {
        None => node.settings().limits.drain_rate,
        Some(Ok(rate @ 1..)) => rate,
        Some(_) => {
            let message = "rate is a number of downloads per second, at least 1\n";
            return text(StatusCode::BAD_REQUEST, message);
        }
    };
    begin_drain(node, rate);
    json(StatusCode::OK, &node.draining())
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
    let missing = node.missing();
    let ready = missing.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(status, &serde_json::json!({ "ready": ready, "missing": missing }))
}

fn page_of_metrics(reloader: &Reloader, accept: Option<&HeaderValue>) -> Response<Full<Bytes>> {
    let format = PageFormat::accepted(accept.and_then(|a| a.to_str().ok()).unwrap_or_default());
    let mut response = Response::new(Full::from(format.page(&reloader.read_metrics())));
    let kind = HeaderValue::from_static(format.content_type());
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn explained(node: &Node, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let url = argument(request, "url").unwrap_or_default();
    let mut asked = ExplainedRequest::new(&url);
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

/// The answer to a request that finds no place.
fn full() -> Response<Full<Bytes>> {
    let message = "this address has too much work; try again, or use the admin token\n";
    let mut answer = text(StatusCode::SERVICE_UNAVAILABLE, message);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
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
