//! Explains which node would serve a URL, and why.

use http::Uri;
use levada_fetch::ChunkUrl;
use levada_files::FileDirectory;
use levada_policy::{
    Cluster, LoadTable, Node as ClusterNode, NodeIndex, classify::RequestAttributes,
};
use levada_redirector::{Classes, Decider, DeciderDeployment};
use levada_settings::explained::{EvaluatedExpression, ExplainedRequest, TakenRoute};
use levada_store::identity::{self, without_port};
use levada_types::{Key, Request, ServiceClass, Timestamp};
use serde::Serialize;

use crate::{
    node::Node,
    settings::{KeyFrom, Settings, SiteSettings, SwitchSettings},
    sites::Site,
};

/// The node that would be chosen, with everything that the decision depends on.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The effective request URI, which is hashed.
    pub url: String,
    /// The hash, in hexadecimal.
    pub key: String,
    /// The site's policy.
    pub policy: String,
    /// The node that decides.
    pub redirector: String,
    /// The routes of the site, where it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<TakenRoute>,
    /// The expressions that the request meets, with their values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expressions: Vec<EvaluatedExpression>,
    /// The part of the request that the key was taken from.
    pub key_from: String,
    /// The file that answers, or why none does, where the node serves a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The service class, where the site tells classes apart.
    pub class: Option<&'static str>,
    /// The node, or the server of the site's switch, that would serve; `None` when none is up.
    pub node: Option<String>,
    /// The reason: hash, replica, spill, least, class, chance.
    pub reason: Option<&'static str>,
    /// The number of nodes that are responsible for the object after this decision.
    pub set_size: u32,
    /// The nodes that are responsible now.
    pub set: Vec<String>,
    /// The object's share of the requests that this node has seen lately, if the policy counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// The outstanding requests at which a node of weight 1 takes no more requests for the object,
    /// if the policy has such a bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// All candidates in the policy's order, with the state of each.
    pub candidates: Vec<Candidate>,
    /// The size of the object, if a response has told it.
    pub size: Option<u64>,
    /// Who may use the site, and how much of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access: Vec<String>,
    /// The places of a large file's pieces, if the node has served it in pieces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pieces: Option<Pieces>,
}

/// The places of a large file's pieces.
#[derive(Clone, Debug, Serialize)]
pub struct Pieces {
    /// Bytes in a piece.
    pub size: u64,
    /// The number of pieces.
    pub count: u64,
    /// The first pieces, in file order.
    pub first: Vec<PiecePlacement>,
}

/// The place of a piece.
#[derive(Clone, Debug, Serialize)]
pub struct PiecePlacement {
    /// Its range and version, as in its URL.
    pub piece: String,
    /// The node that the piece would be requested from.
    pub node: Option<String>,
    /// The nodes that are responsible for it.
    pub set: Vec<String>,
}

/// The most pieces that are explained: each needs a decision of its own.
const EXPLAINED: u64 = 32;

/// One node as the decision saw it.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// Its name.
    pub node: String,
    /// Requests that this redirector has sent to it and that are not finished.
    pub outstanding: u32,
    /// Its weight.
    pub weight: f64,
    /// Its distance relative to the nearest node.
    pub distance: f64,
    /// Whether it is up.
    pub up: bool,
    /// The share that its slow start has reached; 1 when it is warm.
    pub ramp: f64,
}

/// Why a URL cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// It is not an absolute URL.
    #[error("`{0}` is no absolute URL: write it as in http://www.example.com/path")]
    NotAbsolute(String),
    /// No site has this host.
    #[error("no site answers to the host `{0}`; look at `hosts` of each [[site]]")]
    UnknownHost(String),
    /// The site's policy cannot be built.
    #[error(transparent)]
    Policy(#[from] levada_policy::BuildError),
}

