//! Lines in every format, written to a file as a node does.

use std::{net::IpAddr, path::Path, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use levada_observe::log::{
    AccessLine, LogEntry, LogFormat,
    access_log::{AccessLog, Log, Logs, Sampling},
};
use levada_observe::metrics::Counter;
use serde_json::Value;

const HOSTILE: &[u8] = b"a\"b\\c [d] \x80\xff\t' } $status";

fn settings(path: &Path, format: &str) -> AccessLog {
    let format = LogFormat::parse(format).unwrap();
    AccessLog { node: "node-1".to_owned(), ..AccessLog::to_file(path.to_owned(), format) }
}

fn hostile_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    let value = HeaderValue::from_bytes(HOSTILE).unwrap();
    for name in ["referer", "user-agent", "x-forwarded-for"] {
        headers.insert(name, value.clone());
    }
    // ann:secret
    headers.insert("authorization", HeaderValue::from_static("Basic YW5uOnNlY3JldA=="));
    headers
}

fn line(log: &Arc<Log>, headers: &HeaderMap) -> AccessLine {
    AccessLine {
        fields: log.capture(headers),
        log: log.clone(),
        client: IpAddr::from([192, 0, 2, 7]),
        method: Method::GET,
        scheme: "https",
        host: "www.example.com".to_owned(),
        target: "/a?b=\"c\"".to_owned(),
        version: Version::HTTP_2,
        upstream: Some("10.0.0.9:80".into()),
        policy: "adaptive",
        request_id: Some(HeaderValue::from_bytes(HOSTILE).unwrap()),
        failure: Some("body cut"),
        span: None,
    }
}

fn entry(line: &AccessLine) -> LogEntry<'_> {
    LogEntry {
        line,
        status: StatusCode::OK,
        bytes: 1234,
        request_time: Duration::from_micros(2_500),
        cache: "hit",
        decision: "hash",
        candidates: 2,
        complete: true,
        pieces: None,
    }
}

/// Writes one line with hostile values and returns it.
async fn written(format: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let logs = Logs::new(Counter::default(), None);
    let log = logs.open(&settings(&path, format)).unwrap();
    let mut line = line(&log, &hostile_headers());
    line.note_response(&HeaderMap::from_iter([(
        http::header::CONTENT_TYPE,
        HeaderValue::from_bytes(HOSTILE).unwrap(),
    )]));
    entry(&line).write();
    logs.close().await;
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text.trim_end().to_owned()
}

#[tokio::test]
async fn named_formats_have_their_fields_and_no_others() {
    let shown = r"a\x22b\x5Cc [d] \x80\xFF\x09' } $status";
    let common = written("common").await;
    let (before, after) = common.split_once(" [").unwrap();
    assert_eq!(before, "192.0.2.7 - ann");
    assert_eq!(after.split_once("] ").unwrap().1, r#""GET /a?b=\x22c\x22 HTTP/2.0" 200 1234"#);
    let combined = written("combined").await;
    let rest = combined.split_once(" 1234 ").unwrap().1;
    let id = shown.replace(' ', r"\x20");
    assert_eq!(
        rest,
        format!("\"{shown}\" \"{shown}\" 0.003 hit 10.0.0.9:80 adaptive hash 2 request_id={id}")
    );
    assert!(combined.starts_with(&common[..20]));
}

#[tokio::test]
async fn json_is_json_whatever_clients_send() {
    let object: Value = serde_json::from_str(&written("json").await).unwrap();
    let shown = String::from_utf8_lossy(HOSTILE);
    for key in ["http_referer", "http_user_agent", "request_id"] {
        assert_eq!(object[key], *shown, "{key}");
    }
    assert_eq!(object["request_uri"], "/a?b=\"c\"");
    assert_eq!((&object["status"], &object["body_bytes_sent"]), (&200.into(), &1234.into()));
    assert_eq!(object["request_time"], 0.0025);
    assert_eq!(object["hostname"], "node-1");
    assert_eq!(object["pieces"], Value::Null);
    assert_eq!(object["error"], "body cut");
    assert_eq!(object.get("sample"), None, "all lines are written");
    let own = r#"{"at": $msec, "who": "$http_user_agent", "none": "$http_none", "uri": "$uri", "args": "$args", "ok": $complete}"#;
    let object: Value = serde_json::from_str(&written(own).await).unwrap();
    assert_eq!(object["who"], *shown);
    assert_eq!((&object["none"], &object["uri"]), (&"".into(), &"/a".into()));
    assert_eq!((&object["args"], &object["ok"]), (&"b=\"c\"".into(), &true.into()));
}

#[tokio::test]
async fn fields_of_a_format_string_stay_apart() {
    let format = "$remote_addr\t$http_x_forwarded_for\t$sent_http_content_type\t$host\t$hostname\t$pieces\t$error";
    let line = written(format).await;
    let bare = r"a\x22b\x5Cc\x20[d]\x20\x80\xFF\x09'\x20}\x20$status";
    let fields: Vec<_> = line.split('\t').collect();
    let expected = ["192.0.2.7", bare, bare, "www.example.com", "node-1", "-", r"body\x20cut"];
    assert_eq!(fields, expected);
}

#[tokio::test]
async fn sample_has_its_part_and_every_failure() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let logs = Logs::new(Counter::default(), None);
    let slow = Duration::from_secs(1);
    let sampling = Some(Sampling { rate: 0.1, slow });
    let log = logs.open(&AccessLog { sampling, ..settings(&path, "json") }).unwrap();
    let line = line(&log, &HeaderMap::new());
    for _ in 0..10_000 {
        entry(&line).write();
    }
    for _ in 0..50 {
        LogEntry { status: StatusCode::BAD_GATEWAY, ..entry(&line) }.write();
        LogEntry { complete: false, ..entry(&line) }.write();
        LogEntry { request_time: slow, ..entry(&line) }.write();
    }
    logs.close().await;
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (always, chosen): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line["sample"] == 1);
    assert_eq!(always.len(), 150);
    // Ten standard deviations of 30.
    assert!((700..1300).contains(&chosen.len()), "{}", chosen.len());
    assert!(chosen.iter().all(|line| line["sample"] == 0.1));
}

#[tokio::test]
async fn logs_with_one_target_share_it_across_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let logs = Logs::new(Counter::default(), None);
    let write = |format: &str| {
        let log = logs.open(&settings(&path, format)).unwrap();
        let line = line(&log, &HeaderMap::new());
        entry(&line).write();
    };
    for _ in 0..100 {
        write("$host $status");
        write("$status $host");
    }
    logs.close().await;
    let text = std::fs::read_to_string(&path).unwrap();
    let expected = "www.example.com 200\n200 www.example.com\n".repeat(100);
    assert_eq!(text, expected, "no line is lost, and they are in order");
}
