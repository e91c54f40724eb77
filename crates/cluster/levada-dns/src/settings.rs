//! A name server as a configuration has it.

use std::{net::SocketAddr, sync::Arc};

use levada_tls::pem::Certificate;

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
    /// The addresses for HTTP requests that are sent on to nodes.
    pub http: Vec<HttpListener>,
    /// The status of these answers: 302 or 307.
    pub redirect_status: u16,
    /// The share of a client network.
    pub limit: RateLimit,
    /// Zones and tables.
    pub world: Arc<World>,
    /// A number that differs when zones or tables do.
    pub version: u64,
}

/// An address for HTTP requests.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpListener {
    /// The address.
    pub address: SocketAddr,
    /// Certificates by server name; plain text when empty.
    pub tls: Vec<Certificate>,
    /// Whether only a process opens it that is nothing but a name server.
    pub alone: bool,
}

impl PartialEq for DnsSettings {
    fn eq(&self, other: &Self) -> bool {
        let lists = |of: &Self| (of.listen.clone(), of.nsid.clone(), of.http.clone());
        let rest = |of: &Self| (of.threads, of.tcp, of.cookie_secret, of.limit, of.version);
        let all = |of: &Self| (lists(of), rest(of), of.redirect_status);
        all(self) == all(other)
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
