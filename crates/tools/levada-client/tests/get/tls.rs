//! Downloads over TLS: HTTP/1.1 and HTTP/2, through a proxy, and with certificates that are not
//! trusted.

use std::{
    convert::Infallible,
    net::SocketAddr,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Request, Response, response};
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use levada_client::{Client, ClientSettings, DisconnectReason, GetError, Proxy, Roots};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

use crate::{Case, server::content};

/// A server whose first responses break off. It reports how it was reached.
pub(crate) struct Secure {
    pub(crate) address: SocketAddr,
    pub(crate) authority: tempfile::NamedTempFile,
    /// Its certificate and key, with no protocol chosen.
    pub(crate) config: rustls::ServerConfig,
}

async fn secure(bytes: Vec<u8>, breaks: u32, protocols: &[&[u8]]) -> Secure {
    secure_with(bytes, breaks, protocols, 0..0, None).await
}

/// A server that resets the connections of these numbers in the handshake, and offers HTTP/3 at a port.
pub(crate) async fn secure_with(
    bytes: Vec<u8>,
    breaks: u32,
    protocols: &[&[u8]],
    resets: Range<u32>,
    offer: Option<u16>,
) -> Secure {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let authority = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(authority.path(), made.cert.pem()).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let bare = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let mut config = bare.clone();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (bytes, count) = (Bytes::from(bytes), Arc::new(AtomicU32::new(0)));
    tokio::spawn(async move {
        let mut connections = 0;
        while let Ok((mut stream, _)) = listener.accept().await {
            connections += 1;
            if resets.contains(&connections) {
                let _ = stream.read_u8().await;
                stream.set_zero_linger().unwrap();
                continue;
            }
            let (acceptor, bytes, count) = (acceptor.clone(), bytes.clone(), count.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let service = hyper::service::service_fn(|request: Request<Incoming>| {
                    let broken = count.fetch_add(1, Ordering::SeqCst) < breaks;
                    let mut response = answer(&request, &bytes, broken);
                    if let Some(port) = offer {
                        let offer = format!("h3=\":{port}\"").parse().unwrap();
                        response.headers_mut().insert("alt-svc", offer);
                    }
                    async move { Ok::<_, Infallible>(response) }
                });
                let io = TokioIo::new(stream);
                if http2 {
                    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(io, service).await;
                } else {
                    let server = hyper::server::conn::http1::Builder::new();
                    let _ = server.serve_connection(io, service).await;
                }
            });
        }
    });
    Secure { address, authority, config: bare }
}

type Body = BoxBody<Bytes, std::io::Error>;

/// The head of the response, and the bytes that it stands before.
pub(crate) fn head<T>(request: &Request<T>, bytes: &Bytes) -> (response::Builder, Bytes) {
    let range = request.headers().get("range").map(|range| range.to_str().unwrap());
    let start = range.map_or(0, |range| {
        range.strip_prefix("bytes=").unwrap().split('-').next().unwrap().parse().unwrap()
    });
    let total = bytes.len();
    let mut response = Response::builder()
        .status(if range.is_some() { 206 } else { 200 })
        .header("etag", "\"a\"")
        .header("content-length", total - start);
    if range.is_some() {
        let told = format!("bytes {start}-{}/{total}", total - 1);
        response = response.header("content-range", told);
    }
    (response, bytes.slice(start..))
}

fn answer(request: &Request<Incoming>, bytes: &Bytes, broken: bool) -> Response<Body> {
    let (response, rest) = head(request, bytes);
    let data = if broken { rest.slice(..rest.len() / 2) } else { rest };
    let failure = stream::once(async {
        // Time to send the bytes before the error.
        tokio::time::sleep(Duration::from_millis(100)).await;
        Err(std::io::Error::other("broken off"))
    });
    let failure = failure.take(usize::from(broken));
    let body = StreamBody::new(stream::iter([Ok(Frame::data(data))]).chain(failure));
    response.body(BodyExt::boxed(body)).unwrap()
}

