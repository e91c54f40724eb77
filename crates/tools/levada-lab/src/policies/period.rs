//! The results of a period of the load, as policies are judged by them.

use std::{collections::HashMap, time::Duration};

use levada_testbed::{
    cluster::percentile,
    emulation::open_load::{Ended, Record},
};

/// The results of the requests of a period.
#[derive(Clone, Debug, Default)]
pub(super) struct Period {
    pub(super) requests: usize,
    pub(super) failed: usize,
    /// The 95th percentile of the time to the last byte. A request without an answer so far counts
    /// as one that took for ever.
    pub(super) p95: Duration,
    /// The part of the answers that came from a node's memory.
    pub(super) hit_ratio: f64,
    /// The part of the busiest node in all answers.
    pub(super) busiest: f64,
}

impl Period {
    pub(super) fn of(records: &[Record]) -> Self {
        let mut period = Self::default();
        let mut times = Vec::new();
        let (mut answered, mut hits) = (0_usize, 0);
        let mut nodes: HashMap<usize, usize> = HashMap::new();
        for record in records {
            period.requests += 1;
            times.push(match record.end {
                Some(Ended::Answered { after, hit, node }) => {
                    answered += 1;
                    hits += usize::from(hit);
                    *nodes.entry(node).or_default() += 1;
                    after
                }
                Some(Ended::Failed) => {
                    period.failed += 1;
                    Duration::MAX
                }
                None => Duration::MAX,
            });
        }
        period.p95 = percentile(&times, 95);
        let part = |count: usize| count as f64 / (answered as f64).max(1.0);
        period.hit_ratio = part(hits);
        period.busiest = part(nodes.into_values().max().unwrap_or(0));
        period
    }

    /// Whether the cluster carried the load.
    pub(super) fn is_fine(&self) -> bool {
        self.failed == 0 && self.p95 < LIMIT
    }
}

/// The limit of the 95th percentile, beyond which a cluster does not carry its load.
pub(super) const LIMIT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn a_period_is_fine_when_all_is_answered_in_time() {
        let begun = Instant::now();
        let answered = |ms, node| Record {
            begun,
            bytes: 1,
            end: Some(Ended::Answered { after: Duration::from_millis(ms), hit: node == 0, node }),
        };
        let mut records = vec![answered(10, 0); 96];
        records.extend([answered(900, 1); 4]);
        let fine = Period::of(&records);
        assert!(fine.is_fine(), "{fine:?}");
        assert_eq!((fine.hit_ratio, fine.busiest, fine.requests), (0.96, 0.96, 100));

        let waiting = Record { begun, bytes: 1, end: None };
        records.extend([waiting; 6]);
        assert!(!Period::of(&records).is_fine(), "a tenth has no answer in time");

        let failed = Record { begun, bytes: 1, end: Some(Ended::Failed) };
        assert!(!Period::of(&[answered(1, 0), failed]).is_fine());
        assert_eq!(Period::of(&[]).p95, Duration::ZERO);
    }
}
