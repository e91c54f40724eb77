//! A catalogue that grows: documents of the trace appear in the course of the run.
//!
//! A request of the trace becomes one for a document that is there, at the same part of the order of
//! popularity: of `n` documents, the trace's `r`-th most popular of `m` becomes the `r n / m`-th. The
//! order of all documents is known from the beginning; a sum tree (Fenwick, Software: Practice and
//! Experience 1994) over it finds the k-th that is there.

use levada_trace::Trace;
use levada_types::{Rng, Timestamp};

use crate::scenario::{CatalogueGrowth, Entrance};

pub(crate) struct Catalogue {
    /// The place of each document of the trace in its order of popularity.
    ranks: Vec<u32>,
    /// All documents of the end, the most popular first.
    ordered: Vec<u32>,
    /// Their places in `ordered`, in the order in which they appear.
    appear: Vec<u32>,
    /// So many of them are there.
    present: usize,
    /// The sum tree over `ordered`.
    counts: Vec<u32>,
    start: usize,
    /// The time until all are there, in nanoseconds.
    over: u64,
}

impl Catalogue {
    /// The documents that are `there` are so from the beginning. All are after `over`, if the growth does not say.
    pub(crate) fn new(
        growth: &CatalogueGrowth,
        over: Timestamp,
        trace: &Trace,
        there: &[u32],
        rng: &mut Rng,
    ) -> Self {
        let all = trace.objects().len();
        let mut requests = vec![0_u32; all];
        trace.requests().iter().for_each(|document| requests[*document as usize] += 1);
        let mut popular: Vec<u32> = (0..all as u32).collect();
        popular.sort_by_key(|document| std::cmp::Reverse(requests[*document as usize]));
        let mut ranks = vec![0; all];
        (0..).zip(&popular).for_each(|(rank, document)| ranks[*document as usize] = rank);

        let mut newest: Vec<u32> = (0..all as u32).collect();
        for last in (1..all).rev() {
            newest.swap(last, rng.below(last + 1));
        }
        newest.sort_by_key(|document| !there.contains(document));
        newest.truncate(growth.end.unwrap_or(all));
        let mut ordered = newest.clone();
        let begin = match growth.enter {
            Entrance::Anywhere => 0,
            Entrance::First => {
                ordered.reverse();
                ordered.len() - growth.start
            }
        };
        ordered[begin..].sort_by_key(|document| ranks[*document as usize]);
        let mut places = vec![0; all];
        (0..).zip(&ordered).for_each(|(place, document)| places[*document as usize] = place);
        Self {
            appear: newest.iter().map(|document| places[*document as usize]).collect(),
            counts: vec![0; ordered.len() + 1],
            present: 0,
            start: growth.start,
            over: growth.over.map_or(over.0, |over| over.0.as_nanos() as u64).max(1),
            ranks,
            ordered,
        }
    }

    /// The document that is requested at `now` in place of `document` of the trace. Times must not fall.
    pub(crate) fn instead_of(&mut self, document: u32, now: Timestamp) -> u32 {
        let further = (self.ordered.len() - self.start) as u128;
        let appeared = further * u128::from(now.0.min(self.over)) / u128::from(self.over);
        while self.present < self.start + appeared as usize {
            self.add(self.appear[self.present]);
            self.present += 1;
        }
        let rank = u64::from(self.ranks[document as usize]);
        let wanted = rank * self.present as u64 / self.ranks.len() as u64;
        self.ordered[self.find(wanted as u32)]
    }

    /// The document at this place is there from now on.
    fn add(&mut self, place: u32) {
        let mut node = place as usize + 1;
        while node < self.counts.len() {
            self.counts[node] += 1;
            node += node & node.wrapping_neg();
        }
    }

    /// The place of the document that has so many before it.
    fn find(&self, mut before: u32) -> usize {
        let (mut place, mut step) = (0, self.ordered.len().next_power_of_two());
        while step > 0 {
            if let Some(count) = self.counts.get(place + step)
                && *count <= before
            {
                place += step;
                before -= count;
            }
            step /= 2;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use levada_trace::TraceObject;

    use super::*;
    use crate::scenario::Time;

    /// A hundred documents; the n-th is requested so much less often than the one before.
    fn trace() -> Trace {
        let object = |n| TraceObject { name: format!("/{n}").into(), size: 1 };
        let requests = (0..100).flat_map(|n| vec![n; 200 - n as usize]).collect();
        Trace::new((0..100).map(object).collect(), requests)
    }

    fn growing(enter: Entrance, end: Option<usize>, seed: u64) -> Catalogue {
        let over = Some(Time(Duration::from_secs(60)));
        let growth = CatalogueGrowth { start: 10, end, over, enter };
        Catalogue::new(&growth, Timestamp::ZERO, &trace(), &[7, 99], &mut Rng::new(seed))
    }

    fn at(catalogue: &mut Catalogue, seconds: u64) -> Vec<u32> {
        (0..100).map(|n| catalogue.instead_of(n, Timestamp::from_secs(seconds))).collect()
    }

    #[test]
    fn each_time_has_its_number_of_distinct_documents() {
        for enter in [Entrance::Anywhere, Entrance::First] {
            let mut catalogue = growing(enter, Some(70), 1);
            let mut before = BTreeSet::from([7, 99]);
            for (seconds, documents) in [(0, 10), (1, 11), (30, 40), (60, 70), (600, 70)] {
                let there: BTreeSet<_> = at(&mut catalogue, seconds).into_iter().collect();
                assert_eq!(there.len(), documents, "{enter:?} after {seconds} s");
                assert!(there.is_superset(&before), "no document goes");
                before = there;
            }
        }
    }

    #[test]
    fn documents_that_enter_anywhere_leave_the_traces_order() {
        let mut catalogue = growing(Entrance::Anywhere, None, 1);
        for seconds in [0, 20, 40] {
            assert!(at(&mut catalogue, seconds).is_sorted());
        }
        assert_eq!(at(&mut catalogue, 60), (0..100).collect::<Vec<_>>(), "the trace's own");
        // The first half of the places gets about half of the new documents.
        let entered = |place: &&u32| **place < 50;
        let mut first_half = 0;
        for seed in 0..40 {
            let catalogue = growing(Entrance::Anywhere, None, seed);
            first_half += catalogue.appear[10..].iter().filter(entered).count();
        }
        assert!((1_700..1_900).contains(&first_half), "{first_half} of 3600");
    }

    #[test]
    fn newest_document_is_the_most_popular_where_documents_enter_first() {
        let mut catalogue = growing(Entrance::First, None, 1);
        let mut first = Vec::new();
        for seconds in 0..=60 {
            first.push(at(&mut catalogue, seconds)[0]);
        }
        assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 61, "another one each second");
        let all = at(&mut catalogue, 60);
        assert_eq!(all[60], *first.iter().rev().nth(40).unwrap(), "the older, the further back");
    }

    #[test]
    fn order_of_appearance_follows_the_seed() {
        let documents = |seed| at(&mut growing(Entrance::Anywhere, None, seed), 30);
        assert_eq!(documents(1), documents(1));
        assert_ne!(documents(1), documents(2));
    }
}