pub(crate) fn case(server: &Secure) -> Case {
    let port = server.address.port();
    Case::of(format!("https://localhost:{port}/file").parse().unwrap())
}

pub(crate) fn trusting(server: &Secure) -> ClientSettings {
    let roots = Roots::File(server.authority.path().to_owned());
    ClientSettings { roots, ..ClientSettings::default() }
}

#[tokio::test]
async fn broken_transfers_go_on_over_both_versions_of_http() {
    for (protocol, name) in [(&b"h2"[..], "HTTP/2"), (b"http/1.1", "HTTP/1.1")] {
        let bytes = content(2_000_000, 1);
        let server = secure(bytes.clone(), 2, &[protocol]).await;
        let case = case(&server);
        let (report, result) = case.get_with(&Client::new(trusting(&server)).unwrap()).await;
        result.unwrap();
        case.assert_whole(&bytes);
        assert!(report.connections.iter().all(|c| c.protocol == name), "{report:?}");
        let broken = report.connections.iter().filter(|c| c.ended != DisconnectReason::Complete);
        assert_eq!(broken.count(), 2, "{report:#?}");
    }
}

#[tokio::test]
async fn handshake_that_is_reset_means_a_moved_route_unless_all_first_ones_are() {
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let bytes = content(2_000_000, 1);
        // The first two connections, and the one after the break.
        for (breaks, resets) in [(0, 1..3), (1, 2..3)] {
            let server = secure_with(bytes.clone(), breaks, &[protocol], resets, None).await;
            let case = case(&server);
            case.get_with(&Client::new(trusting(&server)).unwrap()).await.1.unwrap();
            case.assert_whole(&bytes);
        }
        let server = secure_with(bytes, 0, &[protocol], 1..u32::MAX, None).await;
        let case = self::case(&server);
        let error = case.get_with(&Client::new(trusting(&server)).unwrap()).await.1.unwrap_err();
        assert!(matches!(error, GetError::Connect(_)), "{error}");
    }
}

#[tokio::test]
async fn untrusted_server_gets_no_request() {
    let server = secure(content(10, 1), 0, &[b"h2"]).await;
    let case = case(&server);
    let error = case.get().await.1.unwrap_err();
    assert!(matches!(error, GetError::Connect(_)), "{error}");
    assert!(error.to_string().contains("--cacert"), "{error}");
    let settings = ClientSettings { roots: Roots::Anyone, ..ClientSettings::default() };
    case.get_with(&Client::new(settings).unwrap()).await.1.unwrap();
    // The name must match as well.
    let other = format!("https://127.0.0.1:{}/file", server.address.port());
    let case = Case::of(other.parse().unwrap());
    case.get_with(&Client::new(trusting(&server)).unwrap()).await.1.unwrap_err();
}

#[tokio::test]
async fn a_proxy_is_asked_to_connect() {
    let bytes = content(100_000, 1);
    let server = secure(bytes.clone(), 1, &[b"h2", b"http/1.1"]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let (told, mut asked) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let told = told.clone();
            tokio::spawn(async move {
                let mut stream = tokio::io::BufReader::new(stream);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    stream.read_line(&mut head).await.unwrap();
                }
                let target = head.split(' ').nth(1).unwrap().to_owned();
                let mut server = TcpStream::connect(&target).await.unwrap();
                told.send(head).unwrap();
                stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
            });
        }
    });
    let case = case(&server);
    let named = Proxy::parse(&format!("http://me:secret@{proxy}")).unwrap();
    let settings = ClientSettings { proxy: Some(named), ..trusting(&server) };
    case.get_with(&Client::new(settings).unwrap()).await.1.unwrap();
    case.assert_whole(&bytes);
    let head = asked.recv().await.unwrap().to_ascii_lowercase();
    assert!(head.starts_with(&format!("connect localhost:{} ", server.address.port())), "{head}");
    assert!(head.contains("proxy-authorization: basic "), "{head}");
}
