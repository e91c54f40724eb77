//! The nodes that a policy chooses for one request, one after another until one answers.

use std::{sync::Arc, time::Instant};

use levada_policy::{Cluster, Outstanding, Pick, PickReason};
use levada_upstream::{Group, REFUSED, ServerFailure, UpstreamResponse};

use crate::{
    nodes::{Membership, Peers, RegionNodes, WatchedPeer, shield},
    purge::Purges,
};

/// The request that nodes are chosen for.
pub trait ChoosesNodes: Send {
    /// The node of those that are left; `None` when there is none.
    fn choose(&self, left: &Cluster) -> Option<Pick>;
    /// Takes in the choice of the node in this slot.
    fn decided(&mut self, _pick: Pick, _slot: usize) {}
    /// Takes in the response of the node.
    fn answered(&mut self, sent: SentRequest, response: &mut UpstreamResponse);
}

/// The count of a request as outstanding at a node, and when it was sent there.
pub type SentRequest = (Outstanding, Instant);

/// The nodes of one region that are chosen for one request.
pub struct ChosenPeers<'a, C> {
    peers: &'a Peers,
    /// The nodes that the last choice was made from.
    nodes: RegionNodes,
    choice: C,
    /// The last choice.
    pick: Pick,
    /// The slots of nodes that are not asked, or were.
    out: Vec<usize>,
    tries: u32,
    /// At the nodes of a shield: only those are asked that have all of these.
    purges: Option<&'a Purges>,
    /// Whether a second request costs the origin more than the head of a response.
    is_costly: bool,
}

impl<'a, C: ChoosesNodes> ChosenPeers<'a, C> {
    /// Nodes of this node's region. The node `first` of `members` comes first; those in the slots `avoided` are not
    /// asked.
    pub fn new(
        peers: &'a Peers,
        (members, first): (Arc<Membership>, Pick),
        choice: C,
        avoided: &[usize],
        is_costly: bool,
    ) -> Self {
        let (nodes, out) = (RegionNodes::own(members), avoided.to_vec());
        Self { peers, nodes, choice, pick: first, out, tries: 0, purges: None, is_costly }
    }

    /// Nodes of the region `shield`, which is asked before the origin. `None` where this node is to ask the origin
    /// itself: it is the chosen one, or no node of the shield can be asked now.
    pub fn of_shield(
        peers: &'a Peers,
        purges: &'a Purges,
        shield: &str,
        choice: C,
        is_costly: bool,
    ) -> Option<Self> {
        let nodes = peers.membership().region_nodes(shield)?;
        let pick = choice.choose(&shield::askable(&nodes, purges, &[]))?;
        let (out, purges) = (Vec::new(), Some(purges));
        let is_me = nodes.is_me(pick.node);
        (!is_me).then_some(Self { peers, nodes, choice, pick, out, tries: 0, purges, is_costly })
    }

    /// The last choice.
    pub fn pick(&self) -> Pick {
        self.pick
    }

    /// Chooses this node, because no peer has answered.
    pub fn choose_this_node(&mut self) {
        let node = self.nodes.members().me();
        self.decide(Pick { node, reason: PickReason::Retry, set_size: self.tries });
    }

    fn decide(&mut self, pick: Pick) {
        self.pick = pick;
        self.choice.decided(pick, self.nodes.member(pick.node).slot);
    }

    /// Chooses among the nodes that have not been tried. A change between two tries shows in the second one.
    fn choose_another(&mut self) -> Option<()> {
        self.nodes = self.nodes.now(self.peers)?;
        let left = match self.purges {
            Some(purges) => shield::askable(&self.nodes, purges, &self.out),
            None => self.nodes.without_slots(&self.out),
        };
        let pick = self.choice.choose(&left)?;
        drop(left);
        self.decide(Pick { reason: PickReason::Retry, ..pick });
        Some(())
    }
}

/// A try, the choice of its node, and the slot of that node.
type PeerTry = (SentRequest, Pick, usize);

impl<C: ChoosesNodes> Group for ChosenPeers<'_, C> {
    type Server = WatchedPeer;
    type Held = PeerTry;

    fn next(&mut self) -> Result<(WatchedPeer, Self::Held), ServerFailure> {
        if self.tries > 0 {
            self.choose_another().ok_or(ServerFailure::AllDown)?;
        }
        let (nodes, pick) = (&self.nodes, self.pick);
        if nodes.is_me(pick.node) {
            return Err(ServerFailure::AllDown);
        }
        let member = nodes.member(pick.node);
        if member.server.counts().are_full() {
            return Err(ServerFailure::QueueFull);
        }
        self.out.push(member.slot);
        self.tries += 1;
        let sent = (nodes.cluster().loads().begin(pick.node), Instant::now());
        Ok((nodes.members().watched(member), (sent, pick, member.slot)))
    }

    fn check(&self, response: &UpstreamResponse) -> Result<(), ServerFailure> {
        let is_full = || self.purges.is_some() && shield::is_full(self.nodes.members(), response);
        match response.headers().contains_key(REFUSED) || is_full() {
            true => Err(ServerFailure::PeerFull),
            false => Ok(()),
        }
    }

    fn answered(&mut self, _: WatchedPeer, held: Self::Held, response: &mut UpstreamResponse) {
        let (sent, pick, slot) = held;
        // A peer that was asked later may have been slower.
        if slot != self.nodes.member(self.pick.node).slot {
            self.pick = pick;
            self.choice.decided(pick, slot);
        }
        self.choice.answered(sent, response);
    }

    /// This node, or the origin, is asked in the place of nodes that do not answer.
    fn caller_answers(&self) -> bool {
        true
    }

    fn waits_for(&self, peer: &WatchedPeer) -> bool {
        self.is_costly && peer.member.server.health.is_moving()
    }
}
