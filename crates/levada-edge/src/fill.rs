//! One fetch per object: whoever asks for it meanwhile streams from the growing copy.
//!
//! The first to miss leads: a task of its own fetches the object, so that a client's abort does not
//! end what others read. Everyone, the leader's client included, awaits the [`Verdict`] on the head
//! and then reads pieces at its own speed. A fetch that fails is never mistaken for the end of a body:
//! its readers get an error, and their connections are cut.
//!
//! ```text
//!   join ── Leader ──> spawn run ──> head ──┬─ Share: pieces appended, readers woken
//!     └── Follower ─────────────────────────┼─ Alone: not to be shared; the leader passes it on,
//!                                           │         followers fetch for themselves
//!                                           ├─ Renewed: a validation said 304
//!                                           └─ Failed
//! ```

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::SizeHint;
use levada_types::Key;
use parking_lot::Mutex;

use crate::{
    body::{BodyError, Relay},
    failure::Failure,
    forward::Failed,
    purge::{Flight, Label, Purges},
    store::{Object, StoredHead},
};

/// How far the fetch may run ahead of the slowest reader once an object has turned out too large to
/// keep.
const WINDOW: usize = 1 << 20;

/// All fetches under way.
pub(crate) struct Fills {
    table: Mutex<HashMap<Key, Arc<Fill>>>,
    /// Bytes of unfinished objects, over all fills.
    held: AtomicU64,
    /// How many of them there may be; what grows beyond is streamed instead of kept.
    bound: u64,
    max_object: u64,
    purges: Arc<Purges>,
}

/// One fetch.
pub(crate) struct Fill {
    key: Key,
    identity: Box<str>,
    /// What purges go by until the head has arrived.
    label: Label,
    fills: Weak<Fills>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    verdict: Option<Verdict>,
    /// The upstream response that only the leader may have.
    alone: Option<Passed>,
    /// Fields that only the leader may have.
    own: HeaderMap,
    pieces: VecDeque<Bytes>,
    /// The number of the first piece that is still held.
    first: usize,
    bytes: u64,
    /// Bytes in `pieces`; less than `bytes` once the object is only streamed.
    held: usize,
    /// Too large to keep: pieces go when every reader has them, nobody may join.
    streamed: bool,
    end: Option<Result<(), ()>>,
    readers: HashMap<u64, ReaderState>,
    next_reader: u64,
    writer: Option<Waker>,
}

struct ReaderState {
    position: usize,
    waker: Option<Waker>,
}

/// What has become of a fetch, as soon as the head has arrived.
#[derive(Clone)]
pub(crate) enum Verdict {
    /// It may be stored and shared; `length` where the head tells it.
    Share { head: Arc<StoredHead>, length: Option<u64> },
    /// It may not: everyone needs an own response.
    Alone,
    /// The stored object is still good.
    Renewed(Arc<Object>),
    /// There is none.
    Failed(Failed),
}

impl Verdict {
    /// The label of what may be shared.
    pub(crate) fn label(&self) -> Option<&Label> {
        match self {
            Self::Share { head, .. } => Some(&head.label),
            Self::Renewed(object) => Some(&object.head.label),
            Self::Alone | Self::Failed(_) => None,
        }
    }
}

/// A response that only the leader's client may have.
pub(crate) struct Passed {
    pub(crate) head: http::response::Parts,
    pub(crate) relay: Relay,
    /// Why it is not shared, for `Cache-Status`.
    pub(crate) reason: &'static str,
}

/// A caller's part in a fetch. Its reader is there before the first byte, so that nothing it needs is
/// let go.
pub(crate) struct Part {
    pub(crate) reader: Reader,
    /// For the caller who must start the fetch, by [`Writer::new`] in a task of its own.
    pub(crate) flight: Option<Flight>,
}

