//! The counters of requests to servers: origins, peers and servers of switches.

use std::{collections::HashSet, sync::OnceLock, time::Duration};

use http::StatusCode;
use levada_observe::metrics::{Counter, Family, Gauge, Registry, TimeHistogram};
use parking_lot::Mutex;

use crate::{Server, ServerFailure, ServerKind};

/// Servers with a histogram of their own. All others share that of the server `other`.
const SERVERS: usize = 200;
/// The server of all beyond the first.
const OTHER: &str = "other";

/// The kind and the name of a server.
type ServerLabels = (&'static str, String);

/// The counters of requests to servers.
pub struct UpstreamMetrics {
    answers: Family<(&'static str, u16), Counter>,
    /// The counters for status 200, by kind of server.
    ok: [OnceLock<Counter>; 3],
    failures: Family<[&'static str; 2], Counter>,
    /// Bytes of bodies received from origins and from servers of switches.
    pub origin_bytes: Counter,
    healthy: Family<ServerLabels, Gauge>,
    head_times: Family<ServerLabels, TimeHistogram>,
    /// The servers with a histogram of their own.
    timed: Mutex<HashSet<ServerLabels>>,
}

impl UpstreamMetrics {
    /// The counters, of which `registry` shows outcomes.
    pub fn registered(registry: &mut Registry) -> Self {
        Self {
            answers: registry.family(
                "upstream_requests",
                "Answers from origins and peers",
                ["upstream", "code"],
            ),
            ok: Default::default(),
            failures: registry.family(
                "upstream_failures",
                "Requests that an origin or a peer did not answer",
                ["upstream", "error"],
            ),
            origin_bytes: registry.metric(
                "origin_response_bytes",
                "Bytes of bodies received from origins and from servers of switches",
            ),
            healthy: Family::new(["kind", "server"]),
            head_times: Family::new(["kind", "server"]),
            timed: Mutex::default(),
        }
    }

    /// Lets `registry` show the health of servers.
    pub fn show_health(&self, registry: &mut Registry) {
        let help = "Whether an origin, a peer or a server is up";
        registry.show("upstream_healthy", help, &self.healthy);
    }

    /// Lets `registry` show the times of heads.
    pub fn show_head_times(&self, registry: &mut Registry) {
        registry.show(
            "upstream_head_duration_seconds",
            "Time from a request to the head of the response of an origin, a peer or a server",
            &self.head_times,
        );
    }

    /// Counts a response, with the time from the request to its head.
    pub(crate) fn answered(
        &self,
        server: &Server,
        kind: ServerKind,
        status: StatusCode,
        took: Duration,
    ) {
        server.head_histogram(|| self.histogram(labels(kind, server))).observe(took);
        let counter = || self.answers.get_or_create(&(kind.as_str(), status.as_u16())).clone();
        if status == StatusCode::OK {
            self.ok[kind as usize].get_or_init(counter).inc();
        } else {
            counter().inc();
        }
    }

    /// Counts a request without a response.
    pub(crate) fn failed(&self, kind: ServerKind, failure: ServerFailure) {
        self.failures.get_or_create(&[kind.as_str(), failure.proxy_error()]).inc();
    }

    /// The counter of bytes of bodies that servers of this kind send, if they are counted.
    pub(crate) fn received(&self, kind: ServerKind) -> Option<&Counter> {
        (kind != ServerKind::Peer).then_some(&self.origin_bytes)
    }

    fn histogram(&self, labels: ServerLabels) -> TimeHistogram {
        let mut timed = self.timed.lock();
        if timed.len() < SERVERS || timed.contains(&labels) {
            timed.insert(labels.clone());
            return self.head_times.get_or_create(&labels).clone();
        }
        self.head_times.get_or_create(&(labels.0, OTHER.to_owned())).clone()
    }

    /// Forgets the health of all servers. One page at a time begins by this, and notes every server afterwards.
    pub fn clear_health(&self) {
        self.healthy.clear();
    }

    /// Notes the health of a server. One that several sites watch is shown as down if one of them takes it for down.
    pub fn note_health(&self, kind: ServerKind, server: &Server) {
        let labels = labels(kind, server);
        server.head_histogram(|| self.histogram(labels.clone()));
        let shown = self.healthy.get(&labels).map(|shown| shown.get());
        let is_up = server.health.is_up() && shown != Some(0);
        self.healthy.get_or_create(&labels).set(i64::from(is_up));
    }

    /// Ends the series of servers whose health was not noted: they have left.
    pub fn forget_others(&self) {
        self.timed.lock().retain(|labels| {
            let is_shown = self.healthy.get(labels).is_some();
            if !is_shown {
                self.head_times.remove(labels);
            }
            is_shown
        });
    }
}

fn labels(kind: ServerKind, server: &Server) -> ServerLabels {
    (kind.as_str(), server.name.to_string())
}
