//! One client's transfer: a task that fetches pieces, and the body that they become.
//!
//! The task runs in parallel with the body, so that pieces go on arriving while the client is slow. They meet in
//! [`SharedTransfer`]. The task ends with the body, and the requests that are under way end with the task.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::Range,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::HeaderMap;
use levada_body::{DigestCheck, LargeFile, ReadAt, ReadError};
use levada_control::status::{PieceSource, TransferStatus};
use levada_fetch::{Choice, ChunkUrl, Chunked, Next, PieceCounts, Plan, Request, RequestId};
use levada_observe::{log::Pieces, redact::without_query};
use levada_types::Timestamp;
use levada_upstream::ServerFailure;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    task::{AbortHandle, Id, JoinSet},
};

use super::{
    Dispatch, Transfers,
    flight::{PieceFlight, WholePiece},
    refetch,
};
use levada_store::{NoWindow, WindowShare};

use crate::{access_record::TransferCounts, request::RequestContext};
use levada_failure::Failure;
use levada_upstream::Piece;

/// A piece that is held for the client, and with it the flight, so that others find it.
type HeldPiece = (WholePiece, Arc<PieceFlight>);

/// A transfer that is about to begin.
pub(crate) struct Transfer {
    transfers: Arc<Transfers>,
    plan: Plan,
    file: LargeFile,
    span: Range<u64>,
    check: Option<DigestCheck>,
    /// The template of every request for a piece.
    template: Box<RequestContext>,
    /// The client's own request, for its head.
    client: Box<RequestContext>,
    dispatch: Arc<dyn Dispatch>,
}

/// The state that the task and the body share.
pub(super) struct SharedTransfer {
    transfers: Arc<Transfers>,
    url: String,
    /// Bytes that the client gets.
    bytes: u64,
    pub(super) begun: Timestamp,
    state: Mutex<TransferState>,
    /// The body has taken a piece.
    taken: Notify,
}

struct TransferState {
    pieces: Chunked<HeldPiece>,
    /// The body, when it waits for a piece.
    waiting: Option<Waker>,
    /// The last failure.
    failure: Option<Failure>,
    /// Pieces that have come, by the slot of the node that they came from.
    came: BTreeMap<usize, u64>,
}

impl TransferState {
    /// Wakes the body if there is something for it.
    fn wake(&mut self) {
        if self.pieces.is_ready()
            && let Some(body) = self.waiting.take()
        {
            body.wake();
        }
    }
}

impl Transfer {
    /// The bytes `span` of `file` for `client`. `None` when the site does not serve in pieces.
    pub(super) fn new(
        transfers: &Arc<Transfers>,
        client: &RequestContext,
        file: &LargeFile,
        span: Range<u64>,
        headers: &HeaderMap,
        dispatch: &Arc<dyn Dispatch>,
    ) -> Option<Self> {
        let plan = client.resource.site.serves_large_files()?.plan;
        let whole = span == (0..file.length);
        let digest = client.resource.digest();
        let check = if whole { DigestCheck::of(headers, digest.as_ref()) } else { None };
        Some(Self {
            transfers: transfers.clone(),
            plan,
            file: file.clone(),
            span,
            check,
            template: client.for_pieces(file),
            client: client.again(),
            dispatch: dispatch.clone(),
        })
    }

    /// Begins when there is memory for a window.
    ///
    /// # Errors
    /// When none became free in time, or too many wait for it.
    pub(super) async fn begin(self) -> Result<PieceReader, NoWindow> {
        let Self { transfers, plan, file, span, check, template, client, dispatch } = self;
        let share = transfers.window(plan.chunk).await?;
        let pieces = Chunked::new(plan, file.length, span.clone());
        let state = TransferState { pieces, waiting: None, failure: None, came: BTreeMap::new() };
        let shared = Arc::new(SharedTransfer {
            transfers: transfers.clone(),
            url: client.resource.stored_url().to_owned(),
            bytes: span.end - span.start,
            begun: transfers.telemetry.clock.now(),
            state: Mutex::new(state),
            taken: Notify::new(),
        });
        transfers.running.lock().insert(shared.place(), Arc::downgrade(&shared));
        let agent = Agent {
            shared: shared.clone(),
            transfers,
            file,
            template: template.into(),
            client,
            dispatch,
            share,
            under_way: HashMap::new(),
        };
        let task = tokio::spawn(agent.run()).abort_handle();
        let (position, end) = (span.start, span.end);
        Ok(PieceReader { shared, task, current: VecDeque::new(), position, end, check })
    }
}

