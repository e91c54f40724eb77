//! The metrics of compression.

use levada_observe::metrics::{Counter, Family, Gauge, Registry, TimeCounter};

use crate::compress::coding::Coding;

type PerCoding = Family<[&'static str; 1], Counter>;

/// The counters of compression.
#[derive(Clone)]
pub struct CompressMetrics {
    coded: PerCoding,
    bytes_in: PerCoding,
    bytes_out: PerCoding,
    pub(crate) refused: Counter,
    pub(crate) bodies: Gauge,
    pub(crate) seconds: TimeCounter,
}

impl CompressMetrics {
    /// The counters, shown by `registry`.
    pub fn registered(registry: &mut Registry) -> Self {
        let (registry, by) = (registry.part("compress"), ["coding"]);
        Self {
            coded: registry.family("bodies", "Bodies compressed, by coding", by),
            bytes_in: registry.family("in_bytes", "Bytes before compression, by coding", by),
            bytes_out: registry.family("out_bytes", "Bytes after compression, by coding", by),
            refused: registry
                .metric("refused", "Bodies sent as they were because the queue was full"),
            bodies: registry.metric("active_bodies", "Bodies compressed or waiting"),
            seconds: registry.metric("seconds", "Time spent compressing"),
        }
    }

    pub(crate) fn begun(&self, coding: Coding) {
        self.coded.get_or_create(&[coding.as_str()]).inc();
    }

    pub(crate) fn coded(&self, coding: Coding, read: usize, written: usize) {
        let labels = [coding.as_str()];
        self.bytes_in.get_or_create(&labels).inc_by(read as u64);
        self.bytes_out.get_or_create(&labels).inc_by(written as u64);
    }
}
