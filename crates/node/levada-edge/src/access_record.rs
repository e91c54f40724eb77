//! The record of a request, from its head to the end of its response: counts, and the line of the
//! access log.
//!
//! An [`AccessRecord`] is owned by the response's body. When the body ends, or the client disconnects,
//! the record drops, and with it every count that the request holds. No error path can leak one.

use std::{net::IpAddr, sync::Arc, time::Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use http::{HeaderValue, Response, StatusCode};
use levada_access::{
    client_shares::ClientPlace, concurrency::ConcurrencyPlace, trust::TrustBoundary,
};
use levada_observe::log::{
    AccessLine, LogEntry, Pieces,
    access_log::{Log, Logs},
};
use levada_policy::{Outstanding, Pick, RequestOutcome};
use levada_redirector::{ChosenServer, Decider};

use levada_control::status::LatencyBuckets;
use levada_http::websocket::{EndReason, TunnelEnd};
use levada_observe::metrics::{AnsweredRequest, CacheResult, Counter, SiteMetrics, Work, did};
use levada_observe::otel::{BegunRequest, EndedRequest, Exporter, Trace, TraceContext, Tracer};
use levada_observe::redact::RedactedArguments;
use levada_upstream::{Clock, CollectorSettings};

use crate::{metrics::Metrics, node_error::NodeError, request::RequestContext, resource::Resource};
use levada_config::AccessLog;
use levada_failure::{BodyError, Failed, Failure};

/// The parts of a node that records are written to.
pub struct Telemetry {
    pub(crate) clock: Clock,
    pub(crate) metrics: Arc<Metrics>,
    /// The access logs of all sites.
    pub logs: Logs,
    /// The access log of sites that have none of their own, if enabled.
    pub log: ArcSwapOption<Log>,
    /// The query arguments whose values spans leave out.
    pub redact: ArcSwap<RedactedArguments>,
    /// The times of responses to clients.
    pub(crate) latencies: LatencyBuckets,
    /// Requests that were refused because the node was full.
    pub(crate) refused: Counter,
    /// Exports traces, metrics and logs, if the node has a collector.
    pub exporter: Option<Exporter>,
}

impl Telemetry {
    /// Without access logs yet.
    pub(crate) fn new(
        clock: Clock,
        metrics: Arc<Metrics>,
        collector: Option<&CollectorSettings>,
    ) -> Self {
        let exporter = collector.map(|collector| collector.exporter(&metrics.exports));
        let records = exporter.as_ref().map(|exporter| exporter.logs.clone());
        let logs = Logs::new(metrics.log_lines_dropped.clone(), records);
        let (latencies, refused) = (LatencyBuckets::default(), Counter::default());
        let (log, redact) = (ArcSwapOption::empty(), ArcSwap::default());
        Self { clock, metrics, logs, log, redact, latencies, refused, exporter }
    }

    /// Waits for what is written and exported last. Readers and collectors that stand still cost two seconds.
    pub async fn close(&self) {
        let exported = async {
            if let Some(exporter) = &self.exporter {
                exporter.close().await;
            }
        };
        tokio::join!(self.logs.close(), exported);
    }

    /// Opens an access log.
    pub fn open(&self, log: Option<&AccessLog>) -> Result<Option<Arc<Log>>, NodeError> {
        log.map(|log| self.logs.open(log).map_err(NodeError::Log)).transpose()
    }
}

/// Counts of a transfer in pieces, which may still be running.
pub(crate) trait TransferCounts: Send + Sync {
    fn counts(&self) -> Pieces;
}

/// The record of one request.
pub(crate) struct AccessRecord {
    telemetry: Arc<Telemetry>,
    started: Instant,
    /// When the connection became a tunnel.
    switched: Option<Instant>,
    head_sent: Option<Instant>,
    pub(crate) status: StatusCode,
    pub(crate) cache: CacheResult,
    pub(crate) pick: Option<Pick>,
    /// The server of a switch that the stored response comes from.
    pub(crate) chosen: Option<ChosenServer>,
    /// The tags of the response, for a node of another region.
    pub(crate) tags: Option<HeaderValue>,
    /// The count as outstanding at the node that the policy chose.
    pub(crate) outstanding: Option<Outstanding>,
    /// The count as in service at this node.
    pub(crate) in_service: Option<ClientPlace>,
    /// The counts as one of the requests that are served at once, by the limits of the site.
    pub(crate) places: Vec<ConcurrencyPlace>,
    /// The decider that learns from the request's duration.
    pub(crate) decider: Option<Arc<Decider>>,
    /// Whether the request came from a peer.
    pub(crate) from_peer: bool,
    /// The counts of a large file's transfer.
    pub(crate) pieces: Option<Arc<dyn TransferCounts>>,
    /// The request is for a piece that this node fetches for a transfer, which counts it.
    is_piece: bool,
    site: Option<Arc<SiteMetrics>>,
    bytes: u64,
    complete: bool,
    line: Option<Box<AccessLine>>,
    /// The trace, if the request is traced.
    trace: Option<Arc<Trace>>,
}

impl AccessRecord {
    pub(crate) fn begin(telemetry: &Arc<Telemetry>, from_peer: bool) -> Box<Self> {
        telemetry.metrics.requests.began();
        Box::new(Self {
            telemetry: telemetry.clone(),
            started: Instant::now(),
            switched: None,
            head_sent: None,
            status: StatusCode::OK,
            cache: CacheResult::None,
            pick: None,
            chosen: None,
            tags: None,
            outstanding: None,
            in_service: None,
            places: Vec::new(),
            decider: None,
            from_peer,
            pieces: None,
            is_piece: false,
            site: None,
            bytes: 0,
            complete: false,
            line: None,
            trace: None,
        })
    }

    /// A record for a piece that this node requests itself.
    pub(crate) fn of_piece(telemetry: &Arc<Telemetry>) -> Box<Self> {
        let mut record = Self::begin(telemetry, false);
        record.is_piece = true;
        record
    }

    /// Notes the site, and the client and the request if the site has an access log. Begins the trace.
    pub(crate) fn note(&mut self, context: &mut RequestContext, trust: &ArcSwap<TrustBoundary>) {
        self.site = Some(context.resource.site.metrics.clone());
        if let Some(exporter) = &self.telemetry.exporter {
            self.trace = self.traced(&exporter.tracer, context, trust);
            self.stage("admission");
        }
        let log = match &context.resource.site.log {
            Some(own) => own.clone(),
            None => self.telemetry.log.load_full(),
        };
        let Some(log) = log else { return };
        let RequestContext { connection, resource, parts, .. } = &*context;
        self.line = Some(Box::new(AccessLine {
            fields: log.capture(&parts.headers),
            target: match &resource.piece {
                Some(piece) => piece.url.affix(&log.shown(resource.target())),
                None => log.shown(context.asked()).into_owned(),
            },
            log,
            client: if self.from_peer { connection.client } else { context.client },
            method: parts.method.clone(),
            scheme: resource.scheme(),
            host: resource.host().to_owned(),
            version: parts.version,
            upstream: None,
            policy: resource.site.decider.name(),
            request_id: None,
            failure: None,
            span: self.trace.as_ref().map(|trace| trace.context()),
        }));
    }

    fn traced(
        &self,
        tracer: &Arc<Tracer>,
        context: &mut RequestContext,
        trust: &ArcSwap<TrustBoundary>,
    ) -> Option<Arc<Trace>> {
        let RequestContext { connection, resource, parts, .. } = context;
        let is_ours = self.from_peer || self.is_piece;
        let redact = self.telemetry.redact.load();
        let request = BegunRequest {
            method: parts.method.as_str(),
            scheme: resource.scheme(),
            host: resource.host(),
            target: &redact.without(resource.target()),
            began: self.started,
            from_peer: self.from_peer,
            is_trusted: is_ours || trust.load().trusts(connection.client),
        };
        let trace = tracer.begin(&mut parts.headers, &request)?;
        parts.extensions.insert(trace.clone());
        Some(trace)
    }

    /// Notes the identifier of the request, if there is an access log or a trace.
    pub(crate) fn identify(&mut self, id: HeaderValue) {
        if let (Some(trace), Ok(id)) = (&self.trace, id.to_str()) {
            trace.note("levada.request_id", id);
        }
        if let Some(line) = &mut self.line {
            line.request_id = Some(id);
        }
    }

    /// The policy has decided for the node with this slot.
    pub(crate) fn decided(&mut self, resource: &Resource, pick: Pick, slot: usize) {
        self.pick = Some(pick);
        self.stage("decision");
        let decider = resource.decider();
        self.decider = decider.observes().then(|| decider.clone());
        if let Some(piece) = &resource.piece {
            piece.set_source(slot);
        }
    }

    /// A peer has answered.
    pub(crate) fn relayed_by(&mut self, peer: Arc<str>, pick: Pick) {
        self.pick = Some(pick);
        self.cache = CacheResult::Relayed;
        if let Some(line) = &mut self.line {
            line.upstream = Some(peer);
        }
    }

    /// A server of the site's switch has answered.
    pub(crate) fn switched_to(&mut self, chosen: ChosenServer) {
        self.pick = Some(chosen.pick);
        if let Some(line) = &mut self.line {
            line.upstream = Some(chosen.server);
        }
    }

    /// The request could not be served.
    pub(crate) fn failed(&mut self, client: IpAddr, failed: &Failed) {
        let reason = failed.failure.as_str();
        tracing::info!(%client, status = failed.failure.status().as_u16(), reason, "refused");
        if matches!(failed.failure, Failure::Overload) {
            self.telemetry.refused.inc();
        }
        if let Some(line) = &mut self.line {
            line.failure = Some(reason);
            line.upstream.clone_from(&failed.next_hop);
        }
    }

    /// The rules of the site refuse the request.
    pub(crate) fn refused(&mut self, client: IpAddr, status: StatusCode, reason: &'static str) {
        tracing::info!(%client, status = status.as_u16(), reason, "refused");
        if let Some(line) = &mut self.line {
            line.failure = Some(reason);
        }
    }

    /// Whether the line of the access log has fields of the response.
    pub(crate) fn reads_response(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.reads_response())
    }

    /// The head is on its way.
    pub(crate) fn head<B>(&mut self, response: &Response<B>) {
        self.status = response.status();
        self.stage(match self.cache {
            CacheResult::Hit => "response",
            CacheResult::Collapsed => "wait",
            _ => "fetch",
        });
        if let Some(line) = &mut self.line {
            line.note_response(response.headers());
        }
        // Only a policy that learns from service times needs it.
        self.head_sent = self.decider.as_ref().map(|_| Instant::now());
    }

    /// Ends a stage of the request, if it is traced.
    pub(crate) fn stage(&self, name: &'static str) {
        if let Some(trace) = &self.trace {
            trace.stage(name);
        }
    }

    /// The request waits for the fetch of another one, with this trace.
    pub(crate) fn follows(&self, other: impl FnOnce() -> Option<TraceContext>) {
        if let Some(trace) = &self.trace
            && let Some(other) = other()
        {
            trace.follows(other);
        }
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        did(Work::Bytes);
    }

    pub(crate) fn finished(&mut self) {
        self.complete = true;
    }

    /// The connection becomes a tunnel, which lasts as long as its ends like.
    pub(crate) fn switched(&mut self) {
        self.in_service = None;
        self.complete = false;
        self.switched = Some(Instant::now());
    }

    /// The tunnel has ended.
    pub(crate) fn tunnelled(&mut self, end: &TunnelEnd) {
        self.bytes = end.from_server;
        self.complete = end.reason == EndReason::Closed;
        if let Some(line) = self.line.as_mut().filter(|_| !self.complete) {
            line.failure = Some(end.reason.as_str());
        }
    }

    /// The body will not be complete: the client's connection is cut.
    pub(crate) fn cut(&mut self, error: &BodyError) {
        match error {
            // A drain causes many, and a metric counts them.
            BodyError::Moved => tracing::debug!(%error, "response cut"),
            _ => tracing::info!(%error, "response cut"),
        }
        if let Some(line) = &mut self.line {
            line.failure = Some("body cut");
        }
    }

    /// `None` if the node has left.
    fn outcome(&self, pick: Pick) -> Option<RequestOutcome> {
        let service_time = self.started.elapsed();
        let latency = self.head_sent.map_or(service_time, |at| at - self.started);
        let counted = self.outstanding.as_ref();
        Some(RequestOutcome {
            node: counted.map_or(Some(pick.node), Outstanding::node_now)?,
            latency,
            service_time,
            ok: self.complete && !self.status.is_server_error(),
        })
    }
}

