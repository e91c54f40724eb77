//! All that a node exports: its traces, its page of metrics and its logs, each by a task of its own, so that one of
//! them holds up no other.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::timeout,
};

use crate::metrics::MetricSnapshot;
use crate::otel::{
    Collector, ExportMetrics, LogSender, Signal, Tracer,
    export::Outbox,
    logs::{self, WaitingRecord, export_events},
    message::{Resource, attribute},
    trace::{self, EndedTrace},
};

/// The kinds of data that are exported.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportSettings {
    /// The part of requests that are traced, of those without a trace of their own.
    pub sample: f64,
    /// The time between two pages of metrics; `None`: they are not exported.
    pub metrics_interval: Option<Duration>,
    /// Whether the event log is exported.
    pub event_log: bool,
    /// The name of the service.
    pub service: String,
    /// The name of the node.
    pub node: String,
}

/// The most time that the end of a node waits for its collector.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The exports of a node.
pub struct Exporter {
    /// Decides which requests are traced.
    pub tracer: Arc<Tracer>,
    /// Takes lines of access logs.
    pub logs: LogSender,
    settings: ExportSettings,
    metrics: ExportMetrics,
    /// Until the exports begin.
    queues: Mutex<Option<Queues>>,
    stop: watch::Sender<bool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

struct Queues {
    traces: mpsc::Receiver<EndedTrace>,
    records: mpsc::Receiver<WaitingRecord>,
}

impl Exporter {
    /// An exporter whose queues fill until it is started.
    pub fn new(settings: ExportSettings, metrics: &ExportMetrics) -> Self {
        let (to_traces, traces) = mpsc::channel(trace::QUEUE);
        let (to_records, records) = mpsc::channel(logs::QUEUE);
        let (spans, log_records) = (&metrics.spans, &metrics.log_records);
        Self {
            tracer: Tracer::new(settings.sample, to_traces, spans.dropped.clone()),
            logs: LogSender::new(to_records, log_records.dropped.clone()),
            settings,
            metrics: metrics.clone(),
            queues: Mutex::new(Some(Queues { traces, records })),
            stop: watch::Sender::new(false),
            tasks: Mutex::default(),
        }
    }

    /// Starts the exports, once. `page` reads the metrics, while the node lives.
    pub fn start(
        &self,
        collector: impl Collector,
        page: impl Fn() -> Option<Vec<MetricSnapshot>> + Send + Sync + 'static,
    ) {
        let Some(Queues { traces, records }) = self.queues.lock().take() else { return };
        let (collector, resource) = (Arc::new(collector), self.resource());
        let outbox = |signal, counts| Outbox::new(&collector, (signal, counts), &self.stop);
        let mut tasks = self.tasks.lock();
        let spans = outbox(Signal::Traces, &self.metrics.spans);
        tasks.push(tokio::spawn(spans.batches(traces, resource.clone())));
        let logs = outbox(Signal::Logs, &self.metrics.log_records);
        tasks.push(tokio::spawn(logs.batches(records, resource.clone())));
        if let Some(every) = self.settings.metrics_interval {
            let pages = outbox(Signal::Metrics, &self.metrics.metric_points);
            tasks.push(tokio::spawn(pages.pages(every, page, resource)));
        }
        if self.settings.event_log {
            export_events(Some(self.logs.clone()));
        }
    }

    /// Sends what waits, and the last page of metrics. A collector that takes too long does not get them.
    pub async fn close(&self) {
        if self.settings.event_log {
            export_events(None);
        }
        self.stop.send_replace(true);
        let tasks = std::mem::take(&mut *self.tasks.lock());
        let running: Vec<_> = tasks.iter().map(JoinHandle::abort_handle).collect();
        let ended = async {
            for task in tasks {
                let _ = task.await;
            }
        };
        if timeout(CLOSE_TIMEOUT, ended).await.is_err() {
            running.iter().for_each(|task| task.abort());
            tracing::warn!("the collector has not taken the last data of this node in time");
        }
    }

    fn resource(&self) -> Resource {
        let attributes = vec![
            attribute("service.name", self.settings.service.as_str()),
            attribute("service.instance.id", self.settings.node.as_str()),
            attribute("service.version", env!("CARGO_PKG_VERSION")),
        ];
        Resource { attributes }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, time::Instant};

    use bytes::Bytes;
    use http::HeaderMap;
    use prost::Message as _;

    use super::*;
    use crate::metrics::{Gauge, Registry};
    use crate::otel::{
        Attempt, BegunRequest, Delivery, DeliveryError, EndedRequest, LogRecord as Record,
        Severity, TRACEPARENT, Trace, TraceContext,
        message::{
            self, ExportRequest, ExportResponse, PartialSuccess, metrics::Metric, spans::Span,
        },
    };

