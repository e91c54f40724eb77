//! All counters of a node.

use std::{
    sync::{Arc, OnceLock, atomic::AtomicU64},
    time::{Duration, SystemTime},
};

use http::StatusCode;
use levada_body::compress::CompressMetrics;
use levada_cluster::purge::PurgeMetrics;
use levada_control::announce::RouteMetrics;
use levada_discovery::DiscoveryMetrics;
use levada_http::ConnectionEnd;
use levada_http::http3::QuicMetrics;
use levada_http::websocket::TunnelMetrics;
use levada_observe::otel::{ExportMetrics, Family as PageFamily, NativeBuckets, Sample};
use levada_policy::Pick;
use levada_redirector::SwitchMetrics;
use levada_redirector::handoff::Observe;
use levada_store::disk::DiskMetrics;
use levada_tls::acme::CertificateMetrics;
use levada_tls::metrics::TlsMetrics;
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

use crate::{
    AnsweredRequest, CacheResult, CpuMetrics, LargeMetrics, PageFormat, ShownUpstreams,
    SiteMetrics, Work, cpu::did, label_value::LabelValue, process, protobuf, site::Sites,
    upstreams::Upstreams,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UpstreamLabels {
    upstream: LabelValue,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabels {
    upstream: LabelValue,
    error: LabelValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    policy: LabelValue,
    reason: LabelValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MovedLabels {
    kind: LabelValue,
    policy: LabelValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndingLabels {
    reason: LabelValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandoffLabels {
    result: LabelValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: LabelValue,
}

/// All counters of a node.
pub struct Metrics {
    registry: Registry,
    started: SystemTime,
    sites: Sites,
    /// Of requests that belong to no site.
    no_site: Arc<SiteMetrics>,
    /// Requests in flight.
    pub in_flight: Gauge,
    /// Responses that the client or the upstream broke off.
    pub aborted: Counter,
    /// Lines of the access log that were dropped because their reader was too slow or their write failed.
    pub log_lines_dropped: Counter,
    /// Connections that were closed because their client had its share of them, or memory was nearly full.
    pub connections_refused: Counter,
    /// Evaluations of expressions that failed.
    pub expression_failures: Counter,
    /// Resident memory of the process.
    pub memory_resident: Gauge,
    /// The bound on it.
    pub memory_limit: Gauge,
    upstream: Family<UpstreamLabels, Counter>,
    /// The counters for status 200: origins, peers, servers of a switch.
    upstream_ok: [OnceLock<Counter>; 3],
    upstream_failures: Family<FailureLabels, Counter>,
    /// Bytes of bodies received from origins and from servers of switches.
    pub origin_bytes: Counter,
    decisions: Family<DecisionLabels, Counter>,
    set_sizes: Histogram,
    moved_places: Family<MovedLabels, Gauge<f64, AtomicU64>>,
    /// Entries that this process got from the one before it.
    pub takeover_objects: Gauge,
    /// Client and peer connections.
    pub connections: Gauge,
    /// Connections that rest between two requests.
    pub connections_resting: Gauge,
    handoffs: Family<HandoffLabels, Counter>,
    /// Connections that back-ends serve now.
    pub handed_over: Gauge,
    /// Bodies that the kernel moves from servers to clients.
    pub spliced: Counter,
    endings: Family<EndingLabels, Counter>,
    /// Clients that reconnected soon after their connection was given up as dormant.
    pub dormant_returned: Counter,
    /// Whether the node drains.
    pub draining: Gauge<i64>,
    /// Downloads that a drain ended in the middle.
    pub moved: Counter,
    /// The announcement of the route.
    pub route: RouteMetrics,
    /// Certificates.
    pub certificates: CertificateMetrics,
    /// Sources of members.
    pub discovery: DiscoveryMetrics,
    /// Compression.
    pub compress: CompressMetrics,
    /// Requests that shared another request's fetch.
    pub collapsed: Counter,
    /// Bytes stored in memory.
    pub cache_bytes: Gauge<i64>,
    /// Objects in memory.
    pub cache_objects: Gauge<i64>,
    /// Variants that went because their URL had too many.
    pub variants_evicted: Counter,
    /// Bytes of objects that are being fetched.
    pub filling_bytes: Gauge<i64>,
    /// Bytes of long bodies that clients read now, stored or not.
    pub lent_bytes: Gauge<i64>,
    /// Purges.
    pub purges: PurgeMetrics,
    /// Requests in flight at origins.
    pub misses: Gauge<i64>,
    /// Requests that wait to be sent to an origin.
    pub misses_waiting: Gauge<i64>,
    /// Objects with state of their own in the policies.
    pub tracked_objects: Gauge<i64>,
    /// Memory of the policies' tables.
    pub tracked_bytes: Gauge<i64>,
    /// Requests that lack the part their key is taken from: the URL was used.
    pub fallbacks: Counter,
    upstreams: Upstreams,
    reloads: Family<ResultLabels, Counter>,
    last_reload: Gauge<i64>,
    /// The disk tier.
    pub disk: DiskMetrics,
    /// Transfers in pieces.
    pub large: LargeMetrics,
    /// Connections that have switched to WebSocket.
    pub tunnels: TunnelMetrics,
    /// CPU time by kind of work.
    pub cpu: CpuMetrics,
    /// Traces, metrics and logs that a collector gets.
    pub exports: ExportMetrics,
    /// TLS towards clients.
    pub tls: TlsMetrics,
    /// HTTP/3.
    pub quic: QuicMetrics,
}

impl Default for Metrics {
    /// The counters of a node that has just started.
    fn default() -> Self {
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
        let sites = Sites::registered(&mut registry);
        Self {
            started: SystemTime::now(),
            no_site: sites.of(None),
            sites,
            upstream_ok: Default::default(),
            in_flight: register!("http_requests_in_flight", "Requests in flight", Gauge::default()),
            memory_resident: register!(
                "memory_resident_bytes",
                "Resident memory of this process",
                Gauge::default()
            ),
            memory_limit: register!(
                "memory_limit_bytes",
                "The bound on the resident memory (`limits.memory`)",
                Gauge::default()
            ),
            connections_refused: register!(
                "connections_refused",
                "Connections that were closed because their client had its share of them, or memory was nearly full",
                Counter::default()
            ),
            expression_failures: register!(
                "expression_failures",
                "Evaluations of expressions in the configuration that failed",
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
                "Bytes of bodies received from origins and from servers of switches",
                Counter::default()
            ),
            decisions: register!(
                "policy_decisions",
                "Choices of a node, by reason",
                Family::default()
            ),
            moved_places: register!(
                "policy_moved_ratio",
                "Part of the places of objects that the last change of members moved",
                Family::default()
            ),
            set_sizes: register!(
                "policy_server_set_size",
                "Nodes held responsible for the object, per decision",
                Histogram::new(exponential_buckets(1.0, 2.0, 8))
            ),
            takeover_objects: register!(
                "takeover_objects",
                "Stored entries that this process took over from the one before it",
                Gauge::default()
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
            quic: QuicMetrics::registered(&mut registry),
            certificates: CertificateMetrics::registered(&mut registry),
            discovery: DiscoveryMetrics::registered(&mut registry),
            collapsed: register!(
                "cache_coalesced",
                "Requests that shared another request's fetch",
                Counter::default()
            ),
            cache_bytes: register!("cache_bytes", "Bytes stored in memory", Gauge::default()),
            cache_objects: register!("cache_objects", "Objects in memory", Gauge::default()),
            variants_evicted: register!(
                "cache_variants_evicted",
                "Variants that went because their URL had too many",
                Counter::default()
            ),
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
            purges: PurgeMetrics::registered(&mut registry),
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
            upstreams: Upstreams::registered(&mut registry),
            reloads: register!("config_reloads", "Reloads, by result", Family::default()),
            last_reload: register!(
                "config_last_reload_success",
                "Whether the last reload, or the start, was successful",
                Gauge::default()
            ),
            disk: DiskMetrics::registered(&mut registry),
            compress: CompressMetrics::registered(&mut registry),
            large: LargeMetrics::registered(&mut registry),
            tunnels: TunnelMetrics::registered(&mut registry),
            cpu: CpuMetrics::registered(&mut registry),
            exports: ExportMetrics::registered(&mut registry),
            tls: TlsMetrics::registered(&mut registry),
            registry,
        }
        .started()
    }
}

impl Metrics {
    fn started(self) -> Self {
        self.last_reload.set(1);
        self
    }

    /// Counts a reload.
    pub fn reloaded(&self, ok: bool) {
        let result = LabelValue(if ok { "ok" } else { "failed" });
        self.reloads.get_or_create(&ResultLabels { result }).inc();
        self.last_reload.set(i64::from(ok));
    }

    /// Begins a page with the gauges of origins, peers and servers: the caller shows every one that the node has.
    pub fn show_upstreams(&self) -> ShownUpstreams<'_> {
        self.upstreams.show()
    }

    /// The series of the site with this name.
    pub fn site(&self, name: &str) -> Arc<SiteMetrics> {
        self.sites.of(Some(name))
    }

    /// Counts a request that begins.
    pub fn began(&self) {
        self.in_flight.inc();
        did(Work::Miss);
    }

    /// Counts a request that was answered; `site` is `None` if it belongs to none.
    pub fn request(&self, site: Option<&SiteMetrics>, request: AnsweredRequest) {
        did(request.cache.into());
        site.unwrap_or(&self.no_site).request(request);
        if request.cache == CacheResult::Collapsed {
            self.collapsed.inc();
        }
    }

    /// Counts the result of a handoff.
    pub fn handoff(&self, result: &'static str) {
        self.handoffs.get_or_create(&HandoffLabels { result: LabelValue(result) }).inc();
    }

    /// Counts the end of a connection.
    pub fn ended(&self, ending: ConnectionEnd) {
        self.endings.get_or_create(&EndingLabels { reason: LabelValue(ending.as_str()) }).inc();
    }

    /// Requests answered, by cache result and listener, for `/status`.
    pub fn count(&self, from_peer: bool, cache: CacheResult) -> u64 {
        self.sites.count(from_peer, cache)
    }

    /// Bytes of bodies sent.
    pub fn bytes_sent(&self) -> u64 {
        self.sites.bytes()
    }

    /// The page that Prometheus scrapes, with these servers.
    pub fn page(&self, format: PageFormat, shown: ShownUpstreams<'_>) -> Vec<u8> {
        let page = self.openmetrics(shown);
        match format {
            PageFormat::Protobuf => {
                protobuf::page(&page, |family, sample| self.native(family, sample))
            }
            text => text.of(page).into_bytes(),
        }
    }

    fn openmetrics(&self, shown: ShownUpstreams<'_>) -> String {
        let _shown = shown.all();
        let mut page = String::new();
        if prometheus_client::encoding::text::encode(&mut page, &self.registry).is_err() {
            page.clear();
        }
        process::append(&mut page, self.started);
        page
    }

    /// The native buckets of a histogram on the page, if it has any.
    fn native(&self, family: &PageFamily<'_>, sample: &Sample<'_>) -> Option<NativeBuckets> {
        let label = |name: &str| {
            let label = sample.labels.iter().find(|(known, _)| *known == name);
            label.map(|(_, value)| &**value)
        };
        match family.name.strip_prefix("levada_")? {
            Sites::DURATIONS => self.sites.native(label("site")?),
            Upstreams::HEAD_TIMES => self.upstreams.native(label("kind")?, label("server")?),
            _ => None,
        }
    }
}

impl OutcomeCounter for Metrics {
    fn answered(&self, server: &Server, kind: ServerKind, status: StatusCode, took: Duration) {
        self.upstreams.took(server, kind, took);
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

    fn received(&self, kind: ServerKind) -> Option<&Counter> {
        (kind != ServerKind::Peer).then_some(&self.origin_bytes)
    }
}

impl SwitchMetrics for Metrics {
    fn decision(&self, policy: &'static str, pick: Pick) {
        let labels =
            DecisionLabels { policy: LabelValue(policy), reason: LabelValue(pick.reason.as_str()) };
        self.decisions.get_or_create(&labels).inc();
        self.set_sizes.observe(f64::from(pick.set_size));
    }

    fn moved(&self, kind: ServerKind, policy: &'static str, part: f64) {
        let labels = MovedLabels { kind: LabelValue(kind.as_str()), policy: LabelValue(policy) };
        self.moved_places.get_or_create(&labels).set(part);
    }
}

impl Observe for Metrics {
    fn handoff(&self, result: &'static str) {
        Metrics::handoff(self, result);
    }

    fn ended(&self, ending: ConnectionEnd) {
        Metrics::ended(self, ending);
    }

    fn open(&self, is_open: bool) {
        count(&self.connections, is_open);
    }

    fn remote(&self, is_remote: bool) {
        count(&self.handed_over, is_remote);
    }
}

fn count(gauge: &Gauge, up: bool) {
    if up {
        gauge.inc()
    } else {
        gauge.dec()
    };
}

// The counters are 64 bits wide on every platform that Levada runs on.
const _: () = assert!(size_of::<AtomicU64>() == 8);
