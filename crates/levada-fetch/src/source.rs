//! What is known of the nodes that pieces come from, over all transfers of a node.
//!
//! The paper saw nodes "that always respond slower than the rest" and says that requests "could simply
//! be diverted elsewhere" (WORLDS'04, Sec. 4). A node whose pieces were late twice in a row is left
//! out for a while, as an origin that fails is; then one piece tries it again. So is a node whose pieces
//! do come, but take several times as long as those of the others: never late, it would hold up every
//! window that one of its pieces is in.
//!
//! A node that has many pieces of a file that many ask for takes long as well, and is not to be left out:
//! the pieces would have to come from the origin, and whoever stands in for it would be as busy. What
//! tells the two apart is how much they do: from the busy one pieces come as quickly one after another as
//! from others, or more quickly, though each has taken long.

use std::time::Duration;

use levada_types::Timestamp;

use crate::timeout::Average;

/// Pieces in a row that must be late.
const LATE: u32 = 2;
/// For how long a source is left out at first; it doubles each time. To try it again holds up a window.
const LEFT_OUT: Duration = Duration::from_secs(20);
/// So often it doubles at most.
const DOUBLINGS: u32 = 2;
/// A source is slow whose pieces take more than so many times what those of the middle one take,
const SLOW: u32 = 2;
/// and so much longer: less is what one retransmission costs, and may be anybody's.
const MUCH: Duration = Duration::from_millis(200);
/// and whose pieces come so many times as far apart, the last few of them without exception: one may be
/// anybody's retransmission.
const SLOWER: f64 = 1.5;
/// The last few.
const FEW: usize = 2;
/// A source is not asked for more of which one more piece would take so many times as long as others, and
/// as much longer: among pieces of a millisecond one is soon twice as late as another.
const BEHIND: u32 = 2;
/// Fewer sources have no middle to speak of.
const ENOUGH: usize = 3;

#[derive(Clone, Copy, Debug, Default)]
struct Source {
    average: Average,
    /// The same of the last few, for whom changes count: each time has a weight of a half.
    recent: Duration,
    pace: Pace,
    /// How long the last few took, the latest at any place.
    last: [Duration; FEW],
    came: usize,
    /// Late pieces since the last that came in time.
    late: u32,
    until: Timestamp,
}

/// How long a source takes for one piece after another while it has any to send: from the last to the next,
/// or from when that was asked for. Of the last few, by sums that forget an eighth with each piece.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    last: Timestamp,
    busy: Duration,
    pieces: f64,
}

impl Pace {
    fn add(&mut self, took: Duration, now: Timestamp) {
        let apart = took.min(now.since(self.last));
        self.last = now;
        self.busy = self.busy * 7 / 8 + apart;
        self.pieces = self.pieces * 7.0 / 8.0 + 1.0;
    }

    fn get(&self) -> Option<Duration> {
        (self.pieces > 0.0).then(|| self.busy.div_f64(self.pieces))
    }
}

/// The sources by number.
#[derive(Clone, Debug)]
pub struct Sources(Vec<Source>);

impl Sources {
    /// So many, of which nothing is known.
    pub fn new(count: usize) -> Self {
        Self(vec![Source::default(); count])
    }

    /// A piece came from `source`, and took so long. Says whether the source is left out from now on.
    pub fn came(&mut self, source: usize, took: Duration, now: Timestamp) -> bool {
        let Some(known) = self.0.get_mut(source) else { return false };
        known.recent = if known.average.get().is_none() { took } else { (known.recent + took) / 2 };
        known.average.add(took);
        known.pace.add(took, now);
        known.last[known.came % FEW] = took;
        known.came += 1;
        if self.is_slow(source) {
            self.0[source].late = self.0[source].late.max(LATE - 1);
            return self.late(source, now);
        }
        self.0[source].late = 0;
        false
    }

    /// Whether pieces from a source take much longer of late than those from the others, and it does not
    /// make up for that by their number.
    fn is_slow(&self, source: usize) -> bool {
        let recent = self.0[source].recent;
        let time = self.middle(|source| source.average.get());
        time.is_some_and(|time| recent > SLOW * time && recent > time + MUCH)
            && self.is_slower(source)
    }

    /// Whether a source that has so many pieces to send would send one more much later than others do.
    pub fn is_behind(&self, source: usize, under_way: usize) -> bool {
        let time = self.middle(|source| source.average.get());
        let pace = self.0.get(source).and_then(|source| source.pace.get());
        let (Some(time), Some(pace)) = (time, pace) else { return false };
        let due =
            pace.saturating_mul(u32::try_from(under_way).unwrap_or(u32::MAX).saturating_add(1));
        due > (BEHIND * time).max(time + MUCH) && self.is_slower(source)
    }

    /// Whether pieces from a source come further apart than those from the others, and none of the last few
    /// was as quick.
    fn is_slower(&self, source: usize) -> bool {
        let own = &self.0[source];
        let (pace, time) = (self.middle(|s| s.pace.get()), self.middle(|s| s.average.get()));
        let least = own.last.iter().min().copied();
        own.pace.get().zip(pace).is_some_and(|(own, middle)| own > middle.mul_f64(SLOWER))
            && least.zip(time).is_some_and(|(least, middle)| least > middle.mul_f64(SLOWER))
    }

    /// The value of the source in the middle.
    fn middle(&self, value: impl Fn(&Source) -> Option<Duration>) -> Option<Duration> {
        let mut values: Vec<_> = self.0.iter().filter_map(value).collect();
        values.sort_unstable();
        let middle = values.get((values.len().saturating_sub(1)) / 2).copied();
        middle.filter(|_| values.len() >= ENOUGH)
    }

