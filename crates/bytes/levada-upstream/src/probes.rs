//! Probes that several servers share. Sites often have the same origin; where they check it alike, it gets one probe for
//! all of them.
//!
//! The watch of one of the servers leads and probes, the watches of the others take its results. When it ends, the next
//! one leads.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use http::HeaderValue;
use levada_tls::origin::OriginTls;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{Address, FirstLooks, HealthCheck, Server, ServerProtocols};

/// The probes of a node.
#[derive(Debug, Default)]
pub struct SharedProbes(Mutex<HashMap<ProbeKind, Weak<SharedProbe>>>);

/// The probes that are the same for several servers.
#[derive(Debug, Default)]
pub(crate) struct SharedProbe {
    /// Held by the watch that leads.
    pub(crate) leads: tokio::sync::Mutex<()>,
    /// The last result.
    pub(crate) results: watch::Sender<Option<ProbeResult>>,
}

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    /// With the time of its answer, unless it was late.
    Good(Option<Duration>),
    Bad,
    /// No answer has come in time.
    Late,
}

/// All that makes one probe differ from another.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ProbeKind {
    address: Address,
    interval: Duration,
    timeout: Duration,
    /// Without a request, connecting is enough.
    request: Option<ProbeRequest>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ProbeRequest {
    path: String,
    host: Option<HeaderValue>,
    protocols: ServerProtocols,
    tls: Option<Arc<OriginTls>>,
}

impl SharedProbes {
    /// The first looks at servers that get a watch now.
    pub fn first_looks(&self) -> FirstLooks<'_> {
        self.0.lock().retain(|_, probe| probe.strong_count() > 0);
        FirstLooks::new(self)
    }

    /// The probes of a server. Files of TLS may change from one reading to the next, so a server with such files shares
    /// them with none.
    pub(crate) fn of(
        &self,
        server: &Server,
        check: &HealthCheck,
        host: Option<&HeaderValue>,
    ) -> Arc<SharedProbe> {
        let tls = server.tls_settings();
        let request = check.path.as_ref().map(|path| ProbeRequest {
            path: path.clone(),
            host: host.cloned(),
            protocols: server.protocols(),
            tls: tls.cloned(),
        });
        if check.interval.is_zero() || (request.is_some() && tls.is_some_and(|tls| tls.has_files()))
        {
            return Arc::default();
        }
        let HealthCheck { interval, timeout, .. } = *check;
        let kind = ProbeKind { address: server.address.clone(), interval, timeout, request };
        let mut known = self.0.lock();
        let entry = known.entry(kind).or_default();
        entry.upgrade().unwrap_or_else(|| {
            let new = Arc::default();
            *entry = Arc::downgrade(&new);
            new
        })
    }
}
