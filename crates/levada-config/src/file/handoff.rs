//! `[handoff]`: connections that move to back-ends.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OneOrMany;
use crate::text::Address;

/// TCP handoff: docs/operate/handoff.md.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["interfaces"]))]
pub struct Handoff {
    /// What front-ends and back-ends know and nobody else does, at least 16 bytes. Better given by `${NAME}` or `secret_file`.
    #[schemars(extend("writeOnly" = true, "examples" = ["${LEVADA_SECRET}"]))]
    pub secret: Option<String>,
    /// A file that holds the secret; white space around it does not count.
    #[schemars(extend("examples" = ["/etc/levada/handoff-secret"]))]
    pub secret_file: Option<String>,
    /// The network interfaces by which clients' packets come in.
    #[schemars(extend("examples" = ["eth0"]))]
    pub interfaces: OneOrMany<String>,
    /// What becomes of a connection when its client sends another request.
    pub after: After,
    /// Where front-ends come in, on a back-end. An address on the network that it has in common with them.
    #[schemars(extend("examples" = ["10.0.1.1:7072"]))]
    pub listen: Option<Address>,
    /// The service addresses whose connections a back-end takes. This machine must have them, on `lo` for example.
    #[schemars(extend("examples" = ["192.0.2.10:80"]))]
    pub services: OneOrMany<Address>,
}

/// What becomes of a connection that was handed off when its client sends another request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum After {
    /// It stays with its back-end.
    #[default]
    Stay,
    /// It goes back to the front-end, which decides anew.
    Back,
    /// The back-end asks the front-end, and hands it on only if another is to answer.
    On,
}