/// The decision that a running node would take now. Changes nothing.
pub(crate) fn live(node: &Node, asked: &ExplainedRequest) -> Result<Explanation, ExplainError> {
    let (identity, host) = split(&asked.url)?;
    let sites = node.sites.load();
    let site =
        sites.find(without_port(&host)).ok_or_else(|| ExplainError::UnknownHost(host.clone()))?;
    let (routes, own) = (&site.settings.routes, &site.settings.handling);
    let route = asked.routed(routes, own, &identity);
    let taken = route.as_ref().and_then(|route| route.number);
    let handling = taken.map_or(own, |number| &routes.all[number].handling);
    let expressions = asked.expressions(routes, taken, handling, &identity);
    let (identity, access) = (asked.keyed(handling, identity), handling.access.in_words());
    let site = taken.and_then(|number| site.routes.as_ref()?.site(number)).unwrap_or(site);
    let (classes, key) = (site.classes.as_deref(), asked.key.as_deref());
    let url = ExplainedUrl::new(&site.settings, classes, identity, key);
    let (decider, name, now) = (&site.decider, &node.settings().name, node.clock.now());
    let size = node.forwarder.sizes.get(url.request.key);
    if let Some(switch) = &site.switch {
        let explained = explain(decider, switch.view().cluster(), url, name, size, now);
        return Ok(Explanation { access, route, expressions, ..explained });
    }
    let (cluster, size) = match &node.peers {
        Some(peers) => (peers.now().cluster().clone(), size),
        None => (Cluster::new(vec![ClusterNode::new(name)], LoadTable::new(1)), None),
    };
    let pieces = pieces(node, site, &cluster, &url.identity, now);
    let explained = explain(decider, &cluster, url, name, size, now);
    let explained = Explanation { access, pieces, route, expressions, ..explained };
    Ok(explained.of_files(&site.settings, asked))
}

/// The places of the pieces of a file that this node has served in pieces.
fn pieces(
    node: &Node,
    site: &Site,
    cluster: &Cluster,
    identity: &str,
    now: Timestamp,
) -> Option<Pieces> {
    let size = site.settings.large?.plan.chunk;
    let known = node.large.known.get(Key::of(identity.as_bytes()))?;
    let count = known.length.div_ceil(size);
    let decider = site.pieces.as_ref().unwrap_or(&site.decider);
    let placed = |number: u64| {
        let range = number * size..known.length.min((number + 1) * size);
        let url = ChunkUrl { range, retries: 0, version: known.version, digest: None };
        let piece = ExplainedUrl::new(&site.settings, None, format!("{url} {identity}"), None);
        let placed = explain(decider, cluster, piece, &node.settings().name, None, now);
        PiecePlacement { piece: url.to_string(), node: placed.node, set: placed.set }
    };
    Some(Pieces { size, count, first: (0..count.min(EXPLAINED)).map(placed).collect() })
}

/// The decision of a node with these settings that has just started, when every node is up and idle.
///
/// # Errors
/// When the URL is not absolute or no site has its host.
pub fn offline(settings: &Settings, asked: &ExplainedRequest) -> Result<Explanation, ExplainError> {
    let (identity, host) = split(&asked.url)?;
    let site = settings
        .site(without_port(&host))
        .ok_or_else(|| ExplainError::UnknownHost(host.clone()))?;
    let (routes, own) = (&site.routes, &site.handling);
    let route = asked.routed(routes, own, &identity);
    let taken = route.as_ref().and_then(|route| route.number);
    let handling = taken.map_or(own, |number| &routes.all[number].handling);
    let expressions = asked.expressions(routes, taken, handling, &identity);
    let (identity, access) = (asked.keyed(handling, identity), handling.access.in_words());
    let of_route = taken.and_then(|number| site.of_route(&site.routes.all[number]));
    let site = of_route.as_ref().unwrap_or(site);
    let nodes: Vec<ClusterNode> = match (&site.servers.switch, &settings.peering) {
        (Some(switch), _) => switch.nodes(),
        (None, Some(peering)) => levada_peers::nodes(peering),
        (None, None) => vec![ClusterNode::new(&settings.name)],
    };
    let seed = settings.seed.unwrap_or_default();
    let redirectors = settings.peering.as_ref().map_or(1, |p| p.peers.len()).max(1) as u32;
    let capacity =
        site.servers.switch.as_ref().map_or(settings.limits.capacity, SwitchSettings::capacity);
    let deployment = DeciderDeployment { redirectors, capacity, seed };
    let decider = Decider::new(&site.servers.policy, &deployment)?;
    let loads = LoadTable::new(nodes.len());
    let cluster = Cluster::new(nodes, loads);
    let classes = Classes::new(&site.classes);
    let url = ExplainedUrl::new(site, classes.as_ref(), identity, asked.key.as_deref());
    let explained = explain(&decider, &cluster, url, &settings.name, None, Timestamp::ZERO);
    let explained = explained.of_files(site, asked);
    Ok(Explanation { access, route, expressions, ..explained })
}