    /// A piece from `source` was late. Says whether the source is left out from now on.
    pub fn late(&mut self, source: usize, now: Timestamp) -> bool {
        let Some(source) = self.0.get_mut(source).filter(|source| source.until <= now) else {
            return false;
        };
        source.late += 1;
        let Some(times) = source.late.checked_sub(LATE) else { return false };
        source.until = now + LEFT_OUT * (1 << times.min(DOUBLINGS));
        true
    }

    /// The sources that are left out now.
    pub fn left_out(&self, now: Timestamp) -> impl Iterator<Item = usize> {
        (0..).zip(&self.0).filter(move |(_, source)| now < source.until).map(|(number, _)| number)
    }

    /// How long pieces from each source took lately; `None` where none has come.
    pub fn averages(&self) -> impl Iterator<Item = Option<Duration>> {
        self.0.iter().map(|source| source.average.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_that_is_late_twice_is_left_out_for_a_while_and_longer_the_next_time() {
        let mut sources = Sources::new(3);
        let out = |sources: &Sources, now| sources.left_out(Timestamp::from_secs(now)).count();
        sources.late(1, Timestamp::from_secs(1));
        assert_eq!(out(&sources, 1), 0);
        sources.late(1, Timestamp::from_secs(1));
        assert_eq!(sources.left_out(Timestamp::from_secs(1)).collect::<Vec<_>>(), [1]);
        // What was under way when it was left out does not count again.
        sources.late(1, Timestamp::from_secs(2));
        assert_eq!((out(&sources, 20), out(&sources, 21)), (1, 0));
        sources.late(1, Timestamp::from_secs(21));
        assert_eq!((out(&sources, 60), out(&sources, 61)), (1, 0));
    }

    #[test]
    fn source_that_has_become_slow_is_left_out_though_its_pieces_come() {
        let mut sources = Sources::new(4);
        let now = Timestamp::from_secs(1);
        for source in [0, 1, 2, 3, 0, 1, 2, 3] {
            sources.came(source, Duration::from_millis(100), now);
        }
        let now = now + Duration::from_millis(400);
        sources.came(3, Duration::from_millis(400), now);
        assert_eq!(sources.left_out(now).count(), 0, "once is nothing");
        let now = now + Duration::from_millis(400);
        sources.came(3, Duration::from_millis(400), now);
        assert_eq!(sources.left_out(now).collect::<Vec<_>>(), [3]);
        let mut quick = Sources::new(4);
        for source in [0, 1, 2, 3, 3, 3] {
            quick.came(source, Duration::from_millis(if source == 3 { 200 } else { 1 }), now);
        }
        assert_eq!(quick.left_out(now).count(), 0, "a retransmission is nobody's fault");
        // Where two are known, nobody can say which is the odd one.
        let mut two = Sources::new(4);
        for _ in 0..9 {
            two.came(0, Duration::from_millis(1), now);
            two.came(1, Duration::from_millis(100), now);
        }
        assert_eq!(two.left_out(now).count(), 0);
    }

    #[test]
    fn busy_source_that_sends_as_much_as_others_is_not_slow() {
        let ms = Duration::from_millis;
        let mut sources = Sources::new(4);
        let mut now = Timestamp::from_secs(1);
        for _ in 0..4 {
            now = now + ms(100);
            (0..4).for_each(|source| _ = sources.came(source, ms(100), now));
        }
        // Nine pieces that were asked for at once, one every 100 ms.
        for nth in 1..10 {
            now = now + ms(100);
            assert!(!sources.came(3, ms(100) * nth, now), "{nth}");
        }
        // One at a time is another matter.
        assert!(sources.came(3, ms(900), now + ms(900)));
    }

    #[test]
    fn slower_source_is_asked_for_no_more_than_it_can_send_meanwhile() {
        let ms = Duration::from_millis;
        let mut sources = Sources::new(4);
        let mut now = Timestamp::from_secs(1);
        for _ in 0..4 {
            now = now + ms(100);
            (0..3).for_each(|source| _ = sources.came(source, ms(100), now));
            sources.came(3, ms(180), now + ms(80));
            now = now + ms(80);
        }
        assert!(!sources.is_behind(3, 0), "one piece takes 180 ms");
        assert!(sources.is_behind(3, 1), "the next is here in 360 ms");
        assert!(!sources.is_behind(0, 9), "who is as quick as the others may have many");
        assert!(!sources.is_behind(9, 9));
        // As quick as the others once: that was not the node.
        sources.came(3, ms(100), now + ms(100));
        assert!(!sources.is_behind(3, 1));
    }

    #[test]
    fn among_pieces_of_a_millisecond_nobody_is_behind() {
        let ms = Duration::from_millis;
        let mut sources = Sources::new(4);
        let mut now = Timestamp::from_secs(1);
        for _ in 0..4 {
            now = now + ms(5);
            (0..3).for_each(|source| _ = sources.came(source, ms(1), now));
            sources.came(3, ms(4), now);
        }
        assert!(!sources.is_behind(3, 9), "40 ms are nothing to fetch a piece from elsewhere for");
    }

    #[test]
    fn piece_that_comes_makes_good() {
        let mut sources = Sources::new(2);
        sources.late(0, Timestamp::ZERO);
        sources.came(0, Duration::from_millis(8), Timestamp::ZERO);
        sources.late(0, Timestamp::ZERO);
        assert_eq!(sources.left_out(Timestamp::ZERO).count(), 0);
        assert_eq!(sources.averages().collect::<Vec<_>>(), [Some(Duration::from_millis(8)), None]);
        sources.came(9, Duration::ZERO, Timestamp::ZERO);
        sources.late(9, Timestamp::ZERO);
    }
}
