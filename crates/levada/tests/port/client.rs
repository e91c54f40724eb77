//! A client that sends bytes as they are, in plain text or over TLS, and reads one response.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::Arc,
    time::Duration,
};

use flate2::read::GzDecoder;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};

/// A request.
pub(crate) struct Request {
    /// Its name among the differences.
    pub(crate) name: &'static str,
    pub(crate) tls: bool,
    pub(crate) host: &'static str,
    pub(crate) method: &'static str,
    pub(crate) target: &'static str,
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) body: Body,
}

/// The body of a request.
pub(crate) enum Body {
    None,
    Sized(usize),
    Chunked(usize),
}

/// A response.
#[derive(Debug, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    fields: Vec<(String, String)>,
    /// Without the framing and coding.
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// The values of a field.
    pub(crate) fn field(&self, name: &str) -> String {
        let values = self.fields.iter().filter(|(own, _)| own == name);
        values.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// Sends a request to a front at these addresses, plain and TLS.
pub(crate) fn send(
    request: &Request,
    [plain, tls]: [SocketAddr; 2],
    certificates: &Path,
) -> Response {
    let address = if request.tls { tls } else { plain };
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let bytes = match request.tls {
        true => exchange(&mut secure(stream, request.host, certificates), request),
        false => exchange(&mut &stream, request),
    };
    read(&bytes, request)
}

fn secure(
    stream: TcpStream,
    host: &str,
    certificates: &Path,
) -> StreamOwned<ClientConnection, TcpStream> {
    let file = if host.starts_with("img") { "img.pem" } else { "www.pem" };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificates.join(file)).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(connection, stream)
}

/// Everything that comes back until the connection ends, or the response has.
fn exchange(stream: &mut (impl Read + Write), request: &Request) -> Vec<u8> {
    let mut head =
        format!("{} {} HTTP/1.1\r\nHost: {}\r\n", request.method, request.target, request.host);
    if !request.fields.iter().any(|(name, _)| *name == "Connection") {
        head += "Connection: close\r\n";
    }
    for (name, value) in &request.fields {
        head += &format!("{name}: {value}\r\n");
    }
    let body = match request.body {
        Body::None => Vec::new(),
        Body::Sized(size) => {
            head += &format!("Content-Length: {size}\r\n");
            vec![b'x'; size]
        }
        Body::Chunked(size) => {
            head += "Transfer-Encoding: chunked\r\n";
            format!("{size:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(size)).into_bytes()
        }
    };
    // A server that refuses a body need not read it.
    let _ = stream.write_all(format!("{head}\r\n").as_bytes());
    let _ = stream.write_all(&body);
    let _ = stream.flush();
    let mut bytes = Vec::new();
    let mut piece = [0; 16 << 10];
    while let Ok(read @ 1..) = stream.read(&mut piece) {
        bytes.extend_from_slice(&piece[..read]);
        if bytes.starts_with(b"HTTP/1.1 101") {
            break;
        }
    }
    bytes
}

fn read(bytes: &[u8], request: &Request) -> Response {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Response::default();
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default().split(' ').nth(1);
    let mut response = Response {
        status: status.and_then(|status| status.parse().ok()).unwrap_or_default(),
        body: bytes[end + 4..].to_vec(),
        ..Response::default()
    };
    if response.status == 100 {
        return read(&bytes[end + 4..], request);
    }
    for line in lines {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        response.fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    if response.field("transfer-encoding") == "chunked" && request.method != "HEAD" {
        response.body = whole(&response.body);
    }
    if response.field("content-encoding") == "gzip" && request.method != "HEAD" {
        let mut decoded = Vec::new();
        GzDecoder::new(&response.body[..]).read_to_end(&mut decoded).unwrap();
        response.body = decoded;
    }
    response
}

/// A body without its chunks.
fn whole(mut chunks: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = chunks.windows(2).position(|two| two == b"\r\n") {
        let size = String::from_utf8_lossy(&chunks[..end]);
        let size = usize::from_str_radix(size.split(';').next().unwrap_or_default(), 16);
        let Ok(size @ 1..) = size else { break };
        body.extend_from_slice(&chunks[end + 2..end + 2 + size]);
        chunks = &chunks[end + 4 + size..];
    }
    body
}
