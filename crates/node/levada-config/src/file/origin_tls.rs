//! `[site.origin_tls]`: TLS towards origins and servers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use levada_tls::handshake::TlsVersion;

use super::OneOrMany;

/// TLS towards origins and servers with `https`. See docs/operate/tls.md.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OriginTls {
    /// The authorities that are trusted: `system` for those of the operating system, which is the default, `mozilla`
    /// for those of Mozilla as of the build of the program, or PEM files.
    #[schemars(extend("examples" = ["/etc/levada/origins-ca.pem"]))]
    pub authorities: OneOrMany<String>,
    /// The name that is asked for (SNI) and that the certificate must have, instead of the host of the URL.
    #[schemars(extend("examples" = ["origin.internal"]))]
    pub server_name: Option<String>,
    /// A PEM file with the certificate of this node, for origins that ask for one, and its chain.
    #[schemars(extend("examples" = ["/etc/levada/node.pem"]))]
    pub certificate: Option<String>,
    /// A PEM file with its private key.
    #[schemars(extend("examples" = ["/etc/levada/node.key"]))]
    pub key: Option<String>,
    /// Pinned public keys: `sha256/` and the digest of the key (SubjectPublicKeyInfo) in Base64. The certificate must
    /// have one of them.
    #[schemars(extend("examples" = [["sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="]]))]
    pub pins: Vec<String>,
    /// Whether any certificate will do: everybody between the node and the origin can read and change everything.
    /// With `pins`, the key is still looked at.
    pub insecure_skip_verification: bool,
    /// The oldest version of TLS.
    pub min_version: TlsVersion,
}
