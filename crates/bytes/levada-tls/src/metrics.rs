//! Counters of handshakes and certificates.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use rustls::{HandshakeKind, ProtocolVersion, ServerConnection};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandshakeLabels {
    version: &'static str,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabels {
    certificate: String,
}

/// The series of TLS towards clients.
#[derive(Clone, Debug, Default)]
pub struct TlsMetrics {
    handshakes: Family<HandshakeLabels, Counter>,
    failures: Family<ReasonLabels, Counter>,
    client_certificates: Family<ResultLabels, Counter>,
    stapled: Family<CertificateLabels, Gauge>,
}

impl TlsMetrics {
    /// New series in a registry.
    pub fn registered(registry: &mut Registry) -> Self {
        let own = Self::default();
        registry.register(
            "tls_handshakes",
            "Handshakes with clients, by version, full or resumed",
            own.handshakes.clone(),
        );
        registry.register(
            "tls_handshake_failures",
            "Handshakes with clients that failed, by reason",
            own.failures.clone(),
        );
        registry.register(
            "tls_client_certificates",
            "Connections to sites that ask for client certificates, by result",
            own.client_certificates.clone(),
        );
        registry.register(
            "tls_ocsp_fresh_until_seconds",
            "The time until which the OCSP answer of a certificate is stapled, in seconds since 1970; 0: it is not",
            own.stapled.clone(),
        );
        own
    }

    /// Counts a handshake.
    pub(crate) fn handshook(&self, connection: &ServerConnection) {
        let version = match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "1.3",
            _ => "1.2",
        };
        let kind = match connection.handshake_kind() {
            Some(HandshakeKind::Resumed) => "resumed",
            _ => "full",
        };
        self.handshakes.get_or_create(&HandshakeLabels { version, kind }).inc();
    }

    pub(crate) fn failed(&self, reason: &'static str) {
        self.failures.get_or_create(&ReasonLabels { reason }).inc();
    }

    pub(crate) fn certificate(&self, result: &'static str) {
        self.client_certificates.get_or_create(&ResultLabels { result }).inc();
    }

    /// Shows until when answers are stapled, by certificate.
    pub fn stapled(&self, answers: &[(String, Option<u64>)]) {
        for (certificate, until) in answers {
            let labels = CertificateLabels { certificate: certificate.clone() };
            let until = until.and_then(|until| i64::try_from(until).ok()).unwrap_or(0);
            self.stapled.get_or_create(&labels).set(until);
        }
    }
}