impl Drop for AccessRecord {
    fn drop(&mut self) {
        let metrics = &self.telemetry.metrics;
        metrics.requests.in_flight.dec();
        if !self.is_piece {
            let request = AnsweredRequest {
                from_peer: self.from_peer,
                status: self.status,
                cache: self.cache,
                bytes: self.bytes,
                elapsed: self.switched.unwrap_or_else(Instant::now) - self.started,
            };
            metrics.requests.answered(self.site.as_deref(), request);
            if self.cache == CacheResult::Collapsed {
                metrics.cache.coalesced.inc();
            }
            if !self.from_peer {
                self.telemetry.latencies.count(request.elapsed);
            }
            if !self.complete && self.switched.is_none() {
                metrics.aborted.inc();
            }
        }
        if let (Some(decider), Some(pick)) = (&self.decider, self.pick)
            && let Some(outcome) = self.outcome(pick)
        {
            decider.observe(&outcome, self.telemetry.clock.now());
        }
        if let Some(line) = &self.line {
            let entry = LogEntry {
                line,
                status: self.status,
                bytes: self.bytes,
                request_time: self.started.elapsed(),
                cache: self.cache.as_str(),
                decision: self.pick.map_or("-", |p| p.reason.as_str()),
                candidates: self.pick.map_or(0, |p| p.set_size),
                complete: self.complete,
                pieces: self.pieces.as_ref().map(|transfer| transfer.counts()),
            };
            entry.write();
        }
        if let Some(trace) = &self.trace {
            trace.stage("body");
            trace.end(&EndedRequest {
                status: self.status.as_u16(),
                bytes: self.bytes,
                cache: self.cache.as_str(),
                decision: self.pick.map(|pick| pick.reason.as_str()),
                complete: self.complete,
            });
        }
    }
}
