//! Connections that a front-end hands to back-ends, with the binary's own processes, unmodified servers
//! and unmodified clients. As root on Linux, with `curl`; skipped elsewhere.
#![cfg(target_os = "linux")]

mod bad_input;
mod clients;
mod flood;
mod ipv6;
mod liar;
mod load;
mod matrix;
mod moves;
mod paths;
mod upgrade;

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixListener,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use levada_net::{
    handoff::{Connection, Window},
    lab::{self, Child, Host},
    wire::Shape,
};
use levada_redirector::handoff::{AfterHandoff, fuzzing::Frame};

const SERVICE: Ipv4Addr = lab::LabCluster::SERVICE;
const BACKS: [Ipv4Addr; 2] = [lab::LabCluster::back(0), lab::LabCluster::back(1)];
const SECRET: &str = "0123456789abcdef";
/// Longer than any wait here.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A client behind a router, a front-end, and two back-ends with a server each.
struct Cluster {
    servers: [Arc<Server>; 2],
    running: Vec<Option<Child>>,
    directory: tempfile::TempDir,
    /// Where clients connect to.
    service: SocketAddr,
    hosts: lab::LabCluster,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::env::var_os("LEVADA_TEST_LOG").is_some() {
            eprintln!("{}", fs::read_to_string(self.path("front.log")).unwrap_or_default());
        }
    }
}

impl std::ops::Deref for Cluster {
    type Target = lab::LabCluster;

    fn deref(&self) -> &lab::LabCluster {
        &self.hosts
    }
}

/// A server that knows nothing of handoff: `/N` is N bytes, and `/slow/N` too, after a while. `/echo` returns the
/// request's body, which `/late/echo` begins to read after a while.
#[derive(Default)]
struct Server {
    requests: AtomicU64,
    /// It closes what comes, unanswered.
    has_gone: AtomicBool,
}

impl Cluster {
    /// Without any process yet. `None` where there can be none, which is said.
    fn bare() -> Option<Self> {
        Self::bare_behind(None)
    }

