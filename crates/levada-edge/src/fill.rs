//! Single flight: one fetch for many requests. Requests that arrive meanwhile follow it and stream
//! from the growing copy.
//!
//! The first request to miss leads ([`FetchLeader`](crate::leader::FetchLeader)); when its client
//! aborts, the fetch goes on for the followers. All of them await the [`FetchOutcome`], which the
//! head decides, and then read at their own speed. A fetch that fails is never mistaken for the end
//! of a body: its readers get an error, and their connections are cut.
//!
//! ```text
//!   join ── leader ──> lead fetch ───> head ──┬─ Share: pieces appended, readers woken
//!     └── follower ───────────────────────────┼─ Blocked: read block by block, each a fill of its own
//!                                             ├─ Large: fetched in pieces, by `large`
//!                                             ├─ Unshared: the leader passes it on,
//!                                             │            followers fetch for themselves
//!                                             ├─ Renewed: a validation said 304
//!                                             └─ Failed
//! ```
//!
//! A fill holds one block of body at most (`cache.block`); what is longer goes on in
//! [`crate::blocks`].

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::HeaderMap;
use levada_store::{Label, Loan, Object, StoredHead};
use levada_types::Key;
use levada_upstream::ServerFailure;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    blocks::BlockedBody,
    body::Relay,
    failure::{Failed, Failure},
    switch::ChosenServer,
};

/// All fetches under way.
pub(crate) struct Fills {
    table: Mutex<HashMap<Key, Arc<Fill>>>,
    /// Bytes of unfinished blocks, over all fills.
    held: AtomicU64,
    /// Bytes of finished ones that no store has counted: they last as long as their readers.
    lent: AtomicU64,
    /// Beyond it no further block of a long body is begun.
    bound: u64,
    freed: Notify,
}

/// One fetch.
pub(crate) struct Fill {
    key: Key,
    identity: Box<str>,
    /// The label that purges go by until the head has arrived.
    label: Label,
    /// When it began, as invalidations count.
    begun: u64,
    fills: Weak<Fills>,
    state: Mutex<FillState>,
}

#[derive(Default)]
struct FillState {
    outcome: Option<FetchOutcome>,
    /// The upstream response that only the leader may have.
    unshared: Option<UnsharedResponse>,
    /// Fields that only the leader may have.
    leader_fields: HeaderMap,
    /// The server of a switch that gave the head.
    chosen: Option<ChosenServer>,
    /// Where each piece starts, and the piece.
    pieces: Vec<(u64, Bytes)>,
    bytes: u64,
    /// Bytes in `pieces` that are no store's yet.
    held: u64,
    /// The same after the end.
    lent: u64,
    /// For the pieces after the end, if they are a block's.
    loan: Option<Arc<Loan>>,
    end: Option<FillEnd>,
    waiting: HashMap<u64, Waker>,
    next_reader: u64,
    /// Readers there are.
    readers: usize,
}

/// How a fill has ended.
#[derive(Clone)]
pub(crate) enum FillEnd {
    /// The body is complete.
    Whole,
    /// The block is full and the body goes on.
    Continued(Arc<BlockedBody>),
    /// The block is complete, but no longer here: the store has it.
    LetGo,
    Broken,
}

/// The outcome of a fetch, known as soon as the head has arrived.
#[derive(Clone)]
pub(crate) enum FetchOutcome {
    /// It may be shared; `length` where the head tells it, `kept` if it will be stored.
    Share { head: Arc<StoredHead>, length: Option<u64>, kept: bool },
    /// It is longer than a block, or only a part was asked for: it is read block by block.
    Blocked(Arc<BlockedBody>),
    /// It is a large file, whose head is stored: its body is fetched in pieces.
    Large(Arc<Object>),
    /// It may not be shared: everyone needs an own response.
    Unshared,
    /// The stored object is still good.
    Renewed(Arc<Object>),
    /// There is none.
    Failed(Failed),
}

impl FetchOutcome {
    /// The head of what is being received.
    pub(crate) fn head(&self) -> Option<&StoredHead> {
        match self {
            Self::Share { head, .. } => Some(head),
            Self::Blocked(blocked) => Some(&blocked.head),
            Self::Unshared | Self::Renewed(_) | Self::Large(_) | Self::Failed(_) => None,
        }
    }

