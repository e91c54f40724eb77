//! WebSocket through a real node, between programs that others have written: Chromium and Python's `websockets` in
//! front, the latter behind.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::TempDir;

use crate::{browser::Browser, nodes::Node};

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page/websocket.py")
}

/// A server of WebSocket, and a node in front of it. Both end with this value.
struct World {
    server: Child,
    node: Node,
    secure: SocketAddr,
    files: TempDir,
}

impl World {
    /// `None` if Python or its package is missing.
    #[expect(clippy::zombie_processes, reason = "a server is left behind by a panic alone")]
    fn start() -> Option<Self> {
        if levada_skip::lacks_module("websockets", "python3-websockets") {
            return None;
        }
        let mut server = Command::new(levada_skip::python("websockets").unwrap())
            .arg(program())
            .arg("server")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let files = tempfile::tempdir().unwrap();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(files.path().join("certificate.pem"), cert.pem()).unwrap();
        fs::write(files.path().join("key.pem"), signing_key.serialize_pem()).unwrap();
        // Another process may take a port between its release and its use.
        for _ in 0..5 {
            let (mut node, secure) = node(files.path(), port.trim());
            if node.start() {
                return Some(Self { server, node, secure, files });
            }
        }
        panic!("the node does not start");
    }

    /// Runs the client in Python, and returns the lines that it prints.
    fn client(&self, uri: &str, authority: &[&Path]) -> String {
        let mut command = Command::new(levada_skip::python("websockets").unwrap());
        let output = command.arg(program()).args(["client", uri]).args(authority).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// Waits until a line of the access log has this in it.
    fn logs(&self, part: &str) {
        let (begun, log) = (Instant::now(), self.files.path().join("access.log"));
        loop {
            let text = fs::read_to_string(&log).unwrap_or_default();
            if text.lines().any(|line| line.contains(part)) {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "no {part:?} in {text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn node(files: &Path, server: &str) -> (Node, SocketAddr) {
    let held = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [plain, secure, admin] = held.each_ref().map(|one| one.local_addr().unwrap());
    let text = format!(
        r#"name = "n1"
[[listen]]
address = "{plain}"
[[listen]]
address = "{secure}"
tls = [{{ certificate = "certificate.pem", key = "key.pem" }}]
[admin]
listen = "{admin}"
[log]
access = "access.log"
format = "$server_protocol $request_uri $status"
[[site]]
hosts = "*"
origin = "http://127.0.0.1:{server}"
"#
    );
    let config = files.join("levada.toml");
    fs::write(&config, text).unwrap();
    (Node::new(plain, admin, config), secure)
}

#[test]
fn python_talks_to_python_through_a_node() {
    let Some(world) = World::start() else { return };
    let agreed = "ok permessage-deflate none\n";
    assert_eq!(world.client(&format!("ws://{}/plain", world.node.clients), &[]), agreed);
    let authority = world.files.path().join("certificate.pem");
    let uri = format!("wss://localhost:{}/secure", world.secure.port());
    assert_eq!(world.client(&uri, &[&authority]), agreed);
    world.logs("HTTP/1.1 /plain 101");
    world.logs("HTTP/1.1 /secure 101");
}

/// Sends messages of many sizes, texts and bytes, over three sockets at once, and checks what comes back.
const TALK: &str = r#"
Promise.all([1, 2, 3].map(number => new Promise((done, fail) => {
    const socket = new WebSocket(`wss://${location.host}/chat${number}`, ["other", "chat"]);
    socket.binaryType = "arraybuffer";
    const sizes = [0, 1, 125, 126, 65535, 65536, 1000000];
    const messages = sizes.flatMap(size => ["\u{1F994}".repeat(size / 4), new Uint8Array(size).fill(number)]);
    let next = 0;
    socket.onopen = () => socket.send(messages[0]);
    socket.onmessage = event => {
        const sent = messages[next];
        const same = typeof sent === "string" ? event.data === sent
            : event.data.byteLength === sent.length && new Uint8Array(event.data).every(byte => byte === number);
        if (!same) return fail(`message ${next}`);
        next += 1;
        next < messages.length ? socket.send(messages[next]) : socket.close(1000, "done");
    };
    socket.onerror = () => fail("broken");
    socket.onclose = event => done(`${event.code} ${event.wasClean} ${socket.protocol} ${next}`);
}))).then(all => all.join(), failure => `failed: ${failure}`)
"#;

#[test]
fn pages_in_chromium_talk_over_http2() {
    let Some(world) = World::start() else { return };
    let Some(mut browser) = Browser::start_with(&["--ignore-certificate-errors"]) else { return };
    let url = format!("https://localhost:{}/", world.secure.port());
    let opened = browser.order("Page.navigate", serde_json::json!({ "url": url }));
    assert_eq!(opened.get("errorText"), None, "{opened}");
    browser.wait("document.body.innerText.includes('a page')");
    let told = browser.value(TALK);
    let one = "1000 true chat 14";
    assert_eq!(told, [one; 3].join(","), "{:?}", browser.problems);
    for number in 1..4 {
        // Extended CONNECT: a stream of the connection that the page came over.
        world.logs(&format!("HTTP/2.0 /chat{number} 200"));
    }
}
