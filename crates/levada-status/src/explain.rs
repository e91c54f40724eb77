//! Explains which node would serve a URL, and why: as a running node sees it, or one that has just started.

use http::Uri;
use levada_fetch::ChunkUrl;
use levada_files::FileDirectory;
use levada_policy::{
    Cluster, LoadTable, Node as ClusterNode, NodeIndex, classify::RequestAttributes,
};
use levada_redirector::{Classes, Decider, DeciderDeployment, KeyFrom, SwitchSettings};
use levada_settings::{
    Settings, SiteSettings,
    explained::{EvaluatedExpression, ExplainedRequest, TakenRoute},
};
use levada_store::identity::{self, without_port};
use levada_types::{Key, Request, ServiceClass, Timestamp};

use crate::{Candidate, ExplainError, Explanation, PiecePlacement, Pieces};

/// The most pieces that are explained: each needs a decision of its own.
const EXPLAINED: u64 = 32;

/// A URL that is to be explained, before its site is known.
pub struct AskedUrl<'a> {
    asked: &'a ExplainedRequest,
    identity: String,
    host: String,
}

/// A URL with the route of its site.
pub struct RoutedUrl<'a> {
    asked: &'a ExplainedRequest,
    /// The text of its key.
    identity: String,
    route: Option<TakenRoute>,
    expressions: Vec<EvaluatedExpression>,
    access: Vec<String>,
}

/// A site and the nodes that its policy chooses from.
pub struct DecidingSite<'a> {
    /// The settings of the site, or of the servers of a route.
    pub settings: &'a SiteSettings,
    /// Its policy.
    pub decider: &'a Decider,
    /// The policy for pieces of large files.
    pub pieces: &'a Decider,
    /// Its service classes.
    pub classes: Option<&'a Classes>,
    /// The nodes, or the servers of the site's switch.
    pub cluster: &'a Cluster,
    /// The node that decides.
    pub redirector: &'a str,
    /// The time of the decision.
    pub now: Timestamp,
}

impl<'a> AskedUrl<'a> {
    /// The URL of a request.
    ///
    /// # Errors
    /// When it is not absolute.
    pub fn new(asked: &'a ExplainedRequest) -> Result<Self, ExplainError> {
        let uri = asked.url.parse::<Uri>().ok();
        let (identity, host) = uri
            .and_then(|uri| identity::of(&uri))
            .ok_or_else(|| ExplainError::NotAbsolute(asked.url.clone()))?;
        Ok(Self { asked, identity, host })
    }

    /// Its host, without a port.
    pub fn host(&self) -> &str {
        without_port(&self.host)
    }

    /// The error for a host that no site has.
    pub fn unknown(&self) -> ExplainError {
        ExplainError::UnknownHost(self.host.clone())
    }

    /// The URL as the first route of its site says that takes it.
    pub fn routed(self, site: &SiteSettings) -> RoutedUrl<'a> {
        let Self { asked, identity, .. } = self;
        let (routes, own) = (&site.routes, &site.handling);
        let route = asked.routed(routes, own, &identity);
        let taken = route.as_ref().and_then(|route| route.number);
        let handling = taken.map_or(own, |number| &routes.all[number].handling);
        let expressions = asked.expressions(routes, taken, handling, &identity);
        let access = handling.access.in_words();
        RoutedUrl { asked, identity: asked.keyed(handling, identity), route, expressions, access }
    }
}

impl RoutedUrl<'_> {
    /// The number of the route that takes it.
    pub fn route(&self) -> Option<usize> {
        self.route.as_ref().and_then(|route| route.number)
    }

    /// The decision of a site, which is not made. `size` tells the size of the object with a key, if it is known,
    /// and `known` the length and the version of the file with a key, if it is served in pieces.
    pub fn explain(
        self,
        site: &DecidingSite<'_>,
        size: impl FnOnce(Key) -> Option<u64>,
        known: impl FnOnce(Key) -> Option<(u64, u64)>,
    ) -> Explanation {
        let pieces = match site.settings.servers.switch {
            Some(_) => None,
            None => site.pieces(&self.identity, known),
        };
        let url =
            PlacedUrl::new(site.settings, site.classes, self.identity, self.asked.key.as_deref());
        let size = size(url.request.key);
        let explained = site.explain(site.decider, url, size);
        let Self { asked, route, expressions, access, .. } = self;
        let servers = site.settings.servers.in_words();
        let explained = Explanation { access, pieces, route, expressions, servers, ..explained };
        explained.of_files(site.settings, asked)
    }
}

