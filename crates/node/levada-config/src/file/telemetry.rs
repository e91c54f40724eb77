//! `[telemetry]`: traces, metrics and logs for OpenTelemetry.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::Time;

/// Traces, metrics and logs for OpenTelemetry. See docs/operate/telemetry.md.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["endpoint"]))]
pub struct Telemetry {
    /// The URL of a collector that takes OTLP over HTTP in protobuf. `/v1/traces`, `/v1/metrics` and `/v1/logs` are
    /// appended.
    #[schemars(length(min = 1), extend("examples" = ["http://127.0.0.1:4318"]))]
    pub endpoint: Option<String>,
    /// The part of requests that are traced. A request of a `[[trusted]]` proxy that brings a trace (`traceparent`) is
    /// traced if the proxy traces it.
    #[schemars(range(min = 0, max = 1))]
    pub sample: f64,
    /// The time between two messages with the metrics of `/metrics`. Without this key they are not sent.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1h", "examples" = ["60s"]))]
    pub metrics_interval: Option<Time>,
    /// Whether the event log is sent, too. Access logs are by `access = "otlp"` in `[log]`.
    pub event_log: bool,
    /// The name of the service.
    #[schemars(length(min = 1))]
    pub service: String,
    /// Fields of each message to the collector, such as a token.
    #[schemars(extend("examples" = [{ "Authorization": "Bearer ${TOKEN}" }]))]
    pub headers: BTreeMap<String, String>,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            endpoint: None,
            sample: 0.01,
            metrics_interval: None,
            event_log: false,
            service: "levada".to_owned(),
            headers: BTreeMap::new(),
        }
    }
}
