//! A large file in pieces: the sliding window of CoDeploy's agent (WORLDS'04, Sec. 3).
//!
//! ```text
//!    delivered | head  being fetched ... waiting | not started
//!              |<------- at most W pieces ------>|
//! ```
//!
//! Pieces are started in file order, fetched in parallel and delivered in order. The window moves when
//! its head has been taken whole, so a transfer never holds more than W pieces of C bytes.
//!
//! Two rules deal with slow sources; both use the predicted finish time ([`Sources`]):
//!
//! 1. The choice of a source ([`choice`](Chunked::choice)) skips those that would finish the piece
//!    much later than a fresh request elsewhere.
//! 2. A piece under way is late ([`look`](Chunked::look)) when it has taken the time of a typical piece and
//!    would finish much later than a fresh request elsewhere. It is given up and asked for again, of another
//!    node. With [`Mode::Hedge`] a piece that everything waits for gets a second request
//!    while the first one goes on.
//!
//! The paper's timeout holds as well, for pieces that do not move at all and for sources whose
//! rate is unknown. It counts from the last bytes of any piece of the transfer: a piece that others are ahead of
//! is not late while they move. Nor is one late whose source says that it waits for its turn at the origin: asked of
//! another node, it would wait for the same origin. As published the timeout counts from the request.
//!
//! Call [`poll_cancel`](Chunked::poll_cancel) and then [`poll_request`](Chunked::poll_request) until both are
//! empty, whenever anything has happened. Report the source of each request
//! ([`asked_of`](Chunked::asked_of)) and its end exactly once ([`on_chunk`](Chunked::on_chunk),
//! [`on_failure`](Chunked::on_failure)) unless it was cancelled. Call [`look`](Chunked::look) at
//! [`poll_look`](Chunked::poll_look), and [`handle_timeout`](Chunked::handle_timeout) at
//! [`poll_timeout`](Chunked::poll_timeout). The reader of the body calls [`poll_chunk`](Chunked::poll_chunk)
//! each time it has taken all of the piece before.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    time::Duration,
};

use levada_types::{Backoff, Timestamp};

use crate::{
    chunk_url::MAX_RETRIES,
    source::{Comparison, SPAN, Sources},
    timeout::{AMPLE, Average, Patience, Timeout},
};

/// The wait before the third try of a piece that failed, and before later ones. The second try is made at once.
const RETRY_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(100), Duration::from_millis(6400));

/// The treatment of slow pieces, in addition to the timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Nothing more, as published.
    #[default]
    Timeout,
    /// A piece that the client and all others of a window wait for gets a second request when it has
    /// taken twice the average. The first answer wins.
    Hedge,
    /// Requests just in time: only as much of the window is used as keeps the client's link full
    /// (the paper's outlook, Sec. 4).
    Deadline,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Timeout, Self::Hedge, Self::Deadline];

    /// The name in configuration and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Hedge => "hedge",
            Self::Deadline => "deadline",
        }
    }
}

/// The settings of a transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Bytes in a piece (C).
    pub chunk: u64,
    /// Pieces at once (W).
    pub window: usize,
    /// The treatment of slow pieces.
    pub mode: Mode,
    /// When a piece is late without a prediction.
    pub patience: Patience,
    /// Tries of one piece, the first included; then the transfer fails.
    pub tries: u32,
    /// As published: no prediction, and each further try has a name of its own. Another node answers for
    /// that name and has to get the piece from the origin.
    pub published: bool,
}

impl Default for Plan {
    /// 16 pieces of 512 KiB: `docs/operate/large-files.md` has the measurements.
    fn default() -> Self {
        Self {
            chunk: 512 << 10,
            window: 16,
            mode: Mode::Timeout,
            patience: Patience::default(),
            tries: 8,
            published: false,
        }
    }
}

/// Names one request of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

/// A piece to be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The name that the driver uses for it.
    pub id: RequestId,
    /// The bytes of the file: a whole piece, whatever part of it is to be delivered.
    pub range: Range<u64>,
    /// How many pieces the client takes before it.
    pub ahead: usize,
}

/// Constraints on the source of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Sources that failed or were late with this piece, or are asked for it already. Another request to one of them is
    /// not shared.
    pub tried: Vec<usize>,
    /// Sources that would finish it later than others. They are skipped as well, if that leaves any.
    pub behind: Vec<usize>,
    /// A source that lacks the piece may relay it from the one that is skipped, since that one has not failed.
    pub may_relay: bool,
    /// Letters in the URL of the piece.
    pub retries: u8,
}

