//! Explains which node would serve a URL now, and why. levada-status makes the explanation.

use levada_policy::{Cluster, LoadTable, Node as ClusterNode};
use levada_settings::explained::ExplainedRequest;
use levada_status::{AskedUrl, DecidingSite, ExplainError, Explanation};

use crate::node::Node;

/// The decision that a running node would take now. Changes nothing.
pub(crate) fn live(node: &Node, asked: &ExplainedRequest) -> Result<Explanation, ExplainError> {
    let url = AskedUrl::new(asked)?;
    let sites = node.sites.load();
    let site = sites.find(url.host()).ok_or_else(|| url.unknown())?;
    let url = url.routed(&site.settings);
    let of_route = url.route().and_then(|number| site.routes.as_ref()?.site(number));
    let site = of_route.unwrap_or(site);
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
    let mut explained = url.explain(&deciding, size, known);
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
