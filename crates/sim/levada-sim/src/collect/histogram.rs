//! Latency statistics: mean and deviation exact, percentiles within a percent.

/// A histogram with 64 classes per doubling of the value, so that a value is known to 1.6 % at
/// worst and 0.8 % on average.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: f64,
    squares: f64,
}

const STEPS: u32 = 6;

impl Histogram {
    pub(crate) fn new() -> Self {
        Self { counts: Vec::new(), count: 0, sum: 0.0, squares: 0.0 }
    }

    pub(crate) fn add(&mut self, nanoseconds: u64) {
        let class = class(nanoseconds);
        if self.counts.len() <= class {
            self.counts.resize(class + 1, 0);
        }
        self.counts[class] += 1;
        self.count += 1;
        let seconds = nanoseconds as f64 / 1e9;
        self.sum += seconds;
        self.squares += seconds * seconds;
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The mean in seconds; all values below are in seconds too.
    pub(crate) fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    pub(crate) fn deviation(&self) -> f64 {
        let mean = self.mean();
        libm::sqrt((self.squares / self.count as f64 - mean * mean).max(0.0))
    }

    /// The quantile: the value that this part of all values does not exceed.
    pub(crate) fn percentile(&self, part: f64) -> f64 {
        let wanted = (part * self.count as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        let class = self.counts.iter().position(|count| {
            below += count;
            below >= wanted
        });
        class.map_or(0.0, middle)
    }

    /// Points of the distribution: a value in seconds and the part of all values that do not exceed
    /// it.
    pub(crate) fn distribution(&self) -> Vec<(f64, f64)> {
        let mut below = 0;
        let mut points = Vec::new();
        for (class, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            below += count;
            points.push((middle(class), below as f64 / self.count as f64));
        }
        points
    }
}

/// Values below 2^6 have a class each. Above, the class consists of the position of the highest bit
/// and the six bits after it.
fn class(value: u64) -> usize {
    let high = 63 - value.max(1).leading_zeros();
    if high < STEPS {
        return value as usize;
    }
    let shift = high - STEPS;
    ((u64::from(shift + 1) << STEPS) + (value >> shift) - (1 << STEPS)) as usize
}

/// The middle of a class, in seconds.
fn middle(class: usize) -> f64 {
    let (octave, step) = (class >> STEPS, (class & ((1 << STEPS) - 1)) as u64);
    if octave == 0 {
        return step as f64 / 1e9;
    }
    let shift = octave - 1;
    let (low, width) = ((step + (1 << STEPS)) << shift, 1u64 << shift);
    (low as f64 + (width - 1) as f64 / 2.0) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_continuous_and_narrow() {
        let mut last = 0;
        for value in 0..100_000 {
            let class = class(value);
            assert!(class == last || class == last + 1, "{value}");
            last = class;
            let off = (middle(class) * 1e9 - value as f64).abs();
            assert!(off <= value as f64 * 0.008 + 0.5, "{value} {off}");
        }
        assert!(class(u64::MAX) < 64 * 64);
    }

    #[test]
    fn what_is_counted_is_told() {
        let mut histogram = Histogram::new();
        (1..=1000).for_each(|ms| histogram.add(ms * 1_000_000));
        assert_eq!(histogram.count(), 1000);
        assert!((histogram.mean() - 0.5005).abs() < 1e-9);
        assert!((histogram.deviation() - 0.2887).abs() < 1e-3);
        for (part, value) in [(0.5, 0.5), (0.9, 0.9), (0.99, 0.99)] {
            assert!((histogram.percentile(part) / value - 1.0).abs() < 0.01, "{part}");
        }
        let distribution = histogram.distribution();
        assert!(distribution.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
        assert_eq!(distribution.last().unwrap().1, 1.0);
    }
}
