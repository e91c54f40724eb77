//! Fetches by way of the shield: the region that asks the origin for all others.

use std::sync::Arc;

use http::{HeaderValue, header::HOST};
use levada_access::fields::{ROUTE, SHIELD};
use levada_cluster::nodes::ShieldNodes;
use levada_failure::Failed;
use levada_upstream::{AtShield, RequestBody, Retries, UpstreamHead, UpstreamResponse};

use super::Cache;
use crate::{request::RequestContext, sites::Site};

/// How a node of the site's shield is asked, if one may be: not by the shield itself, and not for a large file, of which
/// it would fetch more than the head or the piece.
pub(crate) fn asked_by(context: &RequestContext) -> Option<Arc<AtShield>> {
    let resource = &context.resource;
    let region = resource.site.settings.servers.shield.clone()?;
    if context.head_is_enough || resource.piece.is_some() || context.is_from_region() {
        return None;
    }
    let uri = resource.target().parse().ok()?;
    let host = HeaderValue::from_str(resource.host()).ok()?;
    let route = resource.told_route().map(|route| (ROUTE, route));
    let fields = [(HOST, host), (SHIELD, HeaderValue::from_static("1"))];
    Some(Arc::new(AtShield { region, uri, fields: fields.into_iter().chain(route).collect() }))
}

impl Cache {
    /// Sends a fetch to the site's shield, and to its origins where there is none, or none that answers.
    pub(crate) async fn ask(
        &self,
        site: &Site,
        head: &mut UpstreamHead,
    ) -> Result<UpstreamResponse, Failed> {
        if let Some(at) = head.at_shield.clone()
            && let Some(peers) = &self.peers
            && let Some(nodes) = ShieldNodes::of(peers, &self.purges, &at.region, head.subject.key)
        {
            let retries = Retries {
                tries: ShieldNodes::TRIES,
                budget: &site.retries,
                resends_unsent: false,
                asks_beside: true,
                clock: self.clock,
                metrics: &self.forwarder.metrics.policies.upstream,
            };
            if let Some(response) = Box::pin(nodes.ask(&at, head, &retries)).await {
                return Ok(response);
            }
        }
        self.forwarder.to_origin(site, head, RequestBody::None).await
    }
}
