//! The spans of one request: the request itself, its stages at this node, and the servers that it asked.
//!
//! ```text
//!   GET                       the request, from its head to the end of the response
//!   ├─ admission              its head is judged
//!   ├─ decision               the policy chooses a node
//!   ├─ lookup                 the cache is asked
//!   ├─ fetch, wait            until the head of the response is there, by an own fetch or another request's
//!   │    origin, peer, server each try: what that server records lies below it
//!   └─ body                   until the body has ended
//! ```

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use http::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::metrics::Counter;
use crate::otel::{
    TRACEPARENT, TraceContext,
    context::TRACESTATE,
    export::Batched,
    message::{
        KeyValue, attribute,
        spans::{Link, Span, SpanKind, Status, StatusCode},
    },
};

/// Traces that wait for their export. With fifteen spans each they are a few megabytes.
pub(crate) const QUEUE: usize = 1024;
/// The most spans of one request: a large file has a fetch for each piece.
const SPANS: usize = 64;

/// Decides which requests are traced.
pub struct Tracer {
    /// A request is traced if its random number is below.
    threshold: u64,
    random: RandomState,
    count: AtomicU64,
    queue: mpsc::Sender<EndedTrace>,
    dropped: Counter,
}

/// The spans of a request that has ended.
pub(crate) struct EndedTrace(Vec<Span>);

impl Batched for EndedTrace {
    type Item = Span;

    fn count(&self) -> usize {
        self.0.len()
    }

    fn move_to(self, batch: &mut Vec<Span>) {
        batch.extend(self.0);
    }
}

impl Tracer {
    /// A tracer of this part of all requests that bring no trace. `dropped` counts spans that the queue has no room
    /// for.
    pub(crate) fn new(sample: f64, queue: mpsc::Sender<EndedTrace>, dropped: Counter) -> Arc<Self> {
        Arc::new(Self {
            // The conversion of floats saturates.
            threshold: (sample * u64::MAX as f64) as u64,
            random: RandomState::new(),
            count: AtomicU64::new(0),
            queue,
            dropped,
        })
    }

    /// Begins the trace of a request, if it is traced. Servers that the request is sent to find the trace in its
    /// fields. A client that is not trusted brings no trace. A request from a peer without a trace is none of the
    /// sample: the node that met the client has decided.
    pub fn begin(
        self: &Arc<Self>,
        headers: &mut HeaderMap,
        request: &BegunRequest<'_>,
    ) -> Option<Arc<Trace>> {
        if !request.is_trusted {
            headers.remove(TRACEPARENT);
            headers.remove(TRACESTATE);
        }
        let parent = TraceContext::of(headers);
        let is_traced = match parent {
            Some(parent) => parent.sampled,
            None => !request.from_peer && self.random() < self.threshold,
        };
        if !is_traced {
            return None;
        }
        let id = match parent {
            Some(parent) => parent.trace,
            None => u128::from(self.id()) << 64 | u128::from(self.id()),
        };
        let span = self.id();
        headers.insert(TRACEPARENT, TraceContext { trace: id, span, sampled: true }.field());
        let BegunRequest { method, scheme, host, target, began, .. } = *request;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut attributes = vec![
            attribute("http.request.method", method),
            attribute("url.scheme", scheme),
            attribute("server.address", host),
            attribute("url.path", path),
        ];
        if !query.is_empty() {
            attributes.push(attribute("url.query", query));
        }
        let (spans, links) = (Vec::new(), Vec::new());
        let state = State { stage: began, spans, links, attributes };
        Some(Arc::new(Trace {
            tracer: self.clone(),
            id,
            span,
            parent: parent.map(|parent| parent.span),
            method: method.to_owned(),
            began,
            began_at: SystemTime::now().checked_sub(began.elapsed()).unwrap_or(UNIX_EPOCH),
            state: Mutex::new(state),
        }))
    }

    fn random(&self) -> u64 {
        self.random.hash_one(self.count.fetch_add(1, Relaxed))
    }

    fn id(&self) -> u64 {
        self.random().max(1)
    }

    fn send(&self, spans: Vec<Span>) {
        let count = spans.len() as u64;
        if self.queue.try_send(EndedTrace(spans)).is_err() {
            self.dropped.inc_by(count);
        }
    }
}

/// The spans of a request. The last one that holds it sends them.
pub struct Trace {
    tracer: Arc<Tracer>,
    id: u128,
    span: u64,
    parent: Option<u64>,
    method: String,
    began: Instant,
    began_at: SystemTime,
    state: Mutex<State>,
}

struct State {
    /// When the stage began.
    stage: Instant,
    spans: Vec<Span>,
    /// Links of the stage to other traces.
    links: Vec<Link>,
    /// The attributes of the request.
    attributes: Vec<KeyValue>,
}

/// A request that begins.
pub struct BegunRequest<'a> {
    /// Its method.
    pub method: &'a str,
    /// The scheme of its URL.
    pub scheme: &'a str,
    /// The host.
    pub host: &'a str,
    /// The path, with the query.
    pub target: &'a str,
    /// When its head had come.
    pub began: Instant,
    /// Whether it comes from a peer.
    pub from_peer: bool,
    /// Whether its sender may say which trace it belongs to.
    pub is_trusted: bool,
}

