//! The series of origins, peers and servers. Each page shows the servers that the node has at that moment, so that
//! none is missing and none stays when its server has left.

use std::{collections::HashSet, time::Duration};

use levada_observe::otel::{NativeBuckets, TimeHistogram};
use levada_redirector::{Origins, Switch};
use levada_upstream::{Server, ServerKind};
use parking_lot::{Mutex, MutexGuard};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::label_value::LabelValue;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServerLabels {
    kind: LabelValue,
    server: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SwitchLabels {
    site: String,
    server: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SiteLabels {
    site: String,
}

/// Servers with a histogram of their own. All others share that of the server `other`.
const SERVERS: usize = 200;
/// The server of all beyond the first.
const OTHER: &str = "other";

/// The series of all servers. One page at a time makes the gauges again.
pub(crate) struct Upstreams {
    gauges: Mutex<Gauges>,
    head_times: Family<ServerLabels, TimeHistogram>,
    /// The servers with a histogram of their own.
    timed: Mutex<HashSet<ServerLabels>>,
}

#[derive(Clone, Default)]
struct Gauges {
    healthy: Family<ServerLabels, Gauge>,
    outstanding: Family<SwitchLabels, Gauge>,
    waiting: Family<SiteLabels, Gauge>,
    limit: Family<SiteLabels, Gauge>,
}

/// The gauges of one page, which no other page changes meanwhile.
pub struct ShownUpstreams<'a> {
    all: &'a Upstreams,
    gauges: MutexGuard<'a, Gauges>,
}

impl Upstreams {
    /// The name of the family of times until heads.
    pub(crate) const HEAD_TIMES: &str = "upstream_head_duration_seconds";

    pub(crate) fn registered(registry: &mut Registry) -> Self {
        let gauges = Gauges::default();
        let Gauges { healthy, outstanding, waiting, limit } = gauges.clone();
        registry.register(
            "upstream_healthy",
            "Whether an origin, a peer or a server is up",
            healthy,
        );
        registry.register(
            "server_requests_in_flight",
            "Requests in flight at a server of a switch",
            outstanding,
        );
        registry.register(
            "server_requests_waiting",
            "Requests that wait for a server of a switch",
            waiting,
        );
        registry.register(
            "server_requests_limit",
            "The most requests in flight at all servers of a switch together",
            limit,
        );
        let head_times = Family::default();
        registry.register(
            Self::HEAD_TIMES,
            "Time from a request to the head of the response of an origin, a peer or a server",
            head_times.clone(),
        );
        Self { gauges: Mutex::new(gauges), head_times, timed: Mutex::default() }
    }

    /// Takes in the time from a request to the head of its response.
    pub(crate) fn took(&self, server: &Server, kind: ServerKind, time: Duration) {
        let histogram = || self.histogram(ServerLabels::new(kind, server));
        server.head_histogram(histogram).observe(time);
    }

    fn histogram(&self, labels: ServerLabels) -> TimeHistogram {
        let mut timed = self.timed.lock();
        if timed.len() < SERVERS || timed.contains(&labels) {
            timed.insert(labels.clone());
            return self.head_times.get_or_create_owned(&labels);
        }
        self.head_times.get_or_create_owned(&ServerLabels { server: OTHER.to_owned(), ..labels })
    }

    /// The native buckets of the times of a server.
    pub(crate) fn native(&self, kind: &str, server: &str) -> Option<NativeBuckets> {
        let kinds = [ServerKind::Origin, ServerKind::Peer, ServerKind::Switched];
        let kind = kinds.into_iter().find(|known| known.as_str() == kind)?;
        let labels = ServerLabels { kind: LabelValue(kind.as_str()), server: server.to_owned() };
        Some(self.head_times.get(&labels)?.native())
    }

    /// Begins a page, without any server.
    pub(crate) fn show(&self) -> ShownUpstreams<'_> {
        let gauges = self.gauges.lock();
        gauges.healthy.clear();
        gauges.outstanding.clear();
        gauges.waiting.clear();
        gauges.limit.clear();
        ShownUpstreams { all: self, gauges }
    }
}

impl ServerLabels {
    fn new(kind: ServerKind, server: &Server) -> Self {
        Self { kind: LabelValue(kind.as_str()), server: server.name.to_string() }
    }
}

impl ShownUpstreams<'_> {
    /// Ends the series of servers that are not shown: they have left.
    pub(crate) fn all(self) -> Self {
        self.all.timed.lock().retain(|labels| {
            let is_shown = self.gauges.healthy.get(labels).is_some();
            if !is_shown {
                self.all.head_times.remove(labels);
            }
            is_shown
        });
        self
    }

    /// Shows the origins of a site.
    pub fn origins(&mut self, origins: &Origins) {
        origins.list().all().iter().for_each(|one| self.health(ServerKind::Origin, &one.server));
    }

    /// Shows a peer.
    pub fn peer(&mut self, server: &Server) {
        self.health(ServerKind::Peer, server);
    }

    /// Shows a switch: its servers with the requests at each one, the requests that wait, and the admission limit.
    pub fn switch(&mut self, site: &str, switch: &Switch) {
        let (view, counts, site) = (switch.view(), switch.counts(), site.to_owned());
        for member in &view.members {
            self.health(ServerKind::Switched, &member.server);
            let labels =
                SwitchLabels { site: site.clone(), server: member.server.name.to_string() };
            self.gauges.outstanding.get_or_create(&labels).set(member.held().into());
        }
        let labels = SiteLabels { site };
        let whole = |number| i64::try_from(number).unwrap_or(i64::MAX);
        self.gauges.waiting.get_or_create(&labels).set(whole(counts.waiting));
        self.gauges.limit.get_or_create(&labels).set(whole(counts.limit));
    }

    /// A server of several sites is watched by each of them. It is shown as down if one of them takes it for down.
    fn health(&mut self, kind: ServerKind, server: &Server) {
        let labels = ServerLabels::new(kind, server);
        server.head_histogram(|| self.all.histogram(labels.clone()));
        let up = server.health.is_up();
        let shown_as_down = self.gauges.healthy.get(&labels).is_some_and(|shown| shown.get() == 0);
        self.gauges.healthy.get_or_create(&labels).set(i64::from(up && !shown_as_down));
    }
}
