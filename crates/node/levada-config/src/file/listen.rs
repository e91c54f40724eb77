//! `[[listen]]` and `[admin]`: the addresses for clients and operators.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use levada_types::values::Off;

use super::Handshake;
use crate::text::{Address, FileMode, OperatorAddress};

/// An address for clients.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["address"]))]
pub struct Listen {
    /// The address. Port 0 takes a free port.
    #[schemars(extend("examples" = ["0.0.0.0:8080"]))]
    pub address: Option<Address>,
    /// Certificates, chosen by the client's server name (SNI). The first one is for clients without a server
    /// name. Without certificates and `acme`, the address speaks plain HTTP.
    #[schemars(extend("examples" = [[{"certificate": "a.pem", "key": "a.key"}]]))]
    pub tls: Vec<Certificate>,
    /// The versions, cipher suites and curves of TLS: docs/operate/tls.md.
    pub handshake: Handshake,
    /// Whether the address shows the certificates that `[acme]` orders, in addition to those of `tls`:
    /// docs/operate/certificates.md.
    pub acme: bool,
    /// Whether HTTP/2 without TLS is accepted in addition to HTTP/1.1, for clients with prior knowledge.
    pub h2c: bool,
    /// Whether HTTP/3 is served as well, at the same port of UDP, and offered by `Alt-Svc`. It needs `tls`:
    /// docs/operate/http3.md.
    pub http3: bool,
    /// Number of unacknowledged retransmissions after which a connection is reset, or `"off"`:
    /// docs/operate/anycast.md.
    pub dormant_retries: DormantRetries,
}

/// The rule for giving up a connection whose data is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum DormantRetries {
    /// After this many unanswered retransmission timeouts; 1 takes some 600 ms.
    After(#[schemars(range(max = 15))] u8),
    /// When the kernel gives up.
    Word(Off),
}

impl Default for DormantRetries {
    fn default() -> Self {
        Self::After(DORMANT_RETRIES)
    }
}

impl From<DormantRetries> for Option<u8> {
    fn from(file: DormantRetries) -> Self {
        match file {
            DormantRetries::After(retries) => Some(retries),
            DormantRetries::Word(Off::Off) => None,
        }
    }
}

/// A certificate and its key.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["certificate", "key"]))]
pub struct Certificate {
    /// A PEM file with the chain, the node's own certificate first.
    #[schemars(extend("examples" = ["/etc/levada/cdn.pem"]))]
    pub certificate: Option<String>,
    /// A PEM file with the private key.
    #[schemars(extend("examples" = ["/etc/levada/cdn.key"]))]
    pub key: Option<String>,
    /// A file with an OCSP answer about the certificate (DER), which is stapled to it. See docs/operate/tls.md.
    #[schemars(extend("examples" = ["/etc/levada/cdn.ocsp"]))]
    pub ocsp: Option<String>,
}

/// The admin listener.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// The address of metrics, health, explanations and orders: an IP address and a port, or `unix:` and the
    /// path of a socket. Never use a public address: reading needs no token.
    #[schemars(extend("examples" = ["127.0.0.1:9180"]))]
    pub listen: Option<OperatorAddress>,
    /// The permissions of the socket's file. Every program that may write to it may give orders, without a token.
    pub mode: FileMode,
    /// The token that orders need, at least 16 bytes. Without it, orders are accepted from root and from the node's
    /// own user, on this machine. Prefer `${NAME}` or `token_file` to a literal value.
    #[schemars(extend("writeOnly" = true, "examples" = ["${LEVADA_ADMIN_TOKEN}"]))]
    pub token: Option<String>,
    /// A file with the token; white space around it is ignored.
    #[schemars(extend("examples" = ["/etc/levada/admin-token"]))]
    pub token_file: Option<String>,
    /// Names by which the listener may be addressed, in addition to IP addresses and `localhost`.
    #[schemars(extend("examples" = [["node-1.internal"]]))]
    pub hosts: Vec<String>,
    /// An address for `/metrics`, `/healthz` and `/readyz` only, for machines that may not see the rest.
    #[schemars(extend("examples" = ["10.0.0.1:9181"]))]
    pub metrics: Option<Address>,
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            listen: None,
            mode: FileMode(ADMIN_MODE),
            token: None,
            token_file: None,
            hosts: Vec::new(),
            metrics: None,
        }
    }
}

/// The number of retransmissions that tells lost clients from poor paths (WWW'09, Sec. 4.2).
pub const DORMANT_RETRIES: u8 = 1;

/// The permissions of the admin listener's Unix socket: for the user of the node only.
pub const ADMIN_MODE: u32 = 0o600;
