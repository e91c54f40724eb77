//! Clients that use a node all the time and count what goes wrong.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::node::{Node, eventually};

/// The bytes of a body that takes longer than an upgrade.
pub(crate) const LARGE: u64 = 64 << 20;
/// The longest wait of a client for bytes.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The body of a path.
pub(crate) fn body_of(path: &str) -> Vec<u8> {
    let size = if path.starts_with("/long") { 3 << 20 } else { 20_000 };
    path.bytes().cycle().take(size).collect()
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn is_hit(&self) -> bool {
        self.head.to_ascii_lowercase().contains("; hit")
    }

    fn says_goodbye(&self) -> bool {
        self.head.to_ascii_lowercase().contains("\r\nconnection: close")
    }
}

trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

/// A client over HTTP/1.1 that keeps its connection as long as the node lets it.
pub(crate) struct Client {
    address: SocketAddr,
    tls: bool,
    stream: Option<Box<dyn Stream>>,
    /// How often the node closed the connection with a response.
    goodbyes: u64,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, tls: false, stream: None, goodbyes: 0 }
    }

    pub(crate) fn get(&mut self, path: &str) -> io::Result<Response> {
        self.begin(path)?;
        self.receive()
    }

    pub(crate) fn begin(&mut self, path: &str) -> io::Result<()> {
        self.send("GET", path, "")
    }

    pub(crate) fn purge(&mut self, path: &str) -> io::Result<Response> {
        self.begin_purge(path)?;
        self.receive()
    }

    pub(crate) fn begin_purge(&mut self, path: &str) -> io::Result<()> {
        self.send("PURGE", path, "Authorization: Bearer a token of some length\r\n")
    }

    fn send(&mut self, method: &str, path: &str, fields: &str) -> io::Result<()> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(connect(self.address, self.tls)?),
        };
        let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        stream.write_all(request.as_bytes())
    }

    pub(crate) fn receive(&mut self) -> io::Result<Response> {
        let stream = self.stream.as_mut().ok_or(ErrorKind::NotConnected)?;
        let response = receive(stream)?;
        if response.says_goodbye() {
            self.goodbyes += 1;
            self.stream = None;
        }
        Ok(response)
    }
}

fn connect(address: SocketAddr, tls: bool) -> io::Result<Box<dyn Stream>> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TEST_TIMEOUT))?;
    stream.set_nodelay(true)?;
    if !tls {
        return Ok(Box::new(stream));
    }
    let name = "localhost".try_into().map_err(io::Error::other)?;
    let session = ClientConnection::new(trusting(), name).map_err(io::Error::other)?;
    Ok(Box::new(StreamOwned::new(session, stream)))
}

fn receive(stream: &mut dyn Stream) -> io::Result<Response> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.ok_or(ErrorKind::InvalidData)?];
    stream.read_exact(&mut body)?;
    Ok(Response { status: status.ok_or(ErrorKind::InvalidData)?, head, body })
}

/// Accepts the certificate of the test, whatever it is.
fn trusting() -> Arc<ClientConfig> {
    use rustls::{
        DigitallySignedStruct, Error, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        pki_types::{CertificateDer, ServerName, UnixTime},
    };

    #[derive(Debug)]
    struct Any;

    impl ServerCertVerifier for Any {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::ED25519]
        }
    }

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.dangerous().with_custom_certificate_verifier(Arc::new(Any));
    Arc::new(config.with_no_client_auth())
}

/// The experience of all clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadReport {
    pub(crate) answered: BTreeMap<&'static str, u64>,
    /// Connections that were not accepted.
    pub(crate) refused: u64,
    /// Requests without a whole and right response.
    pub(crate) failed: u64,
    /// Connections that ended with `Connection: close` or GOAWAY.
    pub(crate) goodbyes: u64,
    /// The first errors.
    pub(crate) errors: Vec<String>,
}

type Shared = Arc<Mutex<LoadReport>>;

fn answered(report: &Shared, kind: &'static str, result: io::Result<bool>) {
    let mut report = report.lock().unwrap();
    match result {
        Ok(true) => *report.answered.entry(kind).or_default() += 1,
        Ok(false) => report.failed += 1,
        Err(error) => {
            match error.kind() {
                ErrorKind::ConnectionRefused => report.refused += 1,
                _ => report.failed += 1,
            }
            if report.errors.len() < 10 {
                report.errors.push(format!("{kind}: {error}"));
            }
        }
    }
}

/// A client, until the load is over.
type Run = Box<dyn FnOnce(&Shared, &AtomicBool) + Send>;

