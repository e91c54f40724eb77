//! Fetches by way of the shield: the region that asks the origin for all others.

use std::sync::Arc;

use http::{HeaderValue, header::HOST};
use levada_access::fields::{ROUTE, SHIELD};
use levada_cluster::nodes::ShieldNodes;
use levada_failure::Failed;
use levada_types::Key;
use levada_upstream::{AtShield, RequestBody, Retries, UpstreamHead, UpstreamResponse};

use super::Cache;
use crate::{request::RequestContext, sites::Site};

/// How a node of the site's shield is asked, if one may be: not by the shield itself, and not for the head of a large
/// file, of which it would fetch more.
pub(crate) fn asked_by(context: &RequestContext) -> Option<Arc<AtShield>> {
    let resource = &context.resource;
    resource.site.settings.servers.shield.as_ref()?;
    if context.head_is_enough || context.is_from_region() {
        return None;
    }
    let uri = resource.target().parse().ok()?;
    let host = HeaderValue::from_str(resource.host()).ok()?;
    let route = resource.told_route().map(|route| (ROUTE, route));
    let fields = [(HOST, host), (SHIELD, HeaderValue::from_static("1"))];
    Some(Arc::new(AtShield { uri, fields: fields.into_iter().chain(route).collect() }))
}

impl Cache {
    /// Sends a fetch to the site's shield, and to its origins where there is none, or none that answers.
    pub(crate) async fn ask(
        &self,
        site: &Site,
        head: &mut UpstreamHead,
    ) -> Result<UpstreamResponse, Failed> {
        if head.at_shield.is_some()
            && let Some(response) = Box::pin(self.ask_shield(site, head)).await
        {
            return Ok(response);
        }
        self.forwarder.to_origin(site, head, RequestBody::None).await
    }

    /// The shield of a site, and the nodes that would be asked for the object of this key, for operators.
    pub fn shield_in_words(&self, site: &Site, key: Key) -> Option<String> {
        let (shield, peers) = (site.settings.servers.shield.as_ref()?, self.peers.as_ref()?);
        if peers.now().region() == shield {
            return Some(format!("{shield}: this node is of it, and asks the origin"));
        }
        Some(match ShieldNodes::of(peers, &self.purges, shield, key) {
            Some(nodes) => format!("{shield}, by {}", nodes.names().join(", ")),
            None => format!("{shield}, of which no node can be asked now: the origin is"),
        })
    }

    async fn ask_shield(&self, site: &Site, head: &UpstreamHead) -> Option<UpstreamResponse> {
        let (at, peers) = (head.at_shield.as_ref()?, self.peers.as_ref()?);
        let shield = site.settings.servers.shield.as_ref()?;
        let mut nodes = ShieldNodes::of(peers, &self.purges, shield, head.subject.key)?;
        let mut head = UpstreamHead { uri: at.uri.clone(), ..head.clone() };
        for (name, value) in &at.fields {
            head.headers.insert(name, value.clone());
        }
        let retries = Retries {
            tries: ShieldNodes::TRIES,
            budget: &site.retries,
            resends_unsent: false,
            asks_beside: true,
            clock: self.clock,
            metrics: &self.forwarder.metrics.policies.upstream,
        };
        levada_upstream::send(&mut nodes, &retries, &head, RequestBody::None).await.ok()
    }
}
