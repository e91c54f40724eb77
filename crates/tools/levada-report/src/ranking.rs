//! The names that cause most requests and bytes, in bounded memory.
//!
//! Up to [`LIMIT`] names are counted exactly. When there are more, two tables go on, one by requests and
//! one by bytes, by the algorithm of Anderson et al., *A High-Performance Algorithm for Identifying Frequent
//! Items in Data Streams* (IMC'17): when a table is full, the median of its counters is subtracted from all of
//! them, and those at zero go. A counter is then too low by at most the sum of what was subtracted, which is
//! reported with it, and a name that is not listed has at most this much.

use std::collections::HashMap;

use levada_types::hash64;
use serde::Serialize;

/// The most names that are counted exactly.
pub(crate) const LIMIT: usize = 1 << 16;
/// The most bytes of a name that are kept.
const LONGEST: usize = 200;

/// Names with their requests and bytes.
#[derive(Clone, Default)]
pub(crate) struct Ranking {
    exact: HashMap<Box<str>, [u64; 2]>,
    /// By requests and by bytes, once there are too many names.
    tables: Option<[Table; 2]>,
}

/// A table of counters.
#[derive(Clone, Default)]
struct Table {
    counters: HashMap<Box<str>, u64>,
    /// The sum of what was subtracted from every counter.
    subtracted: u64,
}

/// The first of a ranking.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Ranked {
    /// By requests, the most first.
    pub by_requests: Vec<RankedName>,
    /// By bytes, the most first.
    pub by_bytes: Vec<RankedName>,
    /// The number of different names; `None` where they were too many to be counted.
    pub names: Option<u64>,
    /// The most by which requests in the list by requests can be too low.
    pub requests_too_low_by: u64,
    /// The most by which bytes in the list by bytes can be too low.
    pub bytes_too_low_by: u64,
}

/// A name and its counts; one of them is absent where names were too many.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankedName {
    /// The name as logged, cut if it is long.
    pub name: String,
    /// Its requests.
    pub requests: Option<u64>,
    /// Its bytes.
    pub bytes: Option<u64>,
}

impl Ranking {
    /// Counts a request.
    pub(crate) fn add(&mut self, name: &str, bytes: u64) {
        match cut(name) {
            None => self.add_counts(name, [1, bytes]),
            Some(short) => self.add_counts(&short, [1, bytes]),
        }
    }

    fn add_counts(&mut self, name: &str, counts: [u64; 2]) {
        if let Some(tables) = &mut self.tables {
            for (table, count) in tables.iter_mut().zip(counts) {
                table.add(name, count);
            }
            return;
        }
        if let Some(sums) = self.exact.get_mut(name) {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.saturating_add(count));
            return;
        }
        if self.exact.len() == LIMIT {
            self.split();
            return self.add_counts(name, counts);
        }
        self.exact.insert(name.into(), counts);
    }

    /// Goes on with two tables.
    fn split(&mut self) -> &mut [Table; 2] {
        let exact = std::mem::take(&mut self.exact);
        self.tables.get_or_insert_with(|| {
            let mut tables = [Table::default(), Table::default()];
            for (name, counts) in exact {
                for (table, count) in tables.iter_mut().zip(counts) {
                    table.add(&name, count);
                }
            }
            tables
        })
    }

    /// Adds all that another ranking has counted.
    pub(crate) fn merge(&mut self, other: Self) {
        for (name, counts) in other.exact {
            self.add_counts(&name, counts);
        }
        if let Some(others) = other.tables {
            for (table, other) in self.split().iter_mut().zip(others) {
                table.subtracted = table.subtracted.saturating_add(other.subtracted);
                for (name, count) in other.counters {
                    table.add(&name, count);
                }
            }
        }
    }

    /// The first `most` by either measure. Equal ones are in the order of their names.
    pub(crate) fn first(&self, most: usize) -> Ranked {
        let Some([requests, bytes]) = &self.tables else {
            let list = |by: usize| {
                let all = self.exact.iter().map(|(name, counts)| (&**name, counts[by]));
                let named = |(name, _): (&str, u64)| {
                    let [requests, bytes] = self.exact[name];
                    RankedName::new(name, Some(requests), Some(bytes))
                };
                greatest(all, most).into_iter().map(named).collect()
            };
            let names = Some(self.exact.len() as u64);
            return Ranked { by_requests: list(0), by_bytes: list(1), names, ..Ranked::default() };
        };
        let list = |table: &Table, named: fn((&str, u64)) -> RankedName| {
            let all = table.counters.iter().map(|(name, count)| (&**name, *count));
            greatest(all, most).into_iter().map(named).collect()
        };
        Ranked {
            by_requests: list(requests, |(name, count)| RankedName::new(name, Some(count), None)),
            by_bytes: list(bytes, |(name, count)| RankedName::new(name, None, Some(count))),
            names: None,
            requests_too_low_by: requests.subtracted,
            bytes_too_low_by: bytes.subtracted,
        }
    }
}

