//! The counts of a row.

use std::time::Duration;

use levada_testbed::cluster::{
    percentile,
    problems::{Problem, Problems, Verdict},
};

/// All requests of a row.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Requests at living nodes.
    pub(super) requests: u64,
    /// Requests at nodes that were struck meanwhile.
    pub(super) struck: u64,
    /// Of requests at struck nodes only those whose bytes were not right.
    pub(super) problems: Problems,
    times: Vec<Duration>,
    hits: Vec<Duration>,
}

impl Tally {
    /// Counts a request at a living node, after the time that its client waited.
    pub(super) fn count(&mut self, verdict: Verdict, waited: Duration, small_hit: bool) {
        self.requests += 1;
        self.times.push(waited);
        if small_hit {
            self.hits.push(waited);
        }
        self.problems.note(verdict);
    }

    /// Counts a request at a node that was struck meanwhile: its bytes must be right, if it got any.
    pub(super) fn count_struck(&mut self, verdict: Verdict) {
        self.struck += 1;
        if matches!(verdict, Err((Problem::Wrong | Problem::Stale, _))) {
            self.problems.note(verdict);
        }
    }

    /// The 99th percentile of the waiting times.
    pub(super) fn p99(&self) -> Duration {
        percentile(&self.times, 99)
    }

    /// The same of small hits; `None` without any.
    pub(super) fn hit_p99(&self) -> Option<Duration> {
        (!self.hits.is_empty()).then(|| percentile(&self.hits, 99))
    }

    pub(super) fn small_hits(&self) -> usize {
        self.hits.len()
    }

    pub(super) fn slowest(&self) -> Duration {
        self.times.iter().max().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_bytes_count_at_struck_nodes_too() {
        let mut tally = Tally::default();
        tally.count_struck(Err((Problem::Cut, "a".to_owned())));
        tally.count_struck(Err((Problem::Wrong, "b".to_owned())));
        tally.count(Err((Problem::Cut, "c".to_owned())), Duration::from_secs(2), false);
        tally.count(Ok(()), Duration::from_secs(1), true);
        assert_eq!((tally.requests, tally.struck), (2, 2));
        let of = |problem| tally.problems.of(problem);
        let all = [Problem::Failed, Problem::Cut, Problem::Wrong, Problem::Stale].map(of);
        assert_eq!(all, [0, 1, 1, 0]);
        assert_eq!(tally.problems.reasons().keys().collect::<Vec<_>>(), ["cut: c", "wrong: b"]);
        assert_eq!(tally.hit_p99(), Some(Duration::from_secs(1)));
        assert_eq!(
            (tally.p99(), tally.slowest()),
            (Duration::from_secs(2), Duration::from_secs(2))
        );
    }
}