/// The progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that have come.
    pub came: u64,
    /// The part of them that no transfer has reported yet.
    pub fresh: u64,
    /// The source has said lately that the request waits for its turn at the origin.
    pub waits: bool,
}

/// Something to deliver.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// The next piece, and the bytes of it that are to be delivered.
    Piece(T, Range<u64>),
    /// It is not here yet.
    Wait,
    /// All has been delivered.
    Done,
    /// It cannot be had.
    Failed,
}

/// Counts of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PieceCounts {
    /// Pieces that came.
    pub pieces: u64,
    /// Requests that replaced one that was late or failed.
    pub retries: u64,
    /// The part of the retries that replaced a late one.
    pub late: u64,
    /// Second requests for a piece while the first was still under way.
    pub hedges: u64,
    /// How often the client was ready for a piece that was not here yet.
    pub stalls: u64,
}

/// A transfer of one file, or of a range of it.
pub struct Chunked<T> {
    plan: Plan,
    /// How many pieces may be held, of the plan's window.
    width: usize,
    length: u64,
    /// The bytes that are left to deliver.
    span: Range<u64>,
    /// The first piece that has not been started.
    next: u64,
    /// In file order; the first is the head.
    slots: VecDeque<Slot<T>>,
    /// The head is with the client.
    handed: bool,
    /// The client was found waiting for the head.
    stalled: bool,
    failed: bool,
    next_id: u64,
    cancelled: Vec<RequestId>,
    timeout: Timeout,
    looked: Timestamp,
    /// When bytes of any piece came last.
    moved: Timestamp,
    drain: Drain,
    counts: PieceCounts,
}

struct Slot<T> {
    number: u64,
    /// Requests under way: one, or two when the second is a hedge.
    tries: Vec<Try>,
    /// Tries that were made.
    made: u32,
    /// Tries that failed or were late.
    failures: u32,
    /// The sources of those tries.
    tried: Vec<usize>,
    /// One of them failed or ran into its timeout.
    failed: bool,
    /// The earliest time of a further try.
    not_before: Timestamp,
    /// A second request is to go out while the first one is under way.
    hedge: bool,
    came: bool,
    /// The piece, until it is handed to the client.
    payload: Option<T>,
}

#[derive(Clone, Copy)]
struct Try {
    id: RequestId,
    begun: Timestamp,
    /// The timeout as it was when the try was made.
    late: Timestamp,
    source: Option<usize>,
    came: u64,
    /// It waits for its turn at the origin.
    waits: bool,
    /// When it was last found waiting.
    waited: Timestamp,
    /// Its predicted finish is too late.
    behind: bool,
}

impl<T> Chunked<T> {
    /// The bytes `span` of a file of `length` bytes. One piece at a time is fetched until
    /// [`set_width`](Self::set_width) allows more.
    ///
    /// `span` lies within the file; an empty one is done at once.
    pub fn new(plan: Plan, length: u64, span: Range<u64>) -> Self {
        let plan = Plan { chunk: plan.chunk.max(1), window: plan.window.max(1), ..plan };
        let span = span.start..span.end.min(length);
        Self {
            width: 1,
            length,
            next: span.start / plan.chunk,
            span,
            slots: VecDeque::new(),
            handed: false,
            stalled: false,
            failed: false,
            next_id: 0,
            cancelled: Vec::new(),
            timeout: Timeout::new(plan.patience),
            looked: Timestamp::ZERO,
            moved: Timestamp::ZERO,
            drain: Drain::default(),
            counts: PieceCounts::default(),
            plan,
        }
    }

    /// Lets the transfer hold this many pieces, at least one and up to the plan's window. A width below
    /// [`held`](Self::held) takes effect as pieces are taken.
    pub fn set_width(&mut self, width: usize) {
        self.width = width.clamp(1, self.plan.window);
    }

    /// Pieces that it may hold.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Pieces that it holds or fetches, including the one that is being taken.
    pub fn held(&self) -> usize {
        self.slots.len()
    }

    /// How many pieces it would hold at once without the limit of its width.
    pub fn wanted(&self) -> usize {
        let left = usize::try_from(self.end() - self.next).unwrap_or(usize::MAX);
        self.needed().min(self.slots.len().saturating_add(left))
    }

