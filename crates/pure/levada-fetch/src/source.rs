//! The rates of the nodes that pieces come from, over all transfers of a node, and the predictions that
//! follow from them.
//!
//! The paper saw nodes "that always respond slower than the rest" and says that requests "could simply
//! be diverted elsewhere" (WORLDS'04, Sec. 4). One comparison finds them:
//!
//! ```text
//!   able(source)  = its rate x max(1, requests it would have / most requests that it had at once)
//!                   x 2 for each second in which nothing was asked of it
//!   needs(source) = bytes that it would have to send / able(source)
//!   fresh         = max(time of a typical piece, the same bytes / rate of the source in the middle)
//! ```
//!
//! The time of a typical piece is that of the source in the middle: the average of the pieces that came, or how long
//! the oldest piece under way has taken, where that is more than twice as long. The first pieces that come are the
//! quickest ones: on links that are full for everybody, they would make all others look late.
//!
//! A source is behind when it needs 1.4 times as long as a fresh request elsewhere, and is able to do less
//! than a third of the rate of the source in the middle. The second term of `fresh` holds
//! when a link slows down all sources at once: then none is behind. A source that many ask has long times,
//! but a rate as high as that of others, so it is not behind either. A source that few ask has a low rate, as
//! a connection has its limits, and may be able to do more than it was asked for.
//!
//! The node itself is not judged: its own pieces come from its store or from the origin, not over the link of
//! a node, and it sees them only when they are whole.
//!
//! Whether a node is up at all is the matter of the cluster's health, which all requests share.

use std::{collections::BTreeMap, time::Duration};

use levada_types::Timestamp;

use crate::timeout::{AMPLE, Average};

/// The time over which one rate is measured: several round trips of most paths.
pub(crate) const SPAN: Duration = Duration::from_millis(100);
/// The rate of a source is the best of its last spans. A connection that lost packets stands still for
/// 200 ms to a second and begins slowly, which must not count as its rate.
const SPANS: usize = 14;
/// Fewer spans say little about a source: its first connection is still in slow start.
const TELLING: usize = 3;
/// So many spans in a row without a byte tell that a source sends nothing. On a full link a connection can
/// lose the same packet three times and more, and TCP waits twice as long each time.
const SILENT: usize = 30;
/// Bytes per second of a source that sends nothing. It is asked again after some 20 seconds, as a rate doubles
/// each second without a request.
const NOTHING: f64 = 1.0;
/// Bytes that came earlier say nothing about how a source is now.
const RECENT: Duration = Duration::from_secs(3);
/// Fewer sources have no middle that tells which one differs.
const ENOUGH: usize = 3;
/// A typical piece that takes longer than this tells of a link that is full for all.
const OVERLOADED: Duration = Duration::from_secs(3);
/// A source is behind when it needs this many times as long as a fresh request elsewhere. Above 1, because
/// the node that is asked instead may have to get the piece from the origin.
const MARGIN: f64 = 1.4;
/// And when it is able to do less than this part of the rate in the middle: connections that share a full link
/// differ for a while.
const UNEQUAL: f64 = 1.0 / 3.0;

/// Bytes per second, and the most requests at once.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    bytes: f64,
    requests: usize,
}

