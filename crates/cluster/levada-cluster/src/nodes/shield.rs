//! The shield: the region through which all others ask the origin, so that it is asked once.
//!
//! Its nodes are chosen as those of a region are ([`ChosenPeers`](crate::nodes::ChosenPeers)), also by nodes of the
//! shield itself: so one object has one node that asks the origin for all.

use std::borrow::Cow;

use http::StatusCode;
use levada_policy::Cluster;
use levada_upstream::UpstreamResponse;

use crate::{
    nodes::{Membership, Peers, RegionNodes},
    purge::Purges,
};

/// The most nodes of the shield that are asked before the origin is.
pub const SHIELD_TRIES: usize = 2;

/// The nodes of a shield with those marked as down that are in the slots `out`, or have not said that they have all
/// purges that this node has: they could answer with what was purged.
pub(super) fn askable<'a>(
    nodes: &'a RegionNodes,
    purges: &Purges,
    out: &[usize],
) -> Cow<'a, Cluster> {
    let orders = purges.known();
    nodes.without(|node| {
        let member = nodes.member(node);
        out.contains(&member.slot) || !(nodes.is_me(node) || member.log.covers(&orders))
    })
}

/// The nodes of a shield as its policy sees them now; `None` if there is no such region.
pub fn shield_now(peers: &Peers, purges: &Purges, shield: &str) -> Option<Cluster> {
    let nodes = peers.membership().region_nodes(shield)?;
    Some(askable(&nodes, purges, &[]).into_owned())
}

/// Whether another region stands before the origin, and a node of it can be asked now.
pub fn is_shielded(peers: &Peers, purges: &Purges, shield: &str) -> bool {
    let is_other = **peers.now().region() != *shield;
    is_other && shield_now(peers, purges, shield).is_some_and(|seen| !seen.up().is_empty())
}

/// Whether a 503 is of the node that was asked, whose queue for the origin is full, and not of the origin: it names
/// itself and its error in `Proxy-Status` (RFC 9209 Sec. 2.1).
pub(super) fn is_full(members: &Membership, response: &UpstreamResponse) -> bool {
    let last = response.headers().get_all("proxy-status").iter().next_back();
    let last = last.and_then(|value| value.to_str().ok()?.rsplit(',').next());
    let by_node = last.and_then(|member| member.split_once(';')).is_some_and(|(name, about)| {
        let name = name.trim().trim_matches('"');
        about.contains("error=") && members.named(name).is_some()
    });
    response.status() == StatusCode::SERVICE_UNAVAILABLE && by_node
}
