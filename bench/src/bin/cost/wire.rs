//! Clients that do the same in every run: a client sends when the node has nothing left to do.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    client::Resumption,
    pki_types::{CertificateDer, ServerName},
};
use tokio::runtime::Runtime;

use crate::Result;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
const USER_AGENT: &str = "cost/1";
/// Streams that are asked for in one write.
pub(crate) const STREAMS: u64 = 16;

/// A request, and what its answer must be.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    /// A field of the request, or nothing.
    pub(crate) field: &'a str,
    /// A part that the head of the answer has.
    pub(crate) proof: &'a str,
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// A connection over TCP, with TLS or without.
type Wire = BufReader<Box<dyn Stream>>;

/// TLS 1.3 without resumption: each handshake is a whole one.
pub(crate) fn tls(
    authority: &CertificateDer<'static>,
    protocol: &[u8],
) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn connect(port: u16, tls: Option<&Arc<ClientConfig>>, name: &str) -> Result<Wire> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let stream: Box<dyn Stream> = match tls {
        None => Box::new(stream),
        Some(tls) => {
            let name = ServerName::try_from(name.to_owned())?;
            Box::new(StreamOwned::new(ClientConnection::new(tls.clone(), name)?, stream))
        }
    };
    Ok(BufReader::with_capacity(256 << 10, stream))
}

/// A connection with HTTP/1.1.
pub(crate) struct Http1(Wire);

impl Http1 {
    pub(crate) fn connect(port: u16, tls: Option<&Arc<ClientConfig>>, name: &str) -> Result<Self> {
        Ok(Self(connect(port, tls, name)?))
    }

    pub(crate) fn send(&mut self, asked: Asked<'_>) -> Result<()> {
        let Asked { host, path, field, .. } = asked;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {USER_AGENT}\r\nAccept: */*\r\n{field}\r\n"
        );
        Ok(self.0.get_mut().write_all(request.as_bytes())?)
    }

    /// Asks, and reads the answer to its end.
    pub(crate) fn ask(&mut self, asked: Asked<'_>) -> Result<()> {
        let Asked { path, proof, .. } = asked;
        self.send(asked)?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.0.read_line(&mut head)? == 0 {
                return Err(format!("{path}: closed without an answer").into());
            }
        }
        let head = head.to_ascii_lowercase();
        if !head.starts_with("http/1.1 200 ") || !head.contains(proof) {
            return Err(format!("{path}: no {proof:?} in {head}").into());
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut left: usize = length.ok_or("an answer without a length")?.parse()?;
        while left > 0 {
            let taken = self.0.fill_buf()?.len().min(left);
            if taken == 0 {
                return Err(format!("{path}: {left} bytes are missing").into());
            }
            self.0.consume(taken);
            left -= taken;
        }
        Ok(())
    }

    /// Waits for the end of the connection.
    pub(crate) fn end(mut self) -> Result<()> {
        Ok(self.0.read_to_end(&mut Vec::new()).map(drop)?)
    }
}

/// A connection with HTTP/2 (RFC 9113). Its frames are its own, so that each write is known.
pub(crate) struct Http2 {
    wire: Wire,
    /// The next stream.
    stream: u32,
}

/// Types of frames, and flags: RFC 9113 Sec. 6.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("frames are short");
    [&length.to_be_bytes()[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

impl Http2 {
    /// Connects, and asks once, so that later requests are indices of HPACK's table, as with any client.
    pub(crate) fn connect(
        port: u16,
        tls: Option<&Arc<ClientConfig>>,
        asked: Asked<'_>,
    ) -> Result<Self> {
        let mut wire = connect(port, tls, asked.host)?;
        // Windows that last for the whole run (Sec. 6.9): SETTINGS_INITIAL_WINDOW_SIZE is 4.
        let wide = 0x7fff_ffff_u32.to_be_bytes();
        let settings = frame(SETTINGS, 0, 0, &[&[0, 4][..], &wide].concat());
        let window = frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes());
        let acknowledged = frame(SETTINGS, ACK, 0, &[]);
        // RFC 7541 Sec. 6.2.1: literals that enter the table, with names of the static table.
        let mut block = vec![0x82, if tls.is_some() { 0x87 } else { 0x86 }];
        let fields = [(1, asked.host), (4, asked.path), (58, USER_AGENT), (19, "*/*")];
        for (name, value) in fields {
            block.push(0x40 | name);
            block.push(u8::try_from(value.len())?);
            block.extend_from_slice(value.as_bytes());
        }
        let request = frame(HEADERS, END_STREAM | END_HEADERS, 1, &block);
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let all = [&preface[..], &settings, &window, &acknowledged, &request].concat();
        wire.get_mut().write_all(&all)?;
        let mut connected = Self { wire, stream: 3 };
        connected.read(1)?;
        Ok(connected)
    }