    /// The label of what may be shared.
    pub(crate) fn label(&self) -> Option<&Label> {
        match self {
            Self::Share { head, .. } => Some(&head.label),
            Self::Blocked(blocked) => Some(&blocked.head.label),
            Self::Renewed(object) | Self::Large(object) => Some(&object.head.label),
            Self::Unshared | Self::Failed(_) => None,
        }
    }
}

/// A response that only the leader's client may have.
pub(crate) struct UnsharedResponse {
    pub(crate) head: http::response::Parts,
    pub(crate) relay: Relay,
    /// Why it is not shared, for `Cache-Status`.
    pub(crate) reason: &'static str,
}

/// The part of a request in a fetch.
pub(crate) struct FillHandle {
    pub(crate) reader: FillReader,
    /// It is the leader: it must start the fetch, by [`FillWriter::new`].
    pub(crate) leads: bool,
}

impl Fills {
    /// `bound` in bytes of unfinished blocks.
    pub(crate) fn new(bound: u64) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::default(),
            held: AtomicU64::new(0),
            lent: AtomicU64::new(0),
            bound,
            freed: Notify::new(),
        })
    }

    /// Follows the fetch of `identity`, or leads one: with `label`, as the store that was `begun` then.
    /// `None` when another URI with the same key is being fetched: the request passes the cache by.
    ///
    /// A fetch that purges or invalidations have outdated is not followed any more, as `may_follow` says
    /// by its label and its beginning; it goes on for the requests that arrived before.
    pub(crate) fn join(
        self: &Arc<Self>,
        key: Key,
        identity: &str,
        (label, begun): (Label, u64),
        may_follow: impl FnOnce(&Label, u64) -> bool,
    ) -> Option<FillHandle> {
        let mut table = self.table.lock();
        if let Some(fill) = table.get(&key) {
            if *fill.identity != *identity {
                return None;
            }
            let outcome = fill.state.lock().outcome.clone();
            let known = outcome.as_ref().and_then(FetchOutcome::label);
            if may_follow(known.unwrap_or(&fill.label), fill.begun) {
                return Some(FillHandle { reader: fill.reader(), leads: false });
            }
        }
        let handle = self.detached(key, identity, (label, begun));
        table.insert(key, handle.reader.fill().clone());
        Some(handle)
    }

    /// A fetch that no other request follows.
    pub(crate) fn detached(
        self: &Arc<Self>,
        key: Key,
        identity: &str,
        (label, begun): (Label, u64),
    ) -> FillHandle {
        let fill = self.fill(key, identity, label, begun);
        FillHandle { reader: fill.reader(), leads: true }
    }

    /// A block of a body that is being fetched as a whole: purges go by that body's head.
    pub(crate) fn block(self: &Arc<Self>, key: Key, identity: &str) -> Arc<Fill> {
        self.fill(key, identity, Label::new(0, 0), 0)
    }

    fn fill(self: &Arc<Self>, key: Key, identity: &str, label: Label, begun: u64) -> Arc<Fill> {
        Arc::new(Fill {
            key,
            identity: identity.into(),
            label,
            begun,
            fills: Arc::downgrade(self),
            state: Mutex::default(),
        })
    }

    /// Waits until another block may be begun. Blocks that were begun never wait for a reader, so that
    /// there is room again in time.
    pub(crate) async fn room(&self) {
        loop {
            let freed = self.freed.notified();
            if self.held.load(Relaxed) <= self.bound {
                return;
            }
            freed.await;
        }
    }

    /// Objects and blocks being fetched.
    pub(crate) fn len(&self) -> usize {
        self.table.lock().len()
    }

    /// Bytes of blocks that are no store's.
    pub(crate) fn bytes(&self) -> u64 {
        self.held.load(Relaxed) + self.lent.load(Relaxed)
    }

    /// Whether those who hold more than they must should let go of it.
    pub(crate) fn is_tight(&self) -> bool {
        self.bytes() > self.bound
    }
}

impl Fill {
    /// The response that is not to be shared: once, for the leader.
    pub(crate) fn take_unshared(&self) -> Option<UnsharedResponse> {
        self.state.lock().unshared.take()
    }

    /// The fields that are not to be shared: once, for the leader.
    pub(crate) fn take_leader_fields(&self) -> HeaderMap {
        std::mem::take(&mut self.state.lock().leader_fields)
    }

    /// The server of a switch that was asked: once, for the leader's log line.
    pub(crate) fn take_chosen(&self) -> Option<ChosenServer> {
        self.state.lock().chosen.take()
    }

