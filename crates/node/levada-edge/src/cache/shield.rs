//! Fetches by way of the shield: the region that asks the origin for all others.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use http::{HeaderValue, header::HOST};
use levada_access::fields::SHIELD;
use levada_cluster::nodes::{ChoosesNodes, ChosenPeers, SHIELD_TRIES, SentRequest};
use levada_failure::{Failed, Failure};
use levada_policy::{Cluster, Pick};
use levada_redirector::NodeTurn;
use levada_types::Request as PolicyRequest;
use levada_upstream::{AtNode, RequestBody, UpstreamHead, UpstreamResponse};

use super::Cache;
use crate::{
    forward::{Forwarder, at_node},
    request::RequestContext,
    sites::{Shield, Site},
};

/// How a node of the site's shield is asked, if one may be: not for a node that asks this one as such.
pub(crate) fn asked_by(context: &RequestContext) -> Option<Arc<AtNode>> {
    let resource = &context.resource;
    if resource.site.shield.is_none() || context.is_from_region() {
        return None;
    }
    let mut at = at_node(context);
    let host = HeaderValue::from_str(resource.host()).ok()?;
    at.fields.extend([(HOST, Some(host)), (SHIELD, Some(HeaderValue::from_static("1")))]);
    Some(Arc::new(at))
}

impl Cache {
    /// Sends a fetch to the site's shield or origins, and notes whether they answer, and whether it is a node that is
    /// asked.
    pub(crate) async fn ask(
        &self,
        site: &Site,
        head: &mut UpstreamHead,
        asks_node: &AtomicBool,
    ) -> Result<UpstreamResponse, Failed> {
        let begun = self.clock.now();
        let by_shield = match head.at_shield.clone() {
            Some(at) => Box::pin(self.by_shield(site, &at, head, asks_node)).await,
            None => None,
        };
        let asked = match by_shield {
            Some(response) => Ok(response),
            None => self.forwarder.to_origin(site, head, RequestBody::None).await,
        };
        match &asked {
            Ok(_) => site.silence.answered(begun, self.clock.now()),
            Err(Failed { failure: Failure::Server(why), .. }) if why.is_timeout() => {
                site.silence.waited(begun);
            }
            Err(_) => {}
        }
        asked
    }

    /// Sends a fetch to the nodes of the site's shield that its policy chooses; `None` where this node is to ask the
    /// origin.
    async fn by_shield(
        &self,
        site: &Site,
        at: &AtNode,
        head: &UpstreamHead,
        asks_node: &AtomicBool,
    ) -> Option<UpstreamResponse> {
        let (shield, peers) = (site.shield.as_ref()?, self.peers.as_ref()?);
        let (region, purges, forwarder) = (&shield.region, &self.purges, &*self.forwarder);
        let (key, class) = (head.subject.key, head.subject.class);
        let request = PolicyRequest { key, class, size: forwarder.sizes.get(key) };
        let choice = ShieldChoice { shield, forwarder, request };
        let mut nodes = ChosenPeers::of_shield(peers, purges, region, choice, at.is_costly)?;
        asks_node.store(true, Relaxed);
        let (mut head, retries) = (head.clone(), forwarder.retries(site, SHIELD_TRIES));
        at.address(&mut head);
        let sent = levada_upstream::send(&mut nodes, &retries, &head, RequestBody::None).await;
        let response = sent.ok();
        asks_node.store(response.is_some(), Relaxed);
        response
    }
}

/// The choice among the nodes of a shield, for one fetch.
struct ShieldChoice<'a> {
    shield: &'a Shield,
    forwarder: &'a Forwarder,
    request: PolicyRequest,
}

impl ChoosesNodes for ShieldChoice<'_> {
    fn choose(&self, left: &Cluster) -> Option<Pick> {
        let (decider, forwarder) = (&self.shield.decider, self.forwarder);
        let pick = decider.pick(&self.request, left, forwarder.clock.now())?;
        forwarder.metrics.policies.decision(decider, pick);
        Some(pick)
    }

    fn answered(&mut self, sent: SentRequest, response: &mut UpstreamResponse) {
        let (decider, clock) = (&self.shield.decider, self.forwarder.clock);
        let turn = NodeTurn::new(sent, decider, clock, response.status());
        response.body_mut().hold(Box::new(turn));
    }
}
