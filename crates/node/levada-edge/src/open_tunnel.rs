//! A tunnel whose server has agreed. The client learns of it by the head of the response.

use std::time::Duration;

use levada_access::client_shares::ClientPlace;
use levada_upstream::ServerEnd;

/// See the module.
pub struct OpenTunnel {
    pub(crate) server: ServerEnd,
    /// The longest time without a byte.
    pub(crate) idle_timeout: Duration,
    /// One of the tunnels that may be open.
    pub(crate) place: ClientPlace,
}
