//! Stand-ins for a fetch that is not answered in time: the stale response of this node, or what another node of its
//! region has stored.
//!
//! ```text
//!   fetch ──┬─ answered in time ───> its outcome
//!           ├─ not in time ────────> a stand-in; the fetch goes on for later requests
//!           └─ nobody answers ─────> a stand-in at once; one request a second still fetches
//! ```

use std::sync::Arc;

use http::Method;
use levada_cache::ForwardReason;
use levada_cluster::nodes::{Peers, is_shielded};
use levada_upstream::{UpstreamHead, UpstreamResponse};

use crate::{
    cache::lookup::{FillRequest, may_stand_in},
    node::Node,
    request::RequestContext,
    sites::Shield,
};

/// The stand-in that a request may get.
pub(crate) struct StandIn<'a> {
    node: &'a Node,
    context: &'a RequestContext,
    kind: Kind<'a>,
}

enum Kind<'a> {
    /// The stale response that is stored here.
    Stale,
    /// The response of a node of the region.
    Near(&'a Peers),
}

/// A stand-in that was found.
pub(crate) enum Found {
    Stale,
    Near(Box<(UpstreamResponse, UpstreamHead)>),
}

impl<'a> StandIn<'a> {
    /// `None` where there is none, or the client wants an answer of the origin.
    pub(crate) fn of(
        node: &'a Node,
        context: &'a RequestContext,
        order: &FillRequest,
    ) -> Option<Self> {
        let is_stale = order.why == ForwardReason::Stale;
        let stored = order.stored.as_ref().filter(|_| is_stale);
        let kind = match stored.and_then(|object| may_stand_in(object, &order.directives)) {
            Some(_) => Kind::Stale,
            None if order.stored.is_some() && !is_stale || order.detached => return None,
            None => Kind::Near(near(node, context)?),
        };
        Some(Self { node, context, kind })
    }

    /// Whether those that would be asked are known not to answer.
    pub(crate) fn is_needed_at_once(&self) -> bool {
        let (site, cache) = (&self.context.resource.site, &self.node.cache);
        let shield = || site.shield.as_ref().zip(cache.peers.as_ref());
        let may_ask = |(shield, peers): (&Shield, &Arc<Peers>)| {
            is_shielded(peers, &cache.purges, &shield.region)
        };
        site.silence.is_silent() || (site.is_down() && !shield().is_some_and(may_ask))
    }

    /// Awaits the outcome of a fetch, or a stand-in for it where that takes too long.
    pub(crate) async fn or<T>(&self, outcome: impl Future<Output = T>) -> Result<T, Found> {
        let (begun, site) = (self.node.clock.now(), &self.context.resource.site);
        let wait = site.silence.wait(self.context.resource.handling.rules.revalidation_wait);
        let stand_in = async {
            tokio::time::sleep(wait).await;
            site.silence.waited(begun);
            // No other node is asked because a server is only slow.
            let may = matches!(self.kind, Kind::Stale) || site.silence.is_silent();
            if may { self.find().await } else { None }
        };
        tokio::select! {
            biased;
            outcome = outcome => Ok(outcome),
            Some(found) = stand_in => Err(found),
        }
    }

    /// The stand-in, if there is one.
    pub(crate) async fn find(&self) -> Option<Found> {
        let Kind::Near(peers) = self.kind else { return Some(Found::Stale) };
        Some(Found::Near(Box::new(self.node.forwarder.stored_near(peers, self.context).await?)))
    }
}

/// The nodes that may have a response to this request stored. A node of another region must learn tags with it, which
/// they do not pass on.
fn near<'a>(node: &'a Node, context: &RequestContext) -> Option<&'a Peers> {
    let may = context.parts.method == Method::GET
        && context.resource.site.switch.is_none()
        && !context.is_from_region();
    node.peers.as_deref().filter(|_| may)
}
