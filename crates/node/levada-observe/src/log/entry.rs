//! A request as lines show it, and the line in each format.

use std::{
    cell::RefCell,
    fmt::{self, Write as _},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use crate::{otel::TraceContext, redact::RedactedArguments};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};

use crate::log::{
    access_log::{Lines, Log},
    escape::Escape,
    format::{LogFormat, Part, Variable},
    timestamp::{Timestamp, with_now},
};

/// The fields of a request that only its line needs. It belongs to the log that the site had when the request
/// came.
pub struct AccessLine {
    /// The log.
    pub log: Arc<Log>,
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
    /// The fields that the format has.
    pub fields: CapturedFields,
    /// The server that answered.
    pub upstream: Option<Arc<str>>,
    /// The site's policy.
    pub policy: &'static str,
    /// The identifier of the request, where requests have one.
    pub request_id: Option<HeaderValue>,
    /// The reason why there is no answer, or not all of it.
    pub failure: Option<&'static str>,
    /// The span of the request, if it is traced.
    pub span: Option<TraceContext>,
}

/// The header fields of a request that a format has.
#[derive(Default)]
pub struct CapturedFields {
    request: Vec<Option<HeaderValue>>,
    response: Vec<Option<HeaderValue>>,
    user: Option<Vec<u8>>,
}

impl CapturedFields {
    pub(crate) fn of_request(
        format: &LogFormat,
        redact: &RedactedArguments,
        headers: &HeaderMap,
    ) -> Self {
        let parts = format.parts();
        let user = || basic_user(headers.get(header::AUTHORIZATION)?);
        let mut request = values(&parts.request_fields, headers);
        // It is a URL as that of the request.
        let referer = parts.request_fields.iter().position(|name| name == header::REFERER);
        if let Some(Some(url)) = referer.map(|at| &mut request[at])
            && let Some(shown) = redact.redacted(url.as_bytes())
        {
            *url = HeaderValue::from_maybe_shared(shown).unwrap_or(HeaderValue::from_static(""));
        }
        Self { request, response: Vec::new(), user: if parts.has_user { user() } else { None } }
    }
}

fn values(names: &[HeaderName], headers: &HeaderMap) -> Vec<Option<HeaderValue>> {
    names.iter().map(|name| headers.get(name).cloned()).collect()
}

/// The name in `Basic` credentials, as the client states it.
fn basic_user(credentials: &HeaderValue) -> Option<Vec<u8>> {
    let (scheme, text) = credentials.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let mut user = BASE64_STANDARD.decode(text.trim()).ok()?;
    let end = user.iter().position(|byte| *byte == b':')?;
    user.truncate(end);
    (!user.is_empty()).then_some(user)
}

impl AccessLine {
    /// Whether the format has fields of the response.
    pub fn reads_response(&self) -> bool {
        !self.log.format().parts().response_fields.is_empty()
    }

    /// Notes the fields of the response that the format has.
    pub fn note_response(&mut self, headers: &HeaderMap) {
        let names = &self.log.format().parts().response_fields;
        if !names.is_empty() {
            self.fields.response = values(names, headers);
        }
    }
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
    /// The cache's part in the response.
    pub cache: &'static str,
    /// The reason of the choice of a node.
    pub decision: &'static str,
    /// Nodes that were responsible.
    pub candidates: u32,
    /// Whether all of the body was sent.
    pub complete: bool,
    /// The counts of a large file's transfer.
    pub pieces: Option<Pieces>,
}

/// The pieces of a large file that a request got.
#[derive(Clone, Copy, Debug)]
pub struct Pieces {
    /// Pieces that came.
    pub pieces: u64,
    /// Requests that replaced one that was late or failed.
    pub retries: u64,
    /// Second requests for a piece while the first was still under way.
    pub hedges: u64,
    /// How often the client was ready for a piece that was not here yet.
    pub stalls: u64,
}

