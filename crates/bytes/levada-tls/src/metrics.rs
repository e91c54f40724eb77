//! Counters of handshakes and certificates.

use std::array;

use levada_observe::metrics::{Counter, Family, Gauge, Registry};
use rustls::{HandshakeKind, ProtocolVersion, ServerConnection};

/// The series of TLS towards clients.
#[derive(Clone)]
pub struct TlsMetrics {
    handshakes: Family<[&'static str; 2], Counter>,
    failures: Family<[&'static str; 1], Counter>,
    client_certificates: Family<[&'static str; 1], Counter>,
    stapled: Family<[String; 1], Gauge>,
}

impl TlsMetrics {
    /// New series in a registry.
    pub fn registered(registry: &mut Registry) -> Self {
        Self {
            handshakes: registry.family(
                "tls_handshakes",
                "Handshakes with clients, by version, full or resumed",
                ["version", "kind"],
            ),
            failures: registry.family(
                "tls_handshake_failures",
                "Handshakes with clients that failed, by reason",
                ["reason"],
            ),
            client_certificates: registry.family(
                "tls_client_certificates",
                "Connections to sites that ask for client certificates, by result",
                ["result"],
            ),
            stapled: registry.family(
                "tls_ocsp_fresh_until_seconds",
                "The time until which the OCSP answer of a certificate is stapled, in seconds since 1970; 0: it is not",
                ["certificate"],
            ),
        }
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
        self.handshakes.get_or_create(&[version, kind]).inc();
    }

    pub(crate) fn failed(&self, reason: &'static str) {
        self.failures.get_or_create(&[reason]).inc();
    }

    pub(crate) fn certificate(&self, result: &'static str) {
        self.client_certificates.get_or_create(&[result]).inc();
    }

    /// Shows until when answers are stapled, by certificate.
    pub fn stapled(&self, answers: &[(String, Option<u64>)]) {
        for (certificate, until) in answers {
            self.stapled.get_or_create(array::from_ref(certificate)).set(until.unwrap_or(0));
        }
    }
}
