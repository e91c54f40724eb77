//! Histograms of small whole numbers.

use std::{
    array,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::metrics::{Buckets, Label, Metric, MetricKind, Reading, Sample};

/// Buckets with a bound: 1, 2, 4, and so on up to 128.
const BOUNDED: usize = 8;

/// The sizes of something.
#[derive(Clone, Debug, Default)]
pub struct SizeHistogram(Arc<Sizes>);

#[derive(Debug, Default)]
struct Sizes {
    counts: [AtomicU64; BOUNDED + 1],
    sum: AtomicU64,
}

impl SizeHistogram {
    /// Counts a size.
    pub fn observe(&self, size: u32) {
        let place = size.saturating_sub(1).checked_ilog2().map_or(0, |log| log as usize + 1);
        self.0.counts[place.min(BOUNDED)].fetch_add(1, Relaxed);
        self.0.sum.fetch_add(size.into(), Relaxed);
    }
}

impl Metric for SizeHistogram {
    const KIND: MetricKind = MetricKind::Histogram;

    fn read(&self, labels: &[Label], samples: &mut Vec<Sample>) {
        let bound = |at| if at < BOUNDED { f64::from(1 << at) } else { f64::INFINITY };
        let counts = array::from_fn::<_, { BOUNDED + 1 }, _>(|at| {
            (bound(at), self.0.counts[at].load(Relaxed))
        });
        let sum = self.0.sum.load(Relaxed) as f64;
        let buckets = Buckets { sum, counts: counts.to_vec(), native: None };
        samples.push(Sample { labels: labels.to_vec(), value: Reading::Histogram(buckets) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_belongs_to_its_bucket() {
        let sizes = SizeHistogram::default();
        for size in [0, 1, 2, 3, 4, 5, 128, 129, u32::MAX] {
            sizes.observe(size);
        }
        let counts = sizes.0.counts.each_ref().map(|count| count.load(Relaxed));
        assert_eq!(counts, [2, 1, 2, 1, 0, 0, 0, 1, 2]);
    }
}
