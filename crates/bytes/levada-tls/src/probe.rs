//! One handshake with an origin, to find out what is wrong with it.

use std::{
    io::{self, Read as _, Write as _},
    net::{TcpStream, ToSocketAddrs as _},
    time::{Duration, Instant, SystemTime},
};

use rustls::{ClientConnection, ProtocolVersion, pki_types::CertificateDer};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::{
    fault::{in_words, io_in_words, seconds_as_date},
    origin::OriginTls,
};

/// A handshake that succeeded.
#[derive(Clone, Debug)]
pub struct Probed {
    /// The versions of HTTP and TLS, and the end of the certificate, in words.
    pub words: String,
    /// The days that the certificate is still valid.
    pub days: Option<u64>,
}

/// Carries out a handshake for HTTP/2 (`h2`) or HTTP/1.1, as a node with these settings would. It blocks, for the time
/// of `timeout` at most.
///
/// # Errors
/// With the reason in words.
pub fn probe(
    host: &str,
    port: u16,
    tls: &OriginTls,
    h2: bool,
    timeout: Duration,
) -> Result<Probed, String> {
    let protocol: &[u8] = if h2 { b"h2" } else { b"http/1.1" };
    let config = tls.config(&[protocol]).map_err(|error| error.to_string())?;
    let name = tls.name_for(host)?;
    let end = Instant::now() + timeout;
    let mut stream = connect(host, port, timeout)?;
    let mut connection = ClientConnection::new(config, name).map_err(|error| in_words(&error))?;
    while connection.is_handshaking() {
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let bounded = stream.set_read_timeout(Some(left));
        bounded.map_err(|error| error.to_string())?;
        connection.complete_io(&mut stream).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                "it did not answer the handshake in time".to_owned()
            }
            _ => io_in_words(&error),
        })?;
    }
    if h2 && connection.alpn_protocol() != Some(b"h2") {
        return Err("it does not speak HTTP/2: it has not agreed to `h2` (ALPN)".to_owned());
    }
    // With TLS 1.3, a server refuses a certificate, or asks for one, after the handshake of the client.
    refused(&mut connection, &mut stream)?;
    let leaf = connection.peer_certificates().and_then(<[_]>::first);
    let until = leaf.and_then(|leaf| valid_until(leaf));
    let version = match connection.protocol_version() {
        Some(ProtocolVersion::TLSv1_3) => "TLS 1.3",
        _ => "TLS 1.2",
    };
    let http = if h2 { "HTTP/2" } else { "HTTP/1.1" };
    let words = match until {
        Some(until) => format!("{http}, {version}, a certificate until {}", seconds_as_date(until)),
        None => format!("{http}, {version}"),
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |time| time.as_secs());
    Ok(Probed { words, days: until.map(|until| until.saturating_sub(now) / (24 * 3600)) })
}

/// Connects without TLS, and carries out the exchange that HTTP/2 begins with, if it is wanted (h2c by prior knowledge).
/// It blocks, for the time of `timeout` at most.
///
/// # Errors
/// With the reason in words.
pub fn probe_plain(host: &str, port: u16, h2: bool, timeout: Duration) -> Result<String, String> {
    let mut stream = connect(host, port, timeout)?;
    if !h2 {
        return Ok("HTTP/1.1, it accepts connections".to_owned());
    }
    let silent = |error: io::Error| format!("it does not begin HTTP/2: {error}");
    stream.set_read_timeout(Some(timeout)).map_err(silent)?;
    stream.write_all(PREFACE).map_err(silent)?;
    let mut begin = [0; FRAME_HEAD];
    stream.read_exact(&mut begin).map_err(silent)?;
    match (begin, begin[3]) {
        (_, SETTINGS) => Ok("HTTP/2 without TLS (h2c)".to_owned()),
        (begin, _) if begin.starts_with(b"HTTP/1") => {
            Err("it answers HTTP/1.1 to HTTP/2 without TLS (h2c)".to_owned())
        }
        _ => Err("it does not speak HTTP/2 without TLS (h2c)".to_owned()),
    }
}

/// The preface of a client, and its settings, which are empty (RFC 9113 Sec. 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const FRAME_HEAD: usize = 9;
/// The type of the frame that a server begins with.
const SETTINGS: u8 = 4;

/// Waits for a moment whether the server ends the connection.
fn refused(connection: &mut ClientConnection, stream: &mut TcpStream) -> Result<(), String> {
    if connection.protocol_version() != Some(ProtocolVersion::TLSv1_3) {
        return Ok(());
    }
    stream.set_read_timeout(Some(REFUSAL_TIMEOUT)).map_err(|error| error.to_string())?;
    match connection.read_tls(stream) {
        Ok(0) => Err("it closed the connection after the handshake".to_owned()),
        Ok(_) => connection.process_new_packets().map(drop).map_err(|error| in_words(&error)),
        // It is content.
        Err(_) => Ok(()),
    }
}

/// How long a server may take to say that it refuses a certificate: a round trip after the handshake.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(500);

fn connect(host: &str, port: u16, timeout: Duration) -> Result<TcpStream, String> {
    let found = (host, port).to_socket_addrs();
    let found = found.map_err(|error| format!("its name does not resolve: {error}"))?;
    let mut last = "its name has no address".to_owned();
    for address in found {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = format!("no connection to {address}: {error}"),
        }
    }
    Err(last)
}

fn valid_until(leaf: &CertificateDer<'_>) -> Option<u64> {
    let (_, leaf) = X509Certificate::from_der(leaf).ok()?;
    u64::try_from(leaf.validity().not_after.timestamp()).ok()
}
