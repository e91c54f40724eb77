//! A piece on its way to this node, for all transfers here that want it.
//!
//! ```text
//!   transfer ──┐
//!   transfer ──┼─ flight ── the node that the policy chooses for the piece
//!   transfer ──┘
//! ```
//!
//! A crowd that asks one node for one file wants the same pieces at about the same time. As the paper has
//! it, each client's agent asks for each of them; the node that a piece belongs to then sends it as often
//! as there are clients anywhere, and is slower the more pieces it has. Here it is asked for once, and who
//! comes before all have passed it on finds it here. That takes no memory beside their windows.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use http_body_util::BodyExt;
use levada_policy::NodeIndex;
use levada_store::Gathering;
use levada_types::{Key, Timestamp};
use levada_upstream::ServerFailure;
use parking_lot::Mutex;
use tokio::{sync::watch, task::AbortHandle};

use super::{Dispatch, piece};
use crate::{
    access_record::AccessRecord, failure::Failure, node::Node, request::RequestContext,
    resource::Piece,
};

/// The latest flight of each piece, while anybody is interested in it.
#[derive(Default)]
pub(crate) struct PieceFlights(Mutex<HashMap<Key, Weak<PieceFlight>>>);

/// A piece that has come.
#[derive(Clone)]
pub(super) struct WholePiece {
    pub(super) segments: Arc<[Bytes]>,
    /// It was in this node's own memory: that it came at once says nothing of others.
    pub(super) at_hand: bool,
}

/// A request for a piece. It ends when nobody holds it any more.
pub(super) struct PieceFlight {
    node: Arc<Node>,
    key: Key,
    identity: String,
    pub(super) piece: Arc<Piece>,
    pub(super) begun: Timestamp,
    /// The newest purge at that time.
    purges: u64,
    outcome: watch::Receiver<Option<Result<WholePiece, Failure>>>,
    task: AbortHandle,
    reported: AtomicBool,
    shared: AtomicBool,
}

impl PieceFlight {
    /// The flight of a piece that is under way or has come, if it is of use for who asks now; else one that
    /// begins with this. Says whether it is another's.
    pub(super) fn board(
        node: &Arc<Node>,
        template: &RequestContext,
        piece: Arc<Piece>,
        now: Timestamp,
        dispatch: Dispatch,
    ) -> (Arc<Self>, bool) {
        let resource = template.resource.of_piece(piece.clone());
        let (key, identity, purges) =
            (resource.key, resource.identity.clone(), node.purges.latest());
        let flights = &node.large.flights.0;
        let latest = flights.lock().get(&key).and_then(Weak::upgrade);
        if let Some(flight) = latest.filter(|flight| {
            flight.identity == identity && flight.purges == purges && flight.suits(&piece.avoided)
        }) {
            flight.shared.store(true, Relaxed);
            return (flight, true);
        }
        let mut context = template.again();
        context.resource = resource;
        let (tell, outcome) = watch::channel(None);
        let fetch = fetch(node.clone(), context, piece.clone(), dispatch);
        let task = tokio::spawn(async move { tell.send_replace(Some(fetch.await)) }).abort_handle();
        let flight = Arc::new(Self {
            node: node.clone(),
            key,
            identity,
            piece,
            begun: now,
            purges,
            outcome,
            task,
            reported: AtomicBool::new(false),
            shared: AtomicBool::new(false),
        });
        flights.lock().insert(key, Arc::downgrade(&flight));
        (flight, false)
    }

    /// Whether who does not want these nodes to be asked may wait for this.
    fn suits(&self, avoided: &[NodeIndex]) -> bool {
        match &*self.outcome.borrow() {
            None => !avoided.contains(&self.piece.source()),
            Some(outcome) => outcome.is_ok(),
        }
    }

    /// Whether it has come or failed.
    pub(super) fn is_over(&self) -> bool {
        self.outcome.borrow().is_some()
    }

    /// The piece, when it has come.
    pub(super) async fn outcome(&self) -> Result<WholePiece, Failure> {
        let mut outcome = self.outcome.clone();
        let ended = outcome.wait_for(Option::is_some).await;
        ended
            .ok()
            .and_then(|ended| ended.clone())
            .unwrap_or(Err(Failure::Server(ServerFailure::NoResponse)))
    }

    /// How far it is, for who wants to know whether its source is slow: the source, and how many bytes have
    /// come. Nothing is said of what several transfers wait for. There is a crowd then, at other
    /// nodes as well, and the source is as slow as it is busy; whoever stood in for it would ask the origin.
    pub(super) fn so_far(&self) -> Option<(usize, u64)> {
        let is_alone = !self.shared.load(Relaxed);
        is_alone.then(|| (self.piece.source().get(), self.piece.came()))
    }

    /// Whether nobody has said yet how its source did: what happened once is told once.
    pub(super) fn is_news(&self) -> bool {
        !self.reported.swap(true, Relaxed)
    }
}

impl Drop for PieceFlight {
    fn drop(&mut self) {
        self.task.abort();
        let mut flights = self.node.large.flights.0.lock();
        // Another may have taken its place.
        if flights.get(&self.key).is_some_and(|latest| latest.strong_count() == 0) {
            flights.remove(&self.key);
        }
    }
}

/// Fetches a piece, from wherever the policy says.
async fn fetch(
    node: Arc<Node>,
    context: Box<RequestContext>,
    piece: Arc<Piece>,
    dispatch: Dispatch,
) -> Result<WholePiece, Failure> {
    let begun = node.clock.now();
    let mut record = AccessRecord::of_piece(&node.telemetry);
    let answer = dispatch(&node, context, &mut record).await;
    let (head, mut body) = answer.map_err(|failed| failed.failure)?.into_parts();
    piece::judge(&piece, &head)?;
    let answered = node.clock.now();
    let due =
        usize::try_from(piece.len()).map_err(|_| Failure::Server(ServerFailure::BadResponse))?;
    let at_hand = body.is_stored();
    // What the store has is shared with it.
    let kept = body.kept().await;
    let (mut segments, mut came) = (Vec::new(), 0);
    let mut gathering = (!kept).then(|| Gathering::of(due));
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Err(Failure::Server(ServerFailure::NoResponse)) };
        let Ok(data) = frame.into_data() else { continue };
        came += data.len();
        piece.has_come(came as u64);
        if came > due {
            return Err(Failure::Server(ServerFailure::BadResponse));
        }
        match &mut gathering {
            Some(gathering) => gathering.push(&data),
            None => segments.push(data),
        }
    }
    if let Some(gathering) = gathering {
        segments = gathering.finish();
    }
    if came != due {
        return Err(Failure::Server(ServerFailure::NoResponse));
    }
    let (head, whole) = (answered.since(begun), node.clock.now().since(begun));
    let node = piece.source().get();
    tracing::debug!(piece = %piece.url, node, at_hand, ?head, ?whole, "piece came");
    Ok(WholePiece { segments: segments.into(), at_hand })
}