    fn exporter(sample: f64, metrics: &ExportMetrics) -> Exporter {
        let settings = ExportSettings {
            sample,
            metrics_interval: Some(Duration::from_secs(3600)),
            event_log: false,
            service: "levada".to_owned(),
            node: "a".to_owned(),
        };
        Exporter::new(settings, metrics)
    }

    fn page() -> Option<Vec<MetricSnapshot>> {
        let mut registry = Registry::default();
        let _gauge: Gauge = registry.metric("g", "G");
        Some(registry.read())
    }

    fn begin(tracer: &Arc<Tracer>, headers: &mut HeaderMap, from_peer: bool) -> Option<Arc<Trace>> {
        tracer.begin(
            headers,
            &BegunRequest {
                method: "GET",
                scheme: "http",
                host: "site.test",
                target: "/a?b",
                began: Instant::now(),
                from_peer,
                is_trusted: true,
            },
        )
    }

    fn end(trace: &Trace) {
        let (cache, decision) = ("miss", None);
        trace.end(&EndedRequest { status: 200, bytes: 3, cache, decision, complete: true });
    }

    /// Keeps what it gets. Each answer says to have left out one item.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<(Signal, Bytes)>>>, i64);

    impl Collector for Kept {
        async fn deliver(&self, signal: Signal, message: Bytes) -> Delivery {
            self.0.lock().push((signal, message));
            let partial = PartialSuccess { rejected: self.1, error_message: "no".to_owned() };
            let answer = ExportResponse { partial_success: (self.1 > 0).then_some(partial) };
            Ok(answer.encode_to_vec().into())
        }
    }

    impl Kept {
        fn of(&self, signal: Signal) -> Vec<Bytes> {
            let all = self.0.lock();
            all.iter().filter(|(of, _)| *of == signal).map(|(_, text)| text.clone()).collect()
        }

        fn spans(&self) -> Vec<Span> {
            let decoded = |bytes| ExportRequest::<Span>::decode(bytes).unwrap().resources;
            let resources = self.of(Signal::Traces).into_iter().flat_map(decoded);
            resources.flat_map(|one| one.scopes).flat_map(|scope| scope.items).collect()
        }
    }

    /// Takes a message and says nothing.
    struct Hangs;

    impl Collector for Hangs {
        async fn deliver(&self, _: Signal, _: Bytes) -> Delivery {
            std::future::pending().await
        }
    }

    /// Is away at first, as many times as this says.
    struct Away(Mutex<u32>, Kept);

    impl Collector for Away {
        async fn deliver(&self, signal: Signal, message: Bytes) -> Delivery {
            let left = self.0.lock().checked_sub(1);
            if let Some(left) = left {
                *self.0.lock() = left;
                return Err(DeliveryError::Unavailable("away".to_owned()));
            }
            self.1.deliver(signal, message).await
        }
    }

    #[tokio::test]
    async fn spans_of_a_request_are_a_tree_below_its_caller() {
        let (metrics, kept) =
            (ExportMetrics::registered(&mut Registry::default()), Kept::default());
        let exporter = exporter(0.0, &metrics);
        exporter.start(kept.clone(), page);
        let caller = TraceContext { trace: 7, span: 9, sampled: true };
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, caller.field());
        let began = Instant::now();
        let trace = begin(&exporter.tracer, &mut headers, false).unwrap();
        let sent = TraceContext::of(&headers).unwrap();
        assert_eq!((sent.trace, sent.sampled), (7, true));
        assert_eq!(trace.context(), sent);
        trace.stage("admission");
        let asked = trace.ask();
        let outcome = Err("connection_refused");
        let attempt = Attempt { kind: "origin", server: "o:80", began, earlier: 1, outcome };
        trace.asked(asked, &attempt);
        let leader = TraceContext { trace: 5, span: 6, sampled: true };
        trace.follows(leader);
        trace.stage("wait");
        trace.stage("body");
        end(&trace);
        drop(trace);
        exporter.close().await;
        let spans = kept.spans();
        assert_eq!(metrics.spans.exported.get(), 5);
        let by_name: HashMap<_, _> = spans.iter().map(|span| (&*span.name, span)).collect();
        let (root, below) = (by_name["GET"], [by_name["admission"], by_name["origin"]]);
        assert_eq!(root.parent_span_id, caller.span.to_be_bytes());
        assert_eq!(root.span_id, sent.span.to_be_bytes());
        assert!(below.iter().all(|span| span.parent_span_id == root.span_id));
        assert_eq!(by_name["origin"].span_id, asked.span.to_be_bytes());
        assert!(spans.iter().all(|span| span.trace_id == caller.trace.to_be_bytes()));
        let [link] = &by_name["wait"].links[..] else { panic!("{spans:?}") };
        assert_eq!(link.trace_id, leader.trace.to_be_bytes());
        assert_eq!(link.span_id, leader.span.to_be_bytes());
        assert!(by_name["body"].links.is_empty());
    }