    /// Asks for the same on all streams by one write, and reads the answers to their ends.
    pub(crate) fn ask(&mut self, is_secure: bool) -> Result<()> {
        let block =
            [0x82, if is_secure { 0x87 } else { 0x86 }, 65 | 0x80, 64 | 0x80, 63 | 0x80, 62 | 0x80];
        let mut all = Vec::new();
        for _ in 0..STREAMS {
            all.extend(frame(HEADERS, END_STREAM | END_HEADERS, self.stream, &block));
            self.stream += 2;
        }
        self.wire.get_mut().write_all(&all)?;
        self.read(STREAMS)
    }

    /// Reads so many answers.
    fn read(&mut self, answers: u64) -> Result<()> {
        let mut left = answers;
        while left > 0 {
            let mut head = [0; 9];
            self.wire.read_exact(&mut head)?;
            let [a, b, c, kind, flags, ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.wire.read_exact(&mut payload)?;
            match kind {
                // Index 8 of the static table is status 200, which no update of the table's size precedes.
                HEADERS if payload.first() != Some(&0x88) => {
                    return Err(format!("HTTP/2: not a 200: {payload:02x?}").into());
                }
                HEADERS | DATA => left -= u64::from(flags & END_STREAM),
                SETTINGS | WINDOW_UPDATE => {}
                _ => return Err(format!("HTTP/2: a frame of type {kind}: {payload:02x?}").into()),
            }
        }
        Ok(())
    }
}

/// A connection with HTTP/3.
pub(crate) struct Http3 {
    runtime: Runtime,
    sender: h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>,
    _endpoint: quinn::Endpoint,
}

impl Http3 {
    pub(crate) fn connect(port: u16, tls: &Arc<ClientConfig>, name: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (endpoint, sender) = runtime.block_on(async {
            let endpoint = quinn::Endpoint::client((Ipv4Addr::LOCALHOST, 0).into())?;
            let quic = QuicClientConfig::try_from(tls.clone())?;
            let config = quinn::ClientConfig::new(Arc::new(quic));
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let connection = endpoint.connect_with(config, address, name)?.await?;
            let transport = h3_quinn::Connection::new(connection);
            let (mut driver, sender) = h3::client::new(transport).await?;
            tokio::spawn(async move { driver.wait_idle().await });
            Ok::<_, Box<dyn std::error::Error>>((endpoint, sender))
        })?;
        Ok(Self { runtime, sender, _endpoint: endpoint })
    }

    pub(crate) fn ask(&mut self, asked: Asked<'_>) -> Result<()> {
        let request = http::Request::get(format!("https://{}{}", asked.host, asked.path))
            .header("user-agent", USER_AGENT)
            .header("accept", "*/*")
            .body(())?;
        self.runtime.block_on(async {
            let mut stream = self.sender.send_request(request).await?;
            stream.finish().await?;
            let answer = stream.recv_response().await?;
            while let Some(data) = stream.recv_data().await? {
                let _ = data.remaining();
            }
            let proven = format!("{:?}", answer.headers()).contains(asked.proof);
            if answer.status() == 200 && proven {
                return Ok(());
            }
            Err(format!("HTTP/3: no {:?} in {answer:?}", asked.proof).into())
        })
    }
}