    pub(crate) fn reader(self: &Arc<Self>) -> FillReader {
        let mut state = self.state.lock();
        let id = state.next_reader;
        state.next_reader += 1;
        state.readers += 1;
        FillReader { fill: self.clone(), id }
    }

    /// Whether somebody reads it, or waits for its outcome.
    pub(crate) fn is_read(&self) -> bool {
        self.state.lock().readers > 0
    }

    /// The pieces so far.
    pub(crate) fn pieces(&self) -> Vec<Bytes> {
        self.state.lock().pieces.iter().map(|(_, piece)| piece.clone()).collect()
    }

    /// A block has ended, under `loan` if there is one; see [`end`](Self::end).
    pub(crate) fn end_block(&self, end: FillEnd, stored: &[Bytes], loan: Option<Arc<Loan>>) {
        self.state.lock().loan = loan;
        self.end(end, Some(stored));
    }

    /// A block has ended and is in the store; it is not kept at hand.
    pub(crate) fn let_go(&self, end: FillEnd) {
        let end = if let FillEnd::Whole = end { FillEnd::LetGo } else { end };
        self.end(end, Some(&[]));
    }

    /// Whether the block is elsewhere.
    pub(crate) fn has_let_go(&self) -> bool {
        matches!(self.state.lock().end, Some(FillEnd::LetGo))
    }

    /// The body has ended, or goes on elsewhere. `stored`, the same bytes as a store keeps them,
    /// takes the place of the pieces: what comes from the network in pieces holds on to more.
    pub(crate) fn end(&self, end: FillEnd, stored: Option<&[Bytes]>) {
        let mut state = self.state.lock();
        let held = std::mem::take(&mut state.held);
        if let Some(stored) = stored {
            let mut start = 0;
            state.pieces.clear();
            for segment in stored {
                state.pieces.push((start, segment.clone()));
                start += segment.len() as u64;
            }
            state.bytes = start;
        } else if let Some(fills) = self.fills.upgrade() {
            state.lent += held;
            fills.lent.fetch_add(held, Relaxed);
        }
        self.release(held);
        state.end.get_or_insert(end);
        state.wake_readers();
    }

    fn append(&self, piece: Bytes) {
        let len = piece.len() as u64;
        let mut state = self.state.lock();
        let start = state.bytes;
        state.pieces.push((start, piece));
        state.bytes += len;
        state.held += len;
        state.wake_readers();
        if let Some(fills) = self.fills.upgrade() {
            fills.held.fetch_add(len, Relaxed);
        }
    }

    fn leave_table(self: &Arc<Self>) {
        let Some(fills) = self.fills.upgrade() else { return };
        let mut table = fills.table.lock();
        if table.get(&self.key).is_some_and(|fill| Arc::ptr_eq(fill, self)) {
            table.remove(&self.key);
        }
    }

    fn release(&self, bytes: u64) {
        if let Some(fills) = self.fills.upgrade()
            && bytes > 0
        {
            fills.held.fetch_sub(bytes, Relaxed);
            fills.freed.notify_waiters();
        }
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        let FillState { held, lent, .. } = *self.state.get_mut();
        self.release(held);
        if let Some(fills) = self.fills.upgrade() {
            fills.lent.fetch_sub(lent, Relaxed);
        }
    }
}

/// The writing end of a fetch: the fetching task's. Dropped early, the fetch has failed.
pub(crate) struct FillWriter {
    fill: Arc<Fill>,
    settled: bool,
}

impl FillWriter {
    pub(crate) fn new(fill: Arc<Fill>) -> Self {
        Self { fill, settled: false }
    }

    pub(crate) fn fill(&self) -> &Arc<Fill> {
        &self.fill
    }

    /// The head has arrived and may be shared; the body is to be stored if `kept`.
    pub(crate) fn share(&mut self, head: Arc<StoredHead>, length: Option<u64>, kept: bool) {
        self.settle(FetchOutcome::Share { head, length, kept });
    }

    /// The body is read block by block.
    pub(crate) fn blocked(&mut self, blocked: Arc<BlockedBody>) {
        self.settle(FetchOutcome::Blocked(blocked));
    }

    /// Fields that are the leader's alone, of a response that is to be shared without them.
    pub(crate) fn keep_for_leader(&self, fields: HeaderMap) {
        self.fill.state.lock().leader_fields = fields;
    }

