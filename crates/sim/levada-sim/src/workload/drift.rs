//! Popularity that drifts: documents exchange their places in the trace, each with another of about
//! the same size, so that the load in bytes stays the same.

use levada_types::{Rng, Timestamp};

use super::Document;

pub(crate) struct Drift {
    /// The document that is requested in place of each document of the trace.
    instead: Vec<u32>,
    /// The documents by size.
    by_size: Vec<u32>,
    /// Nanoseconds between two exchanges, and the time of the next one.
    every: u64,
    next: Timestamp,
}

impl Drift {
    /// In each minute, `part` of the documents exchange their popularity.
    pub(crate) fn new(part: f64, documents: &[Document]) -> Self {
        let mut by_size: Vec<u32> = (0..documents.len() as u32).collect();
        by_size.sort_by_key(|document| (documents[*document as usize].size, *document));
        // Each exchange moves two documents.
        let exchanges = (part * documents.len() as f64 / 2.0).max(f64::MIN_POSITIVE);
        let every = (60e9 / exchanges).max(1.0) as u64;
        Self {
            instead: (0..documents.len() as u32).collect(),
            by_size,
            every,
            next: Timestamp(every),
        }
    }

    /// The document that is requested at `now` in place of `document` of the trace.
    pub(crate) fn instead_of(&mut self, document: u32, now: Timestamp, rng: &mut Rng) -> u32 {
        while self.next <= now {
            self.next = Timestamp(self.next.0.saturating_add(self.every));
            let one = rng.below(self.by_size.len());
            let other = (one + 1 + rng.below(NEAR)).min(self.by_size.len() - 1);
            self.instead.swap(self.by_size[one] as usize, self.by_size[other] as usize);
        }
        self.instead[document as usize]
    }
}

/// Documents that are this near in the order of sizes have about the same size.
const NEAR: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;
    use levada_types::Key;

    #[test]
    fn half_of_the_documents_exchange_their_popularity_in_a_minute() {
        let documents: Vec<_> =
            (0..10_000).map(|n| Document { key: Key(n), size: 100 + n % 1_000 }).collect();
        let mut drift = Drift::new(0.5, &documents);
        let mut rng = Rng::new(1);
        drift.instead_of(0, Timestamp::from_secs(60), &mut rng);
        let moved = (0..).zip(&drift.instead).filter(|(n, now)| n != *now).count();
        assert!((3_500..5_000).contains(&moved), "{moved}");
        let size = |n: u32| documents[n as usize].size;
        let farthest = (0..).zip(&drift.instead).map(|(n, now)| size(n).abs_diff(size(*now))).max();
        assert!(farthest < Some(60), "{farthest:?}");
    }
}
