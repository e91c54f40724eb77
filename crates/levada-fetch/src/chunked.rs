//! A large file in pieces: the sliding window of CoDeploy's agent (WORLDS'04, Sec. 3).
//!
//! ```text
//!    delivered | head  being fetched ... waiting | not begun
//!              |<------- at most W pieces ------>|
//! ```
//!
//! Pieces are begun in file order, fetched in parallel and delivered in order. The window moves when
//! its head has been taken whole, so a transfer never holds more than W pieces of C bytes. What is
//! late is given up and asked for anew, of another node.
//!
//! The paper gives up what has taken five times the average. Two things that slow all pieces down at once
//! must not make the whole window late: a limit follows the average while a piece is under way, and it
//! is twice as long until a piece that was begun no earlier has come (as RACK has a packet lost only when
//! one sent later has arrived, RFC 8985 Sec. 3). A piece that was at hand says nothing of either.
//!
//! A piece that comes, but so slowly that the others are long here, is not waited for that long
//! ([`look`](Chunked::look)): the client would wait for it with the whole window behind it.
//!
//! A driver calls [`poll_cancel`](Chunked::poll_cancel) and then
//! [`poll_request`](Chunked::poll_request) until they are empty, whenever anything has happened; tells of each request exactly once how it
//! ended ([`on_chunk`](Chunked::on_chunk), [`on_failure`](Chunked::on_failure)), unless it was
//! cancelled; wakes up at [`poll_timeout`](Chunked::poll_timeout) to call
//! [`handle_timeout`](Chunked::handle_timeout), and before that at [`poll_look`](Chunked::poll_look) to
//! call [`look`](Chunked::look). Whoever takes the body calls
//! [`poll_chunk`](Chunked::poll_chunk) each time it has taken all of the piece before.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
    time::Duration,
};

use levada_types::Timestamp;

use crate::{
    chunk_url::MAX_RETRIES,
    progress::Progress,
    timeout::{Average, Patience, Timeout},
};

/// What is done about slow pieces, besides the timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Nothing: the paper's way.
    #[default]
    Timeout,
    /// A piece that the client and all others of a window wait for is asked for a second time when it has
    /// taken twice the average; the first answer wins.
    Hedge,
    /// Requests just in time: no more of the window is used than what keeps the client's link full
    /// (the paper's outlook, Sec. 4).
    Deadline,
}

impl Mode {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Timeout, Self::Hedge, Self::Deadline];

    /// As configuration and reports name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Hedge => "hedge",
            Self::Deadline => "deadline",
        }
    }
}

/// How a transfer goes about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Bytes in a piece (C).
    pub chunk: u64,
    /// Pieces at once (W).
    pub window: usize,
    /// What is done about slow pieces.
    pub mode: Mode,
    /// When a piece is late.
    pub patience: Patience,
    /// Tries of one piece, the first included; then the transfer fails.
    pub tries: u32,
    /// Whether each further try has a name of its own, as published: another node answers for that name,
    /// and has to get the piece from the origin.
    pub salted: bool,
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
            salted: false,
        }
    }
}

/// Names one request of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

/// A piece to be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// By which the driver speaks of it.
    pub id: RequestId,
    /// The bytes of the file: a whole piece, whatever part of it is to be delivered.
    pub range: Range<u64>,
    /// Tries of this piece that went before, as far as letters can tell them apart.
    pub retries: u8,
}

/// What there is to deliver.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// The next piece, and which bytes of it are to be delivered.
    Piece(T, Range<u64>),
    /// It is not here yet.
    Wait,
    /// All has been delivered.
    Done,
    /// It cannot be had.
    Failed,
}

/// What a transfer has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pieces that came.
    pub pieces: u64,
    /// Requests that took the place of one that was late or failed.
    pub retries: u64,
    /// Of these, because it was late.
    pub late: u64,
    /// Second requests beside one that was still under way.
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
    /// What is to be delivered.
    span: Range<u64>,
    /// The first piece that has not been begun.
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
    /// When the youngest of the pieces that came was begun.
    overtaken: Option<Timestamp>,
    /// Those of which pieces were under way.
    sources: BTreeSet<usize>,
    looked: Timestamp,
    drain: Drain,
    counts: Counts,
}

