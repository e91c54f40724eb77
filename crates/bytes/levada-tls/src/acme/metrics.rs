//! The metrics of certificates.

use std::{collections::HashSet, sync::Arc};

use levada_observe::metrics::{Counter, Family, Gauge, Registry};
use parking_lot::Mutex;

use crate::acme::CertificateState;

/// The name and the source of a certificate.
type Labels = [String; 2];

/// See the module.
#[derive(Clone)]
pub struct CertificateMetrics {
    expiry: Family<Labels, Gauge>,
    lifetime: Family<Labels, Gauge>,
    orders: Family<[&'static str; 1], Counter>,
    shown: Arc<Mutex<HashSet<Labels>>>,
}

impl CertificateMetrics {
    /// The metrics, shown by `registry`.
    pub fn registered(registry: &mut Registry) -> Self {
        let by = ["name", "source"];
        Self {
            expiry: registry.family(
                "certificate_expiry_timestamp_seconds",
                "End of a certificate (Unix time)",
                by,
            ),
            lifetime: registry.family(
                "certificate_lifetime_seconds",
                "Time between the begin and the end of a certificate",
                by,
            ),
            orders: registry.family("acme_orders", "Certificates that were ordered", ["result"]),
            shown: Arc::default(),
        }
    }

    pub(crate) fn ordered(&self, issued: bool) {
        let result = if issued { "issued" } else { "failed" };
        self.orders.get_or_create(&[result]).inc();
    }

    /// Shows these certificates, and no others.
    pub(crate) fn show(&self, certificates: &[CertificateState]) {
        let mut shown = self.shown.lock();
        let mut gone = std::mem::take(&mut *shown);
        for state in certificates.iter().filter(|state| state.ends > 0) {
            let name = state.names.first().cloned().unwrap_or_default();
            let labels = [name, state.source.clone()];
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
