//! Requests over HTTP and HTTPS, and the certificate that came with the answer.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

/// The time limit of a connection.
const LIMIT: Duration = Duration::from_secs(20);

/// Whether somebody listens there.
pub(crate) fn answers(at: SocketAddr) -> bool {
    TcpStream::connect_timeout(&at, LIMIT).is_ok()
}

/// Status and body of a plain answer.
pub(crate) fn get(at: SocketAddr, host: &str, path: &str) -> io::Result<(u16, String)> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    exchange(connect(at)?, &request)
}

pub(crate) fn post(at: SocketAddr, path: &str, body: &str) -> (u16, String) {
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    exchange(connect(at).unwrap(), &request).unwrap()
}

/// A connection over TLS, and the certificate that it was shown.
pub(crate) struct Secure {
    stream: StreamOwned<ClientConnection, TcpStream>,
    pub(crate) certificate: Vec<u8>,
}

impl Secure {
    /// Any certificate for the name will do: tests look at it themselves.
    pub(crate) fn connect(at: SocketAddr, name: &str) -> io::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Named))
            .with_no_client_auth();
        let server = ServerName::try_from(name.to_owned()).unwrap();
        let client = ClientConnection::new(Arc::new(config), server).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(client, connect(at)?);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        let chain = stream.conn.peer_certificates().unwrap_or_default();
        let certificate = chain.first().map(|leaf| leaf.to_vec()).unwrap_or_default();
        Ok(Self { stream, certificate })
    }

    /// The whole answer to these bytes.
    pub(crate) fn exchange(mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.stream.write_all(request)?;
        let mut answer = Vec::new();
        self.stream.read_to_end(&mut answer)?;
        Ok(answer)
    }

    /// Status and body of one answer; the connection goes on.
    pub(crate) fn get(&mut self, host: &str, path: &str) -> io::Result<(u16, String)> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        self.stream.write_all(request.as_bytes())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        let length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((status(&head)?, String::from_utf8_lossy(&body).into_owned()))
    }
}

fn connect(at: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&at, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    Ok(stream)
}

fn exchange(mut stream: TcpStream, request: &str) -> io::Result<(u16, String)> {
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned();
    Ok((status(&answer)?, body))
}

fn status(answer: &str) -> io::Result<u16> {
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.ok_or_else(|| io::Error::other(format!("no answer: {answer:?}")))
}

/// Accepts every certificate that has the name.
#[derive(Debug)]
struct Named;

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let leaf = rustls::server::ParsedCertificate::try_from(leaf)?;
        rustls::client::verify_server_name(&leaf, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _leaf: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _leaf: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = rustls::crypto::ring::default_provider();
        provider.signature_verification_algorithms.supported_schemes()
    }
}