impl Rate {
    /// The rate that a source may reach with this many requests.
    fn able(self, requests: usize) -> f64 {
        self.bytes * (requests as f64 / self.requests.max(1) as f64).max(1.0)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Source {
    /// Of the times of its pieces.
    average: Average,
    /// When the current span began, the bytes that came in it, and the most requests at once.
    span: Timestamp,
    bytes: u64,
    requests: usize,
    /// The last spans, a ring, and how many there were.
    rates: [Rate; SPANS],
    spans: usize,
    /// Spans without a byte since the last that had some, and when bytes came last.
    silent: usize,
    heard: Timestamp,
    /// Whether it was behind with a single piece.
    slow: bool,
}

impl Source {
    fn received(&mut self, bytes: u64, requests: usize, now: Timestamp) {
        let length = now.since(self.span);
        if bytes > 0 {
            // After a silence the connection starts again with one packet.
            self.spans = if self.silent < SPANS { self.spans } else { 0 };
            (self.silent, self.heard) = (0, now);
        }
        self.bytes += bytes;
        self.requests = self.requests.max(requests);
        if length < SPAN {
            return;
        }
        // Nothing was under way for a part of a longer span.
        if length < 3 * SPAN {
            let bytes = self.bytes as f64 / length.as_secs_f64();
            self.rates[self.spans % SPANS] = Rate { bytes, requests: self.requests };
            self.spans += 1;
            self.silent += usize::from(self.bytes == 0);
        }
        (self.span, self.bytes, self.requests) = (now, 0, 0);
    }

    /// The best of the last spans.
    fn rate(&self) -> Option<Rate> {
        let best = |best: Rate, rate: &Rate| Rate {
            bytes: best.bytes.max(rate.bytes),
            requests: best.requests.max(rate.requests),
        };
        let best = self.rates.iter().fold(Rate::default(), best);
        let tells = if best.bytes > 0.0 { self.spans >= TELLING } else { self.silent >= SILENT };
        tells.then_some(Rate { bytes: best.bytes.max(NOTHING), ..best })
    }
}

/// The sources by number.
#[derive(Clone, Debug)]
pub struct Sources {
    known: Vec<Source>,
    own: Option<usize>,
}

impl Sources {
    /// `count` sources without history. `own` is the number of the node that asks, if it is one of them.
    pub fn new(count: usize, own: Option<usize>) -> Self {
        Self { known: vec![Source::default(); count], own }
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    fn judged(&mut self, source: usize) -> Option<&mut Source> {
        self.known.get_mut(source).filter(|_| self.own != Some(source))
    }

    /// A piece came from `source` and took this long.
    pub fn came(&mut self, source: usize, took: Duration) {
        if let Some(known) = self.known.get_mut(source) {
            known.average.add(took);
        }
    }

    /// `bytes` came from `source` since the last call, or none although pieces are under way, in this many
    /// `requests`. Count each byte once, whatever the number of transfers that wait for it.
    pub fn received(&mut self, source: usize, bytes: u64, requests: usize, now: Timestamp) {
        if let Some(known) = self.judged(source) {
            known.received(bytes, requests, now);
        }
    }

    /// A piece from `source` ran into its timeout or failed. The source counts as one that sends nothing,
    /// until bytes come or until it is forgotten.
    pub fn stalled(&mut self, source: usize, now: Timestamp) {
        if let Some(known) = self.judged(source) {
            *known =
                Source { span: now, silent: SILENT, average: known.average, ..Source::default() };
        }
    }

    /// The comparison of this moment; `None` while too few sources are known, or all are slow.
    /// `oldest` is when the oldest request under way began, by source.
    pub(crate) fn compare(
        &self,
        least: Duration,
        oldest: BTreeMap<usize, Timestamp>,
        now: Timestamp,
    ) -> Option<Comparison<'_>> {
        let average = |source: &Source| source.average.get();
        let so_far = |number: usize, source: &Source| {
            let age = oldest.get(&number).map(|begun| now.since(*begun));
            age.filter(|age| average(source).is_none_or(|usual| *age > AMPLE * usual))
        };
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        let came = self.middle(|_, source| seconds(average(source)))?;
        let under_way =
            self.middle(|number, source| seconds(so_far(number, source).or(average(source))));
        let typical = under_way.map_or(came, |time| time.max(came));
        // Where typical pieces take as long, all wait for the same link, and another request only adds to it.
        if typical > OVERLOADED.as_secs_f64() {
            return None;
        }
        let rate = self.middle(|_, source| Some(source.rate()?.bytes))?;
        Some(Comparison { sources: self, oldest, typical, rate, least: least.as_secs_f64(), now })
    }

    /// Whether bytes came from `source` lately, and its rate is not known to be below a third of that in the middle.
    /// A node that finds a source slow may be wrong, since its own connections may have lost packets.
    pub fn vouches(&self, source: usize, now: Timestamp) -> bool {
        let rate = |source: &Source| Some(source.rate()?.bytes);
        let known = self.known.get(source).filter(|known| now.since(known.heard) < RECENT);
        let middle = self.middle(|_, source| rate(source)).unwrap_or_default();
        known.is_some_and(|known| rate(known).is_none_or(|rate| rate >= UNEQUAL * middle))
    }

    /// Records whether a source is behind with a single piece. Returns true when it was not before.
    pub(crate) fn turns_slow(&mut self, source: usize, slow: bool) -> bool {
        self.known
            .get_mut(source)
            .is_some_and(|known| !std::mem::replace(&mut known.slow, slow) && slow)
    }

    /// The value of the source in the middle.
    fn middle(&self, value: impl Fn(usize, &Source) -> Option<f64>) -> Option<f64> {
        let known = self.known.iter().enumerate();
        let mut values: Vec<_> = known.filter_map(|(n, source)| value(n, source)).collect();
        values.sort_unstable_by(f64::total_cmp);
        let middle = values.get(values.len().saturating_sub(1) / 2).copied();
        middle.filter(|_| values.len() >= ENOUGH)
    }

    /// How long pieces from a source took lately; `None` where none has come.
    pub fn average(&self, source: usize) -> Option<Duration> {
        self.known.get(source).and_then(|source| source.average.get())
    }

    /// Forgets what is known about a source: this number belongs to another node now, or to none.
    pub fn forget(&mut self, source: usize) {
        if source >= self.known.len() {
            self.known.resize(source + 1, Source::default());
        }
        self.known[source] = Source::default();
    }
}

/// The source in the middle, with which others are compared. All times are in seconds.
pub(crate) struct Comparison<'a> {
    sources: &'a Sources,
    oldest: BTreeMap<usize, Timestamp>,
    /// The time of a typical piece.
    typical: f64,
    rate: f64,
    least: f64,
    now: Timestamp,
}

impl Comparison<'_> {
    /// Whether a piece that was asked for at `begun` has taken the time of a typical one.
    pub(crate) fn has_taken_typical(&self, begun: Timestamp) -> bool {
        self.now.since(begun).as_secs_f64() > self.typical
    }

