//! The state that all transfers of a node share.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use levada_body::KnownFiles;
use levada_cluster::nodes::{Member, Membership, Peers};
use levada_cluster::purge::Purges;
use levada_control::status::TransferStatus;
use levada_fetch::Sources;
use parking_lot::Mutex;

use super::{flight::PieceFlights, transfer::SharedTransfer};
use crate::access_record::Telemetry;
use levada_config::Limits;
use levada_store::{NoWindow, NodeName, WindowRoom, WindowShare};

/// The transfers that a status shows, at most.
const SHOWN: usize = 20;

/// The transfers of a node: the state that they share.
pub struct Transfers {
    pub(super) name: Arc<NodeName>,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) peers: Option<Arc<Peers>>,
    pub(super) purges: Arc<Purges>,
    /// Memory for windows.
    pub(super) room: Arc<WindowRoom>,
    /// Requests for pieces that are in flight.
    pub(super) flights: Arc<PieceFlights>,
    /// The slot of this node.
    pub(super) me: usize,
    /// The recent performance of nodes as sources of pieces, by slot.
    pub(crate) sources: Mutex<Sources>,
    /// Files that this node has served, for `explain`.
    pub known: KnownFiles,
    /// The transfers that run, by their place in memory.
    pub(super) running: Mutex<HashMap<usize, Weak<SharedTransfer>>>,
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
            room: WindowRoom::new(bytes),
            flights: Arc::default(),
            me,
            sources: Mutex::new(Sources::new(nodes, Some(me))),
            known: KnownFiles::default(),
            running: Mutex::default(),
        })
    }

    /// Bounds the queue for a window.
    pub(crate) fn bound(&self, limits: &Limits) {
        self.room.bound(limits.queue, limits.queue_timeout);
    }

    /// Transfers that wait for a window.
    pub(crate) fn waiting(&self) -> usize {
        self.room.waiting()
    }

    /// Memory for the first piece of a new transfer, when it is free.
    pub(super) async fn window(&self, piece: u64) -> Result<WindowShare, NoWindow> {
        if let Some(share) = self.room.enter_now(piece) {
            return Ok(share);
        }
        let waited = self.room.enter(piece).await;
        self.telemetry.metrics.large.waited_for_window(waited.as_ref().err().copied());
        waited
    }

    /// The transfers that run, the oldest first.
    pub(crate) fn statuses(&self) -> Vec<TransferStatus> {
        let running: Vec<_> = self.running.lock().values().filter_map(Weak::upgrade).collect();
        let mut running: Vec<_> = running.into_iter().map(|one| (one.begun, one)).collect();
        running.sort_unstable_by_key(|(begun, _)| *begun);
        running.truncate(SHOWN);
        running.iter().map(|(_, transfer)| transfer.status()).collect()
    }

    /// Forgets what was known about the slots of nodes that have joined or left.
    pub fn follow(&self, before: &Membership, after: &Membership) {
        let mut sources = self.sources.lock();
        let differ = |one: &Membership, other: &Membership| {
            let is_new = |member: &&Arc<Member>| other.named(&member.server.name).is_none();
            one.others().filter(is_new).map(|member| member.slot).collect::<Vec<_>>()
        };
        let slots = differ(before, after).into_iter().chain(differ(after, before));
        slots.for_each(|slot| sources.forget(slot));
    }
}
