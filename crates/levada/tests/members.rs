//! Nodes whose members are keys of etcd: the real program, the real etcd.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// A bound for whatever happens soon.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server of etcd.
struct Etcd {
    directory: TempDir,
    client: SocketAddr,
    peer: SocketAddr,
    process: Option<Process>,
}

impl Etcd {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (client, peer) = (reserve(), reserve());
        let mut etcd = Self { directory, client, peer, process: None };
        etcd.spawn();
        etcd
    }

    /// Starts it, and waits until it answers.
    fn spawn(&mut self) {
        let (client, peer) = (format!("http://{}", self.client), format!("http://{}", self.peer));
        let process = Command::new("etcd")
            .args(["--name=s", "--unsafe-no-fsync"])
            .arg(format!("--data-dir={}", self.directory.path().join("data").display()))
            .args([
                format!("--listen-client-urls={client}"),
                format!("--advertise-client-urls={client}"),
            ])
            .args([
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
            ])
            .arg(format!("--initial-cluster=s={peer}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("etcd: {error}; install the package etcd-server"));
        self.process = Some(Process(process));
        wait("etcd", || self.try_control(&["get", "x"]));
    }

    fn kill(&mut self) {
        self.process = None;
    }

    /// Lets `etcdctl` do something.
    fn control(&self, arguments: &[&str]) {
        assert!(self.try_control(arguments), "{arguments:?}");
    }

    fn try_control(&self, arguments: &[&str]) -> bool {
        let status = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={}", self.client))
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.unwrap_or_else(|error| panic!("etcdctl: {error}; install etcd-client")).success()
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
    let file = directory.path().join("levada.toml");
    fs::write(&file, configuration).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.args(["run", "-c"]).arg(&file).stdout(Stdio::null());
    let mut process = Process(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut stderr = BufReader::new(process.0.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("ready") {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "the node starts: {said}");
    }
    thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    (process, directory)
}

/// Status and body of a node's answer.
fn get(at: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.rsplit("\r\n\r\n").next().unwrap().to_owned())
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
    let end = Instant::now() + PATIENCE;
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
    let mut etcd = Etcd::start();
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