/// Clients of all kinds.
pub(crate) struct Load {
    report: Shared,
    over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(node: &Node) -> Self {
        let (report, over) = (Shared::default(), Arc::new(AtomicBool::new(false)));
        let (plain, tls) = (node.clients(), node.tls());
        let mut clients = Vec::new();
        let mut spawn = |run: Run| {
            let (report, over) = (report.clone(), over.clone());
            clients.push(thread::spawn(move || run(&report, &over)));
        };
        for number in 0..4 {
            spawn(Box::new(move |report, over| kept(plain, false, number, report, over)));
            spawn(Box::new(move |report, over| fresh(plain, number, report, over)));
            if let Some(tls) = tls {
                spawn(Box::new(move |report, over| kept(tls, true, number, report, over)));
            }
        }
        spawn(Box::new(move |report, over| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(http2(plain, report, over));
        }));
        Self { report, over, clients }
    }

    /// Waits until every kind of client has had more answers.
    pub(crate) fn runs_on(&self) {
        let counts = || self.report.lock().unwrap().answered.clone();
        let before = counts();
        let kinds = ["kept", "fresh", "tls", "h2"];
        eventually("all clients go on", || {
            let now = counts();
            let of = |all: &BTreeMap<&'static str, u64>, kind| all.get(kind).copied().unwrap_or(0);
            kinds.iter().all(|kind| of(&now, kind) > of(&before, kind) + 30)
        });
    }

    pub(crate) fn end(self) -> LoadReport {
        self.over.store(true, Relaxed);
        self.clients.into_iter().for_each(|client| client.join().unwrap());
        self.report.lock().unwrap().clone()
    }
}

fn path(number: u64) -> String {
    format!("/object/{}", number % 50)
}

fn kept(address: SocketAddr, tls: bool, number: u64, report: &Shared, over: &AtomicBool) {
    let mut client = Client { tls, ..Client::new(address) };
    let kind = if tls { "tls" } else { "kept" };
    for round in number.. {
        if over.load(Relaxed) {
            break;
        }
        let path = path(round);
        let result = client.get(&path);
        if result.is_err() {
            client.stream = None;
        }
        answered(report, kind, result.map(|response| response.body == body_of(&path)));
        // As a client that thinks: some connections are idle at any moment.
        if round % 7 == number {
            thread::sleep(Duration::from_millis(20));
        }
    }
    report.lock().unwrap().goodbyes += client.goodbyes;
}

fn fresh(address: SocketAddr, number: u64, report: &Shared, over: &AtomicBool) {
    for round in number.. {
        if over.load(Relaxed) {
            break;
        }
        let path = path(round);
        let result = Client::new(address).get(&path);
        answered(report, "fresh", result.map(|response| response.body == body_of(&path)));
        thread::sleep(Duration::from_millis(2));
    }
}

async fn http2(address: SocketAddr, report: &Shared, over: &AtomicBool) {
    let mut round = 0;
    while !over.load(Relaxed) {
        let stream = match tokio::net::TcpStream::connect(address).await {
            Ok(stream) => TokioIo::new(stream),
            Err(error) => {
                answered(report, "h2", Err(error));
                continue;
            }
        };
        let begun = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (mut sender, connection) =
            begun.handshake::<_, Empty<Bytes>>(stream).await.expect("a handshake");
        let connection = tokio::spawn(connection);
        // After GOAWAY the connection takes no more requests.
        while !over.load(Relaxed) && sender.ready().await.is_ok() {
            round += 1;
            let asked = [path(round), path(round + 1)];
            let [one, other] = asked.clone().map(|path| {
                let request = http::Request::get(format!("http://localhost{path}"));
                sender.send_request(request.body(Empty::new()).unwrap())
            });
            let (one, other) = tokio::join!(one, other);
            for (response, path) in [one, other].into_iter().zip(&asked) {
                let result = match response {
                    Ok(response) => match response.into_body().collect().await {
                        Ok(body) => Ok(body.to_bytes() == body_of(path)),
                        Err(error) => Err(io::Error::other(error)),
                    },
                    // It was not sent: the connection was asked to end just before.
                    Err(error) if error.is_canceled() => continue,
                    Err(error) => Err(io::Error::other(format!("{error:?}"))),
                };
                answered(report, "h2", result);
            }
        }
        if !over.load(Relaxed) {
            report.lock().unwrap().goodbyes += 1;
        }
        drop(sender);
        let _ = connection.await;
    }
}

/// Two connections with a long response under way, of which little is read so far.
pub(crate) fn begin_large(address: SocketAddr) -> (TcpStream, TcpStream) {
    let begin = || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.write_all(b"GET /large/1 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 200"));
        stream
    };
    (begin(), begin())
}

/// The bytes of its body.
pub(crate) fn rest(stream: &mut TcpStream) -> u64 {
    let (mut got, mut some) = (0, vec![0; 64 << 10]);
    while got < LARGE {
        match stream.read(&mut some) {
            Ok(0) | Err(_) => break,
            Ok(count) => got += count as u64,
        }
    }
    got
}
