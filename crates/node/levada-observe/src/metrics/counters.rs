//! Values that are counted. Clones share one value; each change is one atomic addition.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::metrics::{Label, Metric, MetricKind, Reading, Sample};

/// A number that only grows.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.inc_by(1);
    }

    /// Adds a number.
    pub fn inc_by(&self, number: u64) {
        self.0.fetch_add(number, Relaxed);
    }

    /// The number.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Time that only grows.
#[derive(Clone, Debug, Default)]
pub struct TimeCounter(Arc<AtomicU64>);

impl TimeCounter {
    /// Adds a time.
    pub fn add(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// The time.
    pub fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Relaxed))
    }
}

/// A whole number that rises and falls.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    /// Adds one.
    pub fn inc(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Takes one away.
    pub fn dec(&self) {
        self.0.fetch_sub(1, Relaxed);
    }

    /// Replaces the number. One that is too large counts as the largest.
    pub fn set(&self, number: impl TryInto<i64>) {
        self.0.store(number.try_into().unwrap_or(i64::MAX), Relaxed);
    }

    /// The number.
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }

    /// Adds one until the result is dropped.
    pub fn hold(&self) -> Counted<'_> {
        self.inc();
        Counted(self)
    }
}

/// A thing that a gauge counts while it lives.
pub struct Counted<'a>(&'a Gauge);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Any other number that rises and falls.
#[derive(Clone, Debug, Default)]
pub struct NumberGauge(Arc<AtomicU64>);

impl NumberGauge {
    /// Replaces the number.
    pub fn set(&self, number: f64) {
        self.0.store(number.to_bits(), Relaxed);
    }
}

macro_rules! shown {
    ($($metric:ty, $kind:ident, |$shown:ident| $value:expr;)*) => {$(
        impl Metric for $metric {
            const KIND: MetricKind = MetricKind::$kind;

            fn read(&self, labels: &[Label], samples: &mut Vec<Sample>) {
                let $shown = self;
                samples.push(Sample { labels: labels.to_vec(), value: $value });
            }
        }
    )*};
}

shown! {
    Counter, Counter, |it| Reading::Whole(it.get().into());
    TimeCounter, Counter, |it| Reading::Number(it.get().as_secs_f64());
    Gauge, Gauge, |it| Reading::Whole(it.get().into());
    NumberGauge, Gauge, |it| Reading::Number(f64::from_bits(it.0.load(Relaxed)));
}

// The counters are 64 bits wide on every platform that Levada runs on.
const _: () = assert!(size_of::<AtomicU64>() == 8);