    /// The next request to be made, if one is due.
    pub fn poll_request(&mut self, now: Timestamp) -> Option<Request> {
        if self.failed {
            return None;
        }
        let due = |slot: &Slot<T>| {
            let idle = slot.tries.is_empty() && slot.not_before <= now;
            !slot.came && (idle || slot.hedge)
        };
        if let Some(at) = self.slots.iter().position(due) {
            return Some(self.ask(at, now));
        }
        if self.slots.len() >= self.width.min(self.needed()) || self.next >= self.end() {
            return None;
        }
        self.slots.push_back(Slot {
            number: self.next,
            tries: Vec::with_capacity(1),
            made: 0,
            failures: 0,
            tried: Vec::new(),
            failed: false,
            not_before: now,
            hedge: false,
            came: false,
            payload: None,
        });
        self.next += 1;
        Some(self.ask(self.slots.len() - 1, now))
    }

    fn ask(&mut self, at: usize, now: Timestamp) -> Request {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let range = self.range(self.slots[at].number);
        let slot = &mut self.slots[at];
        let late = now + self.timeout.limit_after(slot.failures);
        slot.tries.push(Try {
            id,
            begun: now,
            late,
            source: None,
            came: 0,
            waits: false,
            waited: Timestamp::ZERO,
            behind: false,
        });
        if std::mem::take(&mut slot.hedge) {
            self.counts.hedges += 1;
        } else if slot.made > 0 {
            self.counts.retries += 1;
        }
        slot.made += 1;
        Request { id, range, ahead: at }
    }

    /// The sources to skip for a request: those that failed or were late with this piece, those that are
    /// asked for it already, and those that would finish it later than others. `nodes` are up.
    ///
    /// Another try has the same name, for the next choice of the policy may store the piece: it is another
    /// replica, or it got the piece when the first was slow. A piece gets another name, under which it is
    /// fetched again, only after all nodes were asked without success. As published it has one at once.
    pub fn choice(&self, id: RequestId, sources: &Sources, nodes: usize, now: Timestamp) -> Choice {
        let slot = self.slots.iter().find(|slot| slot.tries.iter().any(|t| t.id == id));
        let Some(slot) = slot else { return Choice::default() };
        let others = slot.tries.iter().filter(|t| t.id != id).filter_map(|t| t.source);
        let tried: Vec<usize> = slot.tried.iter().copied().chain(others).collect();
        let rounds = match self.plan.published {
            true => slot.made as usize - 1,
            false => tried.len() / nodes.max(1),
        };
        let mut behind = Vec::new();
        if let Some(comparison) = self.compare(sources, now) {
            let range = self.range(slot.number);
            let mut outstanding = self.outstanding();
            behind.extend((0..sources.len()).filter(|source| {
                let (bytes, requests) = outstanding.remove(source).unwrap_or_default();
                comparison.is_behind(*source, bytes + range.end - range.start, requests)
            }));
        }
        // A URL has so many letters at most. Beyond it tries share a name.
        let retries = u8::try_from(rounds).unwrap_or(MAX_RETRIES).min(MAX_RETRIES);
        Choice { may_relay: !slot.failed, tried, behind, retries }
    }

    /// The source of a request is known now, or has changed.
    pub fn asked_of(&mut self, id: RequestId, source: usize) {
        if let Some(tried) = self.find(id) {
            tried.source = Some(source);
        }
    }

    /// A request has been under way since `begun`, for another transfer. The piece's time counts from then.
    pub fn joined(&mut self, id: RequestId, begun: Timestamp) {
        if let Some(joined) = self.find(id) {
            joined.begun = joined.begun.min(begun);
        }
    }

    /// When [`look`](Self::look) should be called again; `None` while nothing is under way.
    pub fn poll_look(&self) -> Option<Timestamp> {
        let waits = self.slots.iter().any(|slot| !slot.tries.is_empty());
        (waits && !self.plan.published && !self.failed).then(|| self.looked + SPAN)
    }

