//! One client's transfer: a task that fetches pieces, and the body that they become.
//!
//! The task runs beside the body, so that pieces go on arriving while the client is slow. They meet in
//! [`SharedTransfer`]. The task ends with the body, and the requests that are under way end with the task.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::HeaderMap;
use levada_fetch::{
    ChunkUrl, Chunked, Counts, MAX_RETRIES, Next, Plan, Request, RequestId, Sources,
};
use levada_policy::NodeIndex;
use levada_types::Timestamp;
use levada_upstream::ServerFailure;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    task::{AbortHandle, Id, JoinSet},
};

use super::{
    Dispatch, File,
    check::Check,
    flight::{PieceFlight, WholePiece},
    refetch,
    room::Share,
};
use crate::{
    access_record::TransferCounts, body::BodyError, body_reader::ReadAt, failure::Failure,
    node::Node, request::RequestContext, resource::Piece,
};

/// A piece that is held for the client, and with it the flight, so that others find it.
type HeldPiece = (WholePiece, Arc<PieceFlight>);

/// A transfer that is about to begin.
pub(crate) struct Transfer {
    node: Arc<Node>,
    plan: Plan,
    file: File,
    span: Range<u64>,
    check: Option<Check>,
    /// What every request for a piece is made from.
    template: Box<RequestContext>,
    /// The client's own request, for its head.
    client: Box<RequestContext>,
    dispatch: Dispatch,
}

/// What the task and the body share.
pub(super) struct SharedTransfer {
    node: Arc<Node>,
    state: Mutex<TransferState>,
    /// The body has taken a piece.
    taken: Notify,
}

struct TransferState {
    pieces: Chunked<HeldPiece>,
    /// The body, when it waits for a piece.
    waiting: Option<Waker>,
    /// What went wrong last.
    failure: Option<Failure>,
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
        node: &Arc<Node>,
        client: &RequestContext,
        file: &File,
        span: Range<u64>,
        headers: &HeaderMap,
        dispatch: Dispatch,
    ) -> Option<Self> {
        let plan = client.resource.site.serves_large_files()?.plan;
        let whole = span == (0..file.length);
        let digest = client.resource.digest();
        let check = if whole { Check::of(headers, digest.as_ref()) } else { None };
        Some(Self {
            node: node.clone(),
            plan,
            file: file.clone(),
            span,
            check,
            template: client.for_pieces(file),
            client: client.again(),
            dispatch,
        })
    }

    /// Begins. `None` when there is no memory for even one piece.
    pub(super) fn begin(self) -> Option<PieceReader> {
        let Self { node, plan, file, span, check, template, client, dispatch } = self;
        let share = node.large.room.enter(plan.chunk)?;
        let pieces = Chunked::new(plan, file.length, span.clone());
        let state = TransferState { pieces, waiting: None, failure: None };
        let shared = Arc::new(SharedTransfer {
            node: node.clone(),
            state: Mutex::new(state),
            taken: Notify::new(),
        });
        let agent = Agent {
            shared: shared.clone(),
            node,
            plan,
            file,
            template: template.into(),
            client,
            dispatch,
            share,
            under_way: HashMap::new(),
            tried: HashMap::new(),
        };
        let task = tokio::spawn(agent.run()).abort_handle();
        let (position, end) = (span.start, span.end);
        Some(PieceReader { shared, task, current: VecDeque::new(), position, end, check })
    }
}

/// What fetches the pieces.
struct Agent {
    shared: Arc<SharedTransfer>,
    node: Arc<Node>,
    plan: Plan,
    file: File,
    template: Arc<RequestContext>,
    client: Box<RequestContext>,
    dispatch: Dispatch,
    /// Memory for as many pieces as the window may hold.
    share: Share,
    under_way: HashMap<RequestId, Awaited>,
    /// The nodes that each piece was asked of in vain.
    tried: HashMap<u64, Vec<NodeIndex>>,
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
    fn source(&self) -> NodeIndex {
        self.flight.piece.source()
    }

    fn start(&self) -> u64 {
        self.flight.piece.url.range.start
    }
}

