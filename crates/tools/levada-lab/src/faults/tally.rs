//! The judgement of responses, and the counts of a row.

use std::{collections::BTreeMap, time::Duration};

use crate::cluster::percentile;

/// The judgement of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The bytes of an allowed version.
    Right,
    /// No response, or a status that the load does not expect.
    Failed(String),
    /// A body that ended too early.
    Cut(String),
    /// Bytes or a version that the origin never sent.
    Wrong(String),
    /// A version whose purge had been confirmed.
    Stale(String),
}

/// All requests of a row.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Requests at living nodes.
    pub(super) requests: u64,
    /// Requests at nodes that were struck meanwhile.
    pub(super) struck: u64,
    pub(super) failed: u64,
    pub(super) cut: u64,
    pub(super) wrong: u64,
    pub(super) stale: u64,
    /// The reasons of everything that is not right, and how often each occurred.
    pub(super) reasons: BTreeMap<String, u64>,
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
        match &verdict {
            Verdict::Failed(_) => self.failed += 1,
            Verdict::Cut(_) => self.cut += 1,
            Verdict::Right | Verdict::Wrong(_) | Verdict::Stale(_) => {}
        }
        self.note(verdict);
    }

    /// Counts a request at a node that was struck meanwhile: its bytes must be right, if it got any.
    pub(super) fn count_struck(&mut self, verdict: Verdict) {
        self.struck += 1;
        if matches!(verdict, Verdict::Wrong(_) | Verdict::Stale(_)) {
            self.note(verdict);
        }
    }

    /// Counts wrong and stale responses and the reason of a verdict.
    pub(super) fn note(&mut self, verdict: Verdict) {
        let (kind, reason) = match verdict {
            Verdict::Right => return,
            Verdict::Failed(reason) => ("failed", reason),
            Verdict::Cut(reason) => ("cut", reason),
            Verdict::Wrong(reason) => {
                self.wrong += 1;
                ("wrong", reason)
            }
            Verdict::Stale(reason) => {
                self.stale += 1;
                ("stale", reason)
            }
        };
        *self.reasons.entry(format!("{kind}: {reason}")).or_default() += 1;
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
        tally.count_struck(Verdict::Cut("a".to_owned()));
        tally.count_struck(Verdict::Wrong("b".to_owned()));
        tally.count(Verdict::Cut("c".to_owned()), Duration::from_secs(2), false);
        tally.count(Verdict::Right, Duration::from_secs(1), true);
        assert_eq!((tally.requests, tally.struck), (2, 2));
        assert_eq!((tally.failed, tally.cut, tally.wrong, tally.stale), (0, 1, 1, 0));
        assert_eq!(tally.reasons.keys().collect::<Vec<_>>(), ["cut: c", "wrong: b"]);
        assert_eq!(tally.hit_p99(), Some(Duration::from_secs(1)));
        assert_eq!(
            (tally.p99(), tally.slowest()),
            (Duration::from_secs(2), Duration::from_secs(2))
        );
    }
}
