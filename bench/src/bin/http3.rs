//! CPU of a server per request over HTTP/3 and over HTTP/2, by one style of client.
//!
//! ```text
//! http3 PID ADDRESS AUTHORITY.pem NAME PATH h2|h3 SECONDS CONNECTIONS STREAMS [handshakes]
//! ```
//!
//! With `handshakes`, each request has a connection of its own. The server may be any: the CPU time is that of the
//! process PID, by /proc.

use std::{
    env, fs,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::{Buf as _, Bytes};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::net::TcpStream;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

struct Target {
    address: SocketAddr,
    name: String,
    path: String,
    tls: Arc<ClientConfig>,
    is_quic: bool,
}

enum Sender {
    Http2(hyper::client::conn::http2::SendRequest<Empty<Bytes>>),
    Http3(h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>, quinn::Connection),
}

impl Target {
    fn request<B>(&self, body: B) -> Result<http::Request<B>, http::Error> {
        http::Request::builder().uri(format!("https://{}{}", self.name, self.path)).body(body)
    }

    async fn connect(&self, endpoint: &quinn::Endpoint) -> Result<Sender, AnyError> {
        if self.is_quic {
            let quic = QuicClientConfig::try_from(self.tls.clone())?;
            let config = quinn::ClientConfig::new(Arc::new(quic));
            let connection = endpoint.connect_with(config, self.address, &self.name)?.await?;
            let transport = h3_quinn::Connection::new(connection.clone());
            let (mut driver, sender) = h3::client::new(transport).await?;
            tokio::spawn(async move { driver.wait_idle().await });
            return Ok(Sender::Http3(sender, connection));
        }
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(self.name.clone())?;
        let stream =
            tokio_rustls::TlsConnector::from(self.tls.clone()).connect(name, stream).await?;
        let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(16 << 20)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(connection);
        Ok(Sender::Http2(sender))
    }

    /// One request; the bytes of the body.
    async fn ask(&self, sender: &mut Sender) -> Result<u64, AnyError> {
        let mut bytes = 0;
        match sender {
            Sender::Http2(sender) => {
                sender.ready().await?;
                let mut body = sender.send_request(self.request(Empty::new())?).await?.into_body();
                while let Some(frame) = body.frame().await {
                    bytes += frame?.data_ref().map_or(0, Bytes::len) as u64;
                }
            }
            Sender::Http3(sender, _) => {
                let mut stream = sender.send_request(self.request(())?).await?;
                stream.finish().await?;
                stream.recv_response().await?;
                while let Some(data) = stream.recv_data().await? {
                    bytes += data.remaining() as u64;
                }
            }
        }
        Ok(bytes)
    }
}

impl Clone for Sender {
    fn clone(&self) -> Self {
        match self {
            Self::Http2(sender) => Self::Http2(sender.clone()),
            Self::Http3(sender, connection) => Self::Http3(sender.clone(), connection.clone()),
        }
    }
}

/// CPU time of a process: user and system, in ticks of 10 ms.
fn cpu(process: &str) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

fn client(authority: &Path, is_quic: bool) -> Result<ClientConfig, AnyError> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![if is_quic { b"h3".to_vec() } else { b"h2".to_vec() }];
    // Each handshake is a whole one.
    config.resumption = Resumption::disabled();
    Ok(config)
}

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let given: Vec<String> = env::args().skip(1).collect();
    let [
        process,
        address,
        authority,
        name,
        path,
        protocol,
        seconds,
        connections,
        streams,
        rest @ ..,
    ] = &given[..]
    else {
        return Err("PID ADDRESS AUTHORITY NAME PATH h2|h3 SECONDS CONNECTIONS STREAMS".into());
    };
    let is_quic = protocol == "h3";
    let target = Arc::new(Target {
        address: address.parse()?,
        name: name.clone(),
        path: path.clone(),
        tls: Arc::new(client(Path::new(authority), is_quic)?),
        is_quic,
    });
    let per_request = rest.first().is_some_and(|word| word == "handshakes");
    let (requests, bytes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for _ in 0..connections.parse::<usize>()? {
        let endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into())?;
        let sender = target.connect(&endpoint).await?;
        for _ in 0..streams.parse::<usize>()? {
            let (target, endpoint, mut sender) = (target.clone(), endpoint.clone(), sender.clone());
            let (requests, bytes) = (requests.clone(), bytes.clone());
            tasks.push(tokio::spawn(async move {
                loop {
                    if per_request {
                        sender = target.connect(&endpoint).await?;
                    }
                    bytes.fetch_add(target.ask(&mut sender).await?, Relaxed);
                    requests.fetch_add(1, Relaxed);
                    if per_request && let Sender::Http3(_, connection) = &sender {
                        connection.close(0x100u32.into(), b"");
                    }
                }
                #[expect(unreachable_code)]
                Ok::<(), AnyError>(())
            }));
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = (requests.load(Relaxed), bytes.load(Relaxed), cpu(process), Instant::now());
    tokio::time::sleep(Duration::from_secs_f64(seconds.parse()?)).await;
    let spent = cpu(process) - before.2;
    let count = requests.load(Relaxed) - before.0;
    let megabytes = (bytes.load(Relaxed) - before.1) as f64 / 1e6;
    let took = before.3.elapsed().as_secs_f64();
    for task in tasks {
        if task.is_finished() {
            println!("a client has failed: {:?}", task.await);
        }
    }
    println!(
        "{protocol} {path}: {:.1} us of CPU a request; {:.0} requests/s, {:.0} MB/s, {:.0} % of a core",
        spent.as_secs_f64() * 1e6 / count.max(1) as f64,
        count as f64 / took,
        megabytes / took,
        100.0 * spent.as_secs_f64() / took,
    );
    Ok(())
}
