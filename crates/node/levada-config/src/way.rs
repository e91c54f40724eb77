//! Settings as the crate of servers takes them: the way to an origin, and the bounds of a server.

use std::sync::Arc;

use crate::file::Limits;
use levada_tls::origin::{self, ClientConfig, OriginTls, ServerName};
use levada_upstream::{Address, Origin, ServerBounds, ServerProtocols, Wire};

use crate::settings::SiteServers;

/// The way to the origins or servers of a site: their TLS is read once for all of them.
pub struct Way {
    settings: Arc<OriginTls>,
    tls: Option<(Arc<ClientConfig>, Option<ServerName<'static>>)>,
}

impl Way {
    /// The way to these servers.
    pub fn of(servers: &SiteServers) -> Self {
        let protocols: &[&[u8]] = if servers.protocols.h2 { &[b"h2"] } else { &[b"http/1.1"] };
        let tls = servers.tls.as_ref().map(|tls| {
            let config = tls.config(protocols).unwrap_or_else(|error| {
                tracing::error!(%error, "the TLS of origins cannot be set up: none is trusted");
                OriginTls::nobody()
            });
            (config, tls.server_name.as_ref().and_then(|_| tls.name_for("").ok()))
        });
        Self { settings: servers.tls.clone().unwrap_or_default(), tls }
    }

    /// The name that all of them are asked for.
    pub fn server_name(&self) -> Option<ServerName<'static>> {
        self.tls.as_ref().and_then(|(_, name)| name.clone())
    }

    /// The address and the protocols of an origin.
    pub fn to(&self, origin: &Origin, protocols: ServerProtocols) -> (Address, Wire) {
        let ServerProtocols { h2, states_client } = protocols;
        let tls = origin.tls().then(|| match &self.tls {
            Some((config, _)) => config.clone(),
            None => origin::client(h2),
        });
        let server_name = self.server_name();
        let tls_settings = tls.is_some().then(|| self.settings.clone());
        let wire = Wire { tls, tls_settings, server_name, h2, states_client, ..Wire::default() };
        (origin.into(), wire)
    }
}

/// The bounds of one server.
pub fn server_bounds(limits: &Limits) -> ServerBounds {
    ServerBounds {
        connections: limits.server_connections,
        queue: limits.queue,
        queue_timeout: limits.queue_timeout,
        connect_timeout: limits.connect_timeout,
        response_timeout: limits.response_timeout,
    }
}
