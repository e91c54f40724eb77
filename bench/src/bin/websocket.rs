//! Tunnels of WebSocket compared with HAProxy, without TLS and with it: CPU per message of an echo, and memory
//! of idle tunnels.
//!
//! `cargo run --release -p levada-bench --bin websocket -- [--rounds N] [--idle N]`, with
//! `ulimit -n 65536`. Clients and origin are this program, on another core than the proxies. Each of 32 connections
//! sends a message of 1 KB as soon as the last one has come back. Rounds alternate between the proxies. The
//! Levada that is measured is the binary next to this one, or that of the environment variable `LEVADA`.

use std::{
    env, fs,
    path::PathBuf,
    process::{Command, ExitCode},
    sync::Arc,
    time::{Duration, Instant},
};

use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsConnector;

#[path = "../server.rs"]
mod server;

use server::{Server, free_port, leave_their_core, program};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const CONNECTIONS: usize = 32;
const ROUND: Duration = Duration::from_secs(3);
const PAYLOAD: usize = 1024;
/// The example of RFC 6455 Sec. 1.3.
const ASK: &str = "GET /echo HTTP/1.1\r\nHost: bench.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
const AGREE: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<()> {
    let arguments: Vec<String> = env::args().collect();
    let given = |name: &str| -> Option<&String> {
        arguments.get(arguments.iter().position(|one| one == name)? + 1)
    };
    let rounds: usize = given("--rounds").map_or(Ok(5), |text| text.parse())?;
    let idle: usize = given("--idle").map_or(Ok(10_000), |text| text.parse())?;
    leave_their_core()?;
    levada_net::open_files::raise_limit();
    // The proxies inherit the limit, and have two sockets for each tunnel.
    let limit = levada_net::open_files::limit().unwrap_or(u64::MAX);
    if (idle as u64) * 2 + 500 > limit {
        return Err(
            format!("{idle} tunnels need more open files than {limit}: ulimit -n 65536").into()
        );
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let origin = listener.local_addr()?.port();
    runtime.spawn(echo(listener));
    let identity = Identity::make()?;
    let peers =
        [("Levada", levada(origin, &identity)?), ("HAProxy", haproxy(origin, &identity, idle)?)];
    for (kind, tls) in [("without TLS", None), ("with TLS", Some(&identity.connector))] {
        println!("{kind}:");
        echoes(&runtime, &peers, rounds, tls)?;
        idle_ones(&runtime, &peers, idle, tls)?;
    }
    Ok(())
}

/// A proxy, and its port for clients with TLS.
type Proxy = (Server, u16);

fn port((proxy, secure): &Proxy, tls: Option<&TlsConnector>) -> u16 {
    if tls.is_some() { *secure } else { proxy.port }
}

fn echoes(
    runtime: &tokio::runtime::Runtime,
    peers: &[(&str, Proxy); 2],
    rounds: usize,
    tls: Option<&TlsConnector>,
) -> Result<()> {
    let mut costs = [const { Vec::new() }; 2];
    for _ in 0..rounds {
        for ((_, proxy), costs) in peers.iter().zip(&mut costs) {
            let before = proxy.0.cpu()?;
            let messages = runtime.block_on(load(port(proxy, tls), tls))?;
            costs.push((proxy.0.cpu()? - before) * 1e6 / messages as f64);
        }
    }
    println!("echo of {PAYLOAD} bytes over {CONNECTIONS} connections, CPU us per message:");
    for ((name, _), costs) in peers.iter().zip(&costs) {
        let shown: Vec<String> = costs.iter().map(|cost| format!("{cost:.2}")).collect();
        println!("  {name:8} best {:.2}   rounds {}", best(costs), shown.join(" "));
    }
    let mut ratios: Vec<f64> = costs[0].iter().zip(&costs[1]).map(|(a, b)| a / b).collect();
    ratios.sort_by(f64::total_cmp);
    println!(
        "  Levada / HAProxy: best to best {:.2}, median of rounds {:.2}",
        best(&costs[0]) / best(&costs[1]),
        ratios[ratios.len() / 2]
    );
    Ok(())
}

fn idle_ones(
    runtime: &tokio::runtime::Runtime,
    peers: &[(&str, Proxy); 2],
    idle: usize,
    tls: Option<&TlsConnector>,
) -> Result<()> {
    println!("{idle} idle tunnels, each after one echo, resident KiB per tunnel:");
    for (name, proxy) in peers {
        let (proxy, port) = (&proxy.0, port(proxy, tls));
        let before = proxy.memory()?.now;
        let tunnels = runtime.block_on(rest(port, idle, tls))?;
        // Connections that carry no request for a second give memory back.
        std::thread::sleep(Duration::from_secs(3));
        let grown = (proxy.memory()?.now - before) * 1024.0 / idle as f64;
        let cpu = proxy.cpu()?;
        std::thread::sleep(Duration::from_secs(3));
        let idling = (proxy.cpu()? - cpu) / 3.0 * 100.0;
        println!("  {name:8} {grown:.2}   CPU while idle {idling:.2} %");
        drop(tunnels);
    }
    Ok(())
}

fn best(costs: &[f64]) -> f64 {
    costs.iter().copied().fold(f64::INFINITY, f64::min)
}

fn directory(name: &str) -> Result<PathBuf> {
    let dir = env::temp_dir().join(format!("levada-websocket-{name}-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// A certificate, and clients that trust it.
struct Identity {
    certificate: String,
    key: String,
    connector: TlsConnector,
}

impl Identity {
    fn make() -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        Ok(Self { certificate, key, connector: TlsConnector::from(Arc::new(config)) })
    }
}

fn levada(origin: u16, identity: &Identity) -> Result<Proxy> {
    let (dir, port, secure) = (directory("levada")?, free_port()?, free_port()?);
    fs::write(dir.join("certificate.pem"), &identity.certificate)?;
    fs::write(dir.join("key.pem"), &identity.key)?;
    let own = env::current_exe()?.with_file_name("levada");
    let binary = env::var_os("LEVADA").map_or(own, PathBuf::from);
    let text = format!(
        "name = 'bench'\n[runtime]\nmode = 'shared'\nthreads = 1\n[log]\naccess = 'off'\n\
         [limits]\nconnections = 100000\ntunnels = 100000\n\
         [[site]]\nhosts = '*'\norigin = 'http://127.0.0.1:{origin}'\n\
         [[listen]]\naddress = '127.0.0.1:{port}'\n\
         [[listen]]\naddress = '127.0.0.1:{secure}'\n\
         tls = [{{ certificate = 'certificate.pem', key = 'key.pem' }}]\n"
    );
    let file = dir.join("levada.toml");
    fs::write(&file, text)?;
    let mut command = Command::new(binary);
    command.arg("run").arg("-c").arg(file);
    Ok((Server::start(&command, port, dir)?, secure))
}

fn haproxy(origin: u16, identity: &Identity, idle: usize) -> Result<Proxy> {
    let (dir, port, secure) = (directory("haproxy")?, free_port()?, free_port()?);
    let pair = dir.join("pair.pem");
    fs::write(&pair, format!("{}{}", identity.certificate, identity.key))?;
    let binary = program("haproxy").ok_or("haproxy is not installed")?;
    // It does not start if twice as many sockets are more than it may open.
    let most = idle + 2 * CONNECTIONS;
    let text = format!(
        "global\n    nbthread 1\n    maxconn {most}\ndefaults\n    mode http\n    timeout connect 5s\n\
         \x20   timeout client 60s\n    timeout server 60s\n    timeout tunnel 1h\n\
         frontend clients\n    bind 127.0.0.1:{port} backlog 4096\n\
         \x20   bind 127.0.0.1:{secure} backlog 4096 ssl crt {}\n    option forwardfor\n\
         \x20   default_backend origin\nbackend origin\n    server origin 127.0.0.1:{origin}\n",
        pair.display()
    );
    let file = dir.join("haproxy.cfg");
    fs::write(&file, text)?;
    let mut command = Command::new(binary);
    command.arg("-db").arg("-f").arg(file);
    Ok((Server::start(&command, port, dir)?, secure))
}

/// Sends back whatever comes after the handshake.
async fn echo(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            head(&mut stream).await?;
            stream.write_all(AGREE.as_bytes()).await?;
            // One buffer for a moment, so that idle connections leave this program its memory.
            loop {
                stream.readable().await?;
                let mut bytes = [0; 2 * PAYLOAD];
                match stream.try_read(&mut bytes) {
                    Ok(0) => return Ok(()),
                    Ok(count) => stream.write_all(&bytes[..count]).await?,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        });
    }
}

/// Reads a head, byte by byte: nothing after it is lost.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(head)
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

async fn open(port: u16, tls: Option<&TlsConnector>) -> Result<Box<dyn Stream>> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let mut stream: Box<dyn Stream> = match tls {
        Some(tls) => Box::new(tls.connect(ServerName::try_from("localhost")?, stream).await?),
        None => Box::new(stream),
    };
    stream.write_all(ASK.as_bytes()).await?;
    stream.flush().await?;
    let answer = head(&mut stream).await?;
    if !answer.starts_with(b"HTTP/1.1 101 ") {
        return Err(format!("no tunnel: {}", String::from_utf8_lossy(&answer)).into());
    }
    Ok(stream)
}

/// A masked frame of `PAYLOAD` bytes, which the origin sends back as it is.
fn frame() -> Vec<u8> {
    let mut frame = vec![0x82, 0x80 | 126];
    frame.extend((PAYLOAD as u16).to_be_bytes());
    frame.extend([0; 4]);
    frame.resize(frame.len() + PAYLOAD, 0x55);
    frame
}

/// Messages that came back within a round.
async fn load(port: u16, tls: Option<&TlsConnector>) -> Result<usize> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = open(port, tls).await?;
        let until = Instant::now() + ROUND;
        clients.push(tokio::spawn(async move {
            let (frame, mut messages) = (frame(), 0);
            let mut back = vec![0; frame.len()];
            while Instant::now() < until {
                stream.write_all(&frame).await?;
                stream.flush().await?;
                stream.read_exact(&mut back).await?;
                messages += 1;
            }
            if back == frame {
                Ok(messages)
            } else {
                Err(std::io::Error::other("not the same bytes"))
            }
        }));
    }
    let mut messages = 0;
    for client in clients {
        messages += client.await??;
    }
    Ok(messages)
}

async fn rest(port: u16, count: usize, tls: Option<&TlsConnector>) -> Result<Vec<Box<dyn Stream>>> {
    let (frame, mut tunnels) = (frame(), Vec::with_capacity(count));
    let mut back = vec![0; frame.len()];
    for _ in 0..count {
        let mut stream = open(port, tls).await?;
        stream.write_all(&frame).await?;
        stream.flush().await?;
        stream.read_exact(&mut back).await?;
        tunnels.push(stream);
    }
    Ok(tunnels)
}
