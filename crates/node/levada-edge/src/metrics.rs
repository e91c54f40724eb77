//! The metrics of a node: the collectors of all crates, and what the edge counts itself, in the order of the page.

use std::sync::Arc;

use levada_access::process::{self, MemoryMetrics};
use levada_body::{LargeMetrics, compress::CompressMetrics};
use levada_cluster::announce::{RouteMetrics, drain::DrainMetrics};
use levada_cluster::purge::PurgeMetrics;
use levada_discovery::DiscoveryMetrics;
use levada_http::{ConnectionMetrics, websocket::TunnelMetrics};
use levada_http3::QuicMetrics;
use levada_observe::{
    metrics::{Counter, CpuMetrics, Family, Gauge, Registry, RequestMetrics},
    otel::ExportMetrics,
};
use levada_redirector::{PolicyMetrics, ServerMetrics, handoff::HandoffMetrics};
use levada_store::{CacheMetrics, disk::DiskMetrics};
use levada_tls::{acme::CertificateMetrics, metrics::TlsMetrics};

/// All metrics of a node.
pub struct Metrics {
    pub(crate) registry: Registry,
    /// Requests and their responses.
    pub requests: RequestMetrics,
    pub(crate) memory: MemoryMetrics,
    /// Connections that were closed at once.
    pub connections_refused: Counter,
    /// Evaluations of expressions that failed.
    pub expression_failures: Counter,
    pub(crate) log_lines_dropped: Counter,
    pub(crate) aborted: Counter,
    /// Decisions of policies.
    pub policies: Arc<PolicyMetrics>,
    /// Objects that a former process has left.
    pub takeover_objects: Gauge,
    /// Connections of clients and peers.
    pub connections: ConnectionMetrics,
    pub(crate) handoffs: Arc<HandoffMetrics>,
    pub(crate) spliced: Counter,
    pub(crate) dormant_returned: Counter,
    pub(crate) drain: DrainMetrics,
    pub(crate) route: RouteMetrics,
    /// HTTP/3.
    pub quic: QuicMetrics,
    pub(crate) certificates: CertificateMetrics,
    pub(crate) discovery: DiscoveryMetrics,
    pub(crate) cache: CacheMetrics,
    pub(crate) purges: PurgeMetrics,
    pub(crate) misses: Gauge,
    pub(crate) misses_waiting: Gauge,
    pub(crate) servers: ServerMetrics,
    reloads: Family<[&'static str; 1], Counter>,
    last_reload: Gauge,
    pub(crate) disk: DiskMetrics,
    pub(crate) compress: CompressMetrics,
    pub(crate) large: LargeMetrics,
    pub(crate) tunnels: TunnelMetrics,
    /// Processor time by kind of work.
    pub cpu: CpuMetrics,
    pub(crate) exports: ExportMetrics,
    /// Handshakes.
    pub tls: TlsMetrics,
}

impl Metrics {
    /// The metrics of a node that has just started.
    pub(crate) fn new() -> Self {
        let mut all = Registry::default();
        let r = all.part("levada");
        let build: Family<[&str; 1], Gauge> =
            r.family("build_info", "The version of this node", ["version"]);
        build.get_or_create(&[env!("CARGO_PKG_VERSION")]).set(1);
        let requests = RequestMetrics::registered(r);
        let memory = MemoryMetrics::registered(r);
        let connections_refused = r.metric(
            "connections_refused",
            "Connections that were closed because their client had its share of them, or memory was nearly full",
        );
        let expression_failures = r.metric(
            "expression_failures",
            "Evaluations of expressions in the configuration that failed",
        );
        let log_lines_dropped = r.metric(
            "log_lines_dropped",
            "Lines of the access log that were dropped because their reader was too slow or their write failed",
        );
        let aborted = r.metric("http_responses_aborted", "Responses that did not reach their end");
        let policies = Arc::new(PolicyMetrics::registered(r));
        let takeover_objects = r.metric(
            "takeover_objects",
            "Stored entries that this process took over from the one before it",
        );
        let connections = ConnectionMetrics::registered(r);
        let handoffs = Arc::new(HandoffMetrics::registered(r, &connections));
        let spliced = r.metric("spliced", "Bodies that the kernel moved from servers to clients");
        connections.show_ends(r);
        let dormant_returned = r.metric(
            "dormant_returned",
            "Range requests within 5 s by clients whose connection was given up as dormant",
        );
        let metrics = Self {
            requests,
            memory,
            connections_refused,
            expression_failures,
            log_lines_dropped,
            aborted,
            takeover_objects,
            handoffs,
            spliced,
            dormant_returned,
            drain: DrainMetrics::registered(r),
            route: RouteMetrics::registered(r),
            quic: QuicMetrics::registered(r, &connections.open),
            connections,
            certificates: CertificateMetrics::registered(r),
            discovery: DiscoveryMetrics::registered(r),
            cache: CacheMetrics::registered(r),
            purges: PurgeMetrics::registered(r),
            misses: r.metric("origin_requests_in_flight", "Requests in flight at origins"),
            misses_waiting: r
                .metric("origin_requests_waiting", "Requests that wait to be sent to an origin"),
            servers: ServerMetrics::registered(r, &policies.upstream),
            policies,
            reloads: r.family("config_reloads", "Reloads, by result", ["result"]),
            last_reload: r.metric(
                "config_last_reload_success",
                "Whether the last reload, or the start, was successful",
            ),
            disk: DiskMetrics::registered(r),
            compress: CompressMetrics::registered(r),
            large: LargeMetrics::registered(r),
            tunnels: TunnelMetrics::registered(r),
            cpu: CpuMetrics::registered(r),
            exports: ExportMetrics::registered(r),
            tls: TlsMetrics::registered(r),
            registry: {
                process::show(all.part("process"));
                all
            },
        };
        metrics.last_reload.set(1);
        metrics
    }

    /// Counts a reload.
    pub fn reloaded(&self, ok: bool) {
        self.reloads.get_or_create(&[if ok { "ok" } else { "failed" }]).inc();
        self.last_reload.set(i64::from(ok));
    }
}
