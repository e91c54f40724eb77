//! How long requests took, and the slowest of them.

use hdrhistogram::Histogram;
use levada_trace::{LogRecord, TimeTaken};

/// The most requests that are listed as slow.
const SLOWEST: usize = 10;
/// The longest time that percentiles tell apart, in microseconds.
const LONGEST: u64 = 3_600_000_000;

/// Times of requests.
#[derive(Clone)]
pub(crate) struct Latency {
    pub(crate) all: Histogram<u64>,
    pub(crate) hits: Histogram<u64>,
    pub(crate) misses: Histogram<u64>,
    /// Times until the end of the response; the others end with its head.
    pub(crate) in_all: u64,
    /// The slowest first.
    pub(crate) slowest: Vec<Slow>,
}

/// A slow request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slow {
    pub(crate) seconds: f64,
    pub(crate) time: Option<f64>,
    pub(crate) status: Option<u16>,
    pub(crate) host: Option<String>,
    pub(crate) target: String,
}

impl Default for Latency {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are valid");
        let (hits, misses) = (histogram.clone(), histogram.clone());
        Self { all: histogram, hits, misses, in_all: 0, slowest: Vec::new() }
    }
}

impl Latency {
    pub(crate) fn add(&mut self, record: &LogRecord, taken: TimeTaken, is_hit: Option<bool>) {
        let seconds = taken.seconds();
        let micros = (seconds * 1e6) as u64;
        self.all.saturating_record(micros);
        match is_hit {
            Some(true) => self.hits.saturating_record(micros),
            Some(false) => self.misses.saturating_record(micros),
            None => {}
        }
        self.in_all += u64::from(matches!(taken, TimeTaken::InAll(_)));
        if self.is_slow(seconds) {
            self.insert(Slow {
                seconds,
                time: record.time,
                status: record.status,
                host: record.host.as_deref().map(beginning),
                target: beginning(&record.target),
            });
        }
    }

    fn is_slow(&self, seconds: f64) -> bool {
        self.slowest.len() < SLOWEST
            || self.slowest.last().is_some_and(|last| seconds > last.seconds)
    }

    fn insert(&mut self, slow: Slow) {
        let at = self.slowest.partition_point(|other| other.seconds >= slow.seconds);
        self.slowest.insert(at, slow);
        self.slowest.truncate(SLOWEST);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        for (own, other) in [
            (&mut self.all, other.all),
            (&mut self.hits, other.hits),
            (&mut self.misses, other.misses),
        ] {
            // They have the same bounds.
            let _ = own.add(other);
        }
        self.in_all += other.in_all;
        for slow in other.slowest {
            if self.is_slow(slow.seconds) {
                self.insert(slow);
            }
        }
    }
}

fn beginning(text: &str) -> String {
    text.chars().take(200).collect()
}
