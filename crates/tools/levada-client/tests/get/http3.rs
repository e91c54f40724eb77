//! Downloads over HTTP/3, which a server offers over TCP.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use bytes::Bytes;
use levada_client::{Client, ClientSettings, DisconnectReason, Versions};
use quinn::{Endpoint, EndpointConfig, TokioRuntime, crypto::rustls::QuicServerConfig};

use crate::{
    server::content,
    tls::{Secure, case, head, secure_with, trusting},
};

/// The end of a response that is not whole.
#[derive(Clone, Copy)]
enum Break {
    /// The connection is closed.
    Close,
    /// The stream ends as if it were whole.
    End,
}

/// A free port at which `secure` can offer HTTP/3 before it is served there.
fn port() -> (UdpSocket, u16) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

/// Serves at that port with the certificate of `server`; the first responses break off.
fn serve(server: &Secure, socket: UdpSocket, bytes: Vec<u8>, breaks: u32, by: Break) {
    let mut config = server.config.clone();
    config.alpn_protocols = vec![b"h3".to_vec()];
    let config = QuicServerConfig::try_from(config).unwrap();
    let config = quinn::ServerConfig::with_crypto(Arc::new(config));
    let runtime = Arc::new(TokioRuntime);
    let endpoint = Endpoint::new(EndpointConfig::default(), Some(config), socket, runtime).unwrap();
    let (bytes, count) = (Bytes::from(bytes), Arc::new(AtomicU32::new(0)));
    tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            let (bytes, count) = (bytes.clone(), count.clone());
            tokio::spawn(async move {
                let Ok(connection) = incoming.await else { return };
                let transport = h3_quinn::Connection::new(connection.clone());
                let mut http = h3::server::Connection::new(transport).await.unwrap();
                while let Ok(Some(resolver)) = http.accept().await {
                    let (request, mut stream) = resolver.resolve_request().await.unwrap();
                    let is_broken = count.fetch_add(1, Ordering::SeqCst) < breaks;
                    let (response, mut rest) = head(&request, &bytes);
                    let _ = stream.send_response(response.body(()).unwrap()).await;
                    if is_broken {
                        rest.truncate(rest.len() / 2);
                    }
                    let _ = stream.send_data(rest).await;
                    if is_broken && matches!(by, Break::Close) {
                        // Time to send the bytes before.
                        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                        connection.close(0u8.into(), b"");
                        return;
                    }
                    let _ = stream.finish().await;
                }
            });
        }
    });
}

fn protocols(report: &levada_client::GetReport) -> Vec<&'static str> {
    report.connections.iter().map(|connection| connection.protocol).collect()
}

#[tokio::test]
async fn after_a_move_the_rest_comes_over_http3_where_it_is_offered() {
    let bytes = content(2_000_000, 1);
    let (socket, port) = port();
    let server = secure_with(bytes.clone(), 1, &[b"h2"], 0..0, Some(port)).await;
    serve(&server, socket, bytes.clone(), 1, Break::Close);
    let case = case(&server);
    let (report, result) = case.get_with(&Client::new(trusting(&server)).unwrap()).await;
    result.unwrap();
    case.assert_whole(&bytes);
    let protocols = protocols(&report);
    assert_eq!(protocols[0], "HTTP/2", "{report:#?}");
    assert!(protocols.len() > 2 && protocols[1..].iter().all(|&p| p == "HTTP/3"), "{report:#?}");
    assert_eq!(report.connections[1].ended, DisconnectReason::EarlyClose, "{report:#?}");
}

#[tokio::test]
async fn a_route_that_stays_needs_no_http3_and_whoever_wants_none_gets_none() {
    let bytes = content(2_000_000, 1);
    for (breaks, versions) in [(0, Versions::All), (1, Versions::Http1)] {
        let (socket, port) = port();
        let protocols: &[&[u8]] = &[b"h2", b"http/1.1"];
        let server = secure_with(bytes.clone(), breaks, protocols, 0..0, Some(port)).await;
        serve(&server, socket, bytes.clone(), 0, Break::Close);
        let case = case(&server);
        let settings = ClientSettings { versions, ..trusting(&server) };
        let (report, result) = case.get_with(&Client::new(settings).unwrap()).await;
        result.unwrap();
        case.assert_whole(&bytes);
        assert!(self::protocols(&report).iter().all(|&p| p != "HTTP/3"), "{report:#?}");
    }
}

#[tokio::test]
async fn tcp_goes_on_where_nothing_answers_over_udp() {
    let bytes = content(2_000_000, 1);
    // This socket is never read.
    let (_socket, port) = port();
    let server = secure_with(bytes.clone(), 2, &[b"h2"], 0..0, Some(port)).await;
    let case = case(&server);
    let (report, result) = case.get_with(&Client::new(trusting(&server)).unwrap()).await;
    result.unwrap();
    case.assert_whole(&bytes);
    assert!(protocols(&report).iter().all(|&p| p == "HTTP/2"), "{report:#?}");
}

#[tokio::test]
async fn http3_from_the_first_connection_on_goes_on_after_every_kind_of_end() {
    for by in [Break::Close, Break::End] {
        let bytes = content(2_000_000, 1);
        let mut server = secure_with(bytes.clone(), 0, &[b"h2"], 0..0, None).await;
        // Without an offer the port is the same.
        let at = SocketAddr::from(([127, 0, 0, 1], server.address.port()));
        let Ok(socket) = UdpSocket::bind(at) else { continue };
        server.address = at;
        serve(&server, socket, bytes.clone(), 1, by);
        let case = case(&server);
        let settings = ClientSettings { versions: Versions::Http3, ..trusting(&server) };
        let (report, result) = case.get_with(&Client::new(settings).unwrap()).await;
        result.unwrap();
        case.assert_whole(&bytes);
        assert!(protocols(&report).iter().all(|&p| p == "HTTP/3"), "{report:#?}");
        let early = report.connections.iter().filter(|c| c.ended == DisconnectReason::EarlyClose);
        assert_eq!(early.count(), 1, "{report:#?}");
    }
}
