//! `[handoff]`: connections that move to back-ends.

use levada_redirector::handoff::AfterHandoff;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OneOrMany, listen::DormantRetries};
use crate::text::{Address, As, LeastSize};

/// TCP handoff: docs/operate/handoff.md.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["interfaces"]))]
pub struct Handoff {
    /// The secret that front-ends and back-ends share, at least 16 bytes. Prefer `${NAME}` or `secret_file`
    /// to a literal value.
    #[schemars(extend("writeOnly" = true, "examples" = ["${LEVADA_SECRET}"]))]
    pub secret: Option<String>,
    /// A file with the secret; white space around it is ignored.
    #[schemars(extend("examples" = ["/etc/levada/handoff-secret"]))]
    pub secret_file: Option<String>,
    /// The network interfaces that receive clients' packets.
    #[schemars(extend("examples" = ["eth0"]))]
    pub interfaces: OneOrMany<String>,
    /// Handling of further requests on a connection that was handed off.
    pub after: AfterHandoff,
    /// On a front-end: the largest TCP segment in bytes that back-ends send to clients. Needed only where ICMP does
    /// not get through; 1220 suits every path of IPv6.
    #[schemars(range(min = 536, max = 65495))]
    pub max_segment: Option<u16>,
    /// On a front-end: requests whose response is known to be smaller are proxied. Sizes are learned from earlier
    /// responses; what is not known is handed off. `"auto"` is 100 KB, from where a handoff costs the whole
    /// cluster about as much as a proxy: docs/operate/handoff.md.
    #[schemars(extend("examples" = ["auto", "100 KB"]))]
    #[serde(with = "As::<LeastSize>")]
    pub min_size: u64,
    /// On a back-end: the address for front-ends, on the network that it shares with them.
    #[schemars(extend("examples" = ["10.0.1.1:7072"]))]
    pub listen: Option<Address>,
    /// On a back-end: the service addresses whose connections it takes. This machine must have them, for
    /// example on `lo`.
    #[schemars(extend("examples" = ["192.0.2.10:80"]))]
    pub services: OneOrMany<Address>,
    /// On a back-end: number of unacknowledged retransmissions after which a connection that it took is reset, or
    /// `"off"`, as in `[[listen]]`: docs/operate/anycast.md.
    pub dormant_retries: DormantRetries,
}