impl Fills {
    pub(crate) fn new(max_object: u64, bound: u64, purges: Arc<Purges>) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::default(),
            held: AtomicU64::new(0),
            bound,
            max_object,
            purges,
        })
    }

    /// Joins the fetch of `identity`, or begins one. `None` when another URI with the same key is
    /// being fetched: the caller is on its own. A fetch that began before a purge of it is not joined
    /// any more; it goes on for those who asked before.
    pub(crate) fn join(self: &Arc<Self>, key: Key, identity: &str, site: u64) -> Option<Part> {
        let mut table = self.table.lock();
        if let Some(fill) = table.get(&key) {
            if *fill.identity != *identity {
                return None;
            }
            if fill.may_be_joined(&self.purges) {
                return Some(Part { reader: fill.reader(), flight: None });
            }
        }
        let part = self.detached(key, identity, site);
        table.insert(key, part.reader.fill().clone());
        Some(part)
    }

    /// A fetch that nobody finds by its key.
    pub(crate) fn detached(self: &Arc<Self>, key: Key, identity: &str, site: u64) -> Part {
        let flight = self.purges.begin();
        let fill = Arc::new(Fill {
            key,
            identity: identity.into(),
            label: Label::new(site, flight.born()),
            fills: Arc::downgrade(self),
            state: Mutex::default(),
        });
        Part { reader: fill.reader(), flight: Some(flight) }
    }

    /// Objects being fetched.
    pub(crate) fn len(&self) -> usize {
        self.table.lock().len()
    }

    /// Bytes of unfinished objects.
    pub(crate) fn bytes(&self) -> u64 {
        self.held.load(Relaxed)
    }
}

impl Fill {
    /// The response that is not to be shared: once, for the leader.
    pub(crate) fn take_alone(&self) -> Option<Passed> {
        self.state.lock().alone.take()
    }

    /// The fields that are not to be shared: once, for the leader.
    pub(crate) fn take_own(&self) -> HeaderMap {
        std::mem::take(&mut self.state.lock().own)
    }

    fn may_be_joined(&self, purges: &Purges) -> bool {
        let verdict = self.state.lock().verdict.clone();
        let known = verdict.as_ref().and_then(Verdict::label);
        purges.may_join(known.unwrap_or(&self.label), &self.identity)
    }

    fn reader(self: &Arc<Self>) -> Reader {
        let mut state = self.state.lock();
        let id = state.next_reader;
        state.next_reader += 1;
        state.readers.insert(id, ReaderState { position: 0, waker: None });
        Reader { fill: self.clone(), id, next: 0, length: None, read: 0 }
    }
}

/// The writing end of a fetch: the fetching task's. Dropped early, the fetch has failed.
pub(crate) struct Writer {
    fill: Arc<Fill>,
    settled: bool,
}

impl Writer {
    pub(crate) fn new(fill: Arc<Fill>) -> Self {
        Self { fill, settled: false }
    }

    /// The head has arrived and may be shared.
    pub(crate) fn share(&mut self, head: Arc<StoredHead>, length: Option<u64>) {
        self.settle(Verdict::Share { head, length });
    }

    /// Fields that are the leader's alone, of a response that is to be shared without them.
    pub(crate) fn keep_for_leader(&self, own: HeaderMap) {
        self.fill.state.lock().own = own;
    }

    /// The response is the leader's alone.
    pub(crate) fn pass(mut self, passed: Passed) {
        self.fill.leave_table();
        self.fill.state.lock().alone = Some(passed);
        self.settle(Verdict::Alone);
    }

    /// The stored object has been renewed.
    pub(crate) fn renewed(mut self, object: Arc<Object>) {
        self.fill.leave_table();
        self.settle(Verdict::Renewed(object));
    }

    /// There is no response.
    pub(crate) fn fail(mut self, failed: Failed) {
        self.fill.leave_table();
        self.settle(Verdict::Failed(failed));
    }

    /// Adds a piece of body, and waits for the readers if the object is only streamed. False when
    /// nobody wants it any more.
    pub(crate) async fn push(&self, piece: Bytes) -> bool {
        if piece.is_empty() {
            return true;
        }
        self.fill.append(piece);
        std::future::poll_fn(|cx| self.fill.poll_room(cx)).await
    }

    /// The body is complete. Returns its pieces, unless it was too large to keep.
    pub(crate) fn complete(&mut self) -> Option<(Vec<Bytes>, u64)> {
        let mut state = self.fill.state.lock();
        let whole =
            (!state.streamed).then(|| (state.pieces.iter().cloned().collect(), state.bytes));
        state.end = Some(Ok(()));
        state.wake_readers();
        whole
    }

    fn settle(&mut self, verdict: Verdict) {
        self.settled = true;
        let mut state = self.fill.state.lock();
        state.verdict = Some(verdict);
        state.wake_readers();
    }
}

