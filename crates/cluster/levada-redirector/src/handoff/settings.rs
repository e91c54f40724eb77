//! The settings of front-ends and back-ends.

use std::net::{IpAddr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The addresses of a back-end for handoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoffControl {
    /// The address of its control channel. Packets of connections over the same version of IP go to
    /// this address too.
    pub to: SocketAddr,
    /// The address for packets over the other version of IP. Without it such connections are proxied.
    pub also: Option<IpAddr>,
}

impl HandoffControl {
    /// The addresses that packets go to.
    pub(crate) fn addresses(self) -> impl Iterator<Item = IpAddr> {
        [self.to.ip()].into_iter().chain(self.also)
    }
}

/// TCP handoff: moving a connection to the server that answers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoffSettings {
    /// The secret of front-ends and back-ends (at least 16 bytes).
    pub secret: String,
    /// The network interfaces on which clients' packets arrive.
    pub interfaces: Vec<String>,
    /// The front-end's choice for a connection whose client sends another request.
    pub after: AfterHandoff,
    /// The largest segment that back-ends send to clients, if it is less than the client allows.
    pub max_segment: Option<u16>,
    /// Requests whose response is known to be smaller, in bytes, are proxied.
    pub min_size: u64,
    /// The settings of a back-end; `None` on a front-end.
    pub backend: Option<HandoffBackendSettings>,
}

/// The size of a response, in bytes, from which a handoff costs the front-end, the back-end and an unmodified server
/// behind it about as much as a splicing proxy: docs/operate/handoff.md has the measurements.
pub const BREAK_EVEN: u64 = 100_000;

/// The settings of a back-end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoffBackendSettings {
    /// The listener for front-ends only.
    pub listen: SocketAddr,
    /// The service addresses whose connections this back-end accepts. This machine must have all of
    /// them.
    pub services: Vec<SocketAddr>,
    /// The unanswered retransmissions after which a client counts as gone; `None` leaves it to the kernel.
    pub dormant_retries: Option<u8>,
}

/// Handling of further requests on a connection that was handed off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum AfterHandoff {
    /// The connection stays with its back-end.
    #[default]
    Stay,
    /// The connection goes back to the front-end, which decides again.
    Back,
    /// The back-end asks the front-end and hands the connection on only if another back-end is to
    /// answer.
    On,
}

impl AfterHandoff {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Stay, Self::Back, Self::On];
}
