//! Times of responses, counted in buckets: four to a doubling, so that a percentile is right to a fifth.

use std::{
    array,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// The buckets: from a microsecond to a little more than an hour.
const BUCKETS: usize = 4 * 32;

/// Counts of response times. Counting is one addition.
pub struct LatencyBuckets {
    counts: [AtomicU64; BUCKETS],
}

/// Counts of response times at one moment, or between two.
#[derive(Clone, PartialEq, Eq)]
pub struct LatencyCounts([u64; BUCKETS]);

impl Default for LatencyBuckets {
    fn default() -> Self {
        Self { counts: array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl LatencyBuckets {
    /// Counts a response.
    pub fn count(&self, elapsed: Duration) {
        self.counts[bucket(elapsed)].fetch_add(1, Relaxed);
    }

    /// The counts since the start.
    pub fn counts(&self) -> LatencyCounts {
        LatencyCounts(array::from_fn(|at| self.counts[at].load(Relaxed)))
    }
}

impl Default for LatencyCounts {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl LatencyCounts {
    /// The counts since `earlier` ones.
    pub fn since(&self, earlier: &Self) -> Self {
        Self(array::from_fn(|at| self.0[at].saturating_sub(earlier.0[at])))
    }

    /// The responses.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The seconds within which `part` of the responses ended; `None` without responses.
    pub fn percentile(&self, part: f64) -> Option<f64> {
        let rank = (self.total() as f64 * part).ceil().max(1.0) as u64;
        let mut below = 0;
        let reached = |count: &u64| {
            below += count;
            below >= rank
        };
        self.0.iter().position(reached).map(end)
    }
}

/// The bucket of a time: the position of the highest bit, and the two bits behind it.
fn bucket(elapsed: Duration) -> usize {
    let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX).max(1);
    let octave = micros.ilog2() as usize;
    let quarter = if octave >= 2 { micros >> (octave - 2) } else { micros << (2 - octave) } & 3;
    (4 * octave + quarter as usize).min(BUCKETS - 1)
}

/// The end of a bucket, in seconds.
fn end(bucket: usize) -> f64 {
    let (octave, quarter) = (bucket / 4, bucket % 4);
    (1u64 << octave) as f64 * (5 + quarter) as f64 / 4.0 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_right_to_a_fifth() {
        let buckets = LatencyBuckets::default();
        (1..=1_000).for_each(|millis| buckets.count(Duration::from_millis(millis)));
        let counts = buckets.counts();
        for (part, exact) in [(0.5, 0.5), (0.9, 0.9), (0.99, 0.99), (1.0, 1.0), (0.0, 0.001)] {
            let shown = counts.percentile(part).unwrap();
            assert!((exact..=exact * 1.25).contains(&shown), "{part}: {shown}");
        }
    }

    #[test]
    fn percentile_of_nothing_is_none() {
        let buckets = LatencyBuckets::default();
        buckets.count(Duration::from_secs(1));
        let before = buckets.counts();
        assert_eq!(before.since(&before).percentile(0.5), None);
    }

    #[test]
    fn every_time_has_a_bucket() {
        for time in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            assert!(bucket(time) < BUCKETS);
        }
        let ends: Vec<_> = (0..BUCKETS).map(end).collect();
        assert!(ends.is_sorted());
        for micros in [1, 2, 3, 5, 7, 100, 12_345, 9_999_999] {
            let time = Duration::from_micros(micros);
            assert!(time.as_secs_f64() < end(bucket(time)), "{micros}");
        }
    }
}
