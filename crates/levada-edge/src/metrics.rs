//! The metrics of a node, in Prometheus' text format: base units, `_total`, never a URL as a label.

use std::{
    sync::{OnceLock, atomic::AtomicU64},
    time::Duration,
};

use http::StatusCode;
use levada_announce::RouteMetrics;
use levada_compress::CompressMetrics;
use levada_http1::ConnectionEnd;
use levada_policy::Pick;
use levada_redirector::SwitchMetrics;
use levada_store::disk::DiskMetrics;
use levada_upstream::{OutcomeCounter, Server, ServerFailure, ServerKind};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use crate::{cache_result::CacheResult, label_value::LabelValue, large::LargeMetrics};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    listener: LabelValue,
    code: u16,
    cache: LabelValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct UpstreamLabels {
    upstream: LabelValue,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct FailureLabels {
    upstream: LabelValue,
    error: LabelValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct DecisionLabels {
    policy: LabelValue,
    reason: LabelValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ServerLabels {
    kind: LabelValue,
    server: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct EndingLabels {
    reason: LabelValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct HandoffLabels {
    result: LabelValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PurgeLabels {
    scope: LabelValue,
    kind: LabelValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SwitchLabels {
    site: String,
    server: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SiteLabels {
    site: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ResultLabels {
    result: LabelValue,
}

/// All counters of a node.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    /// The counters for status 200, by listener and cache result: most requests use them without a
    /// look-up.
    ok: [[OnceLock<Counter>; CacheResult::COUNT]; 2],
    bytes: Counter,
    durations: Histogram,
    pub(crate) in_flight: Gauge,
    /// Responses that the client or the upstream broke off.
    pub(crate) aborted: Counter,
    pub(crate) log_lines_dropped: Counter,
    pub(crate) connections_refused: Counter,
    upstream: Family<UpstreamLabels, Counter>,
    /// The counters for status 200: origins, peers, servers of a switch.
    upstream_ok: [OnceLock<Counter>; 3],
    upstream_failures: Family<FailureLabels, Counter>,
    pub(crate) origin_bytes: Counter,
    decisions: Family<DecisionLabels, Counter>,
    set_sizes: Histogram,
    servers: Family<ServerLabels, Gauge>,
    pub(crate) connections: Gauge,
    /// Those that rest between two requests.
    pub(crate) connections_resting: Gauge,
    handoffs: Family<HandoffLabels, Counter>,
    pub(crate) handed_over: Gauge,
    /// Bodies that the kernel moves from servers to clients.
    pub(crate) spliced: Counter,
    endings: Family<EndingLabels, Counter>,
    /// Clients that reconnected soon after their connection was given up as dormant.
    pub(crate) dormant_returned: Counter,
    pub(crate) draining: Gauge<i64>,
    /// Downloads that a drain ended in the middle.
    pub(crate) moved: Counter,
    pub(crate) route: RouteMetrics,
    pub(crate) compress: CompressMetrics,
    pub(crate) collapsed: Counter,
    pub(crate) cache_bytes: Gauge<i64>,
    pub(crate) cache_objects: Gauge<i64>,
    pub(crate) filling_bytes: Gauge<i64>,
    pub(crate) lent_bytes: Gauge<i64>,
    purges: Family<PurgeLabels, Counter>,
    pub(crate) purge_rules: Gauge<i64>,
    pub(crate) purges_pending: Gauge<i64>,
    pub(crate) misses: Gauge<i64>,
    pub(crate) misses_waiting: Gauge<i64>,
    pub(crate) tracked_objects: Gauge<i64>,
    pub(crate) tracked_bytes: Gauge<i64>,
    pub(crate) fallbacks: Counter,
    switch_outstanding: Family<SwitchLabels, Gauge>,
    switch_waiting: Family<SiteLabels, Gauge>,
    switch_limit: Family<SiteLabels, Gauge>,
    reloads: Family<ResultLabels, Counter>,
    last_reload: Gauge<i64>,
    pub(crate) disk: DiskMetrics,
    pub(crate) large: LargeMetrics,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("levada");
        macro_rules! register {
            ($name:literal, $help:literal, $metric:expr) => {{
                let metric = $metric;
                registry.register($name, $help, metric.clone());
                metric
            }};
        }
        let build: Family<Vec<(&str, &str)>, Gauge> = Family::default();
        build.get_or_create(&vec![("version", env!("CARGO_PKG_VERSION"))]).set(1);
        registry.register("build_info", "The version of this node", build);
        Self {
            ok: Default::default(),
            upstream_ok: Default::default(),
            requests: register!("http_requests", "Requests answered", Family::default()),
            bytes: register!("http_response_bytes", "Bytes of bodies sent", Counter::default()),
            durations: register!(
                "http_request_duration_seconds",
                "Time from the request's head to the end of its response",
                Histogram::new(exponential_buckets(0.0005, 2.0, 17))
            ),
            in_flight: register!("http_requests_in_flight", "Requests in flight", Gauge::default()),
            connections_refused: register!(
                "connections_refused",
                "Connections that were closed because their client had its share of them",
                Counter::default()
            ),
            log_lines_dropped: register!(
                "log_lines_dropped",
                "Lines of the access log that were dropped because their reader was too slow or their write failed",
                Counter::default()
            ),
            aborted: register!(
                "http_responses_aborted",
                "Responses that did not reach their end",
                Counter::default()
            ),
            upstream: register!(
                "upstream_requests",
                "Answers from origins and peers",
                Family::default()
            ),
            upstream_failures: register!(
                "upstream_failures",
                "Requests that an origin or a peer did not answer",
                Family::default()
            ),
            origin_bytes: register!(
                "origin_response_bytes",
                "Bytes of bodies received from origins",
                Counter::default()
            ),
            decisions: register!(
                "policy_decisions",
                "Choices of a node, by reason",
                Family::default()
            ),
            set_sizes: register!(
                "policy_server_set_size",
                "Nodes held responsible for the object, per decision",
                Histogram::new(exponential_buckets(1.0, 2.0, 8))
            ),
            servers: register!(
                "upstream_healthy",
                "Whether an origin or a peer is up",
                Family::default()
            ),
            connections: register!("connections", "Client and peer connections", Gauge::default()),
            connections_resting: register!(
                "connections_resting",
                "Connections without a request for a second or more, kept in little memory",
                Gauge::default()
            ),
            handoffs: register!(
                "handoffs",
                "Connections handed to a back-end, by result",
                Family::default()
            ),
            handed_over: register!(
                "handed_over",
                "Connections that back-ends serve now",
                Gauge::default()
            ),
            spliced: register!(
                "spliced",
                "Bodies that the kernel moved from servers to clients",
                Counter::default()
            ),
            endings: register!(
                "connections_ended",
                "Connections ended, by reason",
                Family::default()
            ),
            dormant_returned: register!(
                "dormant_returned",
                "Range requests within 5 s by clients whose connection was given up as dormant",
                Counter::default()
            ),
            draining: register!("draining", "Whether the node drains", Gauge::default()),
            moved: register!(
                "downloads_moved",
                "Downloads that a drain ended in the middle",
                Counter::default()
            ),
            route: RouteMetrics::registered(&mut registry),
            collapsed: register!(
                "cache_coalesced",
                "Requests that shared another request's fetch",
                Counter::default()
            ),
            cache_bytes: register!("cache_bytes", "Bytes stored in memory", Gauge::default()),
            cache_objects: register!("cache_objects", "Objects in memory", Gauge::default()),
            filling_bytes: register!(
                "cache_filling_bytes",
                "Bytes of objects that are being fetched",
                Gauge::default()
            ),
            lent_bytes: register!(
                "cache_lent_bytes",
                "Bytes of long bodies that clients read now, stored or not",
                Gauge::default()
            ),
            purges: register!("purges", "Purges carried out, by scope and kind", Family::default()),
            purge_rules: register!(
                "purge_rules",
                "Purges that are still being applied to what is stored",
                Gauge::default()
            ),
            purges_pending: register!(
                "purges_pending",
                "Purges that peers have not confirmed",
                Gauge::default()
            ),
            misses: register!(
                "origin_requests_in_flight",
                "Requests in flight at origins",
                Gauge::default()
            ),
            misses_waiting: register!(
                "origin_requests_waiting",
                "Requests that wait to be sent to an origin",
                Gauge::default()
            ),
            tracked_objects: register!(
                "policy_tracked_objects",
                "Objects with state of their own in the policies",
                Gauge::default()
            ),
            tracked_bytes: register!(
                "policy_tracked_bytes",
                "Memory of the policies' tables",
                Gauge::default()
            ),
            fallbacks: register!(
                "policy_key_fallbacks",
                "Requests that lack the part their key is taken from: the URL was used",
                Counter::default()
            ),
            switch_outstanding: register!(
                "server_requests_in_flight",
                "Requests in flight at a server of a switch",
                Family::default()
            ),
            switch_waiting: register!(
                "server_requests_waiting",
                "Requests that wait for a server of a switch",
                Family::default()
            ),
            switch_limit: register!(
                "server_requests_limit",
                "The most requests in flight at all servers of a switch together",
                Family::default()
            ),
            reloads: register!("config_reloads", "Reloads, by result", Family::default()),
            last_reload: register!(
                "config_last_reload_success",
                "Whether the last reload, or the start, was successful",
                Gauge::default()
            ),
            disk: DiskMetrics::registered(&mut registry),
            compress: CompressMetrics::registered(&mut registry),
            large: LargeMetrics::registered(&mut registry),
            registry,
        }
        .started()
    }

    fn started(self) -> Self {
        self.last_reload.set(1);
        self
    }

    pub(crate) fn reloaded(&self, ok: bool) {
        let result = LabelValue(if ok { "ok" } else { "failed" });
        self.reloads.get_or_create(&ResultLabels { result }).inc();
        self.last_reload.set(i64::from(ok));
    }

    /// Forgets the gauges of all switches, whose servers may be gone.
    pub(crate) fn clear_switches(&self) {
        self.switch_outstanding.clear();
        self.switch_waiting.clear();
        self.switch_limit.clear();
    }

    /// Sets the gauges of one switch: requests at each server, requests that wait, and the admission limit.
    pub(crate) fn set_switch(
        &self,
        site: &str,
        servers: impl Iterator<Item = (String, u32)>,
        waiting: usize,
        limit: usize,
    ) {
        let site = site.to_owned();
        for (server, held) in servers {
            let labels = SwitchLabels { site: site.clone(), server };
            self.switch_outstanding.get_or_create(&labels).set(held.into());
        }
        let labels = SiteLabels { site };
        self.switch_waiting.get_or_create(&labels).set(waiting as i64);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.switch_limit.get_or_create(&labels).set(limit);
    }

    pub(crate) fn request(
        &self,
        from_peer: bool,
        status: StatusCode,
        cache: CacheResult,
        bytes: u64,
        elapsed: Duration,
    ) {
        let ok = &self.ok[usize::from(from_peer)][cache as usize];
        if status == StatusCode::OK {
            ok.get_or_init(|| self.counter(from_peer, status, cache)).inc();
        } else {
            self.counter(from_peer, status, cache).inc();
        }
        self.bytes.inc_by(bytes);
        self.durations.observe(elapsed.as_secs_f64());
        if cache == CacheResult::Collapsed {
            self.collapsed.inc();
        }
    }

    fn counter(&self, from_peer: bool, status: StatusCode, cache: CacheResult) -> Counter {
        let labels = RequestLabels {
            listener: LabelValue(if from_peer { "peer" } else { "client" }),
            code: status.as_u16(),
            cache: LabelValue(cache.as_str()),
        };
        self.requests.get_or_create_owned(&labels)
    }

    /// Counts the result of a handoff.
    pub(crate) fn handoff(&self, result: &'static str) {
        self.handoffs.get_or_create(&HandoffLabels { result: LabelValue(result) }).inc();
    }

    pub(crate) fn purged(&self, scope: &'static str, kind: &'static str) {
        let labels = PurgeLabels { scope: LabelValue(scope), kind: LabelValue(kind) };
        self.purges.get_or_create(&labels).inc();
    }

    pub(crate) fn ended(&self, ending: ConnectionEnd) {
        self.endings.get_or_create(&EndingLabels { reason: LabelValue(ending.as_str()) }).inc();
    }

    /// Requests answered, by cache result and listener, for `/status`.
    pub(crate) fn count(&self, from_peer: bool, cache: CacheResult) -> u64 {
        let listener = if from_peer { "peer" } else { "client" };
        let mut sum = 0;
        for code in 100..=599 {
            let labels = RequestLabels {
                listener: LabelValue(listener),
                code,
                cache: LabelValue(cache.as_str()),
            };
            if let Some(counter) = self.requests.get(&labels) {
                sum += counter.get();
            }
        }
        sum
    }

    pub(crate) fn bytes_sent(&self) -> u64 {
        self.bytes.get()
    }

    /// The page that Prometheus scrapes.
    pub(crate) fn page(&self) -> String {
        let mut page = String::new();
        if prometheus_client::encoding::text::encode(&mut page, &self.registry).is_err() {
            page.clear();
        }
        page
    }
}

impl OutcomeCounter for Metrics {
    fn answered(&self, kind: ServerKind, status: StatusCode) {
        let counter = || {
            let upstream = LabelValue(kind.as_str());
            let labels = UpstreamLabels { upstream, code: status.as_u16() };
            self.upstream.get_or_create_owned(&labels)
        };
        if status == StatusCode::OK {
            self.upstream_ok[kind as usize].get_or_init(counter).inc();
        } else {
            counter().inc();
        }
    }

    fn failed(&self, kind: ServerKind, failure: ServerFailure) {
        let (upstream, error) = (LabelValue(kind.as_str()), LabelValue(failure.proxy_error()));
        self.upstream_failures.get_or_create(&FailureLabels { upstream, error }).inc();
    }
}

impl SwitchMetrics for Metrics {
    fn decision(&self, policy: &'static str, pick: Pick) {
        let labels =
            DecisionLabels { policy: LabelValue(policy), reason: LabelValue(pick.reason.as_str()) };
        self.decisions.get_or_create(&labels).inc();
        self.set_sizes.observe(f64::from(pick.set_size));
    }

    fn server_up(&self, kind: ServerKind, server: &Server) {
        let (kind, name) = (LabelValue(kind.as_str()), server.name.to_string());
        let labels = ServerLabels { kind, server: name };
        self.servers.get_or_create(&labels).set(i64::from(server.health.is_up()));
    }
}

// The counters are 64 bits wide on every platform that Levada runs on.
const _: () = assert!(size_of::<AtomicU64>() == 8);
