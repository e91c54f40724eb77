//! The access log: one line per request, in formats that common log tools read.

use std::{
    io,
    net::IpAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::{HeaderValue, Method, StatusCode, Version};
use levada_fetch::Counts;
use prometheus_client::metrics::counter::Counter;

use crate::{LineQueue, LogTarget};

/// The access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// The file to append to; standard output when `None`.
    pub path: Option<PathBuf>,
    /// The format of a line.
    pub format: LogFormat,
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Apache's and nginx's combined format, with times, cache status and decision appended.
    Combined,
    /// One JSON object a line, nginx's variable names where they exist.
    Json,
}

/// The most time between a request and its line.
const DELAY: Duration = Duration::from_secs(1);

/// An open access log.
pub struct Log {
    lines: LineQueue,
    format: LogFormat,
}

impl Log {
    /// Opens the log.
    pub fn open(settings: &AccessLog, dropped: Counter) -> io::Result<Self> {
        let target = settings.path.clone().map_or(LogTarget::Stdout, LogTarget::File);
        Ok(Self { lines: LineQueue::start(target, DELAY, dropped)?, format: settings.format })
    }

    /// The format of its lines.
    pub fn format(&self) -> LogFormat {
        self.format
    }

    /// Writes a line.
    pub fn write(&self, line: &str) {
        self.lines.push(line);
    }

    /// Opens the file anew, which may have been renamed.
    pub fn reopen(&self) {
        self.lines.reopen();
    }

    /// Waits until all lines are written. A reader that does not read costs a second.
    pub async fn close(&self) {
        let lines = self.lines.clone();
        let _ = tokio::task::spawn_blocking(move || lines.flush(DELAY)).await;
    }
}

/// The fields of a log line that nothing else needs.
pub struct AccessLine {
    /// The client.
    pub client: IpAddr,
    /// The method.
    pub method: Method,
    /// The scheme.
    pub scheme: &'static str,
    /// The host.
    pub host: String,
    /// Path and query.
    pub target: String,
    /// The version of HTTP.
    pub version: Version,
    /// The field `Referer`.
    pub referer: Option<HeaderValue>,
    /// The field `User-Agent`.
    pub user_agent: Option<HeaderValue>,
    /// The server that answered.
    pub upstream: Option<Arc<str>>,
    /// The site's policy.
    pub policy: &'static str,
    /// The identifier of the request, where requests have one.
    pub request_id: Option<HeaderValue>,
    /// The reason why there is no answer, or not all of it.
    pub failure: Option<&'static str>,
}

/// All fields of a log line.
pub struct LogEntry<'a> {
    /// The fields of the request.
    pub line: &'a AccessLine,
    /// The status of the response.
    pub status: StatusCode,
    /// Bytes of its body that were sent.
    pub bytes: u64,
    /// The time from head to last byte.
    pub request_time: Duration,
    /// What the cache did.
    pub cache: &'static str,
    /// The reason of the choice of a node.
    pub decision: &'static str,
    /// Nodes that were responsible.
    pub candidates: u32,
    /// Whether all of the body was sent.
    pub complete: bool,
    /// The counts of a large file's transfer.
    pub pieces: Option<Counts>,
}

impl LogEntry<'_> {
    /// Apache's and nginx's combined format, followed by time, cache result, upstream, policy, decision
    /// and size of the set, for a large file by the counts of its pieces, and by the identifier of the request
    /// where it has one.
    pub fn combined(&self) -> String {
        let line = self.line;
        let pieces = self.pieces.map_or_else(String::new, |counts| {
            format!(" pieces={} retries={} hedges={}", counts.pieces, counts.retries, counts.hedges)
        });
        let id = line.request_id.as_ref();
        let id =
            id.map_or_else(String::new, |id| format!(" request_id={}", escaped(id.as_bytes())));
        format!(
            "{} - - [{}] \"{} {} {:?}\" {} {} {} {} {:.3} {} {} {} {} {}{pieces}{id}",
            line.client,
            clf_time(SystemTime::now()),
            line.method,
            escaped(line.target.as_bytes()),
            line.version,
            self.status.as_u16(),
            self.bytes,
            quoted(line.referer.as_ref()),
            quoted(line.user_agent.as_ref()),
            self.request_time.as_secs_f64(),
            self.cache,
            line.upstream.as_deref().unwrap_or("-"),
            line.policy,
            self.decision,
            self.candidates,
        )
    }

    /// One JSON object, with nginx's variable names where they exist.
    pub fn json(&self) -> String {
        let line = self.line;
        let text = |value: &Option<HeaderValue>| {
            value.as_ref().map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
        };
        serde_json::json!({
            "time_iso8601": iso_time(SystemTime::now()),
            "remote_addr": line.client.to_string(),
            "request_method": line.method.as_str(),
            "scheme": line.scheme,
            "host": line.host,
            "request_uri": line.target,
            "server_protocol": format!("{:?}", line.version),
            "status": self.status.as_u16(),
            "body_bytes_sent": self.bytes,
            "request_time": (self.request_time.as_secs_f64() * 1e6).round() / 1e6,
            "http_referer": text(&line.referer),
            "http_user_agent": text(&line.user_agent),
            "upstream_addr": line.upstream.as_deref(),
            "upstream_cache_status": self.cache,
            "policy": line.policy,
            "decision": self.decision,
            "candidates": self.candidates,
            "complete": self.complete,
            "request_id": text(&line.request_id),
            "error": line.failure,
            "pieces": self.pieces.map(|counts| counts.pieces),
            "piece_retries": self.pieces.map(|counts| counts.retries),
            "piece_hedges": self.pieces.map(|counts| counts.hedges),
            "window_stalls": self.pieces.map(|counts| counts.stalls),
        })
        .to_string()
    }
}

fn quoted(value: Option<&HeaderValue>) -> String {
    format!("\"{}\"", value.map_or_else(|| "-".to_owned(), |v| escaped(v.as_bytes())))
}

/// Escapes bytes that would end a field or a line, as Apache does: `\"`, `\\` and `\xHH`.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            0x20..=0x7e => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}

/// `17/May/2015:10:05:03 +0000`, in UTC.
fn clf_time(time: SystemTime) -> String {
    // An IMF-fixdate reads "Sun, 17 May 2015 10:05:03 GMT".
    let date = httpdate::fmt_http_date(time);
    format!("{}/{}/{}:{} +0000", &date[5..7], &date[8..11], &date[12..16], &date[17..25])
}

/// `2015-05-17T10:05:03+00:00`.
fn iso_time(time: SystemTime) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let date = httpdate::fmt_http_date(time);
    let month = MONTHS.iter().position(|m| *m == &date[8..11]).map_or(0, |m| m + 1);
    format!("{}-{month:02}-{}T{}+00:00", &date[12..16], &date[5..7], &date[17..25])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_formats() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_431_857_103);
        assert_eq!(clf_time(time), "17/May/2015:10:05:03 +0000");
        assert_eq!(iso_time(time), "2015-05-17T10:05:03+00:00");
    }

    #[test]
    fn nothing_a_client_sends_ends_a_field_or_a_line() {
        assert_eq!(escaped(b"a\"b\\c\nd\xff"), "a\\\"b\\\\c\\x0ad\\xff");
    }
}
