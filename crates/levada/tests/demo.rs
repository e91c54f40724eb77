//! The demo as a user runs it: real processes, real load, a flash crowd and a killed node.

use std::{
    io::Read as _,
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

fn demo(options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.arg("demo").args(options).stdin(Stdio::null());
    command
}

/// The addresses that nodes listened on, from the line that announces the status pages.
fn addresses(announcement: &str) -> Vec<SocketAddr> {
    let words = announcement.split([' ', '/', ',', '\n', '\'']);
    words.filter_map(|word| word.parse().ok()).collect()
}

fn refuses(address: &SocketAddr) -> bool {
    TcpStream::connect_timeout(address, Duration::from_secs(1)).is_err()
}

fn refused(output: &Output, text: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains(text), "{error}");
}

#[test]
fn every_request_is_answered_while_a_node_dies_and_comes_back() {
    // Few requests: the build under test is not optimised, and others use the machine as well.
    let options = ["--duration", "10s", "--rate", "60", "--crowd", "1", "--json"];
    let output = demo(&options).output().unwrap();
    let progress = String::from_utf8_lossy(&output.stderr);
    let summary: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {progress}"));
    assert_eq!(summary["failed"], 0, "{progress}\n{summary:#}");
    assert_eq!(output.status.code(), Some(0), "{progress}\n{summary:#}");
    assert!(summary["requests"].as_u64() > Some(400), "{summary:#}");
    let [rate, seconds, requests] =
        ["requests_per_second", "seconds", "requests"].map(|key| summary[key].as_f64().unwrap());
    assert!((rate * seconds / requests - 1.0).abs() < 0.02, "the headline is what was sent");
    let line = progress.lines().next().unwrap();
    assert!(line.len() <= 80 && line.contains("4 nodes"), "{line}");
    let status = progress.lines().filter(|line| line.contains(" s left)"));
    assert!(
        status.clone().count() > 0 && status.clone().all(|line| line.len() <= 80),
        "{progress}"
    );
    assert!(summary["hit_ratio"].as_f64() > Some(0.0), "{summary:#}");
    assert!(summary["killed"]["back_after_seconds"].is_number(), "{summary:#}");
    let sets = &summary["hot_object"]["phases"][2]["set_max"];
    assert!(sets.as_u64() >= Some(1), "{summary:#}");
    let nodes = addresses(&progress);
    assert!(nodes.len() >= 6, "{progress}");
    assert!(nodes.iter().all(refuses), "something still runs: {nodes:?}");
}

#[test]
fn nodes_end_with_a_demo_that_is_killed() {
    // A killed demo cannot remove its files.
    let directory = tempfile::tempdir().unwrap();
    let mut demo = demo(&["--nodes", "2", "--rate", "5", "--crowd", "0", "--json"])
        .env("TMPDIR", directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let nodes = announced(&mut demo);
    assert!(nodes.len() >= 4, "{nodes:?}");
    assert!(!refuses(&nodes[0]), "the first node runs");
    demo.kill().unwrap();
    demo.wait().unwrap();
    let begun = Instant::now();
    while !nodes.iter().all(refuses) {
        assert!(begun.elapsed() < Duration::from_secs(5), "something still runs: {nodes:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reads what the demo announces, up to the last line of it.
fn announced(demo: &mut Child) -> Vec<SocketAddr> {
    let mut text = Vec::new();
    let stderr = demo.stderr.as_mut().unwrap();
    let mut byte = [0];
    while stderr.read(&mut byte).unwrap() == 1 {
        text.push(byte[0]);
        if byte[0] == b'\n' && String::from_utf8_lossy(&text).contains("\nfiles ") {
            break;
        }
    }
    addresses(&String::from_utf8_lossy(&text))
}

#[test]
fn what_cannot_be_run_is_said_with_the_option_and_the_remedy() {
    for (options, text) in [
        (&["--policy", "fdrr"][..], "did you mean `fdr`?"),
        (&["--policy", "fdr-global"], "choose one that runs on an edge"),
        (&["--set", "buzy=3"], "has no parameter `buzy`"),
        (&["--set", "busy"], "write it as KEY=VALUE"),
        (&["--nodes", "1"], "--nodes 1: the demo needs 2 nodes"),
        (&["--nodes", "65"], "takes 64 at most"),
        (&["--rate", "0"], "--rate 0: from 1 to"),
        (&["--rate", "NaN"], "--rate NaN"),
        (&["--duration", "2s"], "--duration 2s: from 10s"),
        (&["--hot", "0"], "--hot 0"),
        (&["--link", "fast"], "--link fast: write a rate"),
        (&["--crowd", "inf"], "--crowd inf"),
        (&["--trace", "no/such/file"], "--trace"),
    ] {
        refused(&demo(options).output().unwrap(), text);
    }
}

#[test]
fn a_trace_without_requests_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("access.log");
    let path = file.to_str().unwrap();
    std::fs::write(&file, "").unwrap();
    refused(&demo(&["--trace", path]).output().unwrap(), "has no lines");
    let line = "::1 - - [10/Oct/2000:13:55:00 +0000] \"POST /a HTTP/1.1\" 200 7\n";
    std::fs::write(&file, line).unwrap();
    refused(&demo(&["--trace", path]).output().unwrap(), "has no request that can be replayed");
}
