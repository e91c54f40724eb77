//! `[purge]`: the authorization of purges.

use levada_cluster::orders::PurgeGrant as Settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Authorization of purges: docs/operate/purging.md.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Purge {
    /// The token of a purge request, at least 16 bytes. Without it the `PURGE` method is off, and the admin
    /// listener needs no token. Prefer `${NAME}` or `token_file` to a literal value.
    #[schemars(extend("writeOnly" = true, "examples" = ["${LEVADA_PURGE_TOKEN}"]))]
    pub token: Option<String>,
    /// A file with the token; white space around it is ignored.
    #[schemars(extend("examples" = ["/etc/levada/purge-token"]))]
    pub token_file: Option<String>,
    /// Other tokens, by their digests. Those of a fleet come from `levada fleet token --role purge`.
    pub grant: Vec<PurgeGrant>,
    /// Whether clients receive `Surrogate-Key` and `Cache-Tag`, which another cache in front may need.
    pub expose_tags: bool,
}

/// A token by which clients purge, and which the node knows by its digest.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["digest"]))]
pub struct PurgeGrant {
    /// SHA-256 of the token, in hexadecimal digits.
    #[schemars(extend("examples" = ["2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"]))]
    pub digest: Option<String>,
    /// The hosts that it may purge: a host, or `*.` and a domain for all below. Without it, all hosts.
    #[schemars(extend("examples" = [["www.example.com"]]))]
    pub hosts: Vec<String>,
    /// When it ends: Unix time in seconds. Without it, never.
    pub expires: Option<u64>,
}

impl PurgeGrant {
    /// Whether its digest is one. That of a grant without it is reported as a missing key.
    pub(crate) fn is_digest(&self) -> bool {
        let is_one = |digest: &String| {
            digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        self.digest.as_ref().is_none_or(is_one)
    }

    pub(crate) fn settings(&self) -> Settings {
        let Self { digest, hosts, expires } = self.clone();
        let digest = digest.unwrap_or_default().to_ascii_lowercase();
        Settings { digest, hosts, expires }
    }
}
