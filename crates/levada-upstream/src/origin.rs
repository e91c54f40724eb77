//! Origins, as a configuration names them.

use std::path::PathBuf;

/// The address of an origin, or of a server of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A TCP address.
    Tcp {
        /// `https` rather than `http`.
        tls: bool,
        /// Host name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// A Unix socket on this machine: `http` without TLS.
    Unix(PathBuf),
}
