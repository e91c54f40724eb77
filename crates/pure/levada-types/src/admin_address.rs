//! The address of a node for its operators.

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    str::FromStr,
};

/// An address in the network, or a Unix socket of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// An absolute path.
    Unix(PathBuf),
}

/// The longest path of a socket: Linux has 108 bytes with the final zero (unix(7)).
const LONGEST_PATH: usize = 107;

/// Text that is no [`AdminAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an IP address and a port, or `unix:` and an absolute path of at most 107 bytes")]
pub struct NoAdminAddress;

impl AdminAddress {
    /// The path of a Unix socket.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(path) => Some(path),
        }
    }

    /// The address in the network.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

impl From<SocketAddr> for AdminAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl From<&Self> for AdminAddress {
    fn from(address: &Self) -> Self {
        address.clone()
    }
}

impl FromStr for AdminAddress {
    type Err = NoAdminAddress;

    fn from_str(text: &str) -> Result<Self, NoAdminAddress> {
        let Some(path) = text.strip_prefix("unix:") else {
            return text.parse().map(Self::Tcp).map_err(|_| NoAdminAddress);
        };
        let is_file = path.starts_with('/') && !path.ends_with('/');
        if !is_file || path.len() > LONGEST_PATH || path.contains(|c: char| c.is_control()) {
            return Err(NoAdminAddress);
        }
        Ok(Self::Unix(path.into()))
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_in_the_network_or_a_path() {
        let longest = format!("unix:/{}", "a".repeat(LONGEST_PATH - 1));
        for text in ["127.0.0.1:9180", "[::1]:9180", "unix:/run/levada/admin.sock", &longest] {
            assert_eq!(text.parse::<AdminAddress>().unwrap().to_string(), text);
        }
        for text in ["", "9180", "unix:", "unix:run/s", "unix:/run/", &format!("{longest}a")] {
            assert_eq!(text.parse::<AdminAddress>(), Err(NoAdminAddress), "{text}");
        }
    }
}