/// A request that has ended.
pub struct EndedRequest<'a> {
    /// The status of the response.
    pub status: u16,
    /// Bytes of its body.
    pub bytes: u64,
    /// The source of the response.
    pub cache: &'a str,
    /// The reason of the policy's choice.
    pub decision: Option<&'a str>,
    /// Whether the response has ended.
    pub complete: bool,
}

/// The kind of a server that was asked.
pub type AttemptKind = &'static str;

/// A server that was asked.
pub struct Attempt<'a> {
    /// The kind of server.
    pub kind: AttemptKind,
    /// Its name.
    pub server: &'a str,
    /// When it was asked.
    pub began: Instant,
    /// How many were asked before.
    pub earlier: usize,
    /// The status of its response, or the reason why there is none.
    pub outcome: Result<u16, &'static str>,
}

impl Trace {
    /// The span of the request.
    pub fn context(&self) -> TraceContext {
        TraceContext { trace: self.id, span: self.span, sampled: true }
    }

    /// Adds an attribute to the span of the request.
    pub fn note(&self, key: &str, value: &str) {
        self.state.lock().attributes.push(attribute(key, value));
    }

    /// The present stage waits for this request, which is traced too.
    pub fn follows(&self, other: TraceContext) {
        let (trace_id, span_id) =
            (other.trace.to_be_bytes().to_vec(), other.span.to_be_bytes().to_vec());
        self.state.lock().links.push(Link { trace_id, span_id });
    }

    /// Ends a stage of the request, which began at the end of the one before.
    pub fn stage(&self, name: &'static str) {
        let now = Instant::now();
        let (began, links) = {
            let mut state = self.state.lock();
            (std::mem::replace(&mut state.stage, now), std::mem::take(&mut state.links))
        };
        let span = self.child(self.tracer.id(), name, began, now, Vec::new());
        self.add(Span { links, ..span });
    }

    /// The context for a server that is asked now.
    pub fn ask(&self) -> TraceContext {
        TraceContext { trace: self.id, span: self.tracer.id(), sampled: true }
    }

    /// Takes in the outcome of asking a server with this context.
    pub fn asked(&self, context: TraceContext, attempt: &Attempt<'_>) {
        let Attempt { kind, server, began, earlier, outcome } = attempt;
        let mut attributes = vec![attribute("server.address", *server)];
        if *earlier > 0 {
            attributes.push(attribute("http.request.resend_count", *earlier as i64));
        }
        let status = match outcome {
            Ok(status) => {
                attributes.push(attribute("http.response.status_code", i64::from(*status)));
                (*status >= 400).then_some("")
            }
            Err(reason) => {
                attributes.push(attribute("error.type", *reason));
                Some(*reason)
            }
        };
        let span = self.child(context.span, kind, *began, Instant::now(), attributes);
        self.add(Span { kind: SpanKind::Client.into(), status: status.map(failed), ..span });
    }

    /// Ends the span of the request.
    pub fn end(&self, request: &EndedRequest<'_>) {
        let EndedRequest { status, bytes, cache, decision, complete } = *request;
        let mut state = self.state.lock();
        let mut attributes = std::mem::take(&mut state.attributes);
        attributes.extend([
            attribute("http.response.status_code", i64::from(status)),
            attribute("http.response.body.size", i64::try_from(bytes).unwrap_or(i64::MAX)),
            attribute("levada.cache", cache),
        ]);
        attributes.extend(decision.map(|reason| attribute("levada.decision", reason)));
        let error = match (status, complete) {
            (500.., _) => Some(""),
            (_, false) => Some("the response was cut"),
            _ => None,
        };
        let span = self.child(self.span, &self.method, self.began, Instant::now(), attributes);
        let parent_span_id = self.parent.map_or_else(Vec::new, |id| id.to_be_bytes().to_vec());
        let kind = SpanKind::Server.into();
        // The span that all others hang on has its place also beyond the bound.
        let span = Span { parent_span_id, kind, status: error.map(failed), ..span };
        state.spans.push(span);
    }

    fn child(
        &self,
        id: u64,
        name: &str,
        began: Instant,
        ended: Instant,
        attributes: Vec<KeyValue>,
    ) -> Span {
        Span {
            trace_id: self.id.to_be_bytes().to_vec(),
            span_id: id.to_be_bytes().to_vec(),
            parent_span_id: self.span.to_be_bytes().to_vec(),
            name: name.to_owned(),
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: self.nanos(began),
            end_time_unix_nano: self.nanos(ended),
            attributes,
            links: Vec::new(),
            status: None,
        }
    }

    /// By the clock that the request has started with, so that a change of the system's time bends no trace.
    fn nanos(&self, at: Instant) -> u64 {
        let since = self.began_at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        (since + at.saturating_duration_since(self.began)).as_nanos() as u64
    }

    fn add(&self, span: Span) {
        let mut state = self.state.lock();
        match state.spans.len() < SPANS {
            true => state.spans.push(span),
            false => self.tracer.dropped.inc(),
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let spans = std::mem::take(&mut self.state.get_mut().spans);
        if !spans.is_empty() {
            self.tracer.send(spans);
        }
    }
}

fn failed(message: &str) -> Status {
    Status { message: message.to_owned(), code: StatusCode::Error.into() }
}