impl Drop for Writer {
    /// The table forgets the fetch, after the object has been stored; an end that was not declared
    /// is a failure.
    fn drop(&mut self) {
        if !self.settled {
            self.settle(Verdict::Failed(Failure::NoResponse.into()));
        }
        self.fill.leave_table();
        let mut state = self.fill.state.lock();
        if state.end.is_none() {
            state.end = Some(Err(()));
            state.wake_readers();
        }
    }
}

impl Fill {
    fn leave_table(self: &Arc<Self>) {
        let Some(fills) = self.fills.upgrade() else { return };
        let mut table = fills.table.lock();
        if table.get(&self.key).is_some_and(|fill| Arc::ptr_eq(fill, self)) {
            table.remove(&self.key);
        }
    }

    fn append(self: &Arc<Self>, piece: Bytes) {
        let Some(fills) = self.fills.upgrade() else { return };
        let mut state = self.state.lock();
        let len = piece.len() as u64;
        state.bytes += len;
        state.held += piece.len();
        state.pieces.push_back(piece);
        let held = fills.held.fetch_add(len, Relaxed) + len;
        let stream = !state.streamed && (state.bytes > fills.max_object || held > fills.bound);
        state.streamed |= stream;
        state.wake_readers();
        drop(state);
        if stream {
            self.leave_table();
        }
    }

    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.state.lock();
        if !state.streamed {
            return Poll::Ready(true);
        }
        self.forget_read(&mut state);
        if state.readers.is_empty() {
            return Poll::Ready(false);
        }
        if state.held <= WINDOW {
            return Poll::Ready(true);
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Drops the pieces that every reader has.
    fn forget_read(&self, state: &mut State) {
        let slowest = state.readers.values().map(|r| r.position).min();
        let slowest = slowest.unwrap_or(state.first + state.pieces.len());
        let mut freed = 0;
        while state.first < slowest {
            let Some(piece) = state.pieces.pop_front() else { break };
            state.first += 1;
            freed += piece.len();
        }
        state.held -= freed;
        self.release(freed as u64);
    }

    fn release(&self, bytes: u64) {
        if let Some(fills) = self.fills.upgrade() {
            fills.held.fetch_sub(bytes, Relaxed);
        }
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        let held = self.state.get_mut().held as u64;
        self.release(held);
    }
}

impl State {
    fn wake_readers(&mut self) {
        for reader in self.readers.values_mut() {
            if let Some(waker) = reader.waker.take() {
                waker.wake();
            }
        }
    }
}

/// Reads a growing object from its beginning.
pub(crate) struct Reader {
    fill: Arc<Fill>,
    id: u64,
    next: usize,
    length: Option<u64>,
    /// Bytes that were read.
    read: u64,
}

impl Reader {
    pub(crate) fn fill(&self) -> &Arc<Fill> {
        &self.fill
    }

    /// Awaits what becomes of the fetch.
    pub(crate) async fn verdict(&self) -> Verdict {
        std::future::poll_fn(|cx| {
            let mut guard = self.fill.state.lock();
            let state = &mut *guard;
            match &state.verdict {
                Some(verdict) => Poll::Ready(verdict.clone()),
                None => {
                    // Its own place, which goes when it goes: those who give up leave nothing.
                    if let Some(me) = state.readers.get_mut(&self.id) {
                        me.waker = Some(cx.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// What the head said of the length, for the framing of the response.
    pub(crate) fn of_length(mut self, length: Option<u64>) -> Self {
        self.length = length;
        self
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let mut guard = self.fill.state.lock();
        let state = &mut *guard;
        if let Some(piece) = state.pieces.get(self.next - state.first) {
            let piece = piece.clone();
            self.next += 1;
            self.read += piece.len() as u64;
            if let Some(me) = state.readers.get_mut(&self.id) {
                me.position = self.next;
            }
            if let Some(writer) = state.writer.take() {
                writer.wake();
            }
            return Poll::Ready(Some(Ok(piece)));
        }
        match state.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(())) => Poll::Ready(Some(Err(BodyError::Fill))),
            None => {
                if let Some(me) = state.readers.get_mut(&self.id) {
                    me.waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match self.length {
            Some(length) if self.next == 0 => SizeHint::with_exact(length),
            _ => SizeHint::default(),
        }
    }

    /// Whether it is known without asking that nothing more will come: whoever knows the length does
    /// not ask.
    pub(crate) fn is_ended(&self) -> bool {
        self.length == Some(self.read)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.fill.state.lock();
        state.readers.remove(&self.id);
        if let Some(writer) = state.writer.take() {
            writer.wake();
        }
    }
}
