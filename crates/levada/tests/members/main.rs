//! Nodes whose members are keys of etcd: the real program, the real etcd.

#[allow(dead_code)]
mod etcd;
mod registration;

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use etcd::Etcd;
use tempfile::TempDir;

/// A bound for everything that happens soon, on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that answers each request with its name, and is not cached.
fn origin(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut stream = BufReader::new(stream);
                let mut line = String::new();
                while stream.read_line(&mut line).is_ok_and(|read| read > 0) {
                    if line == "\r\n" {
                        let length = name.len();
                        let answer = format!(
                            "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: {length}\r\n\r\n{name}"
                        );
                        if stream.get_mut().write_all(answer.as_bytes()).is_err() {
                            return;
                        }
                    }
                    line.clear();
                }
            });
        }
    });
    address
}

/// A node with this configuration, when it is ready.
fn node(configuration: &str) -> (Process, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let node = start(configuration, &directory);
    (node, directory)
}

/// Starts a node in a directory, and waits until it says that it is ready. Its log is there afterwards.
fn start(configuration: &str, directory: &TempDir) -> Process {
    let (file, log) = (directory.path().join("levada.toml"), directory.path().join("log"));
    fs::write(&file, configuration).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.args(["run", "-c"]).arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
    let process = Process(command.stderr(File::create(&log).unwrap()).spawn().unwrap());
    wait("the node starts", || fs::read_to_string(&log).unwrap().contains("ready"));
    process
}

/// Status and body of a node's answer.
fn get(at: SocketAddr, path: &str) -> (u16, String) {
    try_get(at, path).unwrap()
}

fn try_get(at: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    exchange(at, &format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"))
}

/// Gives a node an order, which it must carry out.
fn order(admin: SocketAddr, path: &str) -> String {
    let fields = "Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 0\r\n";
    let request = format!("POST {path} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n");
    let (status, body) = exchange(admin, &request).unwrap();
    assert_eq!(status, 200, "{path}: {body}");
    body
}

fn exchange(at: SocketAddr, request: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(TEST_TIMEOUT))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((status, answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned()))
}

/// The servers that answer twenty requests, all of which must be answered.
fn answering(at: SocketAddr) -> Vec<String> {
    let mut names: Vec<String> = (0..20)
        .map(|number| {
            let (status, body) = get(at, &format!("/{number}"));
            assert_eq!(status, 200, "{body}");
            body
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

fn wait(what: &str, is_done: impl Fn() -> bool) {
    let end = Instant::now() + TEST_TIMEOUT;
    while !is_done() {
        assert!(Instant::now() < end, "waited for {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// An address that is free. Outgoing connections are from 127.0.0.1, so none of them takes it before its server.
fn reserve() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let candidate = || {
        let next = std::process::id() * 97 + NEXT.fetch_add(1, Relaxed);
        SocketAddr::from((Ipv4Addr::new(127, 1, 2, 5), 10_000 + (next % 20_000) as u16))
    };
    let is_free = |address: &SocketAddr| TcpListener::bind(address).is_ok();
    std::iter::repeat_with(candidate).find(is_free).unwrap()
}

#[test]
fn servers_of_a_switch_are_keys_of_etcd() {
    let Some(mut etcd) = Etcd::start() else { return };
    let (a, b) = (origin("a"), origin("b"));
    etcd.control(&["put", "/app/a", &a.to_string()]);
    let clients = reserve();
    let configuration = format!(
        r#"
name = "n"
[[listen]]
address = "{clients}"
[[discovery]]
name = "app"
etcd = {{ endpoints = "http://{}", prefix = "/app/" }}
[[site]]
hosts = "*"
servers = "http://discovery:app"
"#,
        etcd.client
    );
    let (_node, _directory) = node(&configuration);
    wait("server a", || get(clients, "/") == (200, "a".to_owned()));
    etcd.control(&["put", "/app/b", &format!(r#"{{"address": "{b}", "weight": 1}}"#)]);
    wait("both servers", || answering(clients) == ["a", "b"]);
    etcd.control(&["del", "/app/a"]);
    wait("server b alone", || answering(clients) == ["b"]);

    // Without etcd the list stays, and it is followed again afterwards.
    etcd.kill();
    assert_eq!(answering(clients), ["b"]);
    etcd.spawn();
    // The last member stays as well.
    etcd.control(&["del", "/app/b"]);
    etcd.control(&["put", "/app/c", &a.to_string()]);
    wait("server a again", || answering(clients) == ["a"]);
}
