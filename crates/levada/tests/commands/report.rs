//! `levada logs report` on logs that a node has written, and on hostile ones.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Command, Output, Stdio},
};

use levada_trace::{Trace, TraceLimits, open};
use serde_json::Value as Json;

use crate::support::{Process, free};

/// Ends a node in an orderly way: all lines are written.
fn stop(mut node: Process) {
    let pid = node.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(node.0.wait().unwrap().success());
}

fn report(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.args(["logs", "report"]).args(arguments).current_dir(directory).output().unwrap()
}

fn json(directory: &Path, file: &str) -> Json {
    let output = report(directory, &["--json", file]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

const AGENT: &str = r#"An "agent" \ with <b>tags</b>"#;

/// Sends requests over one connection and reads all answers.
fn send(port: u16, host: &str) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut requests = vec!["GET /a.txt"; 30];
    requests.extend(["GET /b.txt?x=%221%22"; 10]);
    requests.extend(["GET /missing"; 5]);
    requests.extend(["HEAD /a.txt"; 2]);
    for (at, request) in requests.iter().enumerate() {
        let last = if at + 1 == requests.len() { "Connection: close\r\n" } else { "" };
        let head = format!(
            "{request} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {AGENT}\r\n\
             Referer: http://from.test/\r\n{last}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
    }
    stream.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn logs_in_every_named_format_are_read_back_with_equal_counts() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    fs::create_dir(place.join("www")).unwrap();
    fs::write(place.join("www/a.txt"), vec![b'a'; 1000]).unwrap();
    fs::write(place.join("www/b.txt"), vec![b'b'; 500]).unwrap();
    let port = free();
    let formats = levada_observe::log::FORMAT_NAMES;
    let mut text = format!("name = \"a\"\nlisten = [{{ address = \"127.0.0.1:{port}\" }}]\n");
    for format in formats {
        text += &format!(
            "[[site]]\nhosts = \"{format}.test\"\nfiles = \"{}\"\n\
             log = {{ access = \"{format}.log\", format = \"{format}\" }}\n",
            place.join("www").display()
        );
    }
    fs::write(place.join("levada.toml"), text).unwrap();
    let node = Process::node(&place.join("levada.toml"));
    for format in formats {
        send(port, &format!("{format}.test"));
    }
    stop(node);
    for format in formats {
        let file = format!("{format}.log");
        let summary = json(place, &file);
        assert_eq!(summary["requests"], 47, "{format}: {summary}");
        assert_eq!(summary["unreadable_lines"], 0, "{format}");
        assert_eq!(summary["statuses"][0]["requests"], 42, "{format}: {summary}");
        assert_eq!(summary["statuses"][1]["requests"], 5, "{format}");
        assert_eq!(summary["paths"]["by_requests"][0]["requests"], 32, "{format}");
        assert_eq!(summary["paths"]["by_bytes"][0]["bytes"], 30_000, "{format}");
        assert_eq!(summary["errors"]["by_requests"][0]["name"], "404 /missing", "{format}");
        assert_eq!(summary["clients"]["by_requests"][0]["name"], "127.0.0.1", "{format}");
        let agents = &summary["user_agents"]["by_requests"];
        match format {
            "common" => assert_eq!(agents.as_array().unwrap().len(), 0),
            "json" => assert_eq!(agents[0]["name"], AGENT),
            _ => assert_eq!(agents[0]["name"], r"An \x22agent\x22 \x5C with <b>tags</b>"),
        }
        if format != "common" {
            assert_eq!(summary["latency"]["requests"], 47, "{format}");
            assert_eq!(summary["cache_results"][0]["requests"], 47, "{format}");
        }
        // As the simulator reads it.
        let (trace, skipped) =
            Trace::from_reader(open(place.join(&file)).unwrap(), &TraceLimits::default());
        assert_eq!(trace.requests().len(), 40, "{format}: {skipped}");
        assert_eq!(trace.objects().len(), 2, "{format}: {skipped}");
        let scenario = format!(
            "title = \"x\"\n[topology]\nname = \"star\"\n[servers]\ncount = 2\n[workload]\n\
             trace = \"{file}\"\nclients = 2\narrivals = \"constant\"\nrate = 50.0\n[measure]\n\
             requests = 40\n"
        );
        fs::write(place.join("scenario.toml"), scenario).unwrap();
        let mut sim = Command::new(env!("CARGO_BIN_EXE_levada"));
        let sim = sim.args(["sim", "run", "scenario.toml", "--json"]).current_dir(place).output();
        let sim = sim.unwrap();
        assert!(sim.status.success(), "{format}: {}", String::from_utf8_lossy(&sim.stderr));
    }
}

#[test]
fn hostile_lines_change_neither_the_terminal_nor_the_page() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let hostile = "<script>alert(1)</script>\u{1b}[2J\u{202e}&quot;'onload=x";
    let mut lines = String::new();
    for number in 0..100 {
        let object = serde_json::json!({
            "msec": 1_700_000_000 + number, "request_method": hostile, "host": hostile,
            "request_uri": format!("/{hostile}"), "status": 500 + number % 5,
            "body_bytes_sent": u64::MAX, "request_time": 1e300, "http_user_agent": hostile,
            "http_referer": hostile, "remote_addr": hostile, "upstream_cache_status": hostile,
        });
        lines += &format!("{object}\n");
    }
    lines += &format!("{{\"request_uri\": \"{hostile}\n{}\n", "x".repeat(100_000));
    fs::write(place.join("access.log"), lines).unwrap();
    let output = report(place, &["access.log", "--html", "report.html"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = fs::read_to_string(place.join("report.html")).unwrap();
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;"), "markup of a client");
    let text = String::from_utf8(report(place, &["access.log"]).stdout).unwrap();
    assert!(text.contains("requests    100") && text.contains("unreadable  2 lines"), "{text}");
    for shown in [page, text] {
        assert!(!shown.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'));
    }
}

#[test]
fn several_files_and_standard_input_are_summarised_together() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let line = |host: &str| {
        format!("{host}:80 10.0.0.1 - - [17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 10\n")
    };
    fs::write(place.join("plain.log"), line("a.test").repeat(10_000)).unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(line("b.test").repeat(5_000).as_bytes()).unwrap();
    fs::write(place.join("older.log.gz"), packed.finish().unwrap()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.args(["logs", "report", "plain.log", "older.log.gz", "-", "--json"]).current_dir(place);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(line("c.test").as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    let summary: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&summary["requests"], &summary["bytes"]), (&15_001.into(), &150_010.into()));
    let hosts = summary["hosts"]["by_requests"].as_array().unwrap();
    let hosts: Vec<_> = hosts.iter().map(|row| (&row["name"], &row["requests"])).collect();
    assert_eq!(hosts[0], (&"a.test:80".into(), &10_000.into()));
    assert_eq!(hosts[1], (&"b.test:80".into(), &5_000.into()));
    assert_eq!(hosts.len(), 3);
    let missing = report(place, &["no.log"]);
    assert_eq!(missing.status.code(), Some(2));
    fs::write(place.join("odd.log"), "neither\nnor\n").unwrap();
    let odd = report(place, &["odd.log"]);
    assert_eq!(odd.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&odd.stderr).contains("Known formats"));
}