/// The task that fetches the pieces.
struct Agent {
    shared: Arc<SharedTransfer>,
    transfers: Arc<Transfers>,
    file: LargeFile,
    template: Arc<RequestContext>,
    client: Box<RequestContext>,
    dispatch: Arc<dyn Dispatch>,
    /// Memory for as many pieces as the window may hold.
    share: WindowShare,
    under_way: HashMap<RequestId, Awaited>,
}

type Fetched = (RequestId, Result<WholePiece, Failure>);

/// A piece that is waited for.
struct Awaited {
    waiter: AbortHandle,
    flight: Arc<PieceFlight>,
    /// It was here before it was asked for.
    at_hand: bool,
}

impl Awaited {
    fn source(&self) -> usize {
        self.flight.piece.source()
    }
}

impl Agent {
    async fn run(mut self) {
        let mut requests: JoinSet<Fetched> = JoinSet::new();
        // A request that was aborted does not say which it was.
        let mut ids: HashMap<Id, RequestId> = HashMap::new();
        loop {
            let now = self.transfers.telemetry.clock.now();
            let (due, wake_at) = self.decide(now);
            for (request, choice) in due {
                let (id, piece) = (request.id, (self.piece(&request, &choice), &*choice.tried));
                let (flight, joined) =
                    PieceFlight::board(&self.transfers, &self.template, piece, now, &self.dispatch);
                if joined {
                    self.shared.state.lock().pieces.joined(id, flight.begun);
                }
                let at_hand = flight.outcome.borrow().is_some();
                let awaited = flight.clone();
                let waiter = requests.spawn(async move { (id, awaited.outcome().await) });
                ids.insert(waiter.id(), id);
                self.under_way.insert(id, Awaited { waiter, flight, at_hand });
            }
            let sleep = wake_at.map(|at| tokio::time::sleep(at.since(now)));
            let sleep = async {
                match sleep {
                    Some(sleep) => sleep.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(ended) = requests.join_next_with_id() => match ended {
                    Ok((task, (id, fetched))) => {
                        ids.remove(&task);
                        self.ended(id, fetched);
                    }
                    Err(error) => {
                        // Aborted, and forgotten already, unless it panicked.
                        if let Some(id) = ids.remove(&error.id()) && !error.is_cancelled() {
                            self.ended(id, Err(Failure::Server(ServerFailure::NoResponse)));
                        }
                    }
                },
                () = self.shared.taken.notified() => {}
                () = sleep => {}
            }
        }
    }

    /// Gives up late pieces. Returns the requests to make now and when to look again.
    fn decide(&mut self, now: Timestamp) -> (Vec<(Request, Choice)>, Option<Timestamp>) {
        let mut state = self.shared.state.lock();
        self.look(&mut state.pieces, now);
        if state.pieces.poll_timeout().is_some_and(|at| at <= now) {
            let site = &self.template.resource.site;
            let mut sources = self.transfers.sources.lock();
            let may_retry = || site.may_retry(&self.transfers.telemetry.clock);
            state.pieces.handle_timeout(now, &mut sources, may_retry);
        }
        while let Some(id) = state.pieces.poll_cancel() {
            if let Some(awaited) = self.under_way.remove(&id) {
                awaited.waiter.abort();
            }
        }
        // An origin that does not say that it sends parts is asked for one first.
        let begun = self.file.offers_ranges || state.pieces.counts().pieces > 0;
        let wanted = if begun { state.pieces.wanted() } else { 1 };
        let width = self.share.adjust(state.pieces.held(), wanted);
        state.pieces.set_width(width);
        let due = self.due(&mut state.pieces, now);
        state.wake();
        let looks = state.pieces.poll_look().into_iter();
        (due, looks.chain(state.pieces.poll_timeout()).min())
    }

    /// Tells the window where its pieces are asked for and how far they are. Reports the nodes that have
    /// become slow.
    fn look(&self, pieces: &mut Chunked<HeldPiece>, now: Timestamp) {
        for (id, awaited) in &self.under_way {
            pieces.asked_of(*id, awaited.source());
        }
        let progress = |id: RequestId| Some(self.under_way.get(&id)?.flight.progress());
        let slow = pieces.look(now, &mut self.transfers.sources.lock(), progress);
        let Some(peers) = &self.transfers.peers else { return };
        for source in slow {
            let now = peers.now();
            let Some((_, member)) = now.in_slot(source) else { continue };
            let server = &member.server.name;
            tracing::info!(%server, reason = "slow", "no pieces are asked of a node for a while");
            self.transfers.telemetry.metrics.large.left_out(server);
        }
    }

    /// The requests to make now, each with the nodes to skip.
    fn due(&self, pieces: &mut Chunked<HeldPiece>, now: Timestamp) -> Vec<(Request, Choice)> {
        let nodes =
            self.transfers.peers.as_ref().map_or(1, |peers| peers.now().cluster().up().len());
        let requests: Vec<_> = std::iter::from_fn(|| pieces.poll_request(now)).collect();
        let sources = self.transfers.sources.lock();
        let choice = |request: &Request| pieces.choice(request.id, &sources, nodes, now);
        requests.into_iter().map(|request| (request.clone(), choice(&request))).collect()
    }

    /// The piece of a request, with the nodes to skip.
    fn piece(&self, request: &Request, choice: &Choice) -> Arc<Piece> {
        let url = ChunkUrl {
            range: request.range.clone(),
            retries: choice.retries,
            version: self.file.version,
            digest: self.client.resource.digest(),
        };
        let ahead = u32::try_from(request.ahead).unwrap_or(u32::MAX);
        Piece::new(url, choice, ahead, self.transfers.me)
    }

    /// A request has ended by itself.
    fn ended(&mut self, id: RequestId, fetched: Result<WholePiece, Failure>) {
        let Some(awaited) = self.under_way.remove(&id) else { return };
        let (now, source) = (self.transfers.telemetry.clock.now(), awaited.source());
        let Awaited { flight, at_hand, .. } = awaited;
        let is_news = flight.is_news();
        let mut state = self.shared.state.lock();
        match fetched {
            Ok(whole) => {
                let from = match is_news {
                    true if source == self.transfers.me => "here",
                    true => "peer",
                    false => "shared",
                };
                self.transfers.telemetry.metrics.large.came(from, flight.piece.bytes());
                *state.came.entry(source).or_default() += 1;
                let at_hand = at_hand || whole.at_hand;
                let fresh = flight.progress().fresh;
                let held = (whole, flight);
                if at_hand {
                    state.pieces.on_chunk_at_hand(id, held);
                } else if let Some(took) = state.pieces.on_chunk(now, id, held).filter(|_| is_news)
                {
                    let mut sources = self.transfers.sources.lock();
                    sources.came(source, took);
                    sources.received(source, fresh, 1, now);
                }
            }
            Err(failure @ (Failure::Changed | Failure::NoPieces)) => {
                state.failure = Some(failure);
                state.pieces.give_up();
                // Later transfers must not meet the same.
                if failure == Failure::Changed {
                    let (transfers, client, dispatch) =
                        (self.transfers.clone(), self.client.again(), self.dispatch.clone());
                    tokio::spawn(async move { refetch(&transfers, &client, &dispatch).await });
                }
            }
            Err(failure) => {
                let uri = without_query(self.client.resource.identity());
                let piece = &flight.piece.url;
                tracing::info!(uri, %piece, reason = failure.as_str(), "piece failed");
                state.failure = Some(failure);
                state.pieces.asked_of(id, source);
                state.pieces.on_failure(now, id, &mut self.transfers.sources.lock());
            }
        }
        state.wake();
    }
}

/// The body of a transfer: pieces in order.
pub(super) struct PieceReader {
    shared: Arc<SharedTransfer>,
    task: AbortHandle,
    /// The rest of the piece that is being taken.
    current: VecDeque<Bytes>,
    position: u64,
    end: u64,
    check: Option<DigestCheck>,
}

impl ReadAt for PieceReader {
    /// The bytes at `position`, where the last call has ended.
    fn poll_at(
        &mut self,
        cx: &mut Context<'_>,
        position: u64,
        _: u64,
    ) -> Poll<Option<Result<Bytes, ReadError>>> {
        if position != self.position {
            return Poll::Ready(Some(Err(ReadError::Gone)));
        }
        if let Err(error) = std::task::ready!(self.poll_piece(cx)) {
            return Poll::Ready(Some(Err(error)));
        }
        let segment = self.current.pop_front();
        self.position += segment.as_ref().map_or(0, Bytes::len) as u64;
        Poll::Ready(segment.map(Ok))
    }
}

impl PieceReader {
    /// Waits until there is something to deliver.
    pub(super) async fn ready(&mut self) -> Result<(), Failure> {
        std::future::poll_fn(|cx| self.poll_piece(cx)).await.map_err(|error| {
            Failure::of_fetch(&error).unwrap_or(Failure::Server(ServerFailure::BadResponse))
        })
    }