struct Slot<T> {
    number: u64,
    /// Requests under way: one, or two when the second is a hedge.
    tries: Vec<Try>,
    /// Tries that were made.
    made: u32,
    /// Tries that failed or were late.
    failures: u32,
    /// A further try is not made before.
    not_before: Timestamp,
    /// A second request is to go out beside the first.
    hedge: bool,
    came: bool,
    /// What came, until it is handed to the client.
    payload: Option<T>,
}

#[derive(Clone, Copy)]
struct Try {
    id: RequestId,
    begun: Timestamp,
    late: Timestamp,
    progress: Progress,
    /// Its source was found to be slow meanwhile.
    doubted: bool,
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
            overtaken: None,
            sources: BTreeSet::new(),
            looked: Timestamp::ZERO,
            drain: Drain::default(),
            counts: Counts::default(),
            plan,
        }
    }

    /// Lets the transfer hold so many pieces, at least one and up to the plan's window. Fewer than it
    /// [holds](Self::held) is for when those have been taken.
    pub fn set_width(&mut self, width: usize) {
        self.width = width.clamp(1, self.plan.window);
    }

    /// Pieces that it may hold.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Pieces that it holds or fetches, that which is being taken among them.
    pub fn held(&self) -> usize {
        self.slots.len()
    }

    /// How many pieces it would hold at once, if it might.
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
        let number = self.slots[at].number;
        let range = self.range(number);
        let slot = &mut self.slots[at];
        let late = now + self.timeout.limit_after(slot.failures);
        slot.tries.push(Try { id, begun: now, late, progress: Progress::new(now), doubted: false });
        // A URL has so many letters at most; beyond it tries share one.
        let retries = u8::try_from(slot.made).unwrap_or(MAX_RETRIES).min(MAX_RETRIES);
        if std::mem::take(&mut slot.hedge) {
            self.counts.hedges += 1;
        } else if slot.made > 0 {
            self.counts.retries += 1;
        }
        slot.made += 1;
        Request { id, range, retries }
    }

    /// A request has been under way since `begun`, for another transfer: so long has the piece taken.
    pub fn joined(&mut self, id: RequestId, begun: Timestamp) {
        let mut tries = self.slots.iter_mut().flat_map(|slot| &mut slot.tries);
        if let Some(joined) = tries.find(|t| t.id == id) {
            joined.begun = joined.begun.min(begun);
        }
    }

    /// When [`look`](Self::look) is of use again; `None` while nothing is under way.
    pub fn poll_look(&self) -> Option<Timestamp> {
        let waits = self.slots.iter().any(|slot| !slot.tries.is_empty());
        let looks = self.plan.patience.rest.is_finite() && !self.failed;
        (waits && looks).then(|| self.looked + LOOK)
    }

    /// Looks at how far the pieces under way are: `so_far` tells the source of a request, and how many
    /// bytes have come of it. The source of which two pieces crawl is slow, and both are late
    /// as of now. One may be a connection that has lost packets; and where pieces of several sources crawl
    /// it is the link.
    ///
    /// Each piece is given up so once: the next source may be no better.
    pub fn look(&mut self, now: Timestamp, so_far: impl Fn(RequestId) -> Option<(usize, u64)>) {
        if self.poll_look().is_none_or(|at| now < at) {
            return;
        }
        self.looked = now;
        let mut speeds: BTreeMap<usize, f64> = BTreeMap::new();
        for tried in self.slots.iter_mut().flat_map(|slot| &mut slot.tries) {
            let Some((source, came)) = so_far(tried.id) else { continue };
            tried.progress.look(now, came);
            *speeds.entry(source).or_default() += tried.progress.speed();
            self.sources.insert(source);
        }
        let tries = self.slots.iter().flat_map(|slot| slot.tries.iter().map(move |t| (slot, t)));
        let crawling = tries.filter_map(|(slot, tried)| {
            let source = so_far(tried.id)?.0;
            self.crawls(slot, tried, speeds[&source], now).then_some((source, tried.id))
        });
        let crawling: Vec<_> = crawling.collect();
        let (Some((source, _)), true) = (crawling.first(), self.sources.len() >= ENOUGH) else {
            return;
        };
        if crawling.len() >= CRAWLING && crawling.iter().all(|(other, _)| other == source) {
            crawling.iter().for_each(|(_, id)| self.doubt(*id));
        }
    }

    /// Whether a piece would need several times as long for its rest as other pieces do in all. It must
    /// have taken as long as these, one that was begun no earlier must be here, and its source must send
    /// less, with all its pieces of this transfer, than others do with one. What does not
    /// move at all has lost packets, and when they have come it may be as quick as any: that is for the timeout.
    fn crawls(&self, slot: &Slot<T>, tried: &Try, speed: f64, now: Timestamp) -> bool {
        let Some(average) = self.timeout.average().map(|time| time.as_secs_f64()) else {
            return false;
        };
        let range = self.range(slot.number);
        let overtaken = self.overtaken.is_some_and(|begun| begun >= tried.begun);
        let Patience { rest, least, .. } = self.plan.patience;
        slot.failures == 0
            && overtaken
            && tried.progress.moves()
            && now.since(tried.begun).as_secs_f64() > average
            && tried.progress.left(range.end - range.start)
                > (rest * average).max(least.as_secs_f64())
            && self.plan.chunk as f64 > SLOWER * average * speed
    }

    /// The source of a request was found to be slow: the piece is late as of now, as others of the same
    /// source would be.
    pub fn doubt(&mut self, id: RequestId) {
        let mut tries = self.slots.iter_mut().flat_map(|slot| &mut slot.tries);
        if let Some(doubted) = tries.find(|t| t.id == id) {
            doubted.doubted = true;
        }
    }

    /// A request that is not wanted any more.
    pub fn poll_cancel(&mut self) -> Option<RequestId> {
        self.cancelled.pop()
    }

    /// A piece has come. Returns how long it took; `None` when it is not wanted any more.
    pub fn on_chunk(&mut self, now: Timestamp, id: RequestId, payload: T) -> Option<Duration> {
        let begun = self.accept(id, payload)?;
        let took = now.since(begun);
        self.overtaken = self.overtaken.max(Some(begun));
        self.timeout.succeeded(took);
        Some(took)
    }

    /// A piece has come that was at hand: how long others take cannot be told from it. Returns whether it
    /// is wanted.
    pub fn on_chunk_at_hand(&mut self, id: RequestId, payload: T) -> bool {
        self.accept(id, payload).is_some()
    }

    /// Keeps what has come, and says when it was asked for.
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
    pub fn on_failure(&mut self, now: Timestamp, id: RequestId) {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.tries.iter().any(|t| t.id == id))
        else {
            return;
        };
        slot.tries.retain(|t| t.id != id);
        slot.failures += 1;
        slot.not_before = now + pause(slot.failures);
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

    /// Gives up what is late, and sees what is to be hedged. `may_retry` is asked before each further
    /// request; what it refuses is waited for as long again.
    pub fn handle_timeout(&mut self, now: Timestamp, mut may_retry: impl FnMut() -> bool) {
        let most = self.plan.window.div_ceil(10);
        let hedged = |slot: &&Slot<T>| slot.hedge || slot.tries.len() > 1;
        let mut free = most.saturating_sub(self.slots.iter().filter(hedged).count());
        let late: Vec<_> = self.late(now).collect();
        let is_late = |t: &mut Try| late.contains(&t.id);
        for at in 0..self.slots.len() {
            let slot = &self.slots[at];
            if slot.came {
                continue;
            }
            let hedge = slot.tries.first().and_then(|first| self.hedge_at(slot, first));
            let limit = self.timeout.limit_after(slot.failures + 1);
            let last = slot.failures + 1 >= self.plan.tries;
            let slot = &mut self.slots[at];
            if slot.tries.iter_mut().any(is_late) {
                if last || may_retry() {
                    self.cancelled.extend(slot.tries.extract_if(.., is_late).map(|t| t.id));
                    slot.failures += 1;
                    slot.not_before = now;
                    self.counts.late += 1;
                    self.failed |= last && slot.tries.is_empty();
                } else {
                    slot.tries.iter_mut().for_each(|t| {
                        (t.late, t.doubted) = (t.late.max(now + limit), false);
                    });
                }
            } else if free > 0 && hedge.is_some_and(|at| at <= now) && may_retry() {
                slot.hedge = true;
                free -= 1;
            }
        }
    }

    /// The requests that are late now, for the driver to know who they were with.
    pub fn late(&self, now: Timestamp) -> impl Iterator<Item = RequestId> {
        let tries = self.slots.iter().flat_map(|slot| slot.tries.iter().map(move |t| (slot, t)));
        tries.filter(move |(slot, t)| self.late_at(slot, t) <= now).map(|(_, t)| t.id)
    }

    /// What there is to deliver. To be called when the piece before has been taken whole.
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

    /// Whether a call of [`poll_chunk`](Self::poll_chunk) would not be in vain.
    pub fn is_ready(&self) -> bool {
        let head = self.slots.get(usize::from(self.handed));
        self.failed || self.span.is_empty() || head.is_some_and(|slot| slot.payload.is_some())
    }

    /// What has been done so far.
    pub fn counts(&self) -> Counts {
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

    /// How many pieces are of use now: the plan's window. With deadlines, as many as the client takes
    /// while one is being fetched, twice over, for half of the pieces take longer than the average. A
    /// request for the piece `n` after the head is so made twice the average before it is wanted.
    fn needed(&self) -> usize {
        let (Mode::Deadline, Some(fetch), Some(drain)) =
            (self.plan.mode, self.timeout.average(), self.drain.average.get())
        else {
            return self.plan.window;
        };
        let pieces = 2.0 * fetch.as_secs_f64() / drain.as_secs_f64().max(1e-9);
        let pieces = pieces.ceil().min(self.plan.window as f64) as usize + 1;
        pieces.max(2).min(self.plan.window)
    }

    /// When a request is late, as far as is known now.
    fn late_at(&self, slot: &Slot<T>, tried: &Try) -> Timestamp {
        if tried.doubted {
            return tried.begun;
        }
        let limit = self.timeout.limit_after(slot.failures);
        let sure = self.overtaken.is_some_and(|begun| begun >= tried.begun);
        let times = if sure { 1.0 } else { self.timeout.unsure() };
        tried.late.max(tried.begun + limit.mul_f64(times))
    }

    /// When a piece is to be asked for a second time.
    fn hedge_at(&self, slot: &Slot<T>, first: &Try) -> Option<Timestamp> {
        let alone = slot.tries.len() == 1 && !slot.hedge && slot.made < self.plan.tries;
        if self.plan.mode != Mode::Hedge || !alone {
            return None;
        }
        let slow = self.timeout.average().filter(|_| self.is_awaited(slot)).map(|time| 2 * time)?;
        Some(first.begun + slow.max(self.plan.patience.least / 10))
    }

    /// Whether the client and the rest of a full window wait for this piece.
    fn is_awaited(&self, slot: &Slot<T>) -> bool {
        let full = self.slots.len() >= self.width.min(self.needed()) || self.next >= self.end();
        let rest = self.slots.iter().all(|other| other.came || other.number == slot.number);
        self.stalled && full && rest
    }
}

/// So often is looked at what is under way.
const LOOK: Duration = Duration::from_millis(100);
/// Among fewer sources nobody can say which is the odd one.
const ENOUGH: usize = 3;
/// Pieces of a source that crawl, when it is slow.
const CRAWLING: usize = 2;
/// A source is slower than others that takes so many times the average for a piece, if it sent one at a time.
const SLOWER: f64 = 1.5;

/// How long after so many failures a piece is asked for again: at once, then 100 ms, 200 ms, ...
fn pause(failures: u32) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        more => Duration::from_millis(100) * (1 << (more - 2).min(6)),
    }
}

/// How long the client takes over a piece that is there.
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
