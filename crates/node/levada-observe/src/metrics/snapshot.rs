//! Metrics at one moment, as data: every format of a page is written from these.

use std::sync::Arc;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It rises and falls.
    Gauge,
    /// Counts of values by their size.
    Histogram,
}

impl MetricKind {
    /// Its name in the text formats.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }

    /// The end of the names of its samples.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Gauge | Self::Histogram => "",
        }
    }
}

/// The name and the value of a label.
pub type Label = (&'static str, String);

/// A metric, or a family of them, at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSnapshot {
    /// The name without suffix.
    pub name: Arc<str>,
    /// The meaning, for readers.
    pub help: Arc<str>,
    /// The type.
    pub kind: MetricKind,
    /// One sample for each set of labels.
    pub samples: Vec<Sample>,
}

/// A value with its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The labels.
    pub labels: Vec<Label>,
    /// The value.
    pub value: Reading,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// A whole number.
    Whole(i128),
    /// Any other number.
    Number(f64),
    /// Counts of values by their size.
    Histogram(Buckets),
}

/// The buckets of a histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buckets {
    /// The sum of all values.
    pub sum: f64,
    /// The upper bound of each bucket, and the values in it alone. The last bound is infinite.
    pub counts: Vec<(f64, u64)>,
    /// The native buckets, if there are any.
    pub native: Option<NativeBuckets>,
}

/// The native buckets of a histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NativeBuckets {
    /// All values.
    pub count: u64,
    /// Values below the least bucket.
    pub zeros: u64,
    /// Runs of buckets: the index of the first one, and their counts.
    pub runs: Vec<(i32, Vec<u64>)>,
}

impl Buckets {
    /// All values.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// The upper bounds, and the values up to each of them.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        self.counts.iter().scan(0, |all, (bound, count)| {
            *all += count;
            Some((*bound, *all))
        })
    }
}
