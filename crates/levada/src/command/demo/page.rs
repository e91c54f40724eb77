//! The page of the demo: that of a node, for all nodes together, with buttons. It shows what the watcher has read.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::Future,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use http::{HeaderValue, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::body::Incoming;
use levada_client::command::admin_client;
use levada_cluster::admin_access;
use levada_cluster::events::{EventKind, Events, unix_time};
use levada_config::PolicyChoice;
use levada_control::page::{
    Hello, Orders, Page, PageBody, SeenNode, Shown, Snapshot, Stalled, Story, StoryPhase,
};
use levada_control::status::{Sample, SetSize};
use levada_policy::POLICIES;
use levada_testbed::cluster::server::{self, accept, converse};
use percent_encoding::percent_decode_str;
use tokio::{net::TcpListener, sync::mpsc};

use super::{board::Board, plan::Phase, setup::Setup, watch::Watched};

/// An order of somebody who watches.
#[derive(Debug)]
pub(super) enum DemoOrder {
    /// Kills a node.
    Kill(usize),
    /// Begins one more crowd.
    Crowd,
    /// Changes the policy of all nodes.
    Policy(PolicyChoice),
}

/// The source of the page.
pub(super) struct DemoPage {
    setup: Arc<Setup>,
    board: Arc<Board>,
    nodes: Vec<Watched>,
    /// Unix time of the first request.
    begin: f64,
    now: Mutex<Scene>,
    orders: mpsc::Sender<DemoOrder>,
}

#[derive(Clone)]
struct Scene {
    phase: &'static str,
    words: String,
    policy: String,
}

/// The page while it is served.
pub(super) struct ServedPage {
    pub(super) page: Arc<DemoPage>,
    pub(super) orders: mpsc::Receiver<DemoOrder>,
    served: Arc<Page>,
    task: tokio::task::JoinHandle<()>,
}

impl ServedPage {
    /// Serves the page on `listener`.
    pub(super) fn start(
        listener: TcpListener,
        setup: &Arc<Setup>,
        board: &Arc<Board>,
        nodes: Vec<Watched>,
    ) -> Self {
        let (sender, orders) = mpsc::channel(4);
        let page = Arc::new(DemoPage {
            begin: unix_time(),
            now: Mutex::new(Scene {
                phase: Phase::WarmUp.as_str(),
                words: String::new(),
                policy: setup.policy.name.clone(),
            }),
            setup: setup.clone(),
            board: board.clone(),
            nodes,
            orders: sender,
        });
        let served = Arc::new(Page::new(page.clone()));
        let (shown, pages) = (page.clone(), served.clone());
        let task = tokio::spawn(accept(listener, move |stream, client| {
            let (shown, pages) = (shown.clone(), pages.clone());
            tokio::spawn(converse(Stalled::new(stream), move |request| {
                let (shown, pages) = (shown.clone(), pages.clone());
                async move { Ok::<_, Infallible>(answer(&shown, &pages, client, &request).await) }
            }));
        }));
        Self { page, orders, served, task }
    }

    /// Tells viewers that this is the end.
    pub(super) async fn end(&self) {
        self.served.end();
        tokio::time::sleep(END_GRACE).await;
        self.task.abort();
    }
}

/// An address for the page.
///
/// # Errors
/// When the system has no free port.
pub(super) async fn listener() -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    listener.context("no free port on 127.0.0.1 for the page")
}

impl DemoPage {
    /// Notes that a phase begins.
    pub(super) fn enter(&self, phase: Phase) {
        self.scene(phase.as_str(), phase.words());
        let events = &self.board.events;
        events.tell(EventKind::Other, format!("{}: {}", phase.as_str(), phase.words()));
    }

    /// Says what happens now.
    pub(super) fn scene(&self, phase: &'static str, words: &str) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        (now.phase, now.words) = (phase, words.to_owned());
    }