    #[tokio::test]
    async fn caller_decides_and_otherwise_the_sample() {
        let metrics = ExportMetrics::registered(&mut Registry::default());
        let tracer = |sample| exporter(sample, &metrics).tracer;
        let (never, always) = (tracer(0.0), tracer(1.0));
        let caller = |sampled| {
            let mut headers = HeaderMap::new();
            headers.insert(TRACEPARENT, TraceContext { trace: 7, span: 9, sampled }.field());
            headers
        };
        assert!(begin(&never, &mut caller(true), false).is_some());
        assert!(begin(&always, &mut caller(false), false).is_none());
        assert!(begin(&never, &mut HeaderMap::new(), false).is_none());
        assert!(begin(&always, &mut HeaderMap::new(), false).is_some());
        assert!(begin(&always, &mut HeaderMap::new(), true).is_none(), "a peer has decided");
        let some = tracer(0.25);
        let traced = (0..4000).filter(|_| begin(&some, &mut HeaderMap::new(), false).is_some());
        assert!((800..1200).contains(&traced.count()));
    }

    #[tokio::test(start_paused = true)]
    async fn collector_that_hangs_holds_up_nobody_and_lost_items_are_counted() {
        let metrics = ExportMetrics::registered(&mut Registry::default());
        let exporter = exporter(1.0, &metrics);
        exporter.start(Hangs, page);
        for _ in 0..5000 {
            end(&begin(&exporter.tracer, &mut HeaderMap::new(), false).unwrap());
            exporter.logs.send(Record::new(Severity::Info, "line"));
        }
        assert_eq!(metrics.spans.dropped.get(), 5000 - trace::QUEUE as u64);
        assert_eq!(metrics.log_records.dropped.get(), 5000 - logs::QUEUE as u64);
        let begun = tokio::time::Instant::now();
        exporter.close().await;
        assert_eq!(begun.elapsed(), CLOSE_TIMEOUT);
        assert_eq!(metrics.spans.exported.get() + metrics.log_records.exported.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn batch_is_sent_again_until_a_collector_is_back() {
        let (metrics, kept) =
            (ExportMetrics::registered(&mut Registry::default()), Kept::default());
        let exporter = exporter(1.0, &metrics);
        exporter.start(Away(Mutex::new(3), kept.clone()), page);
        end(&begin(&exporter.tracer, &mut HeaderMap::new(), false).unwrap());
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert_eq!((metrics.spans.exported.get(), metrics.spans.dropped.get()), (1, 0));
        let away = Away(Mutex::new(u32::MAX), kept);
        let exporter = super::tests::exporter(1.0, &metrics);
        exporter.start(away, page);
        end(&begin(&exporter.tracer, &mut HeaderMap::new(), false).unwrap());
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert_eq!((metrics.spans.exported.get(), metrics.spans.dropped.get()), (1, 1));
    }

    #[tokio::test]
    async fn what_waits_at_the_end_is_sent_and_what_is_rejected_is_counted() {
        let (metrics, kept) =
            (ExportMetrics::registered(&mut Registry::default()), Kept(Arc::default(), 1));
        let exporter = exporter(1.0, &metrics);
        let mut record = Record::new(Severity::Warn, "a line");
        record.add("k", 3);
        record.belongs_to(TraceContext { trace: 1, span: 2, sampled: true });
        exporter.logs.send(record);
        exporter.logs.send(Record::new(Severity::Info, "another"));
        exporter.start(kept.clone(), page);
        exporter.close().await;
        let [logs] = &kept.of(Signal::Logs)[..] else { panic!() };
        let request = ExportRequest::<message::logs::LogRecord>::decode(logs.clone()).unwrap();
        let resource = &request.resources[0];
        assert_eq!(resource.resource.as_ref().unwrap().attributes.len(), 3);
        let [first, second] = &resource.scopes[0].items[..] else { panic!() };
        assert_eq!((first.severity_number, first.attributes.len()), (13, 1));
        assert_eq!((first.trace_id.len(), second.trace_id.len()), (16, 0));
        let counts = metrics.log_records;
        assert_eq!((counts.exported.get(), counts.dropped.get()), (1, 1));
        let [pages] = &kept.of(Signal::Metrics)[..] else { panic!() };
        let request = ExportRequest::<Metric>::decode(pages.clone()).unwrap();
        assert_eq!(request.resources[0].scopes[0].items[0].name, "g");
    }
}