    /// The head is this server's.
    pub(crate) fn given_by(&self, chosen: &ChosenServer) {
        self.fill.state.lock().chosen = Some(chosen.clone());
    }

    /// The response is the leader's alone.
    pub(crate) fn pass(mut self, passed: UnsharedResponse) {
        self.fill.leave_table();
        self.fill.state.lock().unshared = Some(passed);
        self.settle(FetchOutcome::Unshared);
    }

    /// The response is of no use to anyone: everyone asks for itself.
    pub(crate) fn dismiss(mut self) {
        self.fill.leave_table();
        self.settle(FetchOutcome::Unshared);
    }

    /// The stored object has been renewed.
    pub(crate) fn renewed(mut self, object: Arc<Object>) {
        self.fill.leave_table();
        self.settle(FetchOutcome::Renewed(object));
    }

    /// It is a large file with this head.
    pub(crate) fn large(mut self, object: Arc<Object>) {
        self.fill.leave_table();
        self.settle(FetchOutcome::Large(object));
    }

    /// There is no response.
    pub(crate) fn fail(mut self, failed: Failed) {
        self.fill.leave_table();
        self.settle(FetchOutcome::Failed(failed));
    }

    /// Later requests may not follow any more.
    pub(crate) fn end_following(&self) {
        self.fill.leave_table();
    }

    /// Bytes that were written.
    pub(crate) fn written(&self) -> u64 {
        self.fill.state.lock().bytes
    }

    /// Adds a piece of body.
    pub(crate) fn push(&self, piece: Bytes) {
        if !piece.is_empty() {
            self.fill.append(piece);
        }
    }

    fn settle(&mut self, outcome: FetchOutcome) {
        self.settled = true;
        let mut state = self.fill.state.lock();
        state.outcome = Some(outcome);
        state.wake_readers();
    }
}

impl Drop for FillWriter {
    /// The table forgets the fetch, after the object has been stored; an end that was not declared
    /// is a failure.
    fn drop(&mut self) {
        if !self.settled {
            self.settle(FetchOutcome::Failed(Failure::Server(ServerFailure::NoResponse).into()));
        }
        self.fill.leave_table();
        self.fill.end(FillEnd::Broken, None);
    }
}

impl FillState {
    fn wake_readers(&mut self) {
        for (_, waker) in self.waiting.drain() {
            waker.wake();
        }
    }
}

/// Reads a growing body at its own speed.
pub(crate) struct FillReader {
    fill: Arc<Fill>,
    id: u64,
}

/// The result of a read.
pub(crate) enum FillRead {
    Piece(Bytes),
    End(FillEnd),
}

impl FillReader {
    pub(crate) fn fill(&self) -> &Arc<Fill> {
        &self.fill
    }

    /// Awaits what becomes of the fetch.
    pub(crate) async fn outcome(&self) -> FetchOutcome {
        std::future::poll_fn(|cx| {
            let mut state = self.fill.state.lock();
            match &state.outcome {
                Some(outcome) => Poll::Ready(outcome.clone()),
                None => {
                    // Its own place, which goes when it goes: those who give up leave nothing.
                    state.waiting.insert(self.id, cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The outcome of the fetch, if it is known.
    pub(crate) fn settled(&self) -> Option<FetchOutcome> {
        self.fill.state.lock().outcome.clone()
    }

    /// Waits for the end, whatever it is. The bytes that are read then are the store's own.
    pub(crate) fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.fill.state.lock();
        if state.end.is_some() {
            return Poll::Ready(());
        }
        state.waiting.insert(self.id, cx.waker().clone());
        Poll::Pending
    }

    /// The bytes at a position, up to the end of their piece.
    pub(crate) fn poll_at(&self, cx: &mut Context<'_>, position: u64) -> Poll<FillRead> {
        let mut state = self.fill.state.lock();
        if position < state.bytes {
            let at = state.pieces.partition_point(|(start, _)| *start <= position) - 1;
            let (start, piece) = &state.pieces[at];
            return Poll::Ready(FillRead::Piece(piece.slice((position - start) as usize..)));
        }
        match &state.end {
            Some(end) => Poll::Ready(FillRead::End(end.clone())),
            None => {
                state.waiting.insert(self.id, cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for FillReader {
    fn drop(&mut self) {
        let mut state = self.fill.state.lock();
        state.waiting.remove(&self.id);
        state.readers -= 1;
    }
}
