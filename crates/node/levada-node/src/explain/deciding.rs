//! Explains which node would serve a URL, and why: as a running node sees it, or one that has just started.

use std::fmt::Display;

use http::Method;
use levada_body::files::FileDirectory;
use levada_cluster::nodes::nodes;
use levada_config::{Settings, SiteSettings, identity::Identity};
use levada_fetch::ChunkUrl;
use levada_policy::{Cluster, LoadTable, Node as ClusterNode, NodeIndex};
use levada_redirector::{Classes, Decider, DeciderDeployment, KeyFrom, SwitchSettings};
use levada_store::identity::{ResourceUrl, without_port};
use levada_types::{Key, Request, ServiceClass, Timestamp};

use crate::explain::{
    Candidate, EvaluatedExpression, ExplainError, ExplainedRequest, Explanation, PiecePlacement,
    Pieces, ShieldChoice, TakenRoute,
};

/// The most pieces that are explained: each needs a decision of its own.
const EXPLAINED: u64 = 32;

/// A request as the node sees it that explains it.
pub struct IdentifiedRequest<'a> {
    /// The request, with the fields that count.
    pub asked: &'a ExplainedRequest,
    /// Its URL.
    pub url: &'a ResourceUrl,
    /// The text of the identity.
    pub identity: &'a str,
    /// The key and the class that the policy sees.
    pub subject: (Key, ServiceClass),
    /// The part of the request that the key is of; `None`: the URL.
    pub part: Option<&'a [u8]>,
    /// The key of a piece of the file.
    pub piece: &'a dyn Fn(ChunkUrl) -> Key,
}

/// The route of a request, and what it meets there.
struct Described {
    route: Option<TakenRoute>,
    /// The path that names a file, if the route has files.
    file: String,
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

impl Described {
    fn of(asked: &ExplainedRequest, url: &ResourceUrl, site: &SiteSettings) -> Self {
        let (routes, own) = (&site.routes, &site.handling);
        // The URL of the request may be that of an internal redirect.
        let (place, steps) = asked.place(site, asked.resource().as_ref().unwrap_or(url));
        let (taken, url) = (place.number, &place.url);
        let route = asked.routed(routes, own, (&place, steps));
        let handling = taken.map_or(own, |number| &routes.all[number].handling);
        let expressions = asked.expressions(routes, taken, handling, url);
        let file = handling.file_target(&asked.facts(url, &asked.headers));
        Self { route, file, expressions, access: handling.access.in_words() }
    }
}

impl DecidingSite<'_> {
    /// The decision about a request, which is not made. `of_host` are the settings of the host's site. `size` tells
    /// the size of the object with a key, if it is known, and `known` the length and the version of the file with a
    /// key, if it is served in pieces.
    pub fn explain(
        &self,
        request: &IdentifiedRequest<'_>,
        of_host: &SiteSettings,
        size: impl FnOnce(Key) -> Option<u64>,
        known: impl FnOnce(Key) -> Option<(u64, u64)>,
    ) -> Explanation {
        let IdentifiedRequest { asked, url, identity, subject: (key, class), part, .. } = *request;
        let Described { route, file, expressions, access } = Described::of(asked, url, of_host);
        let pieces = match self.settings.servers.switch {
            Some(_) => None,
            None => self.pieces(request, known),
        };
        let from = self.settings.servers.key_from();
        let given = asked.key.as_deref().map(str::as_bytes).filter(|_| *from != KeyFrom::Url);
        let (part, key) = match (part, given, from) {
            (None, Some(given), KeyFrom::Body { bytes, .. }) => {
                (Some(given), Key::of(&given[..given.len().min(*bytes)]))
            }
            (None, Some(given), _) => (Some(given), Key::of(given)),
            (part, ..) => (part, key),
        };
        let key_from = match (part, from) {
            (_, KeyFrom::Url) => "url".to_owned(),
            (None, other) => format!("url, without {other}"),
            (Some(_), other) => other.to_string(),
        };
        let wanted = Request { class, size: size(key), ..Request::new(key) };
        let explained = Explanation {
            url: identity.to_owned(),
            key_from,
            class: self.classes.map(|_| class.as_str().into()),
            access,
            pieces,
            route,
            expressions,
            servers: self.settings.servers.in_words(),
            ..self.decision(self.decider, &wanted)
        };
        explained.of_files(self.settings, &file)
    }

    /// The places of the pieces of a file.
    fn pieces(
        &self,
        request: &IdentifiedRequest<'_>,
        known: impl FnOnce(Key) -> Option<(u64, u64)>,
    ) -> Option<Pieces> {
        let size = self.settings.large?.plan.chunk;
        let (length, version) = known(Key::of(request.identity.as_bytes()))?;
        let count = length.div_ceil(size);
        let placed = |number: u64| {
            let range = number * size..length.min((number + 1) * size);
            let url = ChunkUrl { range, retries: 0, version, digest: None };
            let piece = url.to_string();
            let key = (request.piece)(url);
            let placed = self.decision(self.pieces, &Request::new(key));
            PiecePlacement { piece, node: placed.node, set: placed.set }
        };
        Some(Pieces { size, count, first: (0..count.min(EXPLAINED)).map(placed).collect() })
    }

