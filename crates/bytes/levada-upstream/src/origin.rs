//! Origins, as a configuration names them.

use std::{fmt, net::SocketAddr, path::PathBuf, sync::Arc};

/// The address of an origin, or of a server of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// All members of a source that the configuration gives a name.
    Discovered {
        /// `https` rather than `http`.
        tls: bool,
        /// The name of the source.
        source: Arc<str>,
    },
    /// One member that a source has named: it is addressed by the name and reached at the address.
    Member {
        /// `https` rather than `http`.
        tls: bool,
        /// Host name or address.
        host: Arc<str>,
        /// Port of the name.
        port: u16,
        /// The address.
        at: SocketAddr,
    },
}

/// As a configuration writes it.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls() { "https" } else { "http" };
        match self {
            Self::Tcp { host, port, .. } => write!(f, "{scheme}://{host}:{port}"),
            Self::Member { host, port, .. } => write!(f, "{scheme}://{host}:{port}"),
            Self::Discovered { source, .. } => write!(f, "{scheme}://discovery:{source}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Origin {
    /// Whether it is reached over TLS.
    pub fn tls(&self) -> bool {
        match self {
            Self::Tcp { tls, .. } | Self::Discovered { tls, .. } | Self::Member { tls, .. } => *tls,
            Self::Unix(_) => false,
        }
    }
}
