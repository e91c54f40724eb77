//! Access logs with one JSON object per line: nginx's variable names, which Levada also writes, and
//! Caddy's.
//!
//! | field | names; the first one present is used |
//! | --- | --- |
//! | method | `request_method`, `method` |
//! | host | `host`, `http_host`, `server_name` |
//! | target | `request_uri`, `uri`, `path` |
//! | all three | `request`: a request line, or Caddy's object with `method`, `host`, `uri` |
//! | status | `status` |
//! | bytes | `body_bytes_sent`, `size`, `bytes_sent` |
//! | client | `remote_addr`, `client_ip`, `remote_ip` |
//! | referrer | `http_referer` |
//! | user agent | `http_user_agent` |
//! | cache result | `upstream_cache_status` |
//! | time | `msec`, `time_iso8601`, `time_local`, `timestamp`, `time`, `ts` |
//!
//! Numbers may be in quotes, as nginx writes them. Caddy's object `request` has the client and the header
//! fields, too.

use serde_json::{Map, Value};

use super::line::{LineFormat, bytes, request_line, set_target, status};
use crate::{
    date,
    record::{LineProblem, LogRecord, Parsed, TimeTaken},
};

pub(super) const FORMAT: LineFormat = LineFormat {
    name: "json",
    summary: "JSON lines with nginx's variable names or Caddy's",
    sniff: |line| parse(line).is_ok(),
    parse,
};

fn parse(line: &str) -> Parsed {
    let object: Map<String, Value> =
        serde_json::from_str(line).map_err(|error| LineProblem::Json(error.to_string()))?;
    let mut record = LogRecord { time: time(&object)?, ..LogRecord::default() };
    match object.get("request") {
        Some(Value::String(line)) => request_line(&mut record, line),
        Some(Value::Object(request)) => take_request(&mut record, request),
        _ => {}
    }
    take_request(&mut record, &object);
    if record.target.is_empty() {
        return Err(LineProblem::Missing("request_uri, uri or request"));
    }
    if record.method.is_empty() {
        return Err(LineProblem::Missing("request_method, method or request"));
    }
    record.status = text(&object, &["status"]).map_or(Ok(None), |text| status(&text))?;
    record.bytes = text(&object, &["body_bytes_sent", "size", "bytes_sent"])
        .map(|text| bytes(&text))
        .transpose()?;
    record.taken = taken(&object);
    record.cache = text(&object, &["upstream_cache_status"]);
    take_client(&mut record, &object);
    Ok(record)
}

/// Sets what the client is and says of itself.
fn take_client(record: &mut LogRecord, object: &Map<String, Value>) {
    let names = ["remote_addr", "client_ip", "remote_ip"];
    let request = object.get("request").and_then(Value::as_object);
    let inner = || text(request?, &names);
    record.client = text(object, &names).or_else(inner);
    // Caddy has a list of values for each field.
    let headers = request.and_then(|request| request.get("headers")?.as_object());
    let field = |name: &str| headers?.get(name)?.get(0)?.as_str().map(str::to_owned);
    record.referer = text(object, &["http_referer"]).or_else(|| field("Referer"));
    record.user_agent = text(object, &["http_user_agent"]).or_else(|| field("User-Agent"));
}

/// The server's time by nginx's names, else the time of the whole request by nginx's or Caddy's; in
/// seconds.
fn taken(object: &Map<String, Value>) -> Option<TimeTaken> {
    // nginx lists the times of all servers that it tried; the last one answered.
    let last = |text: String| text.rsplit([',', ':']).next().and_then(|t| t.trim().parse().ok());
    let server = text(object, &["upstream_header_time", "upstream_response_time"]).and_then(last);
    let whole = || text(object, &["request_time", "duration"]).and_then(|t| t.parse().ok());
    server.map(TimeTaken::ToAnswer).or_else(|| whole().map(TimeTaken::InAll))?.checked()
}

