//! `[listen.handshake]`, `[site.handshake]`, `[site.client_certificates]` and `[session_tickets]`: TLS towards
//! clients.

use levada_tls::{
    client_certificates::ClientCertificateMode, client_fields::ClientFields, handshake::TlsVersion,
    tickets::TicketSettings,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OneOrMany;
use crate::text::Time;

/// The versions, cipher suites and curves of TLS with clients. See docs/operate/tls.md.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Handshake {
    /// The oldest version of TLS.
    pub min_version: TlsVersion,
    /// The newest version of TLS.
    pub max_version: TlsVersion,
    /// Cipher suites by their names of IANA or OpenSSL, the preferred one first. A version of TLS that none of them
    /// belongs to keeps all of its own.
    #[schemars(extend("examples" = [["TLS_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"]]))]
    pub ciphers: Vec<String>,
    /// Groups of the key exchange, the preferred one first: X25519, P-256, P-384. The default is all of them.
    #[schemars(extend("examples" = [["X25519", "P-256"]]))]
    pub curves: Vec<String>,
}

impl Default for Handshake {
    fn default() -> Self {
        let (min_version, max_version) = (TlsVersion::Tls12, TlsVersion::Tls13);
        Self { min_version, max_version, ciphers: Vec::new(), curves: Vec::new() }
    }
}

/// Certificates of clients (mutual TLS). See docs/operate/tls.md.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["authorities"]))]
pub struct ClientCertificates {
    /// Whether a client must show a certificate.
    pub mode: ClientCertificateMode,
    /// PEM files with the authorities of clients' certificates.
    #[schemars(extend("examples" = ["/etc/levada/clients-ca.pem"]))]
    pub authorities: OneOrMany<String>,
    /// PEM files with revocation lists (CRL), one for each authority that issues certificates. They are read again by
    /// `levada reload`. Beyond its time, a list lets no client of its authority pass.
    #[schemars(extend("examples" = ["/etc/levada/clients.crl"]))]
    pub revocation_lists: OneOrMany<String>,
    /// The header fields by which origins get to know the certificate. From clients these fields are removed.
    pub fields: Vec<ClientFields>,
}

impl Default for ClientCertificates {
    fn default() -> Self {
        Self {
            mode: ClientCertificateMode::default(),
            authorities: OneOrMany::default(),
            revocation_lists: OneOrMany::default(),
            fields: vec![ClientFields::ClientCert],
        }
    }
}

/// Session tickets, by which TLS connections resume at any node of the cluster. See docs/operate/tls.md.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionTickets {
    /// Files with secrets of 32 bytes or more that all nodes have. New tickets come from the first one; those of
    /// the others are accepted.
    #[schemars(extend("examples" = ["/etc/levada/tickets.key"]))]
    pub key_file: OneOrMany<String>,
    /// Whether keys come from the secret of the cluster, where there is one and no `key_file`. Otherwise sessions
    /// resume only at the process that they began at.
    pub of_cluster: bool,
    /// How often keys change. Tickets made with the key before are still accepted.
    #[schemars(extend("x-minimum" = "1m", "x-maximum" = "7d"))]
    pub rotate: Time,
}

impl Default for SessionTickets {
    fn default() -> Self {
        let TicketSettings { of_cluster, rotation, .. } = Default::default();
        Self { key_file: OneOrMany::default(), of_cluster, rotate: Time(rotation) }
    }
}