    /// Notes the policy that the nodes have now.
    pub(super) fn decides_by(&self, policy: &str) {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).policy = policy.to_owned();
    }

    /// Notes an event, which charts mark with `mark`.
    pub(super) fn happened(&self, text: &str, mark: &str, tone: &str) {
        let fields = [("mark", mark.into()), ("tone", tone.into())];
        self.board.events.tell_with(EventKind::Other, text, fields);
    }

    fn story(&self) -> Story {
        let scene = self.now.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut begin = Duration::ZERO;
        let phases = Phase::ALL.map(|phase| {
            let end = phase.end(self.setup.duration);
            let told = StoryPhase {
                name: phase.as_str(),
                begin: self.begin + begin.as_secs_f64(),
                end: self.begin + end.as_secs_f64(),
            };
            begin = end;
            told
        });
        let policies = POLICIES.iter().flat_map(|file| file.iter());
        Story {
            phase: scene.phase,
            phases: phases.into(),
            words: scene.words,
            policy: scene.policy,
            policies: policies.filter(|p| p.runs_on_an_edge()).map(|p| p.name).collect(),
        }
    }

    fn seen(&self) -> Vec<SeenNode> {
        let state = self.board.look();
        let nodes = self.nodes.iter().zip(&state.nodes).zip(&state.told);
        let seen = |((watched, live), told): ((&Watched, &super::board::NodeLive), _)| {
            let told: &Option<super::board::Told> = told;
            SeenNode {
                name: watched.name.clone(),
                address: watched.admin.to_string(),
                up: live.up,
                age_seconds: told.as_ref().map(|told| told.at.elapsed().as_secs_f64()),
                status: told.as_ref().map(|told| (*told.status).clone()),
                ..SeenNode::default()
            }
        };
        nodes.map(seen).collect()
    }

    /// Hands an order to the demo.
    fn order(&self, path: &str, query: &str) -> Result<(), String> {
        let value = query.split_once('=').map_or("", |(_, value)| value);
        let value = percent_decode_str(value).decode_utf8_lossy();
        let order = match path {
            "/demo/kill" => {
                let node = self.nodes.iter().position(|node| node.name == *value);
                DemoOrder::Kill(node.ok_or_else(|| format!("there is no node `{value}`"))?)
            }
            "/demo/crowd" => DemoOrder::Crowd,
            "/demo/policy" => {
                let policy = self.setup.policy_named(&value);
                DemoOrder::Policy(policy.map_err(|error| format!("{error:#}"))?)
            }
            _ => return Err("there is no such order".to_owned()),
        };
        self.orders.try_send(order).map_err(|_| "other orders are still carried out".to_owned())
    }
}

impl Shown for DemoPage {
    fn hello(&self, orders: Orders) -> Hello {
        let name = "demo".to_owned();
        Hello { kind: "demo", name, version: env!("CARGO_PKG_VERSION"), orders }
    }

    fn snapshot(&self) -> Pin<Box<dyn Future<Output = Snapshot> + Send + '_>> {
        Box::pin(async {
            Snapshot { demo: Some(self.story()), ..Snapshot::now(None, self.seen()) }
        })
    }

    fn history(&self) -> BTreeMap<String, Vec<Sample>> {
        let state = self.board.look();
        let names = self.nodes.iter().map(|node| node.name.clone());
        names.zip(state.samples.iter().map(|samples| samples.iter().copied().collect())).collect()
    }

    fn set_sizes(&self) -> BTreeMap<String, Vec<SetSize>> {
        self.board.set_sizes.told()
    }

    fn events(&self) -> &Events {
        &self.board.events
    }
}

async fn answer(
    page: &DemoPage,
    served: &Page,
    client: SocketAddr,
    request: &Request<Incoming>,
) -> Response<PageBody> {
    let headers = request.headers();
    if !admin_access::names_this_listener(headers, [].iter()) {
        return text(StatusCode::MISDIRECTED_REQUEST, "this Host is no IP address\n".into());
    }
    if let Some(answer) = served.answer(request, Orders::Here) {
        return answer;
    }
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    match (request.method(), path) {
        (&Method::POST, _) => {
            let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
            if let Err(refusal) = admin_access::may_order(None, Some(client.ip()), headers) {
                return text(refusal.status(), refusal.as_str().into());
            }
            if !kind.starts_with(b"application/json") {
                let message = "say that it is JSON: Content-Type: application/json\n";
                return text(StatusCode::UNSUPPORTED_MEDIA_TYPE, message.into());
            }
            match page.order(path, query) {
                Ok(()) => text(StatusCode::ACCEPTED, "{}\n".into()),
                Err(reason) => text(StatusCode::UNPROCESSABLE_ENTITY, format!("{reason}\n")),
            }
        }
        (&Method::GET, "/explain") => explained(page, request).await,
        (&Method::GET, "/") => {
            let text_of = "the page of a demo, for browsers; /live is its stream\n";
            text(StatusCode::OK, text_of.into())
        }
        _ => text(StatusCode::NOT_FOUND, "no such page; / is the page\n".into()),
    }
}

/// The explanation of the first node that is up.
async fn explained(page: &DemoPage, request: &Request<Incoming>) -> Response<PageBody> {
    let up = page.board.look().nodes.iter().position(|node| node.up);
    let target = request.uri().path_and_query().map_or("/explain", |target| target.as_str());
    let Some(node) = up.map(|index| &page.nodes[index]) else {
        return text(StatusCode::SERVICE_UNAVAILABLE, "no node is up\n".into());
    };
    match admin_client::try_get(node.admin, target, ANSWER_TIMEOUT).await {
        Ok(Ok(explanation)) => {
            let mut response = Response::new(PageBody::Whole(Full::new(explanation)));
            let kind = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        Ok(Err(refusal)) => text(StatusCode::BAD_REQUEST, refusal),
        Err(error) => text(StatusCode::BAD_GATEWAY, format!("{error:#}\n")),
    }
}

fn text(status: StatusCode, text: String) -> Response<PageBody> {
    server::text(status, text).map(PageBody::Whole)
}

/// The connections of viewers need a moment to say that this is the end.
const END_GRACE: Duration = Duration::from_millis(100);
/// The timeout for a page of a node that a viewer asks for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
