//! Names that many clients ask for: a name is spread over more nodes of its region, as it is asked for more often.
//!
//! The policies of nodes have sets of servers for hot objects too (FDR, OSDI'02), by the requests that each server holds. A
//! name server does not see requests: an answer stands for all of a resolver's clients until it ends. So the set of a name
//! follows the rate of its queries alone, without state other than a counter, and shrinks with it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use levada_types::{Key, hash64};

/// Counters of queries by name and region, in a table that does not grow. Names that share a counter are spread by
/// the sum. Each counter is one word:
///
/// ```text
///   16 bits: the number of the window | 24 bits: queries within it | 24 bits: queries within the one before
/// ```
pub struct HotNames(Box<[AtomicU64]>);

/// A query, as it is counted.
#[derive(Clone, Copy)]
pub struct Heat<'h> {
    /// The counters.
    pub names: &'h HotNames,
    /// Seconds since 1970.
    pub now: u64,
    /// The queries in a second for which a name gets one more node; 0: it gets none.
    pub rate: u32,
    /// Whether this is the first look at the query.
    pub counts: bool,
}

const COUNTERS: usize = 1 << 12;
/// The seconds of a window.
const WINDOW: u64 = 4;
const COUNT: u32 = 24;

impl Default for HotNames {
    fn default() -> Self {
        Self((0..COUNTERS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Heat<'_> {
    /// The nodes over which a name is spread beyond those of one answer.
    pub(crate) fn more(&self, name: Key, region: u16) -> usize {
        if self.rate == 0 {
            return 0;
        }
        let queries = self.names.queries((name, region), self.now / WINDOW, self.counts);
        queries as usize / (self.rate as usize * WINDOW as usize)
    }
}

impl HotNames {
    /// The queries for a name within a window, with this one if it `counts`: those of the present window or of the one
    /// before, whichever are more.
    fn queries(&self, (name, region): (Key, u16), window: u64, counts: bool) -> u32 {
        let mixed = name.0 ^ hash64(&region.to_be_bytes());
        let counter = &self.0[mixed as usize % COUNTERS];
        let word = counter.load(Relaxed);
        let mask = (1 << COUNT) - 1;
        let (present, before) = ((word >> COUNT) & mask, word & mask);
        let (window, last) = (window & 0xffff, word >> (2 * COUNT));
        if window == last {
            if counts && present < mask {
                counter.fetch_add(1 << COUNT, Relaxed);
            }
            return present.max(before) as u32;
        }
        let before = if (last + 1) & 0xffff == window { present } else { 0 };
        // Two threads may begin a window: the queries of one of them are few.
        counter.store(window << (2 * COUNT) | u64::from(counts) << COUNT | before, Relaxed);
        before as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_gets_nodes_with_its_queries_and_loses_them_again() {
        let names = HotNames::default();
        let heat = |now, counts| Heat { names: &names, now, rate: 10, counts };
        let ask = |now, times| (0..times).fold(0, |_, _| heat(now, true).more(Key(7), 1));
        assert_eq!(ask(1000, 40), 0);
        assert_eq!(ask(1001, 81), 3, "120 within the window of four seconds");
        assert_eq!(heat(1004, false).more(Key(7), 1), 3, "the window before counts");
        assert_eq!(heat(1004, false).more(Key(7), 2), 0, "another region");
        assert_eq!(heat(1004, false).more(Key(8), 1), 0, "another name");
        assert_eq!(heat(1008, true).more(Key(7), 1), 0, "the window before had none");
        assert_eq!(Heat { rate: 0, ..heat(1001, true) }.more(Key(7), 1), 0);
    }
}
