//! Fetches by way of the shield: the region that asks the origin for all others.

use std::sync::Arc;

use http::{HeaderValue, header::HOST};
use levada_access::fields::SHIELD;
use levada_cluster::nodes::ShieldNodes;
use levada_failure::{Failed, Failure};
use levada_types::Key;
use levada_upstream::{AtNode, RequestBody, UpstreamHead, UpstreamResponse};

use super::Cache;
use crate::{forward::at_node, request::RequestContext, sites::Site};

/// How a node of the site's shield is asked, if one may be: not by the shield itself.
pub(crate) fn asked_by(context: &RequestContext) -> Option<Arc<AtNode>> {
    let resource = &context.resource;
    if resource.site.settings.servers.shield.is_none() || context.is_from_region() {
        return None;
    }
    let mut at = at_node(context);
    let host = HeaderValue::from_str(resource.host()).ok()?;
    at.fields.extend([(HOST, Some(host)), (SHIELD, Some(HeaderValue::from_static("1")))]);
    Some(Arc::new(at))
}

impl Cache {
    /// Sends a fetch to the site's shield or origins, and notes whether they answer.
    pub(crate) async fn ask(
        &self,
        site: &Site,
        head: &mut UpstreamHead,
    ) -> Result<UpstreamResponse, Failed> {
        let begun = self.clock.now();
        let asked = self.by_shield(site, head).await;
        match &asked {
            Ok(_) => site.silence.answered(begun, self.clock.now()),
            Err(Failed { failure: Failure::Server(why), .. }) if why.is_timeout() => {
                site.silence.waited(begun);
            }
            Err(_) => {}
        }
        asked
    }

    /// The nodes of the site's shield that may be asked for this object.
    pub(crate) fn shield_nodes(&self, site: &Site, key: Key) -> Option<ShieldNodes> {
        let region = site.settings.servers.shield.as_deref()?;
        ShieldNodes::of(self.peers.as_ref()?, &self.purges, region, key)
    }

    /// Sends a fetch to the site's shield, and to its origins where there is none, or none that answers.
    async fn by_shield(
        &self,
        site: &Site,
        head: &mut UpstreamHead,
    ) -> Result<UpstreamResponse, Failed> {
        if let Some(at) = head.at_shield.clone()
            && let Some(nodes) = self.shield_nodes(site, head.subject.key)
        {
            let retries = self.forwarder.retries(site, ShieldNodes::TRIES);
            if let Some(response) = Box::pin(nodes.ask(&at, head, &retries)).await {
                return Ok(response);
            }
        }
        self.forwarder.to_origin(site, head, RequestBody::None).await
    }
}