impl Agent {
    async fn run(mut self) {
        let mut requests: JoinSet<Fetched> = JoinSet::new();
        // A request that was aborted does not say which it was.
        let mut ids: HashMap<Id, RequestId> = HashMap::new();
        loop {
            let now = self.node.clock.now();
            let (due, wake_at) = self.decide(now);
            for request in due {
                let (id, piece) = (request.id, self.name(&request, now));
                let (flight, joined) =
                    PieceFlight::board(&self.node, &self.template, piece, now, self.dispatch);
                if joined {
                    self.shared.state.lock().pieces.joined(id, flight.begun);
                }
                let at_hand = flight.is_over();
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

    /// Looks after what is late, and says what to ask for now and when to look again.
    fn decide(&mut self, now: Timestamp) -> (Vec<Request>, Option<Timestamp>) {
        let mut state = self.shared.state.lock();
        state.pieces.look(now, |id| self.under_way.get(&id)?.flight.so_far());
        if state.pieces.poll_timeout().is_some_and(|at| at <= now) {
            for id in state.pieces.late(now) {
                if let Some(awaited) = self.under_way.get(&id) {
                    let (piece, node) = (&awaited.flight.piece, awaited.source().get());
                    tracing::debug!(piece = %piece.url, node, came = piece.received(), "piece is late");
                    if awaited.flight.is_news() {
                        self.judge(awaited.source(), "late", |all, source| all.late(source, now));
                    }
                    self.tried.entry(awaited.start()).or_default().push(awaited.source());
                }
            }
            let site = &self.template.resource.site;
            state.pieces.handle_timeout(now, || site.may_retry(&self.node.clock));
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
        let due = std::iter::from_fn(|| state.pieces.poll_request(now)).collect();
        state.wake();
        let looks = state.pieces.poll_look().into_iter();
        (due, looks.chain(state.pieces.poll_timeout()).min())
    }

    /// The piece of a request, with the nodes that are not to be asked for it.
    ///
    /// Another try goes to the policy's next choice, which may have the piece: it is another replica's,
    /// or somebody came by when the first was slow. Only when all have been asked in vain it gets another
    /// name, under which it is fetched anew. As published it has one at once.
    fn name(&self, request: &Request, now: Timestamp) -> Arc<Piece> {
        let start = request.range.start;
        let tried = self.tried.get(&start).into_iter().flatten().copied();
        // A request beside another goes elsewhere.
        let busy = self.under_way.values().filter(|awaited| awaited.start() == start);
        let mut avoided: Vec<_> = tried.chain(busy.map(Awaited::source)).collect();
        let peers = self.node.peers.as_ref();
        let nodes = peers.map_or(1, |peers| peers.cluster().up().len().max(1));
        let rounds = u8::try_from(avoided.len() / nodes).unwrap_or(MAX_RETRIES).min(MAX_RETRIES);
        let sources = self.node.large.sources.lock();
        avoided.extend(sources.left_out(now).map(|n| NodeIndex(n as u32)));
        avoided.extend((0..nodes).map(|n| NodeIndex(n as u32)).filter(|node| {
            let under_way = self.under_way.values().filter(|awaited| awaited.source() == *node);
            sources.is_behind(node.get(), under_way.count())
        }));
        drop(sources);
        let url = ChunkUrl {
            range: request.range.clone(),
            retries: if self.plan.salted { request.retries } else { rounds },
            version: self.file.version,
            digest: self.client.resource.digest(),
        };
        Piece::new(url, avoided, peers.map_or(NodeIndex(0), |peers| peers.me()))
    }

    /// A request has ended by itself.
    fn ended(&mut self, id: RequestId, fetched: Result<WholePiece, Failure>) {
        let Some(awaited) = self.under_way.remove(&id) else { return };
        let (now, source, start) = (self.node.clock.now(), awaited.source(), awaited.start());
        let Awaited { flight, at_hand, .. } = awaited;
        let is_news = flight.is_news();
        let mut state = self.shared.state.lock();
        match fetched {
            Ok(whole) => {
                let from = match is_news {
                    true if self.is_here(source) => "here",
                    true => "peer",
                    false => "shared",
                };
                self.node.metrics.large.came(from, flight.piece.len());
                let at_hand = at_hand || whole.at_hand;
                let held = (whole, flight);
                if at_hand {
                    state.pieces.on_chunk_at_hand(id, held);
                } else if let Some(took) = state.pieces.on_chunk(now, id, held) {
                    if is_news
                        && self.judge(source, "slow", |all, source| all.came(source, took, now))
                    {
                        // What else is under way from there would hold up the window as long again.
                        let beside = self.under_way.iter().filter(|(_, b)| b.source() == source);
                        beside.for_each(|(id, _)| state.pieces.doubt(*id));
                    }
                    // A hedge that wins says the same of the first as a timeout would.
                    for (other, beside) in &self.under_way {
                        if other.0 < id.0 && beside.start() == start && beside.flight.is_news() {
                            self.judge(beside.source(), "late", |all, source| {
                                all.late(source, now)
                            });
                        }
                    }
                }
                self.tried.remove(&start);
            }
            Err(failure @ (Failure::Changed | Failure::NoPieces)) => {
                state.failure = Some(failure);
                state.pieces.give_up();
                // Those who come later are not to meet the same.
                if failure == Failure::Changed {
                    let (node, client, dispatch) =
                        (self.node.clone(), self.client.again(), self.dispatch);
                    tokio::spawn(async move { refetch(&node, &client, dispatch).await });
                }
            }
            Err(failure) => {
                let (uri, piece) = (&self.client.resource.identity, &flight.piece.url);
                tracing::info!(uri, %piece, reason = failure.as_str(), "piece failed");
                state.failure = Some(failure);
                state.pieces.on_failure(now, id);
                if is_news {
                    self.judge(source, "failed", |all, source| all.late(source, now));
                }
                self.tried.entry(start).or_default().push(source);
            }
        }
        state.wake();
    }

    /// Takes in what is new of a source. Tells, and logs, when it is left out from now on.
    fn judge(
        &self,
        source: NodeIndex,
        reason: &'static str,
        take_in: impl FnOnce(&mut Sources, usize) -> bool,
    ) -> bool {
        let is_left_out = take_in(&mut self.node.large.sources.lock(), source.get());
        if is_left_out && let Some(peers) = &self.node.peers {
            let server = &peers.server(source).name;
            tracing::info!(%server, reason, "no pieces are asked of a node for a while");
            self.node.metrics.large.left_out(server);
        }
        is_left_out
    }

    fn is_here(&self, source: NodeIndex) -> bool {
        self.node.peers.as_ref().is_none_or(|peers| peers.me() == source)
    }
}

/// The body of a transfer: pieces in order.
pub(super) struct PieceReader {
    shared: Arc<SharedTransfer>,
    task: AbortHandle,
    /// What is left of the piece that is being taken.
    current: VecDeque<Bytes>,
    position: u64,
    end: u64,
    check: Option<Check>,
}

impl ReadAt for PieceReader {
    /// The bytes at `position`, which is where the last call has ended.
    fn poll_at(
        &mut self,
        cx: &mut Context<'_>,
        position: u64,
        _: u64,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        if position != self.position {
            return Poll::Ready(Some(Err(BodyError::Gone)));
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
        std::future::poll_fn(|cx| self.poll_piece(cx)).await.map_err(|error| match error {
            BodyError::Failed(failure) => failure,
            _ => Failure::Server(ServerFailure::BadResponse),
        })
    }

    pub(super) fn counts(&self) -> Arc<SharedTransfer> {
        self.shared.clone()
    }

    /// Gets the next piece, unless there is something left of the last, or nothing more to come.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        if !self.current.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let now = self.shared.node.clock.now();
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
                Poll::Ready(Err(BodyError::Failed(failure)))
            }
            Next::Wait => {
                state.waiting = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Before the last piece is let go, the whole must have the digest that it is to have.
    fn verify(&mut self) -> Result<(), BodyError> {
        let length: usize = self.current.iter().map(Bytes::len).sum();
        let last = self.position + length as u64 == self.end;
        if let Some(check) = &mut self.check {
            self.current.iter().for_each(|segment| check.update(segment));
        }
        let holds = self.check.take_if(|_| last).is_none_or(Check::holds);
        if holds { Ok(()) } else { Err(BodyError::Digest) }
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
    fn counts(&self) -> Counts {
        self.state.lock().pieces.counts()
    }
}

impl Drop for SharedTransfer {
    fn drop(&mut self) {
        self.node.metrics.large.transferred(self.counts());
    }
}
