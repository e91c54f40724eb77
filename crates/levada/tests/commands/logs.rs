//! The logs of a node whose reader stands still, and of a node whose log file is rotated.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    time::{Duration, Instant},
};

use crate::support::free;

const HOST: &str = "www.example.com";

/// A node that ends with the test. Its standard output and error have no reader any more.
struct Node {
    process: Child,
    _stderr: BufReader<ChildStderr>,
    client: u16,
    admin: u16,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts a node with this access log and an origin that refuses connections, and waits until it is ready.
fn start(directory: &Path, access: &str) -> Node {
    let (client, admin) = (free(), free());
    let text = format!(
        r#"
name = "a"
[[listen]]
address = "127.0.0.1:{client}"
[admin]
listen = "127.0.0.1:{admin}"
[log]
access = "{access}"
[[site]]
hosts = "www.example.com"
origin = "http://127.0.0.1:9"
"#
    );
    let file = directory.join("levada.toml");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.args(["run", "-c"]).arg(file).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut stderr = BufReader::new(process.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("ready") {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "the node starts");
    }
    Node { process, _stderr: stderr, client, admin }
}

/// The status line of the response to a request of its own connection.
fn get(port: u16, host: &str, target: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("an answer within ten seconds");
    response.lines().next().unwrap_or_default().to_owned()
}

fn signal(node: &Node, name: &str) {
    let pid = node.process.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}

#[test]
fn readers_of_logs_that_stand_still_hold_up_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = start(directory.path(), "stdout");
    // Pipes hold 64 KiB; this is four times as much in either log.
    for _ in 0..2500 {
        assert_eq!(get(node.client, HOST, "/"), "HTTP/1.1 502 Bad Gateway");
    }
    assert_eq!(get(node.admin, "localhost", "/healthz"), "HTTP/1.1 200 OK");
    signal(&node, "-TERM");
    let deadline = Instant::now() + Duration::from_secs(15);
    while node.process.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the node ends");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn renamed_access_log_is_opened_anew() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let node = start(directory.path(), log.to_str().unwrap());
    for (round, name) in ["-USR1", "-HUP"].into_iter().enumerate() {
        get(node.client, HOST, &format!("/before-{round}"));
        let deadline = Instant::now() + Duration::from_secs(10);
        let holds = |part: &str| std::fs::read_to_string(&log).unwrap_or_default().contains(part);
        while !holds(&format!("/before-{round}")) {
            assert!(Instant::now() < deadline, "the line is written within a second");
        }
        std::fs::rename(&log, directory.path().join(format!("access.log.{round}"))).unwrap();
        signal(&node, name);
        while !holds(&format!("/after-{round}")) {
            assert!(Instant::now() < deadline, "{name}: lines go to a new file");
            get(node.client, HOST, &format!("/after-{round}"));
        }
    }
}
