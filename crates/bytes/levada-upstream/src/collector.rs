//! The way to a collector of OpenTelemetry: an origin like any other, which gets messages by POST.

use std::{sync::Arc, time::Duration};

use crate::{Origin, Server, UpstreamHead};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri,
    header::{CONTENT_TYPE, HOST},
};
use levada_observe::metrics::MetricSnapshot;
use levada_observe::otel::{
    Collector, Delivery, DeliveryError, ExportMetrics, ExportSettings, Exporter, Signal,
};

/// Where traces, metrics and logs go, and which ones.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectorSettings {
    /// The collector.
    pub server: Origin,
    /// The paths that take the signals.
    pub targets: CollectorTargets,
    /// Fields of each message, such as a token.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The kinds of data that are exported.
    pub export: ExportSettings,
}

/// The paths of a collector, by signal.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectorTargets([Uri; Signal::ALL.len()]);

impl CollectorTargets {
    /// The paths of OTLP over HTTP below this one; `None` if it is no path.
    pub fn below(prefix: &str) -> Option<Self> {
        let prefix = prefix.trim_end_matches('/');
        let target = |signal: Signal| format!("{prefix}{}", signal.path()).parse().ok();
        let [traces, metrics, logs] = Signal::ALL.map(target);
        Some(Self([traces?, metrics?, logs?]))
    }
}

/// The timeout for a connection, and for an answer. A collector that is slower delays the next lot, and nothing else.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer that is read.
const LARGEST_ANSWER: usize = 64 << 10;

struct Messages {
    server: Arc<Server>,
    /// By signal.
    heads: [UpstreamHead; Signal::ALL.len()],
}

impl CollectorSettings {
    /// The queues of what is exported, which fill until the exports start.
    pub fn exporter(&self, metrics: &ExportMetrics) -> Exporter {
        Exporter::new(self.export.clone(), metrics)
    }

    /// Starts the exports. `page` reads the metrics, while the node lives.
    pub fn start(
        &self,
        exporter: &Exporter,
        page: impl Fn() -> Option<Vec<MetricSnapshot>> + Send + Sync + 'static,
    ) {
        exporter.start(self.messages(), page);
    }

    fn messages(&self) -> Messages {
        let server = Server::of_node(&self.server, [Signal::ALL.len(), 0], TIMEOUT, 1);
        let mut headers: HeaderMap = self.headers.iter().cloned().collect();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        if let Ok(host) = HeaderValue::from_str(&server.address.host()) {
            headers.insert(HOST, host);
        }
        let heads = self.targets.0.clone().map(|uri| UpstreamHead {
            method: Method::POST,
            uri,
            headers: headers.clone(),
            ..UpstreamHead::get("/")
        });
        Messages { server, heads }
    }
}

impl Collector for Messages {
    async fn deliver(&self, signal: Signal, message: Bytes) -> Delivery {
        let name = &self.server.name;
        match self.server.ask(&self.heads[signal as usize], message, LARGEST_ANSWER).await {
            Ok((status, answer)) if status.is_success() => Ok(answer),
            Ok((status, _)) => {
                let reason = format!("{name} answers {status}");
                Err(match may_come_again(status) {
                    true => DeliveryError::Unavailable(reason),
                    false => DeliveryError::Refused(reason),
                })
            }
            Err(failure) => {
                Err(DeliveryError::Unavailable(format!("{name}: {}", failure.as_str())))
            }
        }
    }
}

/// The statuses of OTLP after which a message may be sent again.
fn may_come_again(status: StatusCode) -> bool {
    [429, 502, 503, 504].contains(&status.as_u16())
}
