//! `[listen.handshake]`, `[site.handshake]`, `[site.client_certificates]` and `[session_tickets]`: TLS towards
//! clients.

use crate::settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OneOrMany;
use crate::text::Time;

/// The versions, cipher suites and curves of TLS with clients. See docs/operate/tls.md.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Handshake {
    /// The oldest version of TLS.
    pub min_version: MinVersion,
    /// The newest version of TLS.
    pub max_version: MaxVersion,
    /// Cipher suites by their names of IANA or OpenSSL, the preferred one first. A version of TLS that none of them
    /// belongs to keeps all of its own.
    #[schemars(extend("examples" = [["TLS_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"]]))]
    pub ciphers: Vec<String>,
    /// Groups of the key exchange, the preferred one first: X25519, P-256, P-384. The default is all of them.
    #[schemars(extend("examples" = [["X25519", "P-256"]]))]
    pub curves: Vec<String>,
}

/// A version of TLS; older ones are not spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum MinVersion {
    /// TLS 1.2.
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    Tls13,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum MaxVersion {
    /// TLS 1.2.
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3.
    #[default]
    #[serde(rename = "1.3")]
    Tls13,
}

impl From<MinVersion> for settings::TlsVersion {
    fn from(file: MinVersion) -> Self {
        match file {
            MinVersion::Tls12 => Self::Tls12,
            MinVersion::Tls13 => Self::Tls13,
        }
    }
}

impl From<MaxVersion> for settings::TlsVersion {
    fn from(file: MaxVersion) -> Self {
        match file {
            MaxVersion::Tls12 => Self::Tls12,
            MaxVersion::Tls13 => Self::Tls13,
        }
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

/// Whether a client must show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientCertificateMode {
    /// Without a good one there is no connection.
    #[default]
    Required,
    /// A client without one is served, and one with a bad one gets 403 with the reason.
    Optional,
}

impl From<ClientCertificateMode> for settings::ClientCertificateMode {
    fn from(file: ClientCertificateMode) -> Self {
        match file {
            ClientCertificateMode::Required => Self::Required,
            ClientCertificateMode::Optional => Self::Optional,
        }
    }
}

/// A set of header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientFields {
    /// `Client-Cert` of RFC 9440: the certificate.
    ClientCert,
    /// `Client-Cert-Chain` of RFC 9440: the certificates that the client sent after its own.
    ClientCertChain,
    /// `X-Forwarded-Client-Cert`, as Envoy writes it: hash, subject and names.
    XForwardedClientCert,
    /// `X-SSL-Client-Verify`, `-S-DN`, `-I-DN`, `-Serial`, `-Fingerprint` (SHA-256) and `-SAN`, the names that people
    /// give the variables of nginx and HAProxy.
    XSslClient,
}

impl From<ClientFields> for settings::ClientFields {
    fn from(file: ClientFields) -> Self {
        match file {
            ClientFields::ClientCert => Self::ClientCert,
            ClientFields::ClientCertChain => Self::ClientCertChain,
            ClientFields::XForwardedClientCert => Self::XForwardedClientCert,
            ClientFields::XSslClient => Self::XSslClient,
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
        let settings::TicketSettings { of_cluster, rotation, .. } = Default::default();
        Self { key_file: OneOrMany::default(), of_cluster, rotate: Time(rotation) }
    }
}
