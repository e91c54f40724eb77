//! Batches on their way to a collector. Requests never wait for it: what it does not take in time is lost and
//! counted.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use prost::Message;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout, timeout_at},
};

use crate::{
    metrics::{Counter, MetricSnapshot, Registry},
    otel::{
        message::{ExportRequest, ExportResponse, Resource},
        metrics,
    },
};

/// Items of a batch.
const BATCH: usize = 512;
/// The time until a batch is sent that is not full.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// The time that a collector has for a batch.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);
/// The wait before a batch is sent again, which doubles until the timeout.
const RETRY_BACKOFF: Duration = Duration::from_millis(500);
/// The interval at which failures are logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The kinds of data that a collector takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Spans of requests.
    Traces,
    /// The page of metrics.
    Metrics,
    /// Lines of logs.
    Logs,
}

impl Signal {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Traces, Self::Metrics, Self::Logs];

    /// The path of OTLP over HTTP.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Metrics => "/v1/metrics",
            Self::Logs => "/v1/logs",
        }
    }

    const fn items(self) -> &'static str {
        match self {
            Self::Traces => "spans",
            Self::Metrics => "metric points",
            Self::Logs => "log records",
        }
    }
}

/// Why a collector has not taken a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryError {
    /// It will not take it.
    Refused(String),
    /// It may take it later.
    Unavailable(String),
}

/// The answer of a collector that has taken a batch.
pub type Delivery = Result<Bytes, DeliveryError>;

/// The way to a collector.
pub trait Collector: Send + Sync + 'static {
    /// Sends a message of OTLP, in protobuf.
    fn deliver(&self, signal: Signal, message: Bytes) -> impl Future<Output = Delivery> + Send;
}

/// Counts what is exported of one signal.
#[derive(Clone, Default)]
pub struct ExportCounts {
    /// Items that a collector has taken.
    pub exported: Counter,
    /// Items that were not exported: the queue was full, or the collector did not take them.
    pub dropped: Counter,
}

/// Counts what is exported.
#[derive(Clone, Default)]
pub struct ExportMetrics {
    /// Spans.
    pub spans: ExportCounts,
    /// Data points of metrics.
    pub metric_points: ExportCounts,
    /// Records of logs.
    pub log_records: ExportCounts,
}

impl ExportMetrics {
    /// The counters, which `registry` shows.
    pub fn registered(registry: &mut Registry) -> Self {
        let [spans, metric_points, log_records] = Signal::ALL.map(|signal| {
            let (items, name) = (signal.items(), signal.items().replace(' ', "_"));
            let help = format!("Items that the collector has taken: {items}");
            let exported = registry.metric(&format!("{name}_exported"), &help);
            let help = format!(
                "Items that were lost because the collector was too slow, failed, or refused them: {items}"
            );
            let dropped = registry.metric(&format!("{name}_dropped"), &help);
            ExportCounts { exported, dropped }
        });
        Self { spans, metric_points, log_records }
    }
}

/// Things that wait in a queue, each of one or several items.
pub(crate) trait Batched {
    type Item: Message + Default;

    fn count(&self) -> usize;

    fn move_to(self, batch: &mut Vec<Self::Item>);
}

/// The way of one signal to a collector.
pub(crate) struct Outbox<C> {
    collector: Arc<C>,
    signal: Signal,
    counts: ExportCounts,
    logged: Option<Instant>,
    stop: watch::Receiver<bool>,
}

impl<C: Collector> Outbox<C> {
    pub(crate) fn new(
        collector: &Arc<C>,
        (signal, counts): (Signal, &ExportCounts),
        stop: &watch::Sender<bool>,
    ) -> Self {
        let (collector, counts) = (collector.clone(), counts.clone());
        Self { collector, signal, counts, logged: None, stop: stop.subscribe() }
    }

    /// Exports what comes through a queue until the queue or the node ends. What waits then is still sent.
    pub(crate) async fn batches<T: Batched>(
        mut self,
        mut queue: mpsc::Receiver<T>,
        resource: Resource,
    ) {
        while let Some(first) = self.next(&mut queue).await {
            let (mut count, mut waiting) = (first.count(), vec![first]);
            let until = Instant::now() + BATCH_DELAY;
            while count < BATCH {
                let Ok(Some(more)) = timeout_at(until, self.next(&mut queue)).await else { break };
                count += more.count();
                waiting.push(more);
            }
            let mut batch = Vec::with_capacity(count);
            waiting.into_iter().for_each(|one| one.move_to(&mut batch));
            self.send(count as u64, ExportRequest::new(resource.clone(), batch)).await;
        }
    }

    /// The next thing of a queue, which ends with the node.
    async fn next<T>(&mut self, queue: &mut mpsc::Receiver<T>) -> Option<T> {
        if !queue.is_closed() {
            tokio::select! {
                next = queue.recv() => return next,
                () = stopped(&mut self.stop) => queue.close(),
            }
        }
        queue.recv().await
    }

    /// Exports the metrics each time, and once more when the node ends. `read` is `None` when it has ended.
    pub(crate) async fn pages(
        mut self,
        every: Duration,
        read: impl Fn() -> Option<Vec<MetricSnapshot>>,
        resource: Resource,
    ) {
        let start = SystemTime::now();
        loop {
            let ends = timeout(every, stopped(&mut self.stop)).await.is_ok();
            let Some(page) = read() else { return };
            let (points, message) = metrics::message(&resource, &page, start, SystemTime::now());
            self.send(points, message).await;
            if ends {
                return;
            }
        }
    }

    async fn send(&mut self, items: u64, message: impl Message) {
        let message = Bytes::from(message.encode_to_vec());
        let (until, mut pause) = (Instant::now() + DELIVERY_TIMEOUT, RETRY_BACKOFF);
        let taken = loop {
            let delivery = timeout_at(until, self.collector.deliver(self.signal, message.clone()));
            match delivery.await {
                Ok(Ok(answer)) => break Ok(rejected(answer)),
                Ok(Err(DeliveryError::Unavailable(_))) if Instant::now() + pause < until => {
                    sleep(pause).await;
                    pause *= 2;
                }
                Ok(Err(DeliveryError::Refused(why) | DeliveryError::Unavailable(why))) => {
                    break Err(why);
                }
                Err(_) => break Err("it does not answer".to_owned()),
            }
        };
        let (lost, reason) = match taken {
            Ok(None) => (0, String::new()),
            Ok(Some((rejected, reason))) => (rejected.min(items), reason),
            Err(reason) => (items, reason),
        };
        self.counts.exported.inc_by(items - lost);
        if lost > 0 {
            self.lost(lost, &reason);
        }
    }

    fn lost(&mut self, items: u64, reason: &str) {
        self.counts.dropped.inc_by(items);
        if self.logged.is_none_or(|logged| logged.elapsed() > LOG_INTERVAL) {
            self.logged = Some(Instant::now());
            let of = self.signal.items();
            tracing::warn!(lost = items, of, reason, "the collector has not taken all");
        }
    }
}

/// The part of a batch that a collector says to have left out, although it has taken the batch.
fn rejected(answer: Bytes) -> Option<(u64, String)> {
    let partial = ExportResponse::decode(answer).ok()?.partial_success?;
    let rejected = u64::try_from(partial.rejected).ok().filter(|rejected| *rejected > 0)?;
    Some((rejected, partial.error_message))
}

/// Returns when the node ends.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error says that nobody can stop it any more: the exporter is gone.
    let _ = stop.wait_for(|stopped| *stopped).await;
}