thread_local! {
    /// The line that this thread is making.
    static LINE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The longest line that a thread keeps the memory for.
const KEPT: usize = 16 << 10;

impl LogEntry<'_> {
    /// Writes the line, unless its log is sampled and leaves this request out.
    pub fn write(&self) {
        let log = &self.line.log;
        let Some(sample) = log.admit(self) else { return };
        LINE.with_borrow_mut(|line| {
            line.clear();
            with_now(|now| self.push(line, log.format(), now, sample));
            match log.lines() {
                Lines::Queue(queue) => queue.push(line),
                Lines::Collector(collector) => collector.send(self.record(line)),
            }
            line.shrink_to(KEPT);
        });
    }

    fn push(&self, out: &mut String, format: &LogFormat, now: &Timestamp<'_>, sample: f64) {
        for part in &format.parts().parts {
            match part {
                Part::Literal(text) => out.push_str(text),
                Part::Value(variable, escape) => self.value(out, *variable, *escape, now, sample),
                Part::Object => self.object(out, now, sample),
            }
        }
    }

    fn value(
        &self,
        out: &mut String,
        variable: Variable,
        escape: Escape,
        now: &Timestamp<'_>,
        sample: f64,
    ) {
        let line = self.line;
        let target = || line.target.split_once('?').unwrap_or((&line.target, ""));
        let text = |out: &mut String, value: &str| push_present(out, escape, value.as_bytes());
        let field = |out: &mut String, fields: &[Option<HeaderValue>], at: usize| {
            push_field(out, escape, fields.get(at).and_then(Option::as_ref));
        };
        // The node itself makes the values that `write!` gets here, and a String takes everything.
        let _ = match variable {
            Variable::RemoteAddr => push_address(out, line.client),
            Variable::TimeLocal => out.write_str(now.local),
            Variable::TimeIso8601 => out.write_str(now.iso),
            Variable::Msec => push_millis(out, now.since_epoch),
            Variable::Status => out.write_str(self.status.as_str()),
            Variable::BodyBytesSent => push_number(out, self.bytes),
            Variable::RequestTime => push_millis(out, self.request_time),
            Variable::Candidates => push_number(out, self.candidates),
            Variable::Complete => write!(out, "{}", self.complete),
            Variable::Sample => write!(out, "{sample}"),
            Variable::ServerProtocol => out.write_str(version(line.version)),
            Variable::RemoteUser => {
                return match &line.fields.user {
                    Some(user) => push_present(out, escape, user),
                    None => escape.push_absent(out),
                };
            }
            Variable::Request => {
                escape.push(out, line.method.as_str().as_bytes());
                out.push(' ');
                escape.push(out, line.target.as_bytes());
                out.push(' ');
                out.write_str(version(line.version))
            }
            Variable::RequestMethod => return text(out, line.method.as_str()),
            Variable::Scheme => return text(out, line.scheme),
            Variable::Host => return text(out, &line.host),
            Variable::RequestUri => return text(out, &line.target),
            Variable::Uri => return text(out, target().0),
            Variable::Args => return text(out, target().1),
            Variable::UpstreamAddr => return text(out, line.upstream.as_deref().unwrap_or("")),
            Variable::UpstreamCacheStatus => return text(out, self.cache),
            Variable::Policy => return text(out, line.policy),
            Variable::Decision => return text(out, self.decision),
            Variable::Error => return text(out, line.failure.unwrap_or("")),
            Variable::Hostname => return text(out, line.log.node()),
            Variable::RequestId => return push_field(out, escape, line.request_id.as_ref()),
            Variable::RequestField(at) => return field(out, &line.fields.request, at),
            Variable::ResponseField(at) => return field(out, &line.fields.response, at),
            Variable::Pieces
            | Variable::PieceRetries
            | Variable::PieceHedges
            | Variable::WindowStalls => match (self.pieces, variable) {
                (None, _) => return escape.push_absent(out),
                (Some(counts), Variable::Pieces) => push_number(out, counts.pieces),
                (Some(counts), Variable::PieceRetries) => push_number(out, counts.retries),
                (Some(counts), Variable::PieceHedges) => push_number(out, counts.hedges),
                (Some(counts), _) => push_number(out, counts.stalls),
            },
            Variable::Details => return self.details(out),
        };
    }

    fn details(&self, out: &mut String) {
        if let Some(counts) = self.pieces {
            let Pieces { pieces, retries, hedges, .. } = counts;
            let _ = write!(out, " pieces={pieces} retries={retries} hedges={hedges}");
        }
        if let Some(id) = &self.line.request_id {
            out.push_str(" request_id=");
            Escape::Bare.push(out, id.as_bytes());
        }
    }

    /// One JSON object, with nginx's variable names where they exist.
    fn object(&self, out: &mut String, now: &Timestamp<'_>, sample: f64) {
        let line = self.line;
        let [referer, agent] =
            [0, 1].map(|at| line.fields.request.get(at).and_then(Option::as_ref));
        let bytes = |value: Option<&HeaderValue>| value.map(|v| v.as_bytes().to_vec());
        let mut object = Object { out, is_first: true };
        object.text("time_iso8601", now.iso.as_bytes());
        let _ = push_millis(object.key("msec"), now.since_epoch);
        object.text("hostname", line.log.node().as_bytes());
        let _ = push_address(object.begin_text("remote_addr"), line.client);
        object.out.push('"');
        object.text("request_method", line.method.as_str().as_bytes());
        object.text("scheme", line.scheme.as_bytes());
        object.text("host", line.host.as_bytes());
        object.text("request_uri", line.target.as_bytes());
        object.text("server_protocol", version(line.version).as_bytes());
        object.number("status", Some(self.status.as_u16()));
        object.number("body_bytes_sent", Some(self.bytes));
        let micros = self.request_time.as_micros();
        let _ = push_decimal(object.key("request_time"), micros, 1_000_000);
        object.optional("http_referer", referer.map(HeaderValue::as_bytes));
        object.optional("http_user_agent", agent.map(HeaderValue::as_bytes));
        object.optional("upstream_addr", line.upstream.as_deref().map(str::as_bytes));
        object.text("upstream_cache_status", self.cache.as_bytes());
        object.text("policy", line.policy.as_bytes());
        object.text("decision", self.decision.as_bytes());
        object.number("candidates", Some(self.candidates));
        object.key("complete").push_str(if self.complete { "true" } else { "false" });
        object.optional("request_id", bytes(line.request_id.as_ref()).as_deref());
        object.optional("error", line.failure.map(str::as_bytes));
        object.number("pieces", self.pieces.map(|counts| counts.pieces));
        object.number("piece_retries", self.pieces.map(|counts| counts.retries));
        object.number("piece_hedges", self.pieces.map(|counts| counts.hedges));
        object.number("window_stalls", self.pieces.map(|counts| counts.stalls));
        if line.log.is_sampled() {
            let _ = write!(object.key("sample"), "{sample}");
        }
        object.out.push('}');
    }
}

