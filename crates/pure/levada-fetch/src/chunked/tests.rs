use std::collections::BTreeMap;

use levada_types::Rng;
use proptest::prelude::*;

use super::*;

const fn ms(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn plan(mode: Mode) -> Plan {
    let patience = match mode {
        Mode::Timeout => Patience::PAPER,
        Mode::Hedge | Mode::Deadline => Patience::default(),
    };
    Plan { chunk: 10, window: 4, mode, patience, tries: 8, published: true }
}

/// A transfer whose window is open.
fn wide(mode: Mode, length: u64, span: Range<u64>) -> Chunked<Range<u64>> {
    let mut transfer = Chunked::new(plan(mode), length, span);
    transfer.set_width(usize::MAX);
    transfer
}

fn ask_all<T>(transfer: &mut Chunked<T>, now: Timestamp) -> Vec<Request> {
    std::iter::from_fn(|| transfer.poll_request(now)).collect()
}

/// The letters in the URL of a request, as published.
fn letters<T>(transfer: &Chunked<T>, request: &Request) -> u8 {
    transfer.choice(request.id, &Sources::new(0, None), 1, ms(0)).retries
}

fn deliver(transfer: &mut Chunked<Range<u64>>, now: Timestamp) -> Vec<Range<u64>> {
    let mut got = Vec::new();
    while let Next::Piece(piece, part) = transfer.poll_chunk(now) {
        got.push(piece.start + part.start..piece.start + part.end);
    }
    got
}

#[test]
fn window_slides_with_what_the_client_has_taken() {
    let mut transfer = wide(Mode::Timeout, 100, 0..100);
    let asked = ask_all(&mut transfer, ms(0));
    let starts: Vec<_> = asked.iter().map(|request| request.range.start).collect();
    assert_eq!(starts, [0, 10, 20, 30], "in file order, as many as the window has");
    transfer.on_chunk(ms(1), asked[1].id, asked[1].range.clone());
    assert_eq!(transfer.poll_chunk(ms(1)), Next::Wait, "never out of order");
    assert!(!transfer.is_ready());
    transfer.on_chunk(ms(2), asked[0].id, asked[0].range.clone());
    assert!(transfer.is_ready());
    assert_eq!(transfer.poll_chunk(ms(2)), Next::Piece(0..10, 0..10));
    assert_eq!(transfer.poll_request(ms(2)), None, "the head is still being taken");
    assert_eq!(transfer.poll_chunk(ms(3)), Next::Piece(10..20, 0..10));
    assert_eq!(transfer.poll_request(ms(3)).unwrap().range, 40..50);
    assert_eq!(transfer.poll_request(ms(3)), None);
}

#[test]
fn range_is_cut_from_its_pieces() {
    let mut transfer = wide(Mode::Timeout, 35, 12..34);
    let asked = ask_all(&mut transfer, ms(0));
    let ranges: Vec<_> = asked.iter().map(|request| request.range.clone()).collect();
    assert_eq!(ranges, [10..20, 20..30, 30..35], "whole pieces, the last as long as the file");
    for request in asked {
        transfer.on_chunk(ms(1), request.id, request.range);
    }
    assert_eq!(deliver(&mut transfer, ms(1)), [12..20, 20..30, 30..34]);
    assert_eq!(transfer.poll_chunk(ms(1)), Next::Done);
}

#[test]
fn nothing_is_delivered_at_once() {
    let mut transfer = wide(Mode::Timeout, 0, 0..0);
    assert_eq!(transfer.poll_request(ms(0)), None);
    assert_eq!(transfer.poll_chunk(ms(0)), Next::Done);
}

#[test]
fn window_opens_as_room_is_found() {
    let mut transfer: Chunked<()> = Chunked::new(plan(Mode::Timeout), 100, 0..100);
    assert_eq!(ask_all(&mut transfer, ms(0)).len(), 1);
    assert_eq!(transfer.wanted(), 4, "the window");
    transfer.set_width(3);
    assert_eq!(ask_all(&mut transfer, ms(0)).len(), 2);
    transfer.set_width(100);
    assert_eq!((ask_all(&mut transfer, ms(0)).len(), transfer.width()), (1, 4));
}

#[test]
fn window_closes_as_room_is_wanted_elsewhere() {
    let mut transfer = wide(Mode::Timeout, 100, 0..100);
    let asked = ask_all(&mut transfer, ms(0));
    transfer.set_width(1);
    for request in asked {
        transfer.on_chunk(ms(1), request.id, request.range);
    }
    for left in (1..4).rev() {
        deliver_one(&mut transfer);
        assert_eq!(transfer.poll_request(ms(1)), None, "what is there is taken first");
        assert_eq!(transfer.held(), left + 1);
    }
    deliver_one(&mut transfer);
    assert_eq!(transfer.poll_chunk(ms(1)), Next::Wait);
    assert_eq!(ask_all(&mut transfer, ms(1)).len(), 1);
}

fn deliver_one(transfer: &mut Chunked<Range<u64>>) {
    assert!(matches!(transfer.poll_chunk(ms(1)), Next::Piece(..)));
}

#[test]
fn no_more_is_wanted_than_there_is() {
    let mut transfer = wide(Mode::Timeout, 25, 0..25);
    assert_eq!(transfer.wanted(), 3);
    ask_all(&mut transfer, ms(0));
    assert_eq!(transfer.wanted(), 3);
}

#[test]
fn late_piece_is_given_up_and_asked_for_again() {
    let mut transfer = wide(Mode::Timeout, 20, 0..20);
    let asked = ask_all(&mut transfer, ms(0));
    transfer.on_chunk(ms(100), asked[0].id, 0..10);
    // The first deadline was set before there was an average.
    assert_eq!(transfer.poll_timeout(), Some(ms(10_000)));
    assert_eq!(transfer.late(ms(10_000)).collect::<Vec<_>>(), [asked[1].id]);
    transfer.handle_timeout(ms(10_000), &mut Sources::new(0, None), || true);
    assert_eq!(transfer.poll_cancel(), Some(asked[1].id));
    let again = transfer.poll_request(ms(10_000)).unwrap();
    assert_eq!((letters(&transfer, &again), again.range), (1, 10..20));
    // Ten times the average of 100 ms: a failure has gone before.
    assert_eq!(transfer.poll_timeout(), Some(ms(11_000)));
    assert_eq!(transfer.on_chunk(ms(10_500), asked[1].id, 10..20), None, "too late");
    assert!(transfer.on_chunk(ms(10_500), again.id, 10..20).is_some());
    assert_eq!(deliver(&mut transfer, ms(10_500)).len(), 2);
    let counts = PieceCounts { pieces: 2, retries: 1, late: 1, ..PieceCounts::default() };
    assert_eq!(transfer.counts(), counts);
}

/// The default patience without a least time.
fn patient(length: u64) -> Chunked<Range<u64>> {
    let patience = Patience { least: Duration::ZERO, ..Patience::default() };
    let mut transfer = Chunked::new(Plan { patience, ..plan(Mode::Timeout) }, length, 0..length);
    transfer.set_width(usize::MAX);
    transfer
}

#[test]
fn piece_at_hand_makes_no_other_late() {
    let mut transfer = patient(80);
    let asked = ask_all(&mut transfer, ms(0));
    assert!(transfer.on_chunk_at_hand(asked[0].id, 0..10));
    assert!(transfer.on_chunk_at_hand(asked[1].id, 10..20));
    deliver(&mut transfer, ms(1));
    ask_all(&mut transfer, ms(1));
    assert_eq!(transfer.poll_timeout(), Some(ms(10_000)), "nothing is known of those far away");
    assert!(!transfer.on_chunk_at_hand(asked[0].id, 0..10), "it is there");
}

#[test]
fn limit_follows_the_times_that_a_slower_link_makes_of_all_pieces() {
    let mut transfer = patient(1000);
    let asked = ask_all(&mut transfer, ms(0));
    for request in asked {
        transfer.on_chunk(ms(10), request.id, request.range);
    }
    deliver(&mut transfer, ms(10));
    let asked = ask_all(&mut transfer, ms(10));
    // Two of four take a hundred times as long, and then the others are not given up.
    for request in &asked[..2] {
        transfer.on_chunk(ms(70), request.id, request.range.clone());
    }
    let mut average = 10.0f64;
    for _ in 0..2 {
        average += (60.0 - average) / 8.0;
    }
    let limit = 10.0 + 5.0 * average;
    let due = transfer.poll_timeout().unwrap();
    assert!((due.since(ms(0)).as_secs_f64() * 1e3 - limit).abs() < 0.1, "{due:?} {limit}");
}

#[test]
fn piece_that_waits_behind_others_is_not_late_while_they_move() {
    let plan = Plan { chunk: 1000, window: 2, ..Plan::default() };
    let mut transfer: Chunked<()> = Chunked::new(plan, 2000, 0..2000);
    transfer.set_width(2);
    let (asked, mut sources) = (ask_all(&mut transfer, ms(0)), Sources::new(4, None));
    (0..2).for_each(|at| transfer.asked_of(asked[at].id, at));
    // The link is full: a byte of the first piece comes in 100 ms, and the second waits at its source.
    for hundreds in 1..=300 {
        let now = ms(hundreds * 100);
        transfer.look(now, &mut sources, |id| {
            let came = if id == asked[0].id { hundreds } else { 0 };
            Some(Progress { came, fresh: u64::from(id == asked[0].id), waits: false })
        });
        assert_eq!(transfer.late(now).count(), 0, "after {hundreds}00 ms");
    }
    // From now on nothing moves.
    assert_eq!(transfer.poll_timeout(), Some(ms(40_000)));
    assert_eq!(transfer.late(ms(40_000)).count(), 2);
}

#[test]
fn piece_that_waits_for_the_origin_is_neither_late_nor_a_sign_of_a_slow_source() {
    let plan = Plan { chunk: 1000, window: 2, ..Plan::default() };
    let mut transfer: Chunked<()> = Chunked::new(plan, 3000, 0..3000);
    transfer.set_width(2);
    let (asked, mut sources) = (ask_all(&mut transfer, ms(0)), Sources::new(4, None));
    assert_eq!([asked[0].ahead, asked[1].ahead], [0, 1]);
    (0..2).for_each(|at| transfer.asked_of(asked[at].id, at));
    (0..4).for_each(|source| sources.came(source, Duration::from_secs(1)));
    for hundreds in 1..=1000 {
        let now = ms(hundreds * 100);
        let waits = Progress { came: 0, fresh: 0, waits: true };
        transfer.look(now, &mut sources, |_| Some(waits));
        assert_eq!(transfer.late(now).count(), 0, "after {hundreds}00 ms");
    }
    transfer.on_chunk(ms(100_000), asked[0].id, ());
    assert!(matches!(transfer.poll_chunk(ms(100_000)), Next::Piece(..)));
    transfer.poll_chunk(ms(100_000));
    let next = transfer.poll_request(ms(100_000)).unwrap();
    assert_eq!(next.ahead, 1, "the second piece is the next that the client takes");
    assert!(transfer.choice(next.id, &sources, 4, ms(100_000)).behind.is_empty());
    // Its source does not say so any more.
    let silent = Progress { came: 0, fresh: 0, waits: false };
    transfer.look(ms(100_100), &mut sources, |_| Some(silent));
    let late = transfer.poll_timeout().unwrap();
    assert!(late > ms(100_100), "the timeout counts from now on");
    assert_eq!(transfer.late(late).next(), Some(asked[1].id));
}

#[test]
fn late_piece_is_waited_for_when_no_retry_is_allowed() {
    let mut transfer = wide(Mode::Timeout, 10, 0..10);
    let asked = ask_all(&mut transfer, ms(0));
    transfer.handle_timeout(ms(10_000), &mut Sources::new(0, None), || false);
    assert_eq!((transfer.poll_cancel(), transfer.poll_request(ms(10_000))), (None, None));
    assert_eq!(transfer.poll_timeout(), Some(ms(30_000)));
    assert!(transfer.on_chunk(ms(20_000), asked[0].id, 0..10).is_some());
}

#[test]
fn failed_piece_is_tried_again_until_the_tries_are_used_up() {
    let mut transfer = wide(Mode::Timeout, 10, 0..10);
    let mut now = ms(0);
    for retries in 0..8 {
        let request = transfer.poll_request(now).unwrap();
        assert_eq!(letters(&transfer, &request), retries);
        transfer.on_failure(now, request.id, &mut Sources::new(0, None));
        if let Some(at) = transfer.poll_timeout() {
            now = at;
        }
    }
    assert_eq!(transfer.poll_chunk(now), Next::Failed);
    assert_eq!(transfer.poll_request(now + Duration::from_secs(60)), None);
    assert_eq!(now, ms(100 + 200 + 400 + 800 + 1600 + 3200), "less and less often");
}

/// Twenty pieces that took 10 ms each.
fn seasoned(mode: Mode) -> (Chunked<Range<u64>>, Timestamp) {
    let mut transfer = wide(mode, 1000, 0..1000);
    let mut now = ms(0);
    for _ in 0..5 {
        let asked = ask_all(&mut transfer, now);
        now = now + Duration::from_millis(10);
        for request in asked {
            transfer.on_chunk(now, request.id, request.range);
        }
        deliver(&mut transfer, now);
    }
    (transfer, now)
}

/// A transfer for whose first piece the client and all others wait at 60 ms.
fn awaiting() -> (Chunked<Range<u64>>, Vec<Request>) {
    let mut transfer = wide(Mode::Hedge, 1000, 0..1000);
    let asked = ask_all(&mut transfer, ms(0));
    for request in &asked[1..] {
        assert_eq!(transfer.poll_timeout(), Some(ms(10_000)), "others may come yet");
        transfer.on_chunk(ms(50), request.id, request.range.clone());
    }
    assert_eq!(transfer.poll_timeout(), Some(ms(10_000)), "the client does not wait for it yet");
    assert_eq!(transfer.poll_chunk(ms(60)), Next::Wait);
    assert_eq!(transfer.poll_timeout(), Some(ms(100)), "twice the average");
    transfer.handle_timeout(ms(100), &mut Sources::new(0, None), || true);
    (transfer, asked)
}

#[test]
fn piece_that_all_others_wait_for_is_hedged_and_the_first_answer_wins() {
    let (mut transfer, asked) = awaiting();
    let hedges = ask_all(&mut transfer, ms(100));
    assert_eq!(hedges.len(), 1);
    assert_eq!((&hedges[0].range, letters(&transfer, &hedges[0])), (&asked[0].range, 1));
    transfer.on_chunk(ms(110), hedges[0].id, hedges[0].range.clone());
    assert_eq!(transfer.poll_cancel(), Some(asked[0].id));
    assert_eq!((transfer.counts().hedges, transfer.counts().retries), (1, 0));
    assert_eq!(deliver(&mut transfer, ms(110))[0], asked[0].range);
}

#[test]
fn piece_whose_source_failed_or_was_silent_is_not_relayed_from_it() {
    let (plan, mut sources) = (Plan { window: 2, ..Plan::default() }, Sources::new(4, None));
    let mut transfer: Chunked<()> = Chunked::new(plan, 2 * plan.chunk, 0..2 * plan.chunk);
    transfer.set_width(2);
    let asked = ask_all(&mut transfer, ms(0));
    assert!(transfer.choice(asked[0].id, &sources, 4, ms(0)).may_relay);
    transfer.on_failure(ms(10), asked[0].id, &mut sources);
    let late = transfer.late(ms(20_000)).collect::<Vec<_>>();
    assert_eq!(late, [asked[1].id]);
    transfer.handle_timeout(ms(20_000), &mut sources, || true);
    for again in ask_all(&mut transfer, ms(20_000)) {
        assert!(!transfer.choice(again.id, &sources, 4, ms(20_000)).may_relay);
    }
}

#[test]
fn hedge_that_fails_leaves_the_first_to_come() {
    let (mut transfer, asked) = awaiting();
    let hedge = transfer.poll_request(ms(100)).unwrap();
    transfer.on_failure(ms(110), hedge.id, &mut Sources::new(0, None));
    assert!(transfer.on_chunk(ms(110), asked[0].id, asked[0].range.clone()).is_some());
    assert_eq!(transfer.poll_cancel(), None);
}

/// Eight pieces of 1000 bytes that were asked for at once, of eight sources that usually need 200 ms for one.
struct Crawl {
    transfer: Chunked<Range<u64>>,
    sources: Sources,
    asked: Vec<Request>,
    now: Timestamp,
    of: [usize; 8],
    came: [u64; 8],
    /// The sources that turned too slow.
    slow: Vec<usize>,
}

impl Crawl {
    fn of(published: bool, of: [usize; 8]) -> Self {
        let plan = Plan { chunk: 1000, window: 8, published, ..Plan::default() };
        let mut transfer = Chunked::new(plan, 1_000_000, 0..1_000_000);
        transfer.set_width(usize::MAX);
        let asked = ask_all(&mut transfer, ms(0));
        for (request, source) in asked.iter().zip(of) {
            transfer.asked_of(request.id, source);
        }
        let mut sources = Sources::new(8, None);
        (0..8).for_each(|source| sources.came(source, Duration::from_millis(200)));
        Self { transfer, sources, asked, now: ms(0), of, came: [0; 8], slow: Vec::new() }
    }

    /// The next 100 ms, in which this many bytes of each piece come. Returns what is late then.
    fn on(&mut self, bytes: [u64; 8]) -> Vec<RequestId> {
        self.now = self.now + Duration::from_millis(100);
        for (at, bytes) in bytes.into_iter().enumerate() {
            let before = self.came[at];
            self.came[at] += bytes;
            if before < 1000 && self.came[at] >= 1000 {
                let Request { id, range, .. } = self.asked[at].clone();
                self.transfer.on_chunk(self.now, id, range);
                self.sources.received(self.of[at], bytes, 1, self.now);
            }
        }
        let (asked, came) = (&self.asked, self.came);
        let slow = self.transfer.look(self.now, &mut self.sources, |id| {
            let at = asked.iter().position(|request| request.id == id)?;
            Some(Progress { came: came[at], fresh: bytes[at], waits: false })
        });
        self.slow.extend(slow);
        self.transfer.late(self.now).collect()
    }

    /// The sources that a new request skips.
    fn behind(&mut self) -> Vec<usize> {
        let Next::Piece(..) = self.transfer.poll_chunk(self.now) else { return Vec::new() };
        self.transfer.poll_chunk(self.now);
        let request = self.transfer.poll_request(self.now).expect("the window has moved");
        self.transfer.choice(request.id, &self.sources, 8, self.now).behind
    }
}

#[test]
fn pieces_that_would_finish_late_are_asked_of_another_and_only_once() {
    let mut crawl = Crawl::of(false, [0, 1, 2, 3, 4, 5, 7, 7]);
    let slow = [250, 250, 250, 250, 250, 250, 25, 25];
    assert!(crawl.on(slow).is_empty());
    assert!(crawl.on(slow).is_empty(), "it has not taken longer than others");
    let late = crawl.on(slow);
    assert_eq!(late, [crawl.asked[6].id, crawl.asked[7].id]);
    let now = crawl.now;
    assert_eq!(crawl.transfer.poll_timeout().filter(|at| *at <= now), Some(ms(0)));
    crawl.transfer.handle_timeout(now, &mut crawl.sources, || true);
    let again = ask_all(&mut crawl.transfer, now);
    assert_eq!(again.len(), 2);
    let choice = crawl.transfer.choice(again[0].id, &crawl.sources, 8, now);
    assert!(choice.behind.contains(&7) && choice.retries == 0, "{choice:?}");
    assert!(choice.tried == [7] && choice.may_relay, "another may get it from there: {choice:?}");
    again.iter().for_each(|request| crawl.transfer.asked_of(request.id, 7));
    crawl.asked.splice(6.., again);
    crawl.came[6..].fill(0);
    for _ in 0..4 {
        assert!(crawl.on(slow).is_empty(), "the next may be no better");
    }
}

#[test]
fn slow_source_keeps_the_piece_that_it_can_finish_in_time() {
    let mut crawl = Crawl::of(false, [0, 1, 2, 3, 4, 5, 7, 7]);
    // 5000 bytes per second, and 500 bytes are left: 100 ms.
    let bytes = [500, 500, 500, 500, 500, 500, 300, 200];
    crawl.on(bytes);
    crawl.on(bytes);
    assert!(crawl.on(bytes).is_empty(), "both will be here soon");
    assert_eq!(crawl.transfer.counts().pieces, 6);
}

#[test]
fn late_pieces_are_waited_for_when_no_retry_is_allowed() {
    let mut crawl = Crawl::of(false, [0, 1, 2, 3, 4, 5, 7, 7]);
    let late = (0..3).flat_map(|_| crawl.on([250, 250, 250, 250, 250, 250, 25, 25])).count();
    assert_eq!(late, 2);
    crawl.transfer.handle_timeout(crawl.now, &mut crawl.sources, || false);
    assert_eq!(crawl.transfer.poll_request(crawl.now), None);
    assert!(crawl.transfer.poll_timeout().unwrap() > crawl.now);
}

#[test]
fn source_that_is_behind_is_skipped_for_the_next_piece() {
    let mut crawl = Crawl::of(false, [0, 1, 2, 3, 4, 5, 7, 7]);
    (0..4).for_each(|_| drop(crawl.on([250, 250, 250, 250, 250, 250, 25, 25])));
    assert_eq!(crawl.behind(), [7]);
    assert_eq!(crawl.slow, [7], "reported once");
}

#[test]
fn source_that_sends_many_pieces_at_once_is_as_fast_as_others() {
    let mut crawl = Crawl::of(false, [0, 1, 2, 7, 7, 7, 7, 7]);
    for _ in 0..10 {
        assert!(crawl.on([200, 200, 200, 100, 100, 100, 100, 100]).is_empty(), "{:?}", crawl.now);
    }
}

#[test]
fn connection_that_has_lost_packets_is_left_to_the_timeout() {
    let mut crawl = Crawl::of(false, [0, 1, 2, 3, 4, 5, 7, 7]);
    // It stands still, and begins with one packet, which is the end of a span.
    for bytes in [300, 0, 0, 0, 10, 200] {
        let mut all = [500; 8];
        all[6..].fill(bytes);
        assert!(crawl.on(all).is_empty(), "{:?}", crawl.now);
    }
}

#[test]
fn no_piece_is_late_where_all_are_as_slow() {
    let mut crawl = Crawl::of(false, [0, 1, 2, 3, 4, 5, 6, 7]);
    for _ in 0..9 {
        assert!(crawl.on([50, 50, 50, 45, 45, 45, 45, 45]).is_empty(), "{:?}", crawl.now);
    }
}

#[test]
fn as_published_nothing_is_predicted() {
    let mut crawl = Crawl::of(true, [0, 1, 2, 3, 4, 5, 7, 7]);
    assert_eq!(crawl.transfer.poll_look(), None);
    for _ in 0..4 {
        assert!(crawl.on([250, 250, 250, 250, 250, 250, 25, 25]).is_empty());
    }
}

#[test]
fn with_deadlines_a_slow_client_is_not_run_away_from() {
    let (mut transfer, mut now) = seasoned(Mode::Deadline);
    let mut most = 0;
    for _ in 0..40 {
        for request in ask_all(&mut transfer, now) {
            // 10 ms each, while the client takes 100 ms.
            transfer.on_chunk(now + Duration::from_millis(10), request.id, request.range);
        }
        now = now + Duration::from_millis(100);
        most = transfer.slots.len();
        assert!(matches!(transfer.poll_chunk(now), Next::Piece(..)), "never short");
    }
    assert_eq!(most, 2, "what is being taken, and the next");
}

#[test]
fn with_deadlines_a_quick_client_gets_the_whole_window() {
    let (mut transfer, now) = seasoned(Mode::Deadline);
    assert_eq!(ask_all(&mut transfer, now).len(), 4);
}

proptest! {
    /// Bytes come in order, each once, and no more than the window is held, whatever fails or is late.
    /// A transfer that ends has delivered all or failed.
    #[test]
    fn bytes_are_delivered_in_order_and_once(
        seed: u64,
        length in 0u64..400,
        cut in 0u64..400,
        mode in prop::sample::select(&Mode::ALL[..]),
        published: bool,
    ) {
        let span = cut.min(length)..length;
        let patience = if published { Patience::PAPER } else { Patience::default() };
        let mut transfer = Chunked::new(Plan { patience, ..plan(mode) }, length, span.clone());
        transfer.set_width(usize::MAX);
        let (mut rng, mut now) = (Rng::new(seed), ms(0));
        let mut open: BTreeMap<u64, Request> = BTreeMap::new();
        let mut at = span.start;
        let mut end = None;
        for _ in 0..100_000 {
            while let Some(id) = transfer.poll_cancel() {
                prop_assert!(open.remove(&id.0).is_some(), "cancelled once, while it is open");
            }
            while let Some(request) = transfer.poll_request(now) {
                open.insert(request.id.0, request);
            }
            prop_assert!(transfer.slots.len() <= 4);
            prop_assert!(open.len() <= 5, "a hedge at most beside the window");
            now = now + Duration::from_millis(rng.below(300) as u64);
            let chosen = open.keys().nth(rng.below(open.len().max(1))).copied();
            match (rng.below(10), chosen.and_then(|id| open.remove(&id))) {
                (0..=5, Some(request)) => drop(transfer.on_chunk(now, request.id, request.range)),
                (6..=7, Some(request)) => transfer.on_failure(now, request.id, &mut Sources::new(0, None)),
                (_, Some(request)) => drop(open.insert(request.id.0, request)),
                (_, None) => {}
            }
            if transfer.poll_timeout().is_some_and(|at| at <= now) {
                transfer.handle_timeout(now, &mut Sources::new(0, None), || rng.below(2) == 0);
            }
            match transfer.poll_chunk(now) {
                Next::Piece(piece, part) => {
                    prop_assert_eq!(piece.start + part.start, at);
                    prop_assert!(part.end > part.start && piece.start + part.end <= span.end);
                    at = piece.start + part.end;
                }
                Next::Wait => {}
                Next::Done => end = Some(true),
                Next::Failed => end = Some(false),
            }
            if end.is_some() {
                break;
            }
            prop_assert!(
                !open.is_empty() || transfer.poll_timeout().is_some() || transfer.is_ready()
                    || transfer.slots.len() < 4,
                "never stuck"
            );
        }
        prop_assert!(end.is_some(), "it ends");
        prop_assert!(end == Some(false) || at == span.end.max(span.start));
    }
}