impl Explanation {
    /// The node that is asked answers, where it serves a directory.
    fn of_files(self, site: &SiteSettings, asked: &ExplainedRequest) -> Self {
        let Some(files) = &site.servers.files else { return self };
        let target = asked.url.parse::<Uri>().ok();
        let target = target.as_ref().and_then(Uri::path_and_query).map_or("/", |t| t.as_str());
        let file = Some(FileDirectory::new(files).explain(target));
        let node = Some(self.redirector.clone());
        Self { file, node, reason: Some("files"), set: Vec::new(), set_size: 0, ..self }
    }
}

/// A URL as the site's policy would see a GET of it.
struct ExplainedUrl {
    identity: String,
    key_from: String,
    request: Request,
    classified: bool,
}

impl ExplainedUrl {
    /// `key` is the value that the site takes its key from, if that is not the URL.
    fn new(
        site: &SiteSettings,
        classes: Option<&Classes>,
        identity: String,
        key: Option<&str>,
    ) -> Self {
        let from = site.servers.switch.as_ref().map_or(&KeyFrom::Url, |switch| &switch.key);
        let authority = identity.find("://").map_or(0, |at| at + 3);
        let path_at = identity[authority..].find('/').map_or(identity.len(), |at| authority + at);
        let target = &identity[path_at..];
        let argument = |name: &str| {
            let pairs =
                target.split_once('?')?.1.split('&').filter_map(|pair| pair.split_once('='));
            pairs.into_iter().find(|(own, _)| *own == name).map(|(_, value)| value)
        };
        let value = match from {
            KeyFrom::Url => None,
            KeyFrom::Host => Some(&identity[authority..path_at]),
            KeyFrom::Query(name) => argument(name).or(key),
            KeyFrom::Header(_) | KeyFrom::Cookie(_) | KeyFrom::Body { .. } => key,
        };
        let key_from = match (value, from) {
            (None, KeyFrom::Url) => "url".to_owned(),
            (None, other) => format!("url, without {other}"),
            (Some(_), other) => other.to_string(),
        };
        let beginning = |value: &[u8]| match from {
            KeyFrom::Body { bytes, .. } => Key::of(&value[..value.len().min(*bytes)]),
            _ => Key::of(value),
        };
        let key = value.map_or_else(|| Key::of(identity.as_bytes()), |v| beginning(v.as_bytes()));
        let path = target.split('?').next().unwrap_or_default();
        let tls = identity.starts_with("https:");
        let seen = RequestAttributes { path, method: "GET", content_type: None, tls };
        let class = classes.map_or_else(ServiceClass::default, |classes| classes.of(&seen).0);
        let request = Request { class, ..Request::new(key) };
        Self { key_from, request, classified: classes.is_some(), identity }
    }
}

fn explain(
    decider: &Decider,
    cluster: &Cluster,
    url: ExplainedUrl,
    redirector: &str,
    size: Option<u64>,
    now: Timestamp,
) -> Explanation {
    let request = Request { size, ..url.request };
    let (pick, candidates, bound) = decider.foretell(&request, cluster, now);
    let name = |node: NodeIndex| cluster.node(node).name.to_string();
    Explanation {
        url: url.identity,
        key: format!("{:016x}", request.key.0),
        key_from: url.key_from,
        route: None,
        file: None,
        expressions: Vec::new(),
        class: url.classified.then(|| request.class.as_str()),
        policy: decider.name().to_owned(),
        redirector: redirector.to_owned(),
        node: pick.map(|p| name(p.node)),
        reason: pick.map(|p| p.reason.as_str()),
        set_size: pick.map_or(0, |p| p.set_size),
        set: candidates.order.iter().take(candidates.set_size).map(|n| name(*n)).collect(),
        share: bound.and_then(|bound| bound.share),
        bound: bound.map(|bound| bound.requests),
        candidates: candidates.order.iter().map(|n| candidate(cluster, *n)).collect(),
        size,
        access: Vec::new(),
        pieces: None,
    }
}

fn candidate(cluster: &Cluster, node: NodeIndex) -> Candidate {
    let seen = cluster.node(node);
    Candidate {
        node: seen.name.to_string(),
        outstanding: cluster.load(node),
        weight: seen.weight,
        distance: seen.distance,
        up: seen.up,
        ramp: seen.ramp,
    }
}

fn split(url: &str) -> Result<(String, String), ExplainError> {
    url.parse::<Uri>()
        .ok()
        .and_then(|uri| identity::of(&uri))
        .ok_or_else(|| ExplainError::NotAbsolute(url.to_owned()))
}