/// Sets the method, host and target from `object` if they are not set yet.
fn take_request(record: &mut LogRecord, object: &Map<String, Value>) {
    if record.target.is_empty()
        && let Some(target) = text(object, &["request_uri", "uri", "path"])
    {
        set_target(record, &target);
    }
    if record.method.is_empty() {
        record.method = text(object, &["request_method", "method"]).unwrap_or_default();
    }
    if record.host.is_none() {
        let host = text(object, &["host", "http_host", "server_name"]);
        record.host = host.map(|host| host.to_ascii_lowercase());
    }
}

fn time(object: &Map<String, Value>) -> Result<Option<f64>, LineProblem> {
    let names = ["msec", "time_iso8601", "time_local", "timestamp", "time", "ts"];
    let Some(text) = text(object, &names) else { return Ok(None) };
    let time = date::unix(&text).or_else(|| date::iso(&text)).or_else(|| date::clf(&text));
    time.map(Some).ok_or(LineProblem::Unreadable("time"))
}

/// The first of `names` that has a value; an empty text or `-` counts as none.
fn text(object: &Map<String, Value>, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| match object.get(*name)? {
        Value::String(text) if !matches!(text.as_str(), "" | "-") => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nginx_names_are_read_with_and_without_quotes() {
        let plain = r#"{"time_iso8601":"2024-03-01T00:00:00+00:00","request_method":"GET","host":"Example.com","request_uri":"/a?b","status":200,"body_bytes_sent":7}"#;
        let quoted = r#"{"msec":"1709251200.000","request":"GET /a?b HTTP/1.1","http_host":"example.com","status":"200","body_bytes_sent":"7","upstream_addr":""}"#;
        let record = parse(plain).unwrap();
        assert_eq!(record, parse(quoted).unwrap());
        assert_eq!(record.time, Some(1_709_251_200.0));
        assert_eq!((record.host.as_deref(), record.target.as_str()), (Some("example.com"), "/a?b"));
        assert_eq!((record.status, record.bytes), (Some(200), Some(7)));
    }

    #[test]
    fn caddy_objects_are_read() {
        let line = r#"{"level":"info","ts":1709251200.5,"request":{"remote_ip":"::1","method":"GET","host":"localhost","uri":"/","headers":{"User-Agent":["curl/8"]}},"duration":0.0009,"size":10900,"status":200}"#;
        let record = parse(line).unwrap();
        assert_eq!(
            (record.time, record.host.as_deref()),
            (Some(1_709_251_200.5), Some("localhost"))
        );
        assert_eq!((record.method.as_str(), record.bytes), ("GET", Some(10_900)));
        assert_eq!(record.taken, Some(TimeTaken::InAll(0.0009)));
        assert_eq!(record.client.as_deref(), Some("::1"));
        assert_eq!(record.user_agent.as_deref(), Some("curl/8"));
    }

    #[test]
    fn what_is_missing_is_none_or_named() {
        let bare = parse(r#"{"method":"GET","uri":"/a"}"#).unwrap();
        assert_eq!((bare.time, bare.host, bare.status, bare.bytes), (None, None, None, None));
        let times =
            r#"{"method":"GET","uri":"/a","request_time":0.5,"upstream_response_time":"0.1, 0.2"}"#;
        assert_eq!(parse(times).unwrap().taken, Some(TimeTaken::ToAnswer(0.2)));
        let problem = |line: &str| parse(line).unwrap_err().to_string();
        assert!(problem(r#"{"method":"GET"}"#).contains("request_uri"));
        assert!(problem(r#"{"uri":"/a"}"#).contains("request_method"));
        assert!(problem(r#"["uri"]"#).contains("not a JSON object"));
        assert!(problem(r#"{"method":"GET","uri":"/a","status":"ok"}"#).contains("status"));
        assert!(problem(r#"{"method":"GET","uri":"/a","bytes_sent":-5}"#).contains("bytes"));
    }
}
