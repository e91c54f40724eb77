//! The shield: the region through which all others ask the origin, so that it is asked once.

use std::{collections::VecDeque, sync::Arc};

use http::StatusCode;
use levada_types::Key;
use levada_upstream::{
    AtNode, Group, REFUSED, RequestBody, Retries, ServerFailure, UpstreamHead, UpstreamResponse,
};

use crate::{
    nodes::{Member, Membership, Peers, WatchedPeer},
    purge::Purges,
};

/// The nodes of the shield that are asked for one object, the responsible one first.
pub struct ShieldNodes {
    members: Arc<Membership>,
    left: VecDeque<Arc<Member>>,
    is_costly: bool,
}

impl ShieldNodes {
    /// So many nodes are asked before the origin is.
    pub const TRIES: usize = 2;

    /// The nodes of the region `shield`; `None` at a node of that region, and while none of them can be asked. One that has
    /// not said that it has all purges that this node has could answer with what they have removed.
    pub fn of(peers: &Peers, purges: &Purges, shield: &str, key: Key) -> Option<Self> {
        let now = peers.now();
        if **now.region() == *shield {
            return None;
        }
        let orders = purges.known();
        let mut left = VecDeque::from(now.of_region(shield, key));
        left.retain(|member| member.log.covers(&orders));
        let members = arc_swap::Guard::into_inner(now);
        (!left.is_empty()).then_some(Self { members, left, is_costly: false })
    }

    /// The shield, and its nodes in the order in which they would be asked for the object of this key, for operators.
    pub fn in_words(peers: &Peers, purges: &Purges, shield: &str, key: Key) -> String {
        if **peers.now().region() == *shield {
            return format!("{shield}: this node is of it, and asks the origin");
        }
        let Some(nodes) = Self::of(peers, purges, shield, key) else {
            return format!("{shield}, of which no node can be asked now: the origin is");
        };
        let names: Vec<_> = nodes.left.iter().map(|member| &*member.server.name).collect();
        format!("{shield}, by {}", names.join(", "))
    }

    /// Sends a request to them in the form in which a node of the shield gets it; `None` where none of them answers.
    pub async fn ask(
        mut self,
        at: &AtNode,
        head: &UpstreamHead,
        by: &Retries<'_>,
    ) -> Option<UpstreamResponse> {
        self.is_costly = at.is_costly;
        let mut head = head.clone();
        at.address(&mut head);
        levada_upstream::send(&mut self, by, &head, RequestBody::None).await.ok()
    }
}

impl ShieldNodes {
    /// Whether a 503 is of the node that was asked, whose queue for the origin is full, and not of the origin: it names
    /// itself and its error in `Proxy-Status` (RFC 9209 Sec. 2.1).
    fn is_full(&self, response: &UpstreamResponse) -> bool {
        let last = response.headers().get_all("proxy-status").iter().next_back();
        let last = last.and_then(|value| value.to_str().ok()?.rsplit(',').next());
        let by_node =
            last.and_then(|member| member.split_once(';')).is_some_and(|(name, about)| {
                let name = name.trim().trim_matches('"');
                about.contains("error=") && self.members.named(name).is_some()
            });
        response.status() == StatusCode::SERVICE_UNAVAILABLE && by_node
    }
}

impl Group for ShieldNodes {
    type Server = WatchedPeer;
    type Held = ();

    fn next(&mut self) -> Result<(WatchedPeer, ()), ServerFailure> {
        let next = self.left.pop_front().ok_or(ServerFailure::AllDown)?;
        Ok((self.members.watched(&next), ()))
    }

    fn check(&self, response: &UpstreamResponse) -> Result<(), ServerFailure> {
        match response.headers().contains_key(REFUSED) || self.is_full(response) {
            true => Err(ServerFailure::PeerFull),
            false => Ok(()),
        }
    }

    fn answered(&mut self, _: WatchedPeer, (): (), _: &mut UpstreamResponse) {}

    fn waits_for(&self, peer: &WatchedPeer) -> bool {
        self.is_costly && peer.member.server.health.is_moving()
    }

    /// The origin is asked in the place of a shield that does not answer.
    fn caller_answers(&self) -> bool {
        true
    }
}
