//! The metrics of certificates.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::acme::CertificateState;

type Labels = [(&'static str, String); 2];

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct CertificateMetrics {
    expiry: Family<Labels, Gauge<i64>>,
    lifetime: Family<Labels, Gauge<i64>>,
    orders: Family<[(&'static str, &'static str); 1], Counter>,
    shown: Arc<Mutex<HashSet<Labels>>>,
}

impl CertificateMetrics {
    /// The metrics, shown by `registry`.
    pub fn registered(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "End of a certificate (Unix time)";
        registry.register("certificate_expiry_timestamp_seconds", help, metrics.expiry.clone());
        let help = "Time between the begin and the end of a certificate";
        registry.register("certificate_lifetime_seconds", help, metrics.lifetime.clone());
        let help = "Certificates that were ordered";
        registry.register("acme_orders", help, metrics.orders.clone());
        metrics
    }

    pub(crate) fn ordered(&self, issued: bool) {
        let result = if issued { "issued" } else { "failed" };
        self.orders.get_or_create(&[("result", result)]).inc();
    }

    /// Shows these certificates, and no others.
    pub(crate) fn show(&self, certificates: &[CertificateState]) {
        let mut shown = self.shown.lock();
        let mut gone = std::mem::take(&mut *shown);
        for state in certificates.iter().filter(|state| state.ends > 0) {
            let name = state.names.first().cloned().unwrap_or_default();
            let labels = [("name", name), ("source", state.source.clone())];
            self.expiry.get_or_create(&labels).set(state.ends);
            self.lifetime.get_or_create(&labels).set(state.ends - state.begins);
            gone.remove(&labels);
            shown.insert(labels);
        }
        for labels in gone {
            self.expiry.remove(&labels);
            self.lifetime.remove(&labels);
        }
    }
}
