//! A name server as a configuration has it.

use std::{net::SocketAddr, sync::Arc};

use crate::{World, cookies::SECRET, rate::RateLimit, serve::TcpLimits};

/// See the module.
#[derive(Clone)]
pub struct DnsSettings {
    /// The addresses for queries, over UDP and TCP.
    pub listen: Vec<SocketAddr>,
    /// Threads for queries over UDP at each address.
    pub threads: usize,
    /// Bounds of TCP connections.
    pub tcp: TcpLimits,
    /// The name of the server.
    pub nsid: Vec<u8>,
    /// The secret of cookies; `None`: the server makes one when it starts.
    pub cookie_secret: Option<[u8; SECRET]>,
    /// The share of a client network.
    pub limit: RateLimit,
    /// Zones and tables.
    pub world: Arc<World>,
    /// A number that differs when zones or tables do.
    pub version: u64,
}

impl PartialEq for DnsSettings {
    fn eq(&self, other: &Self) -> bool {
        let rest = |of: &Self| (of.threads, of.tcp, of.cookie_secret, of.limit, of.version);
        self.listen == other.listen && self.nsid == other.nsid && rest(self) == rest(other)
    }
}

impl std::fmt::Debug for DnsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { listen, version, .. } = self;
        f.debug_struct("DnsSettings")
            .field("listen", listen)
            .field("version", version)
            .finish_non_exhaustive()
    }
}
