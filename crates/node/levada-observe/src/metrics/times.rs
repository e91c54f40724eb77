//! Histograms of times, in two resolutions at once: the classic buckets of Prometheus, which all of its formats have,
//! and the buckets of its native histograms, eight between a power of two and the next.
//!
//! Every request is counted, by three additions without a lock.

use std::{
    array,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::metrics::{Buckets, Label, Metric, MetricKind, NativeBuckets, Reading, Sample};

/// The least bound of a classic bucket, in nanoseconds; each bound is twice the one before.
const LEAST: u64 = 500_000;
/// Classic buckets with a bound: up to half a minute.
const CLASSIC: usize = 17;
/// The binary logarithm of native buckets in a power of two: buckets of 9 percent.
pub const SCHEMA: i32 = 3;
const PARTS: usize = 1 << SCHEMA;
/// The exponent of the shortest time that has a native bucket: 8 microseconds. Shorter ones are in the zero bucket.
const SHORTEST: i32 = -17;
/// The exponent of the longest time: 17 minutes. Longer ones are in the last bucket.
const LONGEST: i32 = 10;
/// Native buckets; the first one is the zero bucket.
const NATIVE: usize = 1 + PARTS * (LONGEST - SHORTEST) as usize;
/// Powers of two to the eighths from 0 to 7: the bounds of native buckets.
const EIGHTHS: [f64; PARTS] = [
    1.0,
    1.090_507_732_665_257_7,
    1.189_207_115_002_721,
    1.296_839_554_651_009_6,
    std::f64::consts::SQRT_2,
    1.542_210_825_407_940_7,
    1.681_792_830_507_429,
    1.834_008_086_409_342_4,
];

/// The times of something.
#[derive(Clone, Debug, Default)]
pub struct TimeHistogram(Arc<Times>);

#[derive(Debug)]
struct Times {
    classic: [AtomicU64; CLASSIC + 1],
    native: [AtomicU64; NATIVE],
    nanos: AtomicU64,
}

impl Default for Times {
    fn default() -> Self {
        let zeros = || array::from_fn(|_| AtomicU64::new(0));
        Self {
            classic: zeros(),
            native: array::from_fn(|_| AtomicU64::new(0)),
            nanos: AtomicU64::new(0),
        }
    }
}

/// The width of the zero bucket in seconds.
pub fn zero_threshold() -> f64 {
    f64::from(SHORTEST).exp2()
}

impl TimeHistogram {
    /// Counts a time.
    pub fn observe(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let Times { classic, native, nanos: sum } = &*self.0;
        // Doubling the least bound this many times reaches the time.
        let bound = (nanos.div_ceil(LEAST)).max(1).next_power_of_two().trailing_zeros() as usize;
        classic[bound.min(CLASSIC)].fetch_add(1, Relaxed);
        native[place(time.as_secs_f64())].fetch_add(1, Relaxed);
        sum.fetch_add(nanos, Relaxed);
    }

    /// The native buckets. Requests may be counted meanwhile.
    fn native(&self) -> NativeBuckets {
        let counts: Vec<_> = self.0.native.iter().map(|count| count.load(Relaxed)).collect();
        let mut runs: Vec<(i32, Vec<u64>)> = Vec::new();
        for (at, count) in counts.iter().enumerate().skip(1).filter(|(_, count)| **count > 0) {
            let index = at as i32 + SHORTEST * PARTS as i32;
            match runs.last_mut() {
                Some((first, run)) if *first + run.len() as i32 == index => run.push(*count),
                _ => runs.push((index, vec![*count])),
            }
        }
        NativeBuckets { count: counts.iter().sum(), zeros: counts[0], runs }
    }
}

/// The place of the native bucket of a time. Bucket `i` ends at two to the power of `i / 8`, inclusively.
fn place(seconds: f64) -> usize {
    if seconds <= zero_threshold() {
        return 0;
    }
    // Above the threshold, so that it is a normal number: its exponent and its digits.
    let (bits, bias) = (seconds.to_bits(), 1023);
    let exponent = (bits >> 52) as i32 - bias;
    let digits = f64::from_bits(bits & (u64::MAX >> 12) | 1.0_f64.to_bits());
    let part = EIGHTHS.iter().filter(|bound| **bound < digits).count();
    let place = (exponent - SHORTEST) as usize * PARTS + part;
    place.min(NATIVE - 1)
}

impl Metric for TimeHistogram {
    const KIND: MetricKind = MetricKind::Histogram;

    fn read(&self, labels: &[Label], samples: &mut Vec<Sample>) {
        let counts = self.0.classic.iter().map(|count| count.load(Relaxed));
        let bounds = (0..CLASSIC).map(|at| (LEAST << at) as f64 / 1e9).chain([f64::INFINITY]);
        let buckets = Buckets {
            sum: self.0.nanos.load(Relaxed) as f64 / 1e9,
            counts: bounds.zip(counts).collect(),
            native: Some(self.native()),
        };
        samples.push(Sample { labels: labels.to_vec(), value: Reading::Histogram(buckets) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_ends_at_its_bound() {
        for part in -136..80 {
            let bound = (f64::from(part) / 8.0).exp2();
            let (at, above) = (place(bound * (1.0 - 1e-12)), place(bound * (1.0 + 1e-12)));
            let index = (part + 136) as usize;
            assert_eq!((at, above), (index, index + 1), "{bound}");
        }
        assert_eq!(place((0.0_f64).exp2()), 136, "a bound belongs to its bucket");
        assert_eq!((place(0.0), place(f64::MAX)), (0, NATIVE - 1));
    }

    #[test]
    fn both_resolutions_count_all_times() {
        let times = TimeHistogram::default();
        for micros in [0, 3, 500, 501, 1_000, 1_000_000, 1_000_001, 40_000_000, 4_000_000_000] {
            times.observe(Duration::from_micros(micros));
        }
        let NativeBuckets { count, zeros, runs } = times.native();
        assert_eq!((count, zeros), (9, 2));
        assert_eq!(runs.iter().map(|(_, run)| run.iter().sum::<u64>()).sum::<u64>(), 7);
        // A second, and a bit more than that.
        assert!(runs.contains(&(0, vec![1, 1])), "{runs:?}");
        let mut samples = Vec::new();
        times.read(&[], &mut samples);
        let [Sample { value: Reading::Histogram(buckets), .. }] = &samples[..] else { panic!() };
        let below = |bound| buckets.cumulative().find(|(known, _)| *known == bound).unwrap().1;
        let bounds = [0.0005, 0.001, 1.024, 32.768, f64::INFINITY];
        assert_eq!((buckets.count(), bounds.map(below)), (9, [3, 5, 7, 7, 9]));
    }
}