    /// Takes in the progress of the pieces under way and finds those that are late by prediction. Returns
    /// the sources that have become too slow for even a single piece.
    pub fn look(
        &mut self,
        now: Timestamp,
        sources: &mut Sources,
        progress: impl Fn(RequestId) -> Option<Progress>,
    ) -> Vec<usize> {
        if self.poll_look().is_none_or(|at| now < at) {
            return Vec::new();
        }
        self.looked = now;
        let mut received: BTreeMap<usize, (u64, usize)> = BTreeMap::new();
        for tried in self.slots.iter_mut().flat_map(|slot| &mut slot.tries) {
            let progress = tried.source.zip(progress(tried.id));
            if let Some((source, Progress { came, fresh, waits })) = progress {
                if came > tried.came {
                    self.moved = now;
                }
                (tried.came, tried.waits) = (came, waits);
                // It says nothing about the rate of its source.
                if waits {
                    tried.waited = now;
                    continue;
                }
                let (bytes, requests) = received.entry(source).or_default();
                (*bytes, *requests) = (*bytes + fresh, *requests + 1);
            }
        }
        for (source, (bytes, requests)) in received {
            sources.received(source, bytes, requests, now);
        }
        let Some(comparison) = self.compare(sources, now) else { return Vec::new() };
        for id in self.behind(&comparison) {
            if let Some(tried) = self.find(id) {
                tried.behind = true;
            }
        }
        let asked = self.outstanding().into_keys();
        let slow = asked.map(|source| (source, comparison.is_behind(source, self.plan.chunk, 1)));
        let slow: Vec<_> = slow.collect();
        slow.into_iter()
            .filter(|(source, slow)| sources.turns_slow(*source, *slow))
            .map(|(n, _)| n)
            .collect()
    }

    /// The requests that are late by prediction. The pieces of a source finish one after the other in file
    /// order, so only the last of them may be late. A piece is given up once by this rule: the next
    /// source may be no better.
    fn behind(&self, comparison: &Comparison<'_>) -> Vec<RequestId> {
        let mut ahead: BTreeMap<usize, (u64, usize)> = BTreeMap::new();
        let mut behind = Vec::new();
        for (slot, tried, source) in self.asked() {
            let ahead = ahead.entry(source).or_default();
            let (bytes, requests) = (ahead.0 + self.left(slot, tried), ahead.1 + 1);
            let is_due = comparison.has_taken_typical(tried.begun);
            if slot.failures == 0 && is_due && comparison.is_behind(source, bytes, requests) {
                behind.push(tried.id);
            } else {
                *ahead = (bytes, requests);
            }
        }
        behind
    }