    pub(super) fn counts(&self) -> Arc<SharedTransfer> {
        self.shared.clone()
    }

    /// Gets the next piece, unless there is something left of the last, or nothing more to come.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ReadError>> {
        if !self.current.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let now = self.shared.transfers.telemetry.clock.now();
        let mut state = self.shared.state.lock();
        let next = state.pieces.poll_chunk(now);
        self.shared.taken.notify_one();
        match next {
            Next::Piece(piece, part) => {
                drop(state);
                self.current = cut(&piece.0.segments, part);
                Poll::Ready(self.verify())
            }
            Next::Done => Poll::Ready(Ok(())),
            Next::Failed => {
                let failure = state.failure.unwrap_or(Failure::Server(ServerFailure::NoResponse));
                Poll::Ready(Err(failure.into()))
            }
            Next::Wait => {
                state.waiting = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Before the last piece is delivered, the whole must have the expected digest.
    fn verify(&mut self) -> Result<(), ReadError> {
        let length: usize = self.current.iter().map(Bytes::len).sum();
        let last = self.position + length as u64 == self.end;
        if let Some(check) = &mut self.check {
            self.current.iter().for_each(|segment| check.update(segment));
        }
        let holds = self.check.take_if(|_| last).is_none_or(DigestCheck::holds);
        if holds { Ok(()) } else { Err(ReadError::Digest) }
    }
}

/// The bytes `part` of a piece.
fn cut(piece: &[Bytes], part: Range<u64>) -> VecDeque<Bytes> {
    let mut start = 0;
    let segments = piece.iter().filter_map(|segment| {
        let length = segment.len() as u64;
        let from = part.start.saturating_sub(start).min(length);
        let to = part.end.saturating_sub(start).min(length);
        start += length;
        (from < to).then(|| segment.slice(from as usize..to as usize))
    });
    segments.collect()
}

impl Drop for PieceReader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TransferCounts for SharedTransfer {
    fn counts(&self) -> Pieces {
        let PieceCounts { pieces, retries, hedges, stalls, .. } = self.state.lock().pieces.counts();
        Pieces { pieces, retries, hedges, stalls }
    }
}

impl SharedTransfer {
    /// Its place in memory, which tells it from the others that run.
    fn place(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// How far it is.
    pub(super) fn status(&self) -> TransferStatus {
        let transfers = &self.transfers;
        let state = self.state.lock();
        let name = |slot: usize| match transfers.peers.as_ref().filter(|_| slot != transfers.me) {
            Some(peers) => {
                peers.now().in_slot(slot).map(|(_, member)| member.server.name.to_string())
            }
            None => Some(transfers.name.token.to_string()),
        };
        let source = |(slot, pieces): (&usize, &u64)| {
            let node = name(*slot).unwrap_or_else(|| "a node that has left".to_owned());
            PieceSource { node, pieces: *pieces }
        };
        TransferStatus {
            url: self.url.clone(),
            bytes: self.bytes,
            done: self.bytes - state.pieces.undelivered(),
            seconds: transfers.telemetry.clock.now().since(self.begun).as_secs_f64(),
            sources: state.came.iter().map(source).collect(),
        }
    }
}

impl Drop for SharedTransfer {
    fn drop(&mut self) {
        self.transfers.running.lock().remove(&self.place());
        let counts = self.state.lock().pieces.counts();
        self.transfers.telemetry.metrics.large.transferred(counts);
    }
}
