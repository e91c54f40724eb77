//! The other nodes of a region, which may have stored what a node cannot fetch.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, StatusCode, header::CACHE_CONTROL};
use levada_policy::NodeIndex;
use levada_types::Key;
use levada_upstream::{
    Group, REFUSED, RequestBody, Retries, ServerFailure, UpstreamHead, UpstreamResponse,
};

use crate::nodes::{Member, Membership, Peers, STORED, WatchedPeer};

/// The nodes of this node's region that are asked for a stored response, one after another.
pub struct NearNodes {
    members: Arc<Membership>,
    order: Vec<Arc<Member>>,
}

impl NearNodes {
    /// So many nodes are asked at most.
    const MOST: usize = 8;

    /// All but this one: those that are responsible for the object come first, those that are down last. A node may be
    /// taken for down only because it waited for the same servers.
    pub fn of(peers: &Peers, key: Key, responsible: &[NodeIndex]) -> Self {
        let members = peers.membership();
        let place = |node: NodeIndex| responsible.iter().position(|one| *one == node);
        let all = members.region_in_order(key);
        let mut order: Vec<_> = all.into_iter().filter(|node| *node != members.me()).collect();
        order.sort_by_key(|node| {
            let is_down = !members.server(*node).health.is_up();
            (is_down, place(*node).unwrap_or(usize::MAX))
        });
        let order = order.into_iter().take(Self::MOST).map(|node| members.member(node).clone());
        Self { order: order.collect(), members }
    }

    /// The first stored response, stale where that is allowed; `None` if no node has one.
    pub async fn stored(&self, head: &UpstreamHead, by: &Retries<'_>) -> Option<UpstreamResponse> {
        let mut head = head.clone();
        head.headers.insert(CACHE_CONTROL, HeaderValue::from_static("only-if-cached"));
        head.headers.insert(STORED, HeaderValue::from_static("1"));
        let by = Retries { tries: 1, asks_beside: false, ..*by };
        for member in &self.order {
            let patience = member.server.late_after().min(LONGEST);
            let asked = tokio::time::timeout(patience, self.ask(member, &head, &by)).await;
            if let Ok(Some(response)) = asked {
                return Some(response);
            }
        }
        None
    }

    async fn ask(
        &self,
        member: &Arc<Member>,
        head: &UpstreamHead,
        by: &Retries<'_>,
    ) -> Option<UpstreamResponse> {
        let mut one = OneNode(Some(self.members.watched(member)));
        let response = levada_upstream::send(&mut one, by, head, RequestBody::None).await.ok()?;
        if response.status() == StatusCode::GATEWAY_TIMEOUT
            || response.headers().contains_key(REFUSED)
        {
            // With its body read, the connection serves the next request.
            let _ = response.into_body().whole(REFUSAL).await;
            return None;
        }
        Some(response)
    }
}

/// A node that has nothing stored answers at once.
const LONGEST: Duration = Duration::from_secs(1);
/// The longest body of a refusal that is read.
const REFUSAL: usize = 4 << 10;

/// One node that is asked once.
struct OneNode(Option<WatchedPeer>);

impl Group for OneNode {
    type Server = WatchedPeer;
    type Held = ();

    fn next(&mut self) -> Result<(WatchedPeer, ()), ServerFailure> {
        self.0.take().map(|peer| (peer, ())).ok_or(ServerFailure::AllDown)
    }

    fn answered(&mut self, _: WatchedPeer, (): (), _: &mut UpstreamResponse) {}
}