    /// With a link of this shape to the client.
    fn bare_behind(shape: Option<Shape>) -> Option<Self> {
        if levada_skip::lacks("curl", "curl") {
            return None;
        }
        levada_skip::possible(lab::possible())?;
        let hosts = lab::LabCluster::behind(2, shape).unwrap();
        let servers = [0, 1].map(|at| Server::start(&hosts.backs[at], BACKS[at], at));
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("secret"), format!("{SECRET}\n")).unwrap();
        let running = (0..3).map(|_| None).collect();
        Some(Self {
            servers,
            running,
            directory,
            service: SocketAddr::new(SERVICE.into(), 80),
            hosts,
        })
    }

    /// With a front-end that hands over and two back-ends that take.
    fn new(after: &str) -> Option<Self> {
        let mut cluster = Self::bare()?;
        for at in [0, 1] {
            cluster.start_back(at, 8080);
        }
        // A front-end would tell of a back-end that is not there yet.
        for at in [0, 1] {
            cluster.wait_until_it_listens(at);
        }
        cluster.start_front(after);
        for at in [0, 1] {
            cluster.wait_until_handed_to(at);
        }
        Some(cluster)
    }

    /// Its server is at this port.
    fn start_back(&mut self, at: usize, port: u16) {
        self.start_back_before(at, &format!("http://{}:{port}", BACKS[at]));
    }

    fn start_back_before(&mut self, at: usize, server: &str) {
        let mut command = levada();
        command.args(self.back_arguments(at, server));
        command.stderr(fs::File::create(self.path(&format!("back{at}.log"))).unwrap());
        self.running[at] = Some(self.backs[at].start(command).unwrap());
    }

    fn back_arguments(&self, at: usize, server: &str) -> Vec<String> {
        let words = format!(
            "handoff-backend --interface eth0 --name back{at} --listen {}:7072 --service {SERVICE}:80 \
             --to {server} --admin 127.0.0.1:9180 --secret-file",
            BACKS[at]
        );
        words.split(' ').map(str::to_owned).chain([self.path("secret")]).collect()
    }

    /// A node with a cache as back-end.
    fn start_caching_back(&mut self, at: usize) {
        self.start_caching_back_with(at, "");
    }

    fn start_caching_back_with(&mut self, at: usize, tables: &str) {
        let config = self.directory.path().join("back.toml");
        let back = BACKS[at];
        let text = format!(
            "name = 'back'\n[[listen]]\naddress = '127.0.0.1:8081'\n\
             [admin]\nlisten = '127.0.0.1:9180'\n{tables}\
             [handoff]\ninterfaces = 'eth0'\nsecret_file = 'secret'\n\
             listen = '{back}:7072'\nservices = '{SERVICE}:80'\n\
             [[site]]\nhosts = '*'\norigin = 'http://{back}:8080'\n"
        );
        fs::write(&config, text).unwrap();
        let mut command = levada();
        command.arg("run").arg("-c").arg(config);
        self.running[at] = Some(self.backs[at].start(command).unwrap());
    }

    fn start_front(&mut self, after: &str) {
        self.start_front_with(after, "secret");
    }

    fn start_front_with(&mut self, after: &str, secret: &str) {
        let mut command = levada();
        command.arg("run").arg("-c").arg(self.front_file(&front_text(after, secret)));
        self.start_front_by(command);
    }

    fn front_file(&self, text: &str) -> String {
        let file = self.path("front.toml");
        fs::write(&file, text).unwrap();
        file
    }

    fn start_front_by(&mut self, mut command: Command) {
        command.stderr(fs::File::create(self.path("front.log")).unwrap());
        self.running[2] = Some(self.front.start(command).unwrap());
    }

    /// The front-end's log since its start.
    fn log(&self) -> String {
        fs::read_to_string(self.path("front.log")).unwrap()
    }

    /// Waits until a back-end takes connections of front-ends.
    fn wait_until_it_listens(&self, at: usize) {
        let start = Instant::now();
        let listens = || {
            let inside = self.backs[at].namespace();
            inside.run(|| TcpStream::connect((BACKS[at], 7072)).is_ok()).unwrap()
        };
        while !listens() {
            assert!(start.elapsed() < TEST_TIMEOUT, "back-end {at} does not listen");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn wait_until_handed_to(&self, at: usize) {
        let start = Instant::now();
        let before = self.handed();
        // One that was proxied because there was no channel yet may be known to be small afterwards.
        let mut sizes = 1..;
        while self.handed() == before {
            assert!(start.elapsed() < TEST_TIMEOUT, "nothing is handed to back-end {at}");
            let url = format!("http://back{at}.test/{}", sizes.next().unwrap());
            let _ = self.curl(&["-s", "-o", "/dev/null", &url]);
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Connections that ended at a back-end.
    fn handed(&self) -> u64 {
        self.metric("levada_handoffs_total{result=\"ended\"}")
            + self.metric("levada_handoffs_total{result=\"given-back\"}")
    }

    /// A metric of the front-end.
    fn metric(&self, name: &str) -> u64 {
        metric(&self.front, name)
    }

    /// Runs curl at the client, where every host is the service.
    fn curl(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new("curl");
        command.args(["--connect-to", &format!("::{}", self.service), "--max-time", "25"]);
        command.args(arguments);
        let output = self.client.namespace().run(|| command.output().unwrap()).unwrap();
        // A test that fails shows the error of curl.
        print!("{}", String::from_utf8_lossy(&output.stderr));
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn connect(&self) -> TcpStream {
        self.try_connect().unwrap()
    }

    fn try_connect(&self) -> io::Result<TcpStream> {
        let stream = self.client.namespace().run(|| TcpStream::connect(self.service));
        let stream = stream.unwrap()?;
        stream.set_read_timeout(Some(TEST_TIMEOUT))?;
        Ok(stream)
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }
}

/// A front-end's configuration. The host says which server, so that a test can choose.
fn front_text(after: &str, secret: &str) -> String {
    let mut text = format!(
        "name = 'front'\n[[listen]]\naddress = '{SERVICE}:80'\n\
         [admin]\nlisten = '127.0.0.1:9180'\n\
         [limits]\ndrain_timeout = '2m'\n\
         [handoff]\ninterfaces = 'eth0'\nsecret_file = '{secret}'\nafter = '{after}'\n"
    );
    let site = "cache = false\npolicy = { name = 'hrw' }\nhealth_check = { interval = '100ms' }\n";
    let server = |back: &Ipv4Addr| {
        format!("[[site.server]]\nurl = 'http://{back}:8080'\nhandoff = '{back}:7072'\n")
    };
    for (at, back) in BACKS.iter().enumerate() {
        text += &format!("[[site]]\nhosts = 'back{at}.test'\n{site}{}", server(back));
    }
    text += &format!("[[site]]\nhosts = 'both.test'\n{site}");
    text += &BACKS.iter().map(server).collect::<String>();
    text
}

/// A metric of a node.
fn metric(host: &Host, name: &str) -> u64 {
    metric_at(host, 9180, name)
}

/// A metric of the node whose admin listener is at this port.
fn metric_at(host: &Host, port: u16, name: &str) -> u64 {
    let text = metrics_at(host, port);
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim().parse::<f64>().ok()).unwrap_or(0.0) as u64
}

fn metrics_at(host: &Host, port: u16) -> String {
    let text = host.namespace().run(|| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok().map(|_| text)
    });
    text.unwrap().unwrap_or_default()
}

/// For a front-end that has just been started.
const ONCE_IT_IS_THERE: [&str; 4] = ["-sS", "--retry-connrefused", "--retry", "9"];

fn levada() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    // Its access log goes to the standard output.
    command.args(["--log-level", "debug"]).stdout(Stdio::null());
    if std::env::var_os("LEVADA_TEST_LOG").is_none() {
        command.stderr(Stdio::null());
    }
    command
}

impl Server {
    fn start(host: &Host, address: Ipv4Addr, number: usize) -> Arc<Self> {
        let listener = host.namespace().run(|| TcpListener::bind((address, 8080)).unwrap());
        let listener = listener.unwrap();
        let server = Arc::new(Self::default());
        let this = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let this = this.clone();
                let stream = stream.unwrap();
                thread::spawn(move || this.serve(stream.try_clone().ok()?, stream, number));
            }
        });
        server
    }

    /// Serves at a Unix socket, too.
    fn listen_at(self: &Arc<Self>, socket: &Path, number: usize) {
        let (listener, this) = (UnixListener::bind(socket).unwrap(), self.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (this, stream) = (this.clone(), stream.unwrap());
                thread::spawn(move || this.serve(stream.try_clone().ok()?, stream, number));
            }
        });
    }

    fn serve(&self, from: impl Read, mut writer: impl Write, number: usize) -> Option<()> {
        let mut reader = BufReader::new(from);
        loop {
            let mut target = None;
            let mut length = 0;
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).ok()? == 0 {
                    return None;
                }
                let line = line.trim_end();
                if target.is_none() {
                    target = Some(line.split(' ').nth(1)?.to_owned());
                } else if line.is_empty() {
                    break;
                } else if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().ok()?;
                }
            }
            if target.as_deref() == Some("/late/echo") {
                // Meanwhile the client fills all buffers on the way.
                thread::sleep(Duration::from_secs(2));
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).ok()?;
            self.requests.fetch_add(1, Relaxed);
            if self.has_gone.load(Relaxed) {
                return None;
            }
            let target = target?;
            if target.starts_with("/slow/") {
                thread::sleep(Duration::from_secs(2));
            } else if target.starts_with("/slower/") {
                thread::sleep(Duration::from_millis(2600));
            }
            let size = target.rsplit('/').next()?.parse().unwrap_or(length);
            let sent = if target.ends_with("/echo") { body } else { content(size) };
            write!(
                writer,
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Server: back{number}\r\n\
                 Cache-Control: max-age=60\r\n\r\n",
                sent.len()
            )
            .ok()?;
            writer.write_all(&sent).ok()?;
        }
    }
}

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|n| (n % 251) as u8).collect()
}

