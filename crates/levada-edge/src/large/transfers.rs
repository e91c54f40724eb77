//! The state that all transfers of a node share.

use std::sync::Arc;

use levada_fetch::Sources;
use levada_peers::{Member, Membership, Peers};
use levada_purge::Purges;
use parking_lot::Mutex;

use super::{flight::PieceFlights, head::Known, room::Room};
use crate::access_record::Telemetry;
use levada_store::NodeName;

/// The transfers of a node: the state that they share.
pub(crate) struct Transfers {
    pub(super) name: Arc<NodeName>,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) peers: Option<Arc<Peers>>,
    pub(super) purges: Arc<Purges>,
    /// Memory for windows.
    pub(super) room: Arc<Room>,
    /// Requests for pieces that are in flight.
    pub(super) flights: Arc<PieceFlights>,
    /// The slot of this node.
    pub(super) me: usize,
    /// The recent performance of nodes as sources of pieces, by slot.
    pub(crate) sources: Mutex<Sources>,
    /// Files that this node has served, for `explain`.
    pub(crate) known: Known,
}

impl Transfers {
    /// `bytes` are for windows.
    pub(crate) fn new(
        bytes: u64,
        name: &Arc<NodeName>,
        telemetry: &Arc<Telemetry>,
        peers: Option<&Arc<Peers>>,
        purges: &Arc<Purges>,
    ) -> Arc<Self> {
        let (nodes, me) = peers.map_or((1, 0), |peers| {
            let now = peers.now();
            (now.cluster().len(), now.member(now.me()).slot)
        });
        Arc::new(Self {
            name: name.clone(),
            telemetry: telemetry.clone(),
            peers: peers.cloned(),
            purges: purges.clone(),
            room: Room::new(bytes),
            flights: Arc::default(),
            me,
            sources: Mutex::new(Sources::new(nodes, Some(me))),
            known: Known::default(),
        })
    }

    /// Begins anew with the slots of nodes that have joined or left.
    pub(crate) fn follow(&self, before: &Membership, after: &Membership) {
        let mut sources = self.sources.lock();
        let differ = |one: &Membership, other: &Membership| {
            let is_new = |member: &&Arc<Member>| other.named(&member.server.name).is_none();
            one.others().filter(is_new).map(|member| member.slot).collect::<Vec<_>>()
        };
        let slots = differ(before, after).into_iter().chain(differ(after, before));
        slots.for_each(|slot| sources.forget(slot));
    }
}