impl RankedName {
    fn new(name: &str, requests: Option<u64>, bytes: Option<u64>) -> Self {
        Self { name: name.to_owned(), requests, bytes }
    }
}

impl Table {
    fn add(&mut self, name: &str, count: u64) {
        if let Some(counter) = self.counters.get_mut(name) {
            *counter = counter.saturating_add(count);
        } else if count > 0 {
            self.counters.insert(name.into(), count);
            if self.counters.len() > LIMIT / 2 {
                self.subtract();
            }
        }
    }

    /// Makes room for half of the counters.
    fn subtract(&mut self) {
        let mut counts: Vec<_> = self.counters.values().copied().collect();
        let middle = counts.len() / 2;
        let median = *counts.select_nth_unstable(middle).1;
        self.subtracted = self.subtracted.saturating_add(median);
        self.counters.retain(|_, count| {
            *count = count.saturating_sub(median);
            *count > 0
        });
    }
}

fn greatest<'a>(all: impl Iterator<Item = (&'a str, u64)>, most: usize) -> Vec<(&'a str, u64)> {
    let mut all: Vec<_> = all.collect();
    let order = |a: &(&str, u64), b: &(&str, u64)| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0));
    if all.len() > most && most > 0 {
        all.select_nth_unstable_by(most - 1, order);
    }
    all.truncate(most);
    all.sort_by(order);
    all
}

/// A short form of a long name, which differs from that of other names.
fn cut(name: &str) -> Option<String> {
    if name.len() <= LONGEST {
        return None;
    }
    let end = (0..=LONGEST).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    Some(format!("{}… #{:016x}", &name[..end], hash64(name.as_bytes())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn few_names_are_counted_exactly() {
        let mut ranking = Ranking::default();
        for (name, bytes) in [("/a", 10), ("/b", 100), ("/a", 10), ("/c", 5)] {
            ranking.add(name, bytes);
        }
        let first = ranking.first(2);
        let row = |name: &str, requests, bytes| RankedName::new(name, Some(requests), Some(bytes));
        assert_eq!(first.by_requests, [row("/a", 2, 20), row("/b", 1, 100)]);
        assert_eq!(first.by_bytes, [row("/b", 1, 100), row("/a", 2, 20)]);
        assert_eq!((first.names, first.requests_too_low_by), (Some(3), 0));
    }

    #[test]
    fn frequent_names_among_very_many_keep_their_counts_within_the_stated_error() {
        let mut parts = [Ranking::default(), Ranking::default()];
        for number in 0..1_000_000_u64 {
            let part = &mut parts[number as usize % 2];
            part.add(&format!("/once/{number}"), 1);
            if number % 100 == 0 {
                part.add("/often", 1000);
            }
        }
        let [mut all, other] = parts;
        all.merge(other);
        let first = all.first(1);
        let (by_requests, by_bytes) = (&first.by_requests[0], &first.by_bytes[0]);
        assert_eq!((&*by_requests.name, &*by_bytes.name), ("/often", "/often"));
        let within = |count: Option<u64>, truth: u64, error: u64| {
            let count = count.unwrap();
            assert!(count <= truth && count + error >= truth, "{count} + {error}, not {truth}");
        };
        within(by_requests.requests, 10_000, first.requests_too_low_by);
        within(by_bytes.bytes, 10_000_000, first.bytes_too_low_by);
        // By the paper, no more than twice the sum over the size of the table.
        assert!(first.requests_too_low_by <= 2 * 1_010_000 / (LIMIT as u64 / 4), "{first:?}");
        let tables = all.tables.unwrap();
        assert!(tables.iter().all(|table| table.counters.len() <= LIMIT / 2));
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let mut ranking = Ranking::default();
        let long = "é".repeat(30_000);
        ranking.add(&format!("{long}1"), 1);
        ranking.add(&format!("{long}2"), 1);
        let first = ranking.first(10);
        assert_eq!(first.by_requests.len(), 2);
        assert!(first.by_requests.iter().all(|row| row.name.len() < LONGEST + 30));
    }

    proptest! {
        #[test]
        fn merged_parts_are_the_whole(names in prop::collection::vec(("[a-d]{0,3}", 0..50_u64), 0..200)) {
            let (mut whole, mut parts) = (Ranking::default(), [Ranking::default(), Ranking::default()]);
            for (at, (name, bytes)) in names.iter().enumerate() {
                whole.add(name, *bytes);
                parts[at % 2].add(name, *bytes);
            }
            let [mut merged, other] = parts;
            merged.merge(other);
            prop_assert_eq!(merged.first(20), whole.first(20));
        }
    }
}
