//! `levada get` as a user runs it, from a node as an operator runs it.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use crate::support::Process;

const FILE: usize = 4 << 20;

fn content() -> Vec<u8> {
    (0..FILE as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// An origin with one file.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let bytes = content();
        for stream in listener.incoming().map_while(Result::ok) {
            let bytes = bytes.clone();
            thread::spawn(move || serve(stream, &bytes));
        }
    });
    address
}

fn serve(mut stream: TcpStream, bytes: &[u8]) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines().map_while(Result::ok);
    loop {
        let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let range = head.iter().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("range").then_some(value.trim().strip_prefix("bytes=")?)
        });
        head.first()?;
        let shared = "ETag: \"v1\"\r\nCache-Control: max-age=600";
        let (head, part) = match range.and_then(|range| range.split_once('-')) {
            None => (format!("HTTP/1.1 200 OK\r\nContent-Length: {FILE}"), bytes),
            Some((start, end)) => {
                let start: usize = start.parse().ok()?;
                let end = end.parse().map_or(FILE, |last: usize| (last + 1).min(FILE));
                let told = format!("bytes {start}-{}/{FILE}", end - 1);
                let length = end - start;
                let head =
                    format!("HTTP/1.1 206 P\r\nContent-Length: {length}\r\nContent-Range: {told}");
                (head, &bytes[start..end])
            }
        };
        stream.write_all(format!("{head}\r\n{shared}\r\n\r\n").as_bytes()).ok()?;
        stream.write_all(part).ok()?;
    }
}

/// A node before the origin; its URL of the file.
fn node(directory: &Path) -> (Process, String) {
    node_with(directory, "")
}

/// An address that no outgoing connection can take: those are from 127.0.0.1.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.1.2.4:0").unwrap().local_addr().unwrap()
}

/// The same, with more in its configuration.
fn node_with(directory: &Path, more: &str) -> (Process, String) {
    let address = free_address();
    let text = format!(
        "name = \"a\"\n[[listen]]\naddress = \"{address}\"\n[[site]]\nhosts = \"*\"\n\
         origin = \"http://{}\"\n{more}",
        origin()
    );
    let file = directory.join("levada.toml");
    fs::write(&file, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    let command = command.args(["run", "--stop-with-stdin", "-c"]).arg(file);
    let process = Process(
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(),
    );
    while TcpStream::connect(address).is_err() {
        thread::sleep(Duration::from_millis(20));
    }
    (process, format!("http://{address}/disk.iso"))
}

fn get(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.arg("get").args(arguments).current_dir(directory);
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

fn held(directory: &Path) -> u64 {
    let state = fs::read(directory.join("disk.iso.levada-state")).unwrap_or_default();
    let state: serde_json::Value = serde_json::from_slice(&state).unwrap_or_default();
    let ranges = state["held"].as_array().into_iter().flatten();
    ranges.map(|range| range[1].as_u64().unwrap() - range[0].as_u64().unwrap()).sum()
}

#[test]
fn a_killed_download_goes_on_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let (_node, url) = node(directory.path());
    for connections in ["1", "3"] {
        let mut slow =
            get(directory.path(), &["-q", "-x", connections, "--limit-rate", "1024K", &url]);
        let slow = Process(slow.spawn().unwrap());
        while held(directory.path()) == 0 {
            thread::sleep(Duration::from_millis(20));
        }
        drop(slow);
        assert!(!directory.path().join("disk.iso").exists());
        let held = held(directory.path());
        let output = get(directory.path(), &["--json", "-x", connections, &url]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report["files"][0]["held_before"].as_u64().unwrap() >= held);
        assert!(fs::read(directory.path().join("disk.iso")).unwrap() == content());
        fs::remove_file(directory.path().join("disk.iso")).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "something is left behind");
    }
}

#[test]
fn a_node_that_drains_sends_a_download_away_and_fails_none() {
    let directory = tempfile::tempdir().unwrap();
    let admin = free_address().to_string();
    // Slow enough to be in the middle of it.
    let more = format!("[admin]\nlisten = \"{admin}\"\n[limits]\nserve_rate = \"1MiB/s\"\n");
    let (_node, url) = node_with(directory.path(), &more);
    let mut slow = get(directory.path(), &["--json", &url]);
    let slow = slow.stdout(Stdio::piped()).spawn().unwrap();
    while held(directory.path()) == 0 {
        thread::sleep(Duration::from_millis(20));
    }
    let drain = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
        command.args(["drain", "--admin", &admin]).args(arguments).output().unwrap()
    };
    let drained = drain(&["--wait", "1m", "--json"]);
    assert!(drained.status.success(), "{}", text(&drained));
    let state: serde_json::Value = serde_json::from_slice(&drained.stdout).unwrap();
    assert_eq!((&state["moved"], &state["in_flight"]), (&1.into(), &0.into()), "{state}");
    let output = slow.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let ended = |number: usize| &report["files"][0]["connections"][number]["ended"];
    assert_eq!((ended(0), ended(1)), (&"early_close".into(), &"complete".into()), "{report}");
    assert!(fs::read(directory.path().join("disk.iso")).unwrap() == content());
    assert!(text(&drain(&["--undo"])).starts_with("in service"));
}

#[test]
fn an_interrupted_download_says_how_far_it_came() {
    let directory = tempfile::tempdir().unwrap();
    let (_node, url) = node(directory.path());
    let mut slow = get(directory.path(), &["--limit-rate", "1MiB", &url]);
    let slow = slow.stderr(Stdio::piped()).spawn().unwrap();
    while held(directory.path()) == 0 {
        thread::sleep(Duration::from_millis(20));
    }
    let pid = slow.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = slow.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    assert!(said.contains("disk.iso: interrupted; "), "{said}");
    assert!(said.contains(" of 4194304 bytes are here, the same command goes on"), "{said}");
    // A checksum that it does not have.
    let wrong = format!("sha-256={}", "0".repeat(64));
    let output = get(directory.path(), &["--checksum", &wrong, &url]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("does not have the digest"), "{}", text(&output));
    assert!(!directory.path().join("disk.iso").exists());
}

#[test]
fn a_list_of_urls_is_fetched_and_what_fails_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let (_node, url) = node(directory.path());
    let list = format!("# two files\n{url}?a\n\nhttp://127.0.0.1:9/b\n");
    fs::write(directory.path().join("urls"), list).unwrap();
    let output = get(directory.path(), &["-i", "urls", "-o", "a", "-j", "2"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    assert!(said.contains("a: 4194304 bytes in "), "{said}");
    assert!(said.contains("levada: b: no connection to 127.0.0.1:9: "), "{said}");
    assert!(fs::read(directory.path().join("a")).unwrap() == content());
    let output = get(directory.path(), &["ftp://x/y"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
