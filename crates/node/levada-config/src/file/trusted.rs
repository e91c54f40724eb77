//! `[[trusted]]`: proxies in front of this node.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OneOrMany;
use crate::text::Prefix;

/// Proxies in front of this node, whose statements about clients count.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["addresses"]))]
pub struct Trusted {
    /// The addresses from which these proxies connect, or prefixes of them.
    #[schemars(extend("examples" = [["10.0.0.0/8", "2001:db8::/32"]]))]
    pub addresses: Option<OneOrMany<Prefix>>,
    /// Whether connections from these addresses begin with a header of the PROXY protocol, version 1 or 2, which
    /// states the client's address. A connection without it is closed.
    pub proxy_protocol: bool,
}