    /// Whether `source` needs much longer for `bytes` in this many `requests` than a fresh request elsewhere
    /// takes, and longer than the least time that matters. A source whose pieces are all recent has shown no rate yet.
    pub(crate) fn is_behind(&self, source: usize, bytes: u64, requests: usize) -> bool {
        let known = self.sources.known.get(source);
        let Some((known, rate)) = known.and_then(|known| Some((known, known.rate()?))) else {
            return false;
        };
        if self.oldest.get(&source).is_some_and(|begun| !self.has_taken_typical(*begun)) {
            return false;
        }
        // The longer nothing was asked of it, the less the rate of that time says.
        let idle = self.now.since(known.span).as_secs_f64();
        let able = rate.able(requests) * idle.exp2();
        let fresh = self.typical.max(bytes as f64 / self.rate);
        able < UNEQUAL * self.rate && bytes as f64 / able > MARGIN * fresh.max(self.least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: u64 = 1_000_000;
    const LEAST: Duration = Duration::from_millis(200);

    /// Sources whose pieces take a second, each with these bytes in each of the last spans.
    fn sources(bytes: &[u64]) -> (Sources, Timestamp) {
        let mut sources = Sources::new(bytes.len(), None);
        let mut now = Timestamp::from_secs(100);
        for _ in 0..=SPANS {
            for (source, bytes) in bytes.iter().enumerate() {
                sources.received(source, *bytes, 1, now);
            }
            now = now + SPAN;
        }
        (0..bytes.len()).for_each(|source| sources.came(source, Duration::from_secs(1)));
        (sources, now)
    }

    fn behind(sources: &Sources, source: usize, bytes: u64, now: Timestamp) -> bool {
        sources
            .compare(LEAST, BTreeMap::new(), now)
            .is_some_and(|all| all.is_behind(source, bytes, 1))
    }

    #[test]
    fn slow_source_is_asked_for_what_it_can_send_in_the_time_of_a_piece() {
        // 10 MB/s, and 1.2 MB/s.
        let (sources, now) = sources(&[PIECE, PIECE, PIECE, 120_000]);
        assert!(!behind(&sources, 3, PIECE, now), "0.83 s");
        assert!(behind(&sources, 3, 2 * PIECE, now), "1.67 s");
        assert!(!behind(&sources, 0, 9 * PIECE, now), "a fast one may have many");
        assert!(!behind(&sources, 9, PIECE, now), "there is no such source");
    }

    #[test]
    fn link_that_slows_all_sources_makes_none_slow() {
        let (sources, now) = sources(&[50_000, 50_000, 50_000, 15_000]);
        assert!(!behind(&sources, 0, PIECE, now), "2 s as everywhere");
        assert!(behind(&sources, 3, PIECE, now), "6.7 s");
    }

    #[test]
    fn link_that_is_full_for_all_makes_no_source_slow() {
        let (mut sources, now) = sources(&[PIECE, PIECE, PIECE, 10_000]);
        assert!(behind(&sources, 3, PIECE, now));
        for _ in 0..20 {
            (0..4).for_each(|source| sources.came(source, Duration::from_secs(5)));
        }
        assert!(!behind(&sources, 3, PIECE, now), "asked elsewhere, it would take as long");
    }

    #[test]
    fn connection_that_stands_still_for_some_seconds_is_not_slow() {
        let (mut sources, mut now) = sources(&[PIECE; 4]);
        for spans in 1..=SILENT {
            assert!(!behind(&sources, 3, PIECE, now), "after {} spans", spans - 1);
            (0..4).for_each(|source| {
                sources.received(source, if source == 3 { 0 } else { PIECE }, 1, now)
            });
            now = now + SPAN;
        }
        assert!(behind(&sources, 3, PIECE, now), "nothing at all for three seconds");
        sources.received(3, 1, 1, now);
        assert!(!behind(&sources, 3, PIECE, now), "it goes on");
    }

    #[test]
    fn unlucky_connection_among_those_that_share_a_full_link_is_not_slow() {
        // 0.4 of the rate of the source in the middle, and later than others by far.
        let (sources, now) = sources(&[PIECE, 200_000, 200_000, 80_000]);
        assert!(!behind(&sources, 3, 2 * PIECE, now), "2.5 s");
        assert!(!behind(&sources, 3, 9 * PIECE, now), "11 s");
    }

    #[test]
    fn source_that_stalls_is_skipped_until_bytes_come() {
        let (mut sources, now) = sources(&[PIECE; 4]);
        sources.stalled(3, now);
        assert!(behind(&sources, 3, PIECE, now));
        assert!(behind(&sources, 3, PIECE, now + Duration::from_secs(10)));
        assert!(!behind(&sources, 3, PIECE, now + Duration::from_secs(20)), "it is tried again");
        sources.received(3, PIECE, 1, now + SPAN);
        assert!(!behind(&sources, 3, PIECE, now + SPAN));
    }

    #[test]
    fn source_that_had_few_requests_may_be_able_to_do_more() {
        let (sources, now) = sources(&[PIECE, PIECE, PIECE, PIECE / 8]);
        let compare = sources.compare(LEAST, BTreeMap::new(), now).unwrap();
        assert!(compare.is_behind(3, 3 * PIECE, 1));
        assert!(!compare.is_behind(3, 3 * PIECE, 3), "1.25 MB/s with one request");
    }

    #[test]
    fn first_spans_of_a_source_say_little() {
        let (mut sources, now) = sources(&[PIECE, PIECE, PIECE, 0]);
        sources.known[3] = Source { span: now, ..Source::default() };
        for span in 1..=3 {
            assert!(!behind(&sources, 3, PIECE, now), "after {} spans", span - 1);
            sources.received(3, 1000, 1, now + span * SPAN);
        }
        assert!(behind(&sources, 3, PIECE, now + 3 * SPAN));
    }

    #[test]
    fn own_node_is_never_behind() {
        let mut sources = sources(&[PIECE; 4]).0;
        sources.own = Some(3);
        let now = Timestamp::from_secs(102);
        sources.stalled(3, now);
        assert!(!behind(&sources, 3, PIECE, now));
        sources.stalled(2, now);
        assert!(behind(&sources, 2, PIECE, now), "another is");
    }

    #[test]
    fn rate_says_less_the_longer_nothing_is_asked_of_a_source() {
        let (sources, now) = sources(&[PIECE, PIECE, PIECE, 10_000]);
        assert!(behind(&sources, 3, PIECE, now), "10 s");
        assert!(behind(&sources, 3, PIECE, now + Duration::from_secs(2)), "2.3 s");
        assert!(!behind(&sources, 3, PIECE, now + Duration::from_secs(3)), "1.2 s");
    }

    #[test]
    fn time_without_a_request_is_no_part_of_a_rate() {
        let (mut sources, now) = sources(&[PIECE; 4]);
        sources.received(3, 0, 1, now + Duration::from_secs(5));
        assert!(!behind(&sources, 3, PIECE, now + Duration::from_secs(5)));
    }

    #[test]
    fn among_two_sources_none_differs() {
        let (sources, now) = sources(&[PIECE, 1000]);
        assert!(!behind(&sources, 1, PIECE, now));
    }

    #[test]
    fn small_delays_do_not_matter() {
        let (mut sources, now) = sources(&[PIECE, PIECE, PIECE, 100_000]);
        for _ in 0..100 {
            (0..4).for_each(|source| sources.came(source, Duration::from_millis(1)));
        }
        assert!(!behind(&sources, 3, 250_000, now), "250 ms");
        assert!(behind(&sources, 3, 350_000, now), "350 ms");
    }

    #[test]
    fn number_that_another_node_gets_has_no_past() {
        let (mut sources, now) = sources(&[PIECE, PIECE, PIECE, 10_000]);
        assert!(behind(&sources, 3, PIECE, now));
        sources.forget(3);
        assert!(!behind(&sources, 3, PIECE, now));
        sources.forget(5);
        sources.came(5, Duration::from_secs(1));
        assert_eq!(sources.average(5), Some(Duration::from_secs(1)));
    }

    #[test]
    fn node_vouches_for_a_source_that_it_has_heard_of_lately_and_does_not_know_as_slow() {
        let (mut sources, now) = sources(&[PIECE, PIECE, PIECE, PIECE / 2, PIECE / 4]);
        let vouched = |sources: &Sources, now| {
            (0..6).filter(|source| sources.vouches(*source, now)).collect::<Vec<_>>()
        };
        assert_eq!(vouched(&sources, now), [0, 1, 2, 3], "the last has a quarter of the rate");
        sources.stalled(0, now);
        assert!(!sources.vouches(0, now), "a piece from it ran into its timeout");
        let later = now + RECENT;
        assert!(vouched(&sources, later).is_empty(), "none was heard of lately");
        sources.received(5, 0, 1, later);
        sources.forget(4);
        sources.received(4, 1, 1, later);
        assert_eq!(vouched(&sources, later), [4], "nothing is known of its rate");
    }

    #[test]
    fn source_turns_slow_once() {
        let mut sources = Sources::new(1, None);
        assert!(sources.turns_slow(0, true));
        assert!(!sources.turns_slow(0, true));
        assert!(!sources.turns_slow(0, false));
        assert!(sources.turns_slow(0, true));
    }
}