fn kill(child: &Child) {
    let pid = child.process.id().to_string();
    assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
}

/// Of a stream: one response's head and body.
fn response(reader: &mut BufReader<TcpStream>) -> (String, Vec<u8>) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "it ends after {head:?}");
    }
    let length = head.to_lowercase();
    let length = length.split("content-length: ").nth(1).unwrap().lines().next().unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    (head, body)
}

fn is_same(file: &str, size: usize) -> bool {
    fs::read(Path::new(file)).unwrap() == content(size)
}

#[test]
fn curl_gets_the_right_bytes_of_a_back_end_itself() {
    let Some(cluster) = Cluster::new("stay") else { return };
    cluster.gets_a_long_body_past_the_front_end();
}

impl Cluster {
    fn gets_a_long_body_past_the_front_end(&self) {
        let before = self.handed();
        let file = self.path("body");
        let counters = |of: &str| {
            let read = || {
                let output = Command::new("ip").args(["-j", "-s", "link", "show", "eth0"]).output();
                String::from_utf8(output.unwrap().stdout).unwrap()
            };
            let text = self.front.namespace().run(read).unwrap();
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            value[0]["stats64"][of]["bytes"].as_u64().unwrap_or_else(|| panic!("{text}"))
        };
        let sent = counters("tx");
        let (good, head) = self.curl(&["-sS", "-D-", "-o", &file, "http://back0.test/50000000"]);
        assert!(good && is_same(&file, 50_000_000));
        assert!(head.to_lowercase().contains("x-server: back0"), "{head}");
        let sent = counters("tx") - sent;
        assert!(sent < 5_000_000, "the body goes past the front-end, which sent {sent} bytes");
        // The front-end hears of the end after the client does.
        let start = Instant::now();
        while self.handed() == before {
            assert!(start.elapsed() < TEST_TIMEOUT);
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(self.metric("levada_handed_over"), 0);
    }
}

#[test]
fn server_beside_a_back_end_may_be_at_a_unix_socket() {
    let Some(mut cluster) = Cluster::bare() else { return };
    let socket = cluster.path("app.sock");
    cluster.start_back_before(0, &format!("unix:{socket}"));
    cluster.start_front("stay");
    // As long as the server is not there, the front-end asks it in its own way.
    let asked = cluster.servers[0].requests.load(Relaxed);
    let mut once = ONCE_IT_IS_THERE.to_vec();
    once.extend(["-o", "/dev/null", "-w", "%{http_code}", "http://back0.test/1000"]);
    assert_eq!(cluster.curl(&once), (true, "200".to_owned()));
    assert_eq!(cluster.servers[0].requests.load(Relaxed), asked + 1);

    let local = Arc::new(Server::default());
    local.listen_at(Path::new(&socket), 7);
    cluster.wait_until_handed_to(0);
    let body = cluster.path("body");
    let (good, head) = cluster.curl(&["-sS", "-D-", "-o", &body, "http://back0.test/3000000"]);
    assert!(good && is_same(&body, 3_000_000));
    assert!(head.to_lowercase().contains("x-server: back7"), "{head}");
    assert_eq!(cluster.metric("levada_handed_over"), 0);
}

/// Sends requests one after the other on one connection; which server answered each.
fn answered(cluster: &Cluster, requests: &[(&str, usize)]) -> Vec<String> {
    let mut writer = cluster.connect();
    let mut reader = BufReader::new(writer.try_clone().unwrap());
    let answer = |(host, size): &(&str, usize)| {
        write!(writer, "GET /{size} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let (head, body) = response(&mut reader);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(body == content(*size), "{host}, {size}");
        server_of(&head)
    };
    requests.iter().map(answer).collect()
}

fn server_of(head: &str) -> String {
    let head = head.to_lowercase();
    head.split("x-server: ").nth(1).unwrap().lines().next().unwrap().to_owned()
}

const REQUESTS: [(&str, usize); 5] = [
    ("back0.test", 5_000_000),
    ("back0.test", 1000),
    ("back1.test", 5_000_000),
    ("back1.test", 20),
    ("back0.test", 0),
];

#[test]
fn a_connection_stays_with_its_back_end() {
    let Some(cluster) = Cluster::new("stay") else { return };
    assert_eq!(answered(&cluster, &REQUESTS), ["back0"; 5]);
}

#[test]
fn a_connection_goes_on_to_the_back_end_of_each_request() {
    for after in ["on", "back"] {
        let Some(cluster) = Cluster::new(after) else { return };
        let before = cluster.metric("levada_handoffs_total{result=\"given-back\"}");
        let expected = ["back0", "back0", "back1", "back1", "back0"];
        assert_eq!(answered(&cluster, &REQUESTS), expected, "{after}");
        let moves = cluster.metric("levada_handoffs_total{result=\"given-back\"}") - before;
        assert_eq!(moves, if after == "on" { 2 } else { 4 }, "{after}");
    }
}

#[test]
fn however_a_request_comes_it_is_answered() {
    for after in ["stay", "on"] {
        let Some(cluster) = Cluster::new(after) else { return };
        // A head in many packets.
        let mut writer = cluster.connect();
        writer.set_nodelay(true).unwrap();
        let mut reader = BufReader::new(writer.try_clone().unwrap());
        for byte in b"GET /7 HTTP/1.1\r\nHost: back0.test\r\n\r\n" {
            writer.write_all(&[*byte]).unwrap();
        }
        assert_eq!(response(&mut reader).1, content(7));
        // Several requests at once, of different back-ends.
        let get = |host: &str, size: usize| format!("GET /{size} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let piped = get("back0.test", 100_000) + &get("back1.test", 9) + &get("back0.test", 8);
        writer.write_all(piped.as_bytes()).unwrap();
        for size in [100_000, 9, 8] {
            assert_eq!(response(&mut reader).1, content(size));
        }
        // A body that comes when the connection is long gone.
        writer
            .write_all(b"POST /echo HTTP/1.1\r\nHost: back1.test\r\nContent-Length: 2000\r\n\r\n")
            .unwrap();
        for piece in content(2000).chunks(100) {
            thread::sleep(Duration::from_millis(2));
            writer.write_all(piece).unwrap();
        }
        let (head, body) = response(&mut reader);
        assert!(body == content(2000), "{head}");
        // The client says that it will ask for nothing more, at once and later.
        writer.write_all(get("back0.test", 300_000).as_bytes()).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(response(&mut reader).1, content(300_000));
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        let mut writer = cluster.connect();
        writer.write_all(get("back0.test", 3_000_000).as_bytes()).unwrap();
        let mut reader = BufReader::new(writer.try_clone().unwrap());
        reader.fill_buf().unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(response(&mut reader).1, content(3_000_000));
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn what_a_back_end_does_not_answer_is_answered_all_the_same() {
    let Some(mut made) = Cluster::new("stay") else { return };
    let cluster = &made;
    // It goes while the request waits for its server: nothing was sent to the client yet.
    let file = cluster.path("body");
    let asked = thread::scope(|scope| {
        let slow = ["-sS", "-o", &file, "http://back0.test/slow/1000"];
        let waiting = scope.spawn(move || cluster.curl(&slow));
        let served = &cluster.servers[0].requests;
        let before = served.load(Relaxed);
        while served.load(Relaxed) == before {
            thread::sleep(Duration::from_millis(5));
        }
        kill(cluster.running[0].as_ref().unwrap());
        waiting.join().unwrap()
    });
    assert!(asked.0 && is_same(&file, 1000), "{}", asked.1);
    // It is not there at all.
    made.running[0] = None;
    let cluster = &made;
    let (good, _) = cluster.curl(&["-sS", "-o", &file, "http://back0.test/1001"]);
    assert!(good && is_same(&file, 1001));
    // It comes back.
    made.start_back(0, 8080);
    made.wait_until_handed_to(0);
}

#[test]
fn a_front_end_that_crashed_begins_anew() {
    let Some(mut cluster) = Cluster::new("stay") else { return };
    let mut old = cluster.connect();
    old.write_all(b"GET /10 HTTP/1.1\r\nHost: back0.test\r\n\r\n").unwrap();
    let mut reader = BufReader::new(old.try_clone().unwrap());
    response(&mut reader);
    const SIZE: usize = 20_000_000;
    let mut download = BufReader::new(cluster.connect());
    let get = format!("GET /{SIZE} HTTP/1.1\r\nHost: back0.test\r\n\r\n");
    download.get_mut().write_all(get.as_bytes()).unwrap();
    download.fill_buf().unwrap();
    cluster.running[2] = None;
    // The kernel goes on steering for connections that were handed over.
    assert!(response(&mut download).1 == content(SIZE));
    old.write_all(b"GET /11 HTTP/1.1\r\nHost: back0.test\r\n\r\n").unwrap();
    assert_eq!(response(&mut reader).1, content(11));
    cluster.start_front("stay");
    cluster.wait_until_handed_to(1);
    // From now on it is of this front-end, which does not know it.
    let _ = old.write_all(b"GET /12 HTTP/1.1\r\nHost: back0.test\r\n\r\n");
    assert!(reader.read(&mut [0]).map_or(true, |read| read == 0));
}

#[test]
fn a_back_end_whose_server_is_down_leaves_requests_to_the_front_end() {
    let Some(mut cluster) = Cluster::bare() else { return };
    // No process listens there.
    cluster.start_back(0, 8081);
    cluster.start_front("stay");
    let file = cluster.path("body");
    let start = Instant::now();
    while cluster.metric("levada_handoffs_total{result=\"refused\"}") == 0 {
        assert!(start.elapsed() < TEST_TIMEOUT, "nothing was refused");
        let get = ["-o", &file, "http://back0.test/1000"];
        let (good, _) = cluster.curl(&[&ONCE_IT_IS_THERE[..], &get].concat());
        assert!(good && is_same(&file, 1000));
    }
}

#[test]
fn a_kept_connection_ends_with_its_server_so_that_the_client_asks_another() {
    let Some(cluster) = Cluster::new("stay") else { return };
    let [mut kept, mut posting] = [cluster.connect(), cluster.connect()];
    let mut readers = [&kept, &posting].map(|stream| BufReader::new(stream.try_clone().unwrap()));
    for (stream, reader) in [&mut kept, &mut posting].into_iter().zip(&mut readers) {
        stream.write_all(b"GET /10 HTTP/1.1\r\nHost: back0.test\r\n\r\n").unwrap();
        assert_eq!(response(reader).1, content(10));
    }
    cluster.servers[0].has_gone.store(true, Relaxed);
    let [reader, posted] = &mut readers;
    kept.write_all(b"GET /11 HTTP/1.1\r\nHost: back0.test\r\n\r\n").unwrap();
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    // A request that may have had an effect must not be sent twice.
    posting
        .write_all(b"POST /echo HTTP/1.1\r\nHost: back0.test\r\nContent-Length: 2\r\n\r\nhi")
        .unwrap();
    let (head, _) = response(posted);
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(head.to_lowercase().contains("\r\nconnection: close\r\n"), "{head}");
}

#[test]
fn a_back_end_that_dies_within_an_answer_cuts_it_and_is_forgotten() {
    let Some(mut cluster) = Cluster::new("stay") else { return };
    let mut writer = cluster.connect();
    writer.write_all(b"GET /200000000 HTTP/1.1\r\nHost: back0.test\r\n\r\n").unwrap();
    let mut reader = BufReader::new(writer);
    reader.fill_buf().unwrap();
    cluster.running[0] = None;
    let mut rest = Vec::new();
    let end = reader.read_to_end(&mut rest);
    assert!(end.is_err() || rest.len() < 200_000_000, "it is not complete");
    let file = cluster.path("body");
    let (good, _) = cluster.curl(&["-sS", "-o", &file, "http://back0.test/1000"]);
    assert!(good && is_same(&file, 1000));
    let start = Instant::now();
    while cluster.metric("levada_handed_over") > 0 {
        assert!(start.elapsed() < TEST_TIMEOUT, "it is still counted");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(cluster.metric("levada_handoffs_total{result=\"lost\"}"), 1);
}

impl Cluster {
    /// From now on all packets from the back-end to the front-end are lost, but not its packets to
    /// clients.
    fn cut_channel(&self, at: usize) {
        let order = format!("route add blackhole {}/32", lab::LabCluster::FRONT);
        self.backs[at].ip(&[&order]).unwrap();
    }

    /// Waits until a server has got one more request than this.
    fn wait_until_asked(&self, at: usize, before: u64) {
        let start = Instant::now();
        while self.servers[at].requests.load(Relaxed) == before {
            assert!(start.elapsed() < TEST_TIMEOUT, "server {at} is not asked");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn an_answer_that_the_front_end_did_not_hear_of_is_not_given_twice() {
    let Some(cluster) = Cluster::new("stay") else { return };
    let mut writer = cluster.connect();
    let mut reader = BufReader::new(writer.try_clone().unwrap());
    let before = cluster.servers[0].requests.load(Relaxed);
    writer.write_all(b"GET /slow/1000 HTTP/1.1\r\nHost: back0.test\r\n\r\n").unwrap();
    cluster.wait_until_asked(0, before);
    // So late that the back-end still answers: it hears the front-end once a second.
    thread::sleep(Duration::from_millis(1250));
    cluster.cut_channel(0);
    assert_eq!(response(&mut reader).1, content(1000));
    let start = Instant::now();
    while cluster.metric("levada_handoffs_total{result=\"lost\"}") == 0 {
        assert!(start.elapsed() < TEST_TIMEOUT, "it is not missed");
        assert_eq!(cluster.metric("levada_handoffs_total{result=\"refused\"}"), 0);
        thread::sleep(Duration::from_millis(20));
    }
    // The connection is where it was.
    writer.write_all(b"GET /20 HTTP/1.1\r\nHost: back0.test\r\n\r\n").unwrap();
    assert_eq!(response(&mut reader).1, content(20));
}

#[test]
fn a_back_end_that_has_not_heard_its_front_end_for_long_does_not_begin_to_answer() {
    let Some(cluster) = Cluster::new("stay") else { return };
    let asked = || [0, 1].map(|at| cluster.servers[at].requests.load(Relaxed));
    let before = asked();
    let mut writer = cluster.connect();
    writer.write_all(b"GET /slower/1000 HTTP/1.1\r\nHost: both.test\r\n\r\n").unwrap();
    let start = Instant::now();
    let at = loop {
        assert!(start.elapsed() < TEST_TIMEOUT);
        if let Some(at) = (0..2).find(|at| asked()[*at] > before[*at]) {
            break at;
        }
        thread::sleep(Duration::from_millis(5));
    };
    cluster.cut_channel(at);
    // Else the front-end's last words, again and again, are heard until it has given up.
    cluster.front.ip(&[&format!("route add blackhole {}/32", BACKS[at])]).unwrap();
    let (head, body) = response(&mut BufReader::new(writer));
    assert_eq!(server_of(&head), format!("back{}", 1 - at), "the front-end has taken it back");
    assert_eq!(body, content(1000));
}

#[test]
fn a_client_that_resets_within_an_answer_is_forgotten_at_once() {
    let Some(cluster) = Cluster::new("stay") else { return };
    for _ in 0..5 {
        let mut stream = cluster.connect();
        stream.write_all(b"GET /20000000 HTTP/1.1\r\nHost: back0.test\r\n\r\n").unwrap();
        // Dropped with much unread, it resets.
        stream.read_exact(&mut [0; 1000]).unwrap();
    }
    let start = Instant::now();
    while cluster.metric("levada_handed_over") > 0 {
        assert!(start.elapsed() < TEST_TIMEOUT, "it is still counted");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn who_does_not_know_the_secret_gets_no_connections() {
    let Some(mut cluster) = Cluster::bare() else { return };
    cluster.start_back(0, 8080);
    fs::write(cluster.directory.path().join("other"), "another secret, as long").unwrap();
    cluster.start_front_with("stay", "other");
    let file = cluster.path("body");
    for size in 1000..1020 {
        let url = format!("http://back0.test/{size}");
        let (good, _) = cluster.curl(&[&ONCE_IT_IS_THERE[..], &["-o", &file, &url]].concat());
        assert!(good && is_same(&file, size));
    }
    assert_eq!(cluster.handed(), 0);
}

#[test]
fn a_node_with_a_cache_takes_connections_itself() {
    let Some(mut cluster) = Cluster::bare() else { return };
    cluster.start_caching_back(0);
    cluster.start_front("stay");
    cluster.wait_until_handed_to(0);
    let (url, file) = ("http://back0.test/300000", cluster.path("body"));
    let asked = || cluster.servers[0].requests.load(Relaxed);
    let before = asked();
    for _ in 0..3 {
        let (good, head) = cluster.curl(&["-sS", "-D-", "-o", &file, url]);
        assert!(good && is_same(&file, 300_000), "{head}");
    }
    assert_eq!(asked() - before, 1, "the node has stored it");
}

#[test]
fn a_connection_that_the_back_end_closes_is_not_reset() {
    let Some(cluster) = Cluster::new("stay") else { return };
    let before = cluster.handed();
    for round in 0..60 {
        let mut stream = cluster.connect();
        let size = 300_000 + round;
        write!(stream, "GET /{size} HTTP/1.1\r\nHost: back0.test\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        assert!(bytes.ends_with(&content(size)), "round {round}: {} bytes", bytes.len());
    }
    let start = Instant::now();
    while cluster.handed() < before + 60 {
        assert!(start.elapsed() < TEST_TIMEOUT, "{} of 60", cluster.handed() - before);
        thread::sleep(Duration::from_millis(10));
    }
}