    /// As published there is nothing to compare. While a piece waits for the origin, all others compete for it too:
    /// asked for elsewhere, they would be no sooner.
    fn compare<'a>(&self, sources: &'a Sources, now: Timestamp) -> Option<Comparison<'a>> {
        let waits = self.slots.iter().flat_map(|slot| &slot.tries).any(|tried| tried.waits);
        if self.plan.published || waits {
            return None;
        }
        let mut oldest: BTreeMap<usize, Timestamp> = BTreeMap::new();
        for (_, tried, source) in self.asked() {
            let begun = oldest.entry(source).or_insert(tried.begun);
            *begun = tried.begun.min(*begun);
        }
        sources.compare(self.plan.patience.least, oldest, now)
    }

    /// The bytes that each source still has to send, and in how many requests.
    fn outstanding(&self) -> BTreeMap<usize, (u64, usize)> {
        let mut outstanding: BTreeMap<usize, (u64, usize)> = BTreeMap::new();
        for (slot, tried, source) in self.asked() {
            let (bytes, requests) = outstanding.entry(source).or_default();
            (*bytes, *requests) = (*bytes + self.left(slot, tried), *requests + 1);
        }
        outstanding
    }

    /// The requests under way whose source is known, in file order, without those that wait for the origin: their
    /// source has nothing to send yet.
    fn asked(&self) -> impl Iterator<Item = (&Slot<T>, &Try, usize)> {
        let tries = self.slots.iter().flat_map(|slot| slot.tries.iter().map(move |t| (slot, t)));
        let tries = tries.filter(|(_, tried)| !tried.waits);
        tries.filter_map(|(slot, tried)| Some((slot, tried, tried.source?)))
    }

    fn left(&self, slot: &Slot<T>, tried: &Try) -> u64 {
        let range = self.range(slot.number);
        (range.end - range.start).saturating_sub(tried.came)
    }

    fn find(&mut self, id: RequestId) -> Option<&mut Try> {
        self.slots.iter_mut().flat_map(|slot| &mut slot.tries).find(|t| t.id == id)
    }

    /// A request that is not wanted any more.
    pub fn poll_cancel(&mut self) -> Option<RequestId> {
        self.cancelled.pop()
    }

    /// A piece has come. Returns how long it took; `None` when it is not wanted any more.
    pub fn on_chunk(&mut self, now: Timestamp, id: RequestId, payload: T) -> Option<Duration> {
        let begun = self.accept(id, payload)?;
        let took = now.since(begun);
        self.timeout.succeeded(took);
        self.moved = now;
        Some(took)
    }

    /// A piece has come that was at hand, which says nothing about the time of others. Returns whether
    /// it is wanted.
    pub fn on_chunk_at_hand(&mut self, id: RequestId, payload: T) -> bool {
        self.accept(id, payload).is_some()
    }

    /// Keeps a piece that has come, and returns when it was asked for.
    fn accept(&mut self, id: RequestId, payload: T) -> Option<Timestamp> {
        let slot = self.slots.iter_mut().find(|slot| slot.tries.iter().any(|t| t.id == id))?;
        let begun = slot.tries.iter().find(|t| t.id == id)?.begun;
        let losers = slot.tries.drain(..).map(|t| t.id).filter(|other| *other != id);
        self.cancelled.extend(losers);
        slot.hedge = false;
        slot.came = true;
        slot.payload = Some(payload);
        self.counts.pieces += 1;
        Some(begun)
    }

    /// A request has failed. The piece is asked for again, the sooner the fewer tries went before.
    pub fn on_failure(&mut self, now: Timestamp, id: RequestId, sources: &mut Sources) {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.tries.iter().any(|t| t.id == id))
        else {
            return;
        };
        for source in slot.tries.extract_if(.., |t| t.id == id).filter_map(|t| t.source) {
            sources.stalled(source, now);
            slot.tried.push(source);
        }
        slot.failed = true;
        slot.failures += 1;
        slot.not_before = now + RETRY_BACKOFF.after(slot.failures.saturating_sub(1));
        if slot.tries.is_empty() && slot.failures >= self.plan.tries {
            self.failed = true;
        }
    }

    /// The transfer cannot go on, whatever is tried: there is another version of the file.
    pub fn give_up(&mut self) {
        self.failed = true;
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called, unless something happens before.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let due = |slot: &Slot<T>| match slot.tries.first() {
            _ if slot.came => None,
            None => Some(slot.not_before),
            Some(first) => {
                let late = slot.tries.iter().map(|t| self.late_at(slot, t)).min();
                late.into_iter().chain(self.hedge_at(slot, first)).min()
            }
        };
        self.slots.iter().filter_map(due).min().filter(|_| !self.failed)
    }

    /// Gives up late pieces, and marks a piece for a hedge. `may_retry` is asked before each further
    /// request. A piece for which it refuses gets its limit once more.
    pub fn handle_timeout(
        &mut self,
        now: Timestamp,
        sources: &mut Sources,
        mut may_retry: impl FnMut() -> bool,
    ) {
        let late: Vec<_> = self.late(now).collect();
        for at in 0..self.slots.len() {
            let slot = &self.slots[at];
            if slot.tries.iter().any(|t| late.contains(&t.id)) {
                self.give_up_late(at, &late, now, sources, &mut may_retry);
                continue;
            }
            let hedge = slot.tries.first().and_then(|first| self.hedge_at(slot, first));
            if hedge.is_some_and(|at| at <= now) && may_retry() {
                self.slots[at].hedge = true;
            }
        }
    }

    fn give_up_late(
        &mut self,
        at: usize,
        late: &[RequestId],
        now: Timestamp,
        sources: &mut Sources,
        may_retry: &mut impl FnMut() -> bool,
    ) {
        let slot = &mut self.slots[at];
        let limit = self.timeout.limit_after(slot.failures + 1);
        let last = slot.failures + 1 >= self.plan.tries;
        if !last && !may_retry() {
            for tried in &mut slot.tries {
                (tried.late, tried.behind) = (tried.late.max(now + limit), false);
            }
            return;
        }
        for tried in slot.tries.extract_if(.., |t| late.contains(&t.id)) {
            self.cancelled.push(tried.id);
            slot.tried.extend(tried.source);
            slot.failed |= !tried.behind;
            // The rate of a source is known when a piece is late by prediction.
            if let Some(source) = tried.source.filter(|_| !tried.behind) {
                sources.stalled(source, now);
            }
        }
        slot.failures += 1;
        slot.not_before = now;
        self.counts.late += 1;
        self.failed |= last && slot.tries.is_empty();
    }

    /// The requests that are late now.
    pub fn late(&self, now: Timestamp) -> impl Iterator<Item = RequestId> {
        let tries = self.slots.iter().flat_map(|slot| slot.tries.iter().map(move |t| (slot, t)));
        tries.filter(move |(slot, t)| self.late_at(slot, t) <= now).map(|(_, t)| t.id)
    }

    /// The next piece to deliver. Call it when the piece before has been taken whole.
    pub fn poll_chunk(&mut self, now: Timestamp) -> Next<T> {
        if std::mem::take(&mut self.handed) {
            self.slots.pop_front();
            self.drain.taken(now);
        }
        if self.span.is_empty() {
            return Next::Done;
        }
        if let Some(head) = self.slots.front_mut()
            && let Some(payload) = head.payload.take()
        {
            let number = head.number;
            let piece = self.range(number);
            let part = self.span.start..self.span.end.min(piece.end);
            self.span.start = part.end;
            self.handed = true;
            self.stalled = false;
            self.drain.handed(now);
            return Next::Piece(payload, part.start - piece.start..part.end - piece.start);
        }
        if self.failed {
            return Next::Failed;
        }
        self.counts.stalls += u64::from(!std::mem::replace(&mut self.stalled, true));
        Next::Wait
    }

    /// Whether [`poll_chunk`](Self::poll_chunk) would return anything but [`Next::Wait`].
    pub fn is_ready(&self) -> bool {
        let head = self.slots.get(usize::from(self.handed));
        self.failed || self.span.is_empty() || head.is_some_and(|slot| slot.payload.is_some())
    }

    /// The bytes that are left to deliver.
    pub fn undelivered(&self) -> u64 {
        self.span.end.saturating_sub(self.span.start)
    }

    /// The counts so far.
    pub fn counts(&self) -> PieceCounts {
        self.counts
    }

    /// One past the last piece.
    fn end(&self) -> u64 {
        self.span.end.div_ceil(self.plan.chunk)
    }

    /// The bytes of a piece.
    fn range(&self, number: u64) -> Range<u64> {
        let start = number.saturating_mul(self.plan.chunk);
        start..start.saturating_add(self.plan.chunk).min(self.length)
    }

    /// How many pieces are useful now: the plan's window. With deadlines, as many as the client takes
    /// in [`AMPLE`] times the average fetch, so that a piece is here before it is wanted.
    fn needed(&self) -> usize {
        let (Mode::Deadline, Some(fetch), Some(drain)) =
            (self.plan.mode, self.timeout.average(), self.drain.average.get())
        else {
            return self.plan.window;
        };
        let ample = f64::from(AMPLE) * fetch.as_secs_f64();
        let pieces = (ample / drain.as_secs_f64().max(1e-9)).ceil();
        let pieces = pieces.min(self.plan.window as f64) as usize + 1;
        pieces.max(2).min(self.plan.window)
    }

    /// When a request is late, as far as is known now. The limit grows with the average while a piece is
    /// under way, and counts from the last bytes of any piece unless as published: a slow link makes no piece late.
    fn late_at(&self, slot: &Slot<T>, tried: &Try) -> Timestamp {
        if tried.behind {
            return tried.begun;
        }
        let limit = self.timeout.limit_after(slot.failures);
        // While others move, a piece may be behind them: at its source, or on a link that all share.
        let moved = match self.plan.published {
            true => tried.begun,
            false => self.moved.max(tried.begun).max(tried.waited),
        };
        tried.late.max(moved + limit)
    }

    /// When a piece is to be asked for a second time.
    fn hedge_at(&self, slot: &Slot<T>, first: &Try) -> Option<Timestamp> {
        let alone = slot.tries.len() == 1 && !slot.hedge && slot.made < self.plan.tries;
        if self.plan.mode != Mode::Hedge || !alone {
            return None;
        }
        let average = self.timeout.average().filter(|_| self.is_awaited(slot) && !first.waits)?;
        Some(first.begun + (AMPLE * average).max(SPAN))
    }

    /// Whether the client and the rest of a full window wait for this piece.
    fn is_awaited(&self, slot: &Slot<T>) -> bool {
        let full = self.slots.len() >= self.width.min(self.needed()) || self.next >= self.end();
        let rest = self.slots.iter().all(|other| other.came || other.number == slot.number);
        self.stalled && full && rest
    }
}

/// The time that the client takes for a piece that is there.
#[derive(Default)]
struct Drain {
    handed: Timestamp,
    average: Average,
}

impl Drain {
    fn handed(&mut self, now: Timestamp) {
        self.handed = now;
    }

    fn taken(&mut self, now: Timestamp) {
        self.average.add(now.since(self.handed));
    }
}

#[cfg(test)]
mod tests;