/// A JSON object that is being written.
struct Object<'a> {
    out: &'a mut String,
    is_first: bool,
}

impl Object<'_> {
    /// Writes a key, which needs no escaping; its value is to follow.
    fn key(&mut self, key: &str) -> &mut String {
        self.out.push(if std::mem::take(&mut self.is_first) { '{' } else { ',' });
        self.out.extend(["\"", key, "\":"]);
        self.out
    }

    /// Writes a key and the quote before its text; the text and the other quote are to follow.
    fn begin_text(&mut self, key: &str) -> &mut String {
        let out = self.key(key);
        out.push('"');
        out
    }

    fn text(&mut self, key: &str, value: &[u8]) {
        let out = self.begin_text(key);
        Escape::Json.push(out, value);
        out.push('"');
    }

    fn optional(&mut self, key: &str, value: Option<&[u8]>) {
        match value {
            Some(value) => self.text(key, value),
            None => self.key(key).push_str("null"),
        }
    }

    fn number(&mut self, key: &str, value: Option<impl itoa::Integer>) {
        let out = self.key(key);
        let _ = match value {
            Some(value) => push_number(out, value),
            None => out.write_str("null"),
        };
    }
}

/// A value; an empty one is absent.
fn push_present(out: &mut String, escape: Escape, value: &[u8]) {
    match value {
        [] => escape.push_absent(out),
        value => escape.push(out, value),
    }
}

fn push_field(out: &mut String, escape: Escape, value: Option<&HeaderValue>) {
    push_present(out, escape, value.map_or(b"", HeaderValue::as_bytes));
}

/// Whole numbers, addresses and times are in every line: the machinery of `write!` would cost more than all the rest.
fn push_number(out: &mut String, number: impl itoa::Integer) -> fmt::Result {
    out.write_str(itoa::Buffer::new().format(number))
}

fn push_address(out: &mut String, address: IpAddr) -> fmt::Result {
    let IpAddr::V4(v4) = address else { return write!(out, "{address}") };
    for (at, octet) in v4.octets().into_iter().enumerate() {
        if at > 0 {
            out.push('.');
        }
        push_number(out, octet)?;
    }
    Ok(())
}

/// Seconds with three digits, rounded.
fn push_millis(out: &mut String, time: Duration) -> fmt::Result {
    push_decimal(out, (time.as_micros() + 500) / 1000, 1000)
}

/// Seconds and their fraction, of a count of parts of a second, so many of which make one.
fn push_decimal(out: &mut String, parts: u128, per_second: u64) -> fmt::Result {
    let parts = u64::try_from(parts).unwrap_or(u64::MAX);
    push_number(out, parts / per_second)?;
    out.push('.');
    // The digit before the fraction keeps its zeros, and is left out.
    out.write_str(&itoa::Buffer::new().format(per_second + parts % per_second)[1..])
}

/// The version as request lines have it.
fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}
