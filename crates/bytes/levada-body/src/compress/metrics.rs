//! The metrics of compression.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::compress::coding::Coding;

type PerCoding = Family<[(&'static str, &'static str); 1], Counter>;

/// The counters of compression.
#[derive(Clone, Debug, Default)]
pub struct CompressMetrics {
    coded: PerCoding,
    bytes_in: PerCoding,
    bytes_out: PerCoding,
    pub(crate) refused: Counter,
    pub(crate) bodies: Gauge,
    pub(crate) seconds: Counter<f64, AtomicU64>,
}

impl CompressMetrics {
    /// The counters, shown by `registry`.
    pub fn registered(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("compress");
        let per_coding = [
            ("bodies", "Bodies compressed, by coding", &metrics.coded),
            ("in_bytes", "Bytes before compression, by coding", &metrics.bytes_in),
            ("out_bytes", "Bytes after compression, by coding", &metrics.bytes_out),
        ];
        for (name, help, family) in per_coding {
            registry.register(name, help, family.clone());
        }
        let refused = "Bodies sent as they were because the queue was full";
        registry.register("refused", refused, metrics.refused.clone());
        registry.register("active_bodies", "Bodies compressed or waiting", metrics.bodies.clone());
        registry.register("seconds", "Time spent compressing", metrics.seconds.clone());
        metrics
    }

    pub(crate) fn begun(&self, coding: Coding) {
        self.coded.get_or_create(&[("coding", coding.as_str())]).inc();
    }

    pub(crate) fn coded(&self, coding: Coding, read: usize, written: usize) {
        let labels = [("coding", coding.as_str())];
        self.bytes_in.get_or_create(&labels).inc_by(read as u64);
        self.bytes_out.get_or_create(&labels).inc_by(written as u64);
    }
}
