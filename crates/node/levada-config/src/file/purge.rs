//! `[purge]`: the authorization of purges.

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
    /// Whether clients receive `Surrogate-Key` and `Cache-Tag`, which another cache in front may need.
    pub expose_tags: bool,
}