    fn decision(&self, decider: &Decider, request: &Request) -> Explanation {
        let (pick, candidates, bound) = decider.foretell(request, self.cluster, self.now);
        let name = |node: NodeIndex| self.cluster.node(node).name.to_string();
        Explanation {
            key: format!("{:016x}", request.key.0),
            policy: decider.name().to_owned(),
            redirector: self.redirector.to_owned(),
            node: pick.map(|p| name(p.node)),
            reason: pick.map(|p| p.reason.as_str().into()),
            set_size: pick.map_or(0, |p| p.set_size),
            set: candidates.order.iter().take(candidates.set_size).map(|n| name(*n)).collect(),
            share: bound.and_then(|bound| bound.share),
            bound: bound.map(|bound| bound.requests),
            candidates: candidates.order.iter().map(|n| candidate(self.cluster, *n)).collect(),
            size: request.size,
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
    let url = asked.resource().ok_or_else(|| ExplainError::NotAbsolute(asked.url.clone()))?;
    let of_host = settings.site(without_port(url.host()));
    let of_host = of_host.ok_or_else(|| ExplainError::UnknownHost(url.host().to_owned()))?;
    let (place, _) = asked.place(of_host, &url);
    let (taken, url) = (place.number, place.url);
    let of_route = taken.and_then(|number| of_host.of_route(&of_host.routes.all[number]));
    let site = of_route.as_ref().unwrap_or(of_host);
    let routed = |number: usize| &of_host.routes.all[number].handling;
    let handling = taken.map_or(&of_host.handling, routed);
    let received = asked.end_to_end();
    let identified = |part: Option<&dyn Display>| {
        Identity::of(&url, handling, part, &received, || asked.facts(&url, &received))
    };
    let identity = identified(None);
    let piece = |piece: ChunkUrl| identified(Some(&piece)).key();
    let peering = settings.peering.as_ref();
    let near = peering.map(|peering| nodes(&peering.region_of(&settings.name), peering));
    let near = near.unwrap_or_else(|| vec![ClusterNode::new(&settings.name)]);
    let redirectors = near.len() as u32;
    let switched = site.servers.switch.as_ref();
    let nodes_here = switched.map_or(near, SwitchSettings::nodes);
    let seed = settings.seed.unwrap_or_default();
    let capacity =
        site.servers.switch.as_ref().map_or(settings.limits.capacity, SwitchSettings::capacity);
    let deployment = DeciderDeployment { redirectors, capacity, seed };
    let decider = Decider::new(&site.servers.policy, &deployment)?;
    let (loads, classes) = (LoadTable::new(nodes_here.len()), Classes::new(&site.classes));
    let deciding = DecidingSite {
        settings: site,
        decider: &decider,
        pieces: &decider,
        classes: classes.as_ref(),
        cluster: &Cluster::new(nodes_here, loads),
        redirector: &settings.name,
        now: Timestamp::ZERO,
    };
    let mut headers = received.clone();
    handling.prepare((asked.client, &Method::GET, &url), &mut headers);
    let part = site.servers.key_from().value((url.host(), url.target()), &headers);
    let request = (url.scheme(), &Method::GET, url.target());
    let class = classes.as_ref().map(|classes| classes.of_request(request, &headers).0);
    let request = IdentifiedRequest {
        asked,
        url: &url,
        identity: identity.text(&url),
        subject: (part.map_or(identity.key(), Key::of), class.unwrap_or_default()),
        part,
        piece: &piece,
    };
    let mut explained = deciding.explain(&request, of_host, |_| None, |_| None);
    if let Some((shield, peering)) = site.servers.shield.as_ref().zip(peering) {
        let (region, redirectors) = (&shield.region, peering.peers.len().max(1) as u32);
        let capacity = settings.limits.capacity;
        let decider =
            Decider::new(&shield.policy, &DeciderDeployment { redirectors, capacity, seed })?;
        let nodes = nodes(region, peering);
        let (key, class) = request.subject;
        let (loads, request) =
            (LoadTable::new(nodes.len()), Request { class, ..Request::new(key) });
        let cluster = Cluster::new(nodes, loads);
        let choice = ShieldChoice::of(region, &decider, &request, &cluster, Timestamp::ZERO);
        explained.shield = Some(choice);
    }
    Ok(explained)
}

impl ShieldChoice {
    /// The choice among `nodes`, those of the shield, which is not made.
    pub(crate) fn of(
        region: &str,
        decider: &Decider,
        request: &Request,
        nodes: &Cluster,
        now: Timestamp,
    ) -> Self {
        let (pick, candidates, _) = decider.foretell(request, nodes, now);
        let name = |node: NodeIndex| nodes.node(node).name.to_string();
        Self {
            region: region.to_owned(),
            policy: decider.name().to_owned(),
            node: pick.map(|pick| name(pick.node)),
            reason: pick.map(|pick| pick.reason.as_str().into()),
            candidates: candidates.order.iter().map(|node| name(*node)).collect(),
        }
    }
}

impl Explanation {
    /// The node that is asked answers, where it serves a directory.
    fn of_files(self, site: &SiteSettings, target: &str) -> Self {
        let Some(files) = &site.servers.files else { return self };
        let file = Some(FileDirectory::new(files).explain(target));
        let node = Some(self.redirector.clone());
        Self { file, node, reason: Some("files".into()), set: Vec::new(), set_size: 0, ..self }
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