impl DecidingSite<'_> {
    /// The places of the pieces of a file.
    fn pieces(
        &self,
        identity: &str,
        known: impl FnOnce(Key) -> Option<(u64, u64)>,
    ) -> Option<Pieces> {
        let size = self.settings.large?.plan.chunk;
        let (length, version) = known(Key::of(identity.as_bytes()))?;
        let count = length.div_ceil(size);
        let placed = |number: u64| {
            let range = number * size..length.min((number + 1) * size);
            let url = ChunkUrl { range, retries: 0, version, digest: None };
            let piece = PlacedUrl::new(self.settings, None, format!("{url} {identity}"), None);
            let placed = self.explain(self.pieces, piece, None);
            PiecePlacement { piece: url.to_string(), node: placed.node, set: placed.set }
        };
        Some(Pieces { size, count, first: (0..count.min(EXPLAINED)).map(placed).collect() })
    }

    fn explain(&self, decider: &Decider, url: PlacedUrl, size: Option<u64>) -> Explanation {
        let request = Request { size, ..url.request };
        let (pick, candidates, bound) = decider.foretell(&request, self.cluster, self.now);
        let name = |node: NodeIndex| self.cluster.node(node).name.to_string();
        Explanation {
            url: url.identity,
            key: format!("{:016x}", request.key.0),
            key_from: url.key_from,
            class: url.classified.then(|| request.class.as_str().into()),
            policy: decider.name().to_owned(),
            redirector: self.redirector.to_owned(),
            node: pick.map(|p| name(p.node)),
            reason: pick.map(|p| p.reason.as_str().into()),
            set_size: pick.map_or(0, |p| p.set_size),
            set: candidates.order.iter().take(candidates.set_size).map(|n| name(*n)).collect(),
            share: bound.and_then(|bound| bound.share),
            bound: bound.map(|bound| bound.requests),
            candidates: candidates.order.iter().map(|n| candidate(self.cluster, *n)).collect(),
            size,
            ..Explanation::default()
        }
    }
}

/// The decision of a node with these settings that has just started, when every node is up and idle.
///
/// # Errors
/// When the URL is not absolute or no site has its host.
pub fn explain_settings(
    settings: &Settings,
    asked: &ExplainedRequest,
) -> Result<Explanation, ExplainError> {
    let url = AskedUrl::new(asked)?;
    let site = settings.site(url.host()).ok_or_else(|| url.unknown())?;
    let url = url.routed(site);
    let of_route = url.route().and_then(|number| site.of_route(&site.routes.all[number]));
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
    let (loads, classes) = (LoadTable::new(nodes.len()), Classes::new(&site.classes));
    let deciding = DecidingSite {
        settings: site,
        decider: &decider,
        pieces: &decider,
        classes: classes.as_ref(),
        cluster: &Cluster::new(nodes, loads),
        redirector: &settings.name,
        now: Timestamp::ZERO,
    };
    Ok(url.explain(&deciding, |_| None, |_| None))
}

impl Explanation {
    /// The node that is asked answers, where it serves a directory.
    fn of_files(self, site: &SiteSettings, asked: &ExplainedRequest) -> Self {
        let Some(files) = &site.servers.files else { return self };
        let target = asked.url.parse::<Uri>().ok();
        let target = target.as_ref().and_then(Uri::path_and_query).map_or("/", |t| t.as_str());
        let file = Some(FileDirectory::new(files).explain(target));
        let node = Some(self.redirector.clone());
        Self { file, node, reason: Some("files".into()), set: Vec::new(), set_size: 0, ..self }
    }
}

/// A URL as the site's policy would see a GET of it.
struct PlacedUrl {
    identity: String,
    key_from: String,
    request: Request,
    classified: bool,
}

impl PlacedUrl {
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

fn candidate(cluster: &Cluster, node: NodeIndex) -> Candidate {
    let seen = cluster.node(node);
    Candidate {
        node: seen.name.to_string(),
        address: None,
        outstanding: cluster.load(node),
        weight: seen.weight,
        distance: seen.distance,
        up: seen.up,
        ramp: seen.ramp,
    }
}
