//! A client over HTTP/3, and a path of UDP that loses or keeps packets.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::{Buf as _, Bytes};
use h3::client::SendRequest;
use http::{HeaderMap, Request, Response};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        Resumption, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use tokio::{net::UdpSocket, task::AbortHandle};

use super::{HOST, within};

/// The authority that a client trusts, and its tickets.
#[derive(Clone)]
pub(crate) struct Trusting(quinn::ClientConfig, Arc<AtomicUsize>);

/// Verifies certificates and counts them: a session that is resumed has none.
#[derive(Debug)]
struct Counting {
    inner: Arc<WebPkiServerVerifier>,
    count: Arc<AtomicUsize>,
}

impl ServerCertVerifier for Counting {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.count.fetch_add(1, Relaxed);
        self.inner.verify_server_cert(certificate, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

impl Trusting {
    pub(crate) fn new(authority: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let inner = WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone());
        let count = Arc::<AtomicUsize>::default();
        let verifier = Counting { inner: inner.build().unwrap(), count: count.clone() };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h3".to_vec()];
        config.enable_early_data = true;
        config.resumption = Resumption::in_memory_sessions(8);
        let config = Arc::new(QuicClientConfig::try_from(config).unwrap());
        Self(quinn::ClientConfig::new(config), count)
    }

    /// The handshakes that were not resumed.
    pub(crate) fn full_handshakes(&self) -> usize {
        self.1.load(Relaxed)
    }

    pub(crate) fn transport(mut self, transport: quinn::TransportConfig) -> Self {
        self.0.transport_config(Arc::new(transport));
        self
    }

    /// Begins a handshake.
    pub(crate) fn begin(&self, at: SocketAddr) -> (quinn::Endpoint, quinn::Connecting) {
        let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        let connecting = endpoint.connect_with(self.0.clone(), at, HOST).unwrap();
        (endpoint, connecting)
    }

    /// A connection without HTTP.
    pub(crate) async fn raw(&self, at: SocketAddr) -> (quinn::Endpoint, quinn::Connection) {
        let (endpoint, connecting) = self.begin(at);
        (endpoint, within(connecting).await.unwrap())
    }

    pub(crate) async fn connect(&self, at: SocketAddr) -> Client {
        let (endpoint, connection) = self.raw(at).await;
        Client::over(endpoint, connection).await
    }

    /// A connection that sends its first requests before the handshake is complete.
    pub(crate) async fn early(&self, at: SocketAddr) -> (Client, quinn::ZeroRttAccepted) {
        let (endpoint, connecting) = self.begin(at);
        let (connection, accepted) = connecting.into_0rtt().unwrap_or_else(|_| panic!("no ticket"));
        (Client::over(endpoint, connection).await, accepted)
    }
}

/// A client with one connection.
pub(crate) struct Client {
    pub(crate) endpoint: quinn::Endpoint,
    pub(crate) connection: quinn::Connection,
    pub(crate) sender: SendRequest<h3_quinn::OpenStreams, Bytes>,
}

pub(crate) type Stream = h3::client::RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;

/// A response that has come whole.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

pub(crate) fn request(method: &str, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(format!("https://{HOST}{path}"))
}

impl Client {
    pub(crate) async fn over(endpoint: quinn::Endpoint, connection: quinn::Connection) -> Self {
        let transport = h3_quinn::Connection::new(connection.clone());
        let (mut driver, sender) = within(h3::client::new(transport)).await.unwrap();
        tokio::spawn(async move { driver.wait_idle().await });
        Self { endpoint, connection, sender }
    }

    /// Sends a head.
    pub(crate) async fn send(&mut self, request: http::request::Builder) -> Stream {
        within(self.sender.send_request(request.body(()).unwrap())).await.unwrap()
    }

