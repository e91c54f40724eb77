//! Real nodes in front of an origin, each a process of its own, with an address for browsers.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rcgen::PublicKeyData as _;
use serde_json::Value;
use tempfile::TempDir;

/// A node that ends with this value.
pub(crate) struct Node {
    pub(crate) clients: SocketAddr,
    pub(crate) admin: SocketAddr,
    config: std::path::PathBuf,
    process: Option<Child>,
}

/// Nodes and their files.
pub(crate) struct Nodes {
    pub(crate) all: Vec<Node>,
    _files: TempDir,
}

/// Starts `count` nodes of one cluster; `more` is added to the table `[admin]` of each.
pub(crate) fn start(count: usize, more: &str) -> Nodes {
    let origin = origin();
    // Another process may take a port between its release and its use.
    for _ in 0..5 {
        let mut nodes = prepare(count, more, origin);
        if nodes.all.iter_mut().all(Node::start) {
            return nodes;
        }
    }
    panic!("the nodes do not start");
}

/// Starts a node that offers HTTP/3 for `a.test`, and the hash of its key by which a browser accepts it.
pub(crate) fn start_http3() -> (Nodes, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["a.test".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    let digest = ring::digest::digest(&ring::digest::SHA256, &key.subject_public_key_info());
    let origin = origin();
    for _ in 0..5 {
        let files = tempfile::tempdir().unwrap();
        std::fs::write(files.path().join("node.pem"), certificate.pem()).unwrap();
        std::fs::write(files.path().join("node.key"), key.serialize_pem()).unwrap();
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let clients = held.local_addr().unwrap();
        drop(held);
        let config = files.path().join("node.toml");
        let text = format!(
            r#"name = "n"
[[listen]]
address = "{clients}"
tls = [{{ certificate = "node.pem", key = "node.key" }}]
http3 = true
[log]
access = "off"
[[site]]
hosts = "a.test"
origin = "http://{origin}"
"#
        );
        std::fs::write(&config, text).unwrap();
        let mut node = Node { clients, admin: clients, config, process: None };
        if node.start() {
            let fingerprint = BASE64_STANDARD.encode(digest);
            return (Nodes { all: vec![node], _files: files }, fingerprint);
        }
    }
    panic!("the node does not start");
}

fn prepare(count: usize, more: &str, origin: SocketAddr) -> Nodes {
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("token"), "secret-token-of-the-test\n").unwrap();
    let held: Vec<_> = (0..count * 3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<_> = held.iter().map(|listener| listener.local_addr().unwrap()).collect();
    let peers: String = (0..count)
        .map(|at| {
            format!("[[peer]]\nname = \"n{}\"\naddress = \"{}\"\n", at + 1, ports[3 * at + 1])
        })
        .collect();
    let node = |at: usize| {
        let [clients, own, admin] = [ports[3 * at], ports[3 * at + 1], ports[3 * at + 2]];
        let (name, token) = (format!("n{}", at + 1), files.path().join("token"));
        let more = more.replace("TOKEN_FILE", &token.display().to_string());
        let text = format!(
            r#"name = "{name}"
[[listen]]
address = "{clients}"
[admin]
listen = "{admin}"
{more}
[peering]
listen = "{own}"
secret = "0123456789abcdef0123456789abcdef"
[peering.health_check]
interval = "250ms"
[log]
access = "off"
[[site]]
hosts = "*"
origin = "http://{origin}"
{peers}"#
        );
        let config = files.path().join(format!("{name}.toml"));
        std::fs::write(&config, text).unwrap();
        Node::new(clients, admin, config)
    };
    Nodes { all: (0..count).map(node).collect(), _files: files }
}

impl Node {
    /// A node with this configuration.
    pub(crate) fn new(clients: SocketAddr, admin: SocketAddr, config: std::path::PathBuf) -> Self {
        Self { clients, admin, config, process: None }
    }

    /// Starts it, and waits until it is ready; false if a port was taken.
    pub(crate) fn start(&mut self) -> bool {
        let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
        command.args(["run", "-c"]).arg(&self.config).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut said = BufReader::new(process.stderr.take().unwrap());
        let mut text = String::new();
        while !text.contains(": ready ") {
            if said.read_line(&mut text).unwrap() == 0 {
                process.wait().unwrap();
                assert!(text.contains("in use"), "{text}");
                return false;
            }
        }
        // The log must not fill its pipe.
        thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        self.process = Some(process);
        true
    }

    /// Starts it again. A connection of another process may have one of its ports for a while.
    pub(crate) fn start_again(&mut self) {
        let begun = std::time::Instant::now();
        while !self.start() {
            assert!(begun.elapsed() < std::time::Duration::from_secs(60), "its ports are in use");
            thread::sleep(std::time::Duration::from_millis(200));
        }
    }

    /// Ends it, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// The address of its page.
    pub(crate) fn page(&self) -> String {
        format!("http://{}/", self.admin)
    }

    /// The JSON of an admin path.
    pub(crate) fn told(&self, path: &str) -> Value {
        let answer = get(self.admin, path, "localhost");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).expect(&answer)
    }

    /// Requests an object through it.
    pub(crate) fn request(&self, path: &str) -> String {
        get(self.clients, path, "www.test")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

fn get(address: SocketAddr, path: &str, host: &str) -> String {
    let begun = Instant::now();
    loop {
        let mut answer = String::new();
        if let Ok(mut stream) = TcpStream::connect(address) {
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            let _ = stream.read_to_string(&mut answer);
        }
        if answer.contains("\r\n\r\n") {
            return answer;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{address} does not answer");
        thread::sleep(Duration::from_millis(50));
    }
}

/// An origin whose every response may be stored.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    for line in BufReader::new(stream.try_clone()?).lines() {
        if line?.is_empty() {
            let body = "x".repeat(2_000);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nCache-Control: max-age=600\r\n\r\n",
                body.len()
            );
            stream.write_all((head + &body).as_bytes())?;
        }
    }
    Ok(())
}
