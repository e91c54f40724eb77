//! `levada purge` as a user runs it, against a node as a user runs it.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Output, Stdio},
};

use crate::support::{Process, free};

const TOKEN: &str = "a token of some length";

/// An origin that answers every request with the same page. It ends with the process.
fn origin() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while stream.read(&mut bytes).is_ok_and(|read| read > 0) {
                    let page = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 2\r\n\r\nhi";
                    let _ = stream.write_all(page);
                }
            });
        }
    });
    port
}

/// Sends a node a request for a page.
fn ask(directory: &Path, path: &str, fields: &str) -> TcpStream {
    let port: u16 = std::fs::read_to_string(directory.join("port")).unwrap().parse().unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let host = "Host: www.example.com\r\nConnection: close";
    write!(stream, "GET {path} HTTP/1.1\r\n{host}\r\n{fields}\r\n").unwrap();
    stream
}

/// The status of the answer.
fn status(mut stream: TcpStream) -> u16 {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Writes a configuration and starts the node that it describes. Its only peer is away.
fn start(directory: &Path, admin: u16, with_peer: bool) -> Process {
    let peers = with_peer.then(|| [free(), free()]);
    start_named("a", directory, admin, peers)
}

/// Writes a configuration and starts the node `name` that it describes, of the two nodes `a` and `b` with
/// these ports for peers.
fn start_named(name: &str, directory: &Path, admin: u16, peers: Option<[u16; 2]>) -> Process {
    std::fs::write(directory.join("token"), format!("{TOKEN}\n")).unwrap();
    let (client, origin) = (free(), origin());
    std::fs::write(directory.join("port"), client.to_string()).unwrap();
    let mut text = format!(
        r#"
name = "{name}"
[[listen]]
address = "127.0.0.1:{client}"
[admin]
listen = "127.0.0.1:{admin}"
[purge]
token_file = "token"
[[site]]
hosts = "www.example.com"
origin = "http://127.0.0.1:{origin}"
"#
    );
    if let Some([a, b]) = peers {
        let own = if name == "a" { a } else { b };
        text += &format!(
            r#"
[peering]
listen = "127.0.0.1:{own}"
secret = "0123456789abcdef"
health_check = {{ interval = "200ms" }}
[[peer]]
name = "a"
address = "127.0.0.1:{a}"
[[peer]]
name = "b"
address = "127.0.0.1:{b}"
"#
        );
    }
    std::fs::write(directory.join("levada.toml"), text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.args(["run", "--stop-with-stdin", "-c"]).arg(directory.join("levada.toml"));
    Process::ready(command.stdin(Stdio::piped())).expect("the node starts").0
}

fn purge(options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.arg("purge").args(options).env_remove("LEVADA_PURGE_TOKEN").output().unwrap()
}

fn refused(options: &[&str], why: &str) {
    let output = purge(options);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{options:?}: {error}");
    assert!(error.contains(why), "{options:?}: {error}");
}

#[test]
fn a_node_is_told_and_its_report_is_printed() {
    let directory = tempfile::tempdir().unwrap();
    let admin = free();
    let _node = start(directory.path(), admin, false);
    let file = directory.path().join("levada.toml");
    let file = file.to_str().unwrap();
    for what in [
        &["http://www.example.com/a", "http://www.example.com/b"][..],
        &["--prefix", "http://www.example.com/"],
        &["--tag", "t", "--tag", "u", "--site", "www.example.com"],
        &["--all", "--soft"],
    ] {
        let output = purge(&[what, &["-c", file]].concat());
        assert_eq!(output.status.code(), Some(0), "{what:?}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "a  purged\n");
    }
    let output = purge(&["--all", "-c", file, "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["purged"], &report["confirmed"]), (&"all".into(), &true.into()));

    let address = format!("127.0.0.1:{admin}");
    let token = directory.path().join("token");
    let token = token.to_str().unwrap();
    let output = purge(&["--all", "--admin", &address, "--token-file", token]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    refused(&["--all", "--admin", &address], "needs the token");
    refused(&["http://else.example/", "-c", file], "no site answers to the host");
    refused(&["/a", "-c", file], "no absolute URL");
}

#[test]
fn a_peer_that_is_away_shows_in_report_and_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let _node = start(directory.path(), free(), true);
    let file = directory.path().join("levada.toml");
    let output = purge(&["--all", "-c", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(report.starts_with("a  purged\nb  unreachable: "), "{report}");
    assert!(report.ends_with("; will be told when it is back\n"), "{report}");
}

#[test]
fn a_purge_waits_for_a_peer_that_comes_back() {
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let peers = Some([free(), free()]);
    let _node = start_named("a", directories[0].path(), free(), peers);
    let file = directories[0].path().join("levada.toml");
    let options = ["--all", "-c", file.to_str().unwrap(), "--wait"];
    let output = purge(&[&options[..], &["300ms"]].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let mut waiting = Command::new(env!("CARGO_BIN_EXE_levada"));
    waiting.arg("purge").args(options).arg("60s").stdout(Stdio::piped());
    let waiting = waiting.spawn().unwrap();
    let _peer = start_named("b", directories[1].path(), free(), peers);
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a  purged\nb  purged\n");
}

#[test]
fn a_node_that_was_suspended_serves_nothing_that_was_purged_meanwhile() {
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let peers = Some([free(), free()]);
    let _node = start_named("a", directories[0].path(), free(), peers);
    let peer = start_named("b", directories[1].path(), free(), peers);
    let suspend = |signal: &str| {
        let pid = peer.0.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    };
    let paths: Vec<String> = (0..20).map(|n| format!("/{n}")).collect();
    for path in &paths {
        assert_eq!(status(ask(directories[1].path(), path, "")), 200);
    }
    suspend("-STOP");
    let file = directories[0].path().join("levada.toml");
    let output = purge(&["--all", "-c", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "a  purged\nb  pending: it does not answer; will be told again\n"
    );
    let only_stored = "Cache-Control: only-if-cached\r\n";
    let asked = paths.iter().map(|path| ask(directories[1].path(), path, only_stored));
    let asked: Vec<TcpStream> = asked.collect();
    suspend("-CONT");
    for stream in asked {
        assert_eq!(status(stream), 504);
    }
}

#[test]
fn what_cannot_be_asked_is_said() {
    let admin = ["--admin", "127.0.0.1:1"];
    for what in [
        &[][..],
        &["http://a.example/", "--all"],
        &["--tag", "t", "--prefix", "http://a.example/"],
        &["http://a.example/", "--site", "a.example"],
    ] {
        assert_eq!(purge(&[what, &admin].concat()).status.code(), Some(2), "{what:?}");
    }
    assert_eq!(purge(&["--all"]).status.code(), Some(2), "no node");
    refused(&["--all", "--admin", "127.0.0.1:1"], "no node listens for operators on 127.0.0.1:1");
    refused(&["--all", "-c", "/nonexistent.toml"], "cannot read /nonexistent.toml");
    let with_file = ["--all", "--admin", "127.0.0.1:1", "--token-file", "/nonexistent"];
    refused(&with_file, "cannot read /nonexistent");
}