    /// Sends a request without a body, and reads the response.
    pub(crate) async fn ask(
        &mut self,
        request: http::request::Builder,
    ) -> Result<Answered, h3::error::StreamError> {
        let mut stream = within(self.sender.send_request(request.body(()).unwrap())).await?;
        within(stream.finish()).await?;
        answer(&mut stream).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answered {
        self.ask(request("GET", path)).await.unwrap()
    }
}

pub(crate) async fn head(stream: &mut Stream) -> Result<Response<()>, h3::error::StreamError> {
    within(stream.recv_response()).await
}

/// The response on a stream.
pub(crate) async fn answer(stream: &mut Stream) -> Result<Answered, h3::error::StreamError> {
    let response = head(stream).await?;
    let mut body = Vec::new();
    while let Some(mut data) = within(stream.recv_data()).await? {
        let piece = data.copy_to_bytes(data.remaining());
        body.extend_from_slice(&piece);
    }
    within(stream.recv_trailers()).await?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Ok(Answered { status, headers, body })
}

/// The reason why the node has closed a connection.
pub(crate) async fn closed(connection: &quinn::Connection) -> Option<u64> {
    match within(connection.closed()).await {
        quinn::ConnectionError::ApplicationClosed(closed) => Some(closed.error_code.into_inner()),
        _ => None,
    }
}

/// A head in QPACK: these pseudo fields, and then plain lines.
pub(crate) fn section(lines: &[&[u8]]) -> Vec<u8> {
    [&b"\0\0"[..], &lines.concat()].concat()
}

/// A frame of HTTP/3.
pub(crate) fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32 | 0x8000_0000).to_be_bytes();
    [&[kind], &length[..], payload].concat()
}

/// The direction of a packet on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToNode,
    ToClient,
}

/// Whether the n-th packet of a direction passes.
pub(crate) type Rule = Box<dyn Fn(Way, usize) -> bool + Send + Sync>;

/// The node that a path leads to.
pub(crate) type Target = Arc<Mutex<SocketAddr>>;

/// A path between clients and a node.
pub(crate) struct PacketPath {
    pub(crate) address: SocketAddr,
    state: Arc<PathState>,
    task: AbortHandle,
}

struct PathState {
    node: Target,
    rule: Rule,
    counts: [AtomicUsize; 2],
    bytes: [AtomicUsize; 2],
    /// Counts the times at which the clients' addresses have changed.
    bindings: AtomicUsize,
    /// The packets of clients, as they came.
    kept: Mutex<Vec<Vec<u8>>>,
}

impl PacketPath {
    pub(crate) async fn to(node: SocketAddr, rule: Rule) -> Self {
        Self::with(Arc::new(Mutex::new(node)), rule).await
    }

    /// A path that may come to lead to another node.
    pub(crate) async fn with(node: Target, rule: Rule) -> Self {
        let front = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let address = front.local_addr().unwrap();
        let state = PathState {
            node,
            rule,
            counts: Default::default(),
            bytes: Default::default(),
            bindings: AtomicUsize::default(),
            kept: Mutex::default(),
        };
        let state = Arc::new(state);
        let task = tokio::spawn(forward(front, state.clone())).abort_handle();
        Self { address, state, task }
    }

    /// Bytes that have come from clients, and from the node.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        (self.state.bytes[0].load(Relaxed), self.state.bytes[1].load(Relaxed))
    }

    /// Gives all clients other addresses, as a router does that translates them.
    pub(crate) fn rebind(&self) {
        self.state.bindings.fetch_add(1, Relaxed);
    }

    /// The packets of clients so far.
    pub(crate) fn kept(&self) -> Vec<Vec<u8>> {
        self.state.kept.lock().unwrap().clone()
    }
}

impl Drop for PacketPath {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PathState {
    fn passes(&self, way: Way, packet: &[u8]) -> bool {
        let at = way as usize;
        self.bytes[at].fetch_add(packet.len(), Relaxed);
        (self.rule)(way, self.counts[at].fetch_add(1, Relaxed))
    }
}

async fn forward(front: Arc<UdpSocket>, state: Arc<PathState>) {
    let mut backs: HashMap<(SocketAddr, usize), Arc<UdpSocket>> = HashMap::new();
    let mut bytes = vec![0; 64 << 10];
    while let Ok((length, client)) = front.recv_from(&mut bytes).await {
        let binding = (client, state.bindings.load(Relaxed));
        if let Entry::Vacant(entry) = backs.entry(binding) {
            let back = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
            tokio::spawn(return_packets(back.clone(), front.clone(), binding, state.clone()));
            entry.insert(back);
        }
        state.kept.lock().unwrap().push(bytes[..length].to_vec());
        if state.passes(Way::ToNode, &bytes[..length]) {
            let node = *state.node.lock().unwrap();
            let _ = backs[&binding].send_to(&bytes[..length], node).await;
        }
    }
}

async fn return_packets(
    back: Arc<UdpSocket>,
    front: Arc<UdpSocket>,
    (client, binding): (SocketAddr, usize),
    state: Arc<PathState>,
) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(length) = back.recv(&mut bytes).await {
        let is_bound = binding == state.bindings.load(Relaxed);
        if is_bound && state.passes(Way::ToClient, &bytes[..length]) {
            let _ = front.send_to(&bytes[..length], client).await;
        }
    }
}
