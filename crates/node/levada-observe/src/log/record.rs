//! A request as a record for a collector: its line, and what is asked for most as attributes, with the names of
//! OpenTelemetry's semantic conventions where they have one.

use crate::otel::{LogRecord, Severity};

use crate::log::LogEntry;

impl LogEntry<'_> {
    pub(crate) fn record(&self, shown: &str) -> LogRecord {
        let line = self.line;
        let is_failure = self.status.is_server_error() || !self.complete;
        let severity = if is_failure { Severity::Error } else { Severity::Info };
        let mut record = LogRecord::new(severity, shown);
        let (path, query) = line.target.split_once('?').unwrap_or((&line.target, ""));
        record.add("client.address", line.client.to_string());
        record.add("http.request.method", line.method.as_str());
        record.add("url.scheme", line.scheme);
        record.add("server.address", line.host.as_str());
        record.add("url.path", path);
        record.add("http.response.status_code", i64::from(self.status.as_u16()));
        record.add("http.response.body.size", i64::try_from(self.bytes).unwrap_or(i64::MAX));
        record.add("levada.duration", self.request_time.as_secs_f64());
        record.add("levada.cache", self.cache);
        let optional = [
            ("url.query", Some(query).filter(|query| !query.is_empty())),
            ("levada.upstream", line.upstream.as_deref()),
            ("error.type", line.failure),
            ("levada.request_id", line.request_id.as_ref().and_then(|id| id.to_str().ok())),
        ];
        for (key, value) in optional {
            if let Some(value) = value {
                record.add(key, value);
            }
        }
        if let Some(span) = line.span {
            record.belongs_to(span);
        }
        record
    }
}
