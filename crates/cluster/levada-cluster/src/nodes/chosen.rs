//! The nodes that a policy chooses for one request, one after another until one answers.

use std::sync::Arc;

use levada_policy::{Cluster, Outstanding, Pick, PickReason};
use levada_upstream::{Group, REFUSED, ServerFailure, UpstreamResponse};

use crate::nodes::{Membership, Peers, WatchedPeer};

/// The request that nodes are chosen for.
pub trait ChoosesNodes: Send {
    /// The node of those that are left; `None` when there is none.
    fn choose(&self, left: &Cluster) -> Option<Pick>;
    /// Takes in the choice of the node in this slot.
    fn decided(&mut self, pick: Pick, slot: usize);
    /// Takes in the response of the node, at which the request counts as outstanding.
    fn answered(&mut self, outstanding: Outstanding, response: &mut UpstreamResponse);
}

/// The peers that are chosen for one request.
pub struct ChosenPeers<'a, C> {
    peers: &'a Peers,
    /// The nodes that the last choice was made from.
    members: Arc<Membership>,
    choice: C,
    /// The last choice.
    pick: Pick,
    /// The slots of nodes that are not asked,
    avoided: &'a [usize],
    /// and of those that were.
    tried: Vec<usize>,
    /// Whether a second request costs the origin more than the head of a response.
    is_costly: bool,
}

impl<'a, C: ChoosesNodes> ChosenPeers<'a, C> {
    /// The node `first` of `members` comes first.
    pub fn new(
        peers: &'a Peers,
        (members, first): (Arc<Membership>, Pick),
        choice: C,
        avoided: &'a [usize],
        is_costly: bool,
    ) -> Self {
        Self { peers, members, choice, pick: first, avoided, tried: Vec::new(), is_costly }
    }

    /// The last choice.
    pub fn pick(&self) -> Pick {
        self.pick
    }

    /// Chooses this node, because no peer has answered.
    pub fn choose_this_node(&mut self) {
        self.decide(self.this_node());
    }

    fn decide(&mut self, pick: Pick) {
        self.pick = pick;
        let slot = self.members.member(pick.node).slot;
        self.choice.decided(pick, slot);
    }

    /// The choice among the nodes that have not been tried; this node when there is none.
    fn next_pick(&self) -> Pick {
        let out: Vec<usize> = self.avoided.iter().chain(&self.tried).copied().collect();
        self.choice.choose(&self.members.without(&out)).unwrap_or_else(|| self.this_node())
    }

    fn this_node(&self) -> Pick {
        let reason = PickReason::Retry;
        Pick { node: self.members.me(), reason, set_size: self.tried.len() as u32 }
    }
}

/// The count of a try as outstanding, the choice of its node, and the slot of that node.
type PeerTry = (Outstanding, Pick, usize);

impl<C: ChoosesNodes> Group for ChosenPeers<'_, C> {
    type Server = WatchedPeer;
    type Held = PeerTry;

    fn next(&mut self) -> Result<(WatchedPeer, Self::Held), ServerFailure> {
        if !self.tried.is_empty() {
            // A change between two tries shows in the second one.
            self.members = self.peers.membership();
            self.decide(self.next_pick());
        }
        let (members, pick) = (&self.members, self.pick);
        if pick.node == members.me() {
            return Err(ServerFailure::AllDown);
        }
        let member = members.member(pick.node);
        if member.server.counts().are_full() {
            return Err(ServerFailure::QueueFull);
        }
        self.tried.push(member.slot);
        let outstanding = members.loads().begin(pick.node);
        Ok((members.watched(member), (outstanding, pick, member.slot)))
    }

    fn check(&self, response: &UpstreamResponse) -> Result<(), ServerFailure> {
        match response.headers().contains_key(REFUSED) {
            true => Err(ServerFailure::PeerFull),
            false => Ok(()),
        }
    }

    fn answered(&mut self, _: WatchedPeer, held: Self::Held, response: &mut UpstreamResponse) {
        let (outstanding, pick, slot) = held;
        // A peer that was asked later may have been slower.
        if slot != self.members.member(self.pick.node).slot {
            self.pick = pick;
            self.choice.decided(pick, slot);
        }
        self.choice.answered(outstanding, response);
    }

    fn caller_answers(&self) -> bool {
        true
    }

    fn waits_for(&self, peer: &WatchedPeer) -> bool {
        self.is_costly && peer.member.server.health.is_moving()
    }
}
