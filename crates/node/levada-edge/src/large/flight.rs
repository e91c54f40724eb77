//! A request for a piece, shared by all transfers of this node that want it (single flight).
//!
//! ```text
//!   transfer ──┐
//!   transfer ──┼─ flight ── the node that the policy chooses for the piece
//!   transfer ──┘
//! ```
//!
//! Many clients that request one file from one node want the same pieces at about the same time. In the
//! paper, each client's agent requests each piece; the node that a piece belongs to then sends it as
//! often as there are clients, and is slower the more pieces it has. Here a node requests a piece once,
//! and a transfer that comes before all others have sent it finds it here. That needs no memory but
//! the windows.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use http_body_util::BodyExt;
use levada_fetch::Progress;
use levada_store::Gathering;
use levada_types::{Key, Timestamp};
use levada_upstream::ServerFailure;
use parking_lot::Mutex;
use tokio::{sync::watch, task::AbortHandle};

use super::{Dispatch, Transfers, piece};
use levada_upstream::Piece;

use crate::{
    access_record::{AccessRecord, Telemetry},
    request::RequestContext,
};
use levada_failure::Failure;

/// The latest request for each piece, while a transfer holds it.
#[derive(Default)]
pub(crate) struct PieceFlights(Mutex<HashMap<Key, Weak<PieceFlight>>>);

/// A piece that has arrived.
#[derive(Clone)]
pub(super) struct WholePiece {
    pub(super) segments: Arc<[Bytes]>,
    /// The piece was in this node's own memory: its time says nothing about other nodes.
    pub(super) at_hand: bool,
}

/// A request for a piece. It ends when no transfer holds it any more.
pub(super) struct PieceFlight {
    flights: Arc<PieceFlights>,
    key: Key,
    identity: String,
    pub(super) piece: Arc<Piece>,
    pub(super) begun: Timestamp,
    /// The newest purge when the request began.
    purges: u64,
    pub(super) outcome: watch::Receiver<Option<Result<WholePiece, Failure>>>,
    task: AbortHandle,
    reported: AtomicBool,
    /// Bytes that some transfer has reported.
    counted: AtomicU64,
}

impl PieceFlight {
    /// Shares the request for a piece that is in flight or has ended, if this transfer can use it;
    /// otherwise begins one. Returns whether it is another transfer's.
    pub(super) fn board(
        transfers: &Transfers,
        template: &RequestContext,
        (piece, tried): (Arc<Piece>, &[usize]),
        now: Timestamp,
        dispatch: &Arc<dyn Dispatch>,
    ) -> (Arc<Self>, bool) {
        let resource = template.resource.of_piece(piece.clone(), template.client, &template.parts);
        let (key, identity, purges) =
            (resource.key(), resource.identity().to_owned(), transfers.purges.latest());
        let flights = &transfers.flights;
        let latest = flights.0.lock().get(&key).and_then(Weak::upgrade);
        if let Some(flight) = latest.filter(|flight| {
            flight.identity == identity && flight.purges == purges && flight.suits(tried)
        }) {
            return (flight, true);
        }
        let mut context = template.again();
        context.resource = resource;
        let (tell, outcome) = watch::channel(None);
        let fetch = fetch(transfers.telemetry.clone(), context, piece.clone(), dispatch.clone());
        let task = tokio::spawn(async move { tell.send_replace(Some(fetch.await)) }).abort_handle();
        let flight = Arc::new(Self {
            flights: flights.clone(),
            key,
            identity,
            piece,
            begun: now,
            purges,
            outcome,
            task,
            reported: AtomicBool::new(false),
            counted: AtomicU64::new(0),
        });
        flights.0.lock().insert(key, Arc::downgrade(&flight));
        (flight, false)
    }

    /// Whether a transfer may share this request that has tried these nodes.
    fn suits(&self, tried: &[usize]) -> bool {
        match &*self.outcome.borrow() {
            None => !tried.contains(&self.piece.source()),
            Some(outcome) => outcome.is_ok(),
        }
    }

    /// Waits for the piece.
    pub(super) async fn outcome(&self) -> Result<WholePiece, Failure> {
        let mut outcome = self.outcome.clone();
        let ended = outcome.wait_for(Option::is_some).await;
        ended
            .ok()
            .and_then(|ended| ended.clone())
            .unwrap_or(Err(Failure::Server(ServerFailure::NoResponse)))
    }

    /// Bytes that have come, and the part of them that no transfer has reported. Of several transfers that
    /// wait for one flight, each byte is reported by one.
    pub(super) fn progress(&self) -> Progress {
        let came = self.piece.received();
        let fresh = came.saturating_sub(self.counted.swap(came, Relaxed));
        Progress { came, fresh, waits: self.piece.notices.are_recent() }
    }

    /// Whether no transfer has reported its end yet. An event counts once.
    pub(super) fn is_news(&self) -> bool {
        !self.reported.swap(true, Relaxed)
    }
}

impl Drop for PieceFlight {
    fn drop(&mut self) {
        self.task.abort();
        let mut flights = self.flights.0.lock();
        // Another request may have replaced it.
        if flights.get(&self.key).is_some_and(|latest| latest.strong_count() == 0) {
            flights.remove(&self.key);
        }
    }
}

/// Fetches a piece from the node that the policy chooses.
async fn fetch(
    telemetry: Arc<Telemetry>,
    context: Box<RequestContext>,
    piece: Arc<Piece>,
    dispatch: Arc<dyn Dispatch>,
) -> Result<WholePiece, Failure> {
    let mut record = AccessRecord::of_piece(&telemetry);
    let answer = dispatch.dispatch(context, &mut record).await;
    let (head, mut body) = answer.map_err(|failed| failed.failure)?.into_parts();
    piece::judge(&piece, &head)?;
    let due =
        usize::try_from(piece.bytes()).map_err(|_| Failure::Server(ServerFailure::BadResponse))?;
    let at_hand = body.is_stored();
    // A stored body shares the memory of the store.
    let kept = body.kept().await;
    let (mut segments, mut came) = (Vec::new(), 0);
    let mut gathering = (!kept).then(|| Gathering::of(due));
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Err(Failure::Server(ServerFailure::NoResponse)) };
        let Ok(data) = frame.into_data() else { continue };
        came += data.len();
        piece.set_received(came as u64);
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
    Ok(WholePiece { segments: segments.into(), at_hand })
}
