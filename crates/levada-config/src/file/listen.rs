//! `[[listen]]` and `[admin]`: the addresses where clients and operators come in.

use levada_edge::settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::Address;

/// An address for clients.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["address"]))]
pub struct Listen {
    /// Where to listen. Port 0 takes a free port.
    #[schemars(extend("examples" = ["0.0.0.0:8080"]))]
    pub address: Option<Address>,
    /// Certificates, chosen by the server name that the client asks for; the first one is for clients that name none. Without any, the address speaks plain HTTP.
    #[schemars(extend("examples" = [[{"certificate": "a.pem", "key": "a.key"}]]))]
    pub tls: Vec<Certificate>,
    /// Whether HTTP/2 without TLS is spoken beside HTTP/1.1, for clients that begin with it (prior knowledge).
    pub h2c: bool,
    /// After how many retransmissions that nobody acknowledges a connection is given up with a reset, or `"off"`: docs/operate/anycast.md.
    pub dormant_retries: DormantRetries,
}

/// When a connection is given up whose data is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum DormantRetries {
    /// When so many retransmissions after timeouts have gone unanswered; 1 takes some 600 ms.
    After(#[schemars(range(max = 15))] u8),
    /// Not before the kernel does.
    Word(Off),
}

/// A setting that is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Off {
    /// Off.
    Off,
}

impl Default for DormantRetries {
    fn default() -> Self {
        Self::After(settings::DORMANT_RETRIES)
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
}

/// Where operators come in.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// Metrics, health and explanations. Never a public address: it asks for no password.
    #[schemars(extend("examples" = ["127.0.0.1:9180"]))]
    pub listen: Option<Address>,
}
