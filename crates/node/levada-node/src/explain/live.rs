//! Explains which node would serve a URL now, and why. `deciding` makes the explanation.

use std::sync::Arc;

use http::{HeaderValue, header::HOST};
use levada_cache::strip_request;
use levada_cluster::nodes::shield_now;
use levada_edge::{
    client_connection::{ClientConnection, ListenerKind, Who},
    node::Node,
    request::RequestContext,
    subject::subject,
};
use levada_failure::Failure;
use levada_fetch::Choice;
use levada_policy::{Cluster, LoadTable, Node as ClusterNode};
use levada_store::identity::without_port;
use levada_types::Request;
use levada_upstream::Piece;

use crate::explain::{
    DecidingSite, ExplainError, ExplainedRequest, Explanation, IdentifiedRequest, ShieldChoice,
};

/// The decision that a running node would take now. Changes nothing.
pub fn live(node: &Node, asked: &ExplainedRequest) -> Result<Explanation, ExplainError> {
    let (asked, mut context) = received(node, asked)?;
    let (client, received) = (context.client, context.parts.clone());
    context.prepare();
    let RequestContext { resource, parts, .. } = &context;
    let site = &resource.site;
    let sites = node.sites.load();
    let unknown = || ExplainError::UnknownHost(resource.host().to_owned());
    let of_host = sites.find(without_port(resource.host())).ok_or_else(unknown)?;
    let name = &node.settings().name;
    let cluster = match (&site.switch, &node.peers) {
        (Some(switch), _) => switch.view().cluster().clone(),
        (None, Some(peers)) => peers.now().cluster().clone(),
        (None, None) => Cluster::new(vec![ClusterNode::new(name)], LoadTable::new(1)),
    };
    let deciding = DecidingSite {
        settings: &site.settings,
        decider: &site.decider,
        pieces: site.pieces.as_ref().unwrap_or(&site.decider),
        classes: site.classes.as_deref(),
        cluster: &cluster,
        redirector: name,
        now: node.clock.now(),
    };
    let knows_sizes = site.switch.is_some() || node.peers.is_some();
    let size = |key| node.forwarder.sizes.get(key).filter(|_| knows_sizes);
    let known = |key| node.large.known.get(key).map(|known| (known.length, known.version));
    let (subject, part) = subject(resource, parts, &parts.headers);
    let piece =
        |url| resource.of_piece(Piece::new(url, &Choice::default(), 0, 0), client, &received).key();
    let request = IdentifiedRequest {
        asked: &asked,
        url: &resource.url,
        identity: resource.identity(),
        subject: (subject.key, subject.class),
        part,
        piece: &piece,
    };
    let mut explained = deciding.explain(&request, &of_host.settings, size, known);
    explained.shield = site.shield.as_ref().zip(node.peers.as_ref()).map(|(shield, peers)| {
        let seen = shield_now(peers, &node.cache.purges, &shield.region);
        let nodes = seen.unwrap_or_else(|| Cluster::new(Vec::new(), LoadTable::new(0)));
        let size = node.forwarder.sizes.get(subject.key);
        let request = Request { class: subject.class, size, ..Request::new(subject.key) };
        let now = node.clock.now();
        ShieldChoice::of(&shield.region, &shield.decider, &request, &nodes, now)
    });
    let servers: Vec<_> = match (&site.switch, &node.peers) {
        (Some(_), _) => site.servers(),
        (None, Some(peers)) => peers.now().members().map(|(_, one)| one.server.clone()).collect(),
        (None, None) => Vec::new(),
    };
    for candidate in &mut explained.candidates {
        let server = servers.iter().find(|server| *server.name == *candidate.node);
        candidate.address = server.map(|server| server.address.to_string());
    }
    Ok(explained)
}

/// The request as the node would have it from a client, and the fields by which its route was found.
fn received(
    node: &Node,
    asked: &ExplainedRequest,
) -> Result<(ExplainedRequest, RequestContext), ExplainError> {
    let not_absolute = || ExplainError::NotAbsolute(asked.url.clone());
    let url = asked.resource().ok_or_else(not_absolute)?;
    let listener = ListenerKind::Client { tls: url.scheme() == "https" };
    let who = Who { client: asked.client, is_peer: false, certified: None, alt_svc: None };
    let connection = ClientConnection::new(listener, who, false, Arc::default());
    let request = http::Request::get(url.target()).body(());
    let mut request = request.map_err(|_| not_absolute())?;
    request.headers_mut().clone_from(&asked.headers);
    let host = HeaderValue::from_str(url.host()).map_err(|_| not_absolute())?;
    request.headers_mut().insert(HOST, host);
    let client = node.trust.load().cross(asked.client, false, request.headers_mut());
    let routed = node.identifier.load().identify(listener, client, &request);
    let routed = routed.map_err(|failure| match failure {
        Failure::UnknownHost => ExplainError::UnknownHost(url.host().to_owned()),
        other => ExplainError::Refused(other.to_string()),
    })?;
    let (mut parts, ()) = request.into_parts();
    let mut routed = routed;
    while let Some(to) = routed.without_file(client, &parts) {
        let to = (&to, "no file");
        let next = node.identifier.load().again(&routed, client, &parts, to);
        routed = next.map_err(|failure| ExplainError::Refused(failure.to_string()))?;
    }
    let asked = ExplainedRequest { client, headers: parts.headers.clone(), ..asked.clone() };
    strip_request(&mut parts.headers);
    let resource = routed.identified(client, &parts);
    Ok((asked, RequestContext::own(connection, client, resource, parts)))
}
