//! The plan of the servers of a site: its origins, and the servers of its switch.

use std::sync::Arc;

use http::HeaderValue;
use levada_tls::origin::ServerName;
use levada_upstream::{Address, HealthCheck, Origin, Server, ServerBounds, ServerProtocols, Wire};

/// The way to a server: its address and its protocols, with the version of the PROXY protocol by which it gets
/// to know clients.
pub type Connect<'a> = Box<dyn Fn(&Origin, ServerProtocols) -> (Address, Wire) + 'a>;

/// The plan of the servers of a site.
pub struct ServerPlan<'a> {
    /// Their health checks.
    pub check: &'a HealthCheck,
    /// The host of health checks.
    pub host: Option<HeaderValue>,
    /// The protocols by which they are reached.
    pub protocols: ServerProtocols,
    /// The address and the protocols of a server.
    pub connect: Connect<'a>,
    /// The name that they are asked for in TLS, if it is not their host.
    pub server_name: Option<ServerName<'static>>,
    /// The bounds of a server. A switch bounds the connections of all its servers instead.
    pub bounds: ServerBounds,
    /// Threads that send requests.
    pub workers: usize,
}

impl ServerPlan<'_> {
    /// A new server; without a name it has that of its address.
    pub(crate) fn make(&self, origin: &Origin, name: Option<Arc<str>>) -> Arc<Server> {
        let (address, wire) = (self.connect)(origin, self.protocols);
        let name = name.unwrap_or_else(|| address.to_string().into());
        Server::new(name, address, wire, self.bounds, self.workers)
    }

    /// Whether a server is reached as planned.
    pub(crate) fn reaches(&self, server: &Server) -> bool {
        server.protocols() == self.protocols && server.server_name() == self.server_name.as_ref()
    }

    /// Gives the bounds and the settings of TLS to a server that stays.
    pub(crate) fn renew(&self, server: &Server, origin: &Origin) {
        server.set_bounds(self.bounds);
        if origin.tls() {
            server.set_tls((self.connect)(origin, self.protocols).1.tls);
        }
    }
}
