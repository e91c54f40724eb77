//! WebSocket over streams of HTTP/3 (RFC 9220). h3's client knows no such request, so that its frames are written here.

use std::net::SocketAddr;

use levada_node::Running;
use quinn::{RecvStream, SendStream};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_tungstenite::{
    WebSocketStream, accept_async,
    tungstenite::protocol::{Role, frame::coding::CloseCode},
};

use crate::{
    support::{
        nodes::*,
        quic::{Client, Trusting, closed, frame, section},
        *,
    },
    websocket::{
        ANSWER, FRAME, GOODBYE, MASKED_GOODBYE, chat, echo, ended, goodbye, leave, node, rest, take,
    },
};

/// Lines of the statuses as the node encodes them (RFC 9204 App. A, RFC 7541 App. B).
const OK: &[u8] = b"\xd9";
const FORBIDDEN: &[u8] = b"\xff\x05";
const UPGRADE_REQUIRED: &[u8] = b"\x5f\x09\x03426";
const NOT_IMPLEMENTED: &[u8] = b"\x5f\x09\x03501";
const BAD_GATEWAY: &[u8] = b"\x5f\x09\x03502";

const FRAME_UNEXPECTED: u64 = 0x105;
const MESSAGE_ERROR: u32 = 0x10e;

/// A node with HTTP/3 in front of a server, and a client's trust in it.
async fn world(origin: SocketAddr) -> (Running, SocketAddr, Trusting) {
    let authority = secure::Authority::new();
    let certificate = authority.issue(&[HOST]);
    let (node, at) = node(&[origin], |settings| {
        settings.listeners[0].tls = vec![certificate];
        settings.listeners[0].http3 = true;
    })
    .await;
    (node, at, Trusting::new(&authority.path()))
}

/// A server whose tunnels are in the test's hands.
async fn raw_server() -> (SocketAddr, mpsc::Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = mpsc::channel(10);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(agreed) = accept_async(stream).await else { continue };
            let _ = sender.send(agreed.into_inner()).await;
        }
    });
    (address, receiver)
}

/// The head of an extended CONNECT.
fn connect(protocol: &str, version: &str) -> Vec<u8> {
    let path = "/chat";
    let lines = [
        b"\xcf\xd7".to_vec(),
        [&[0x50, HOST.len() as u8], HOST.as_bytes()].concat(),
        [&[0x51, path.len() as u8], path.as_bytes()].concat(),
        [b"\x27\x02:protocol", &[protocol.len() as u8][..], protocol.as_bytes()].concat(),
        [b"\x27\x0esec-websocket-version", &[version.len() as u8][..], version.as_bytes()].concat(),
    ];
    frame(1, &section(&[&lines.concat()]))
}

async fn varint(recv: &mut RecvStream) -> Option<u64> {
    let mut bytes = [0; 8];
    recv.read_exact(&mut bytes[..1]).await.ok()?;
    let length = 1 << (bytes[0] >> 6);
    recv.read_exact(&mut bytes[1..length]).await.ok()?;
    bytes[0] &= 0x3f;
    Some(bytes[..length].iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

async fn next_frame(recv: &mut RecvStream) -> Option<(u64, Vec<u8>)> {
    let (kind, length) = (varint(recv).await?, varint(recv).await?);
    let mut payload = vec![0; length as usize];
    recv.read_exact(&mut payload).await.ok()?;
    Some((kind, payload))
}

/// Asks for a tunnel, and checks the status of the answer.
async fn asked(
    connection: &quinn::Connection,
    (protocol, version): (&str, &str),
    status: &[u8],
) -> (SendStream, RecvStream) {
    let (mut send, mut recv) = within(connection.open_bi()).await.unwrap();
    within(send.write_all(&connect(protocol, version))).await.unwrap();
    let (kind, head) = within(next_frame(&mut recv)).await.expect("an answer");
    let expected = section(&[status]);
    assert!(kind == 1 && head.starts_with(&expected), "{protocol} {version}: {head:x?}");
    (send, recv)
}

/// The bytes of a tunnel.
async fn tunnel(connection: &quinn::Connection) -> DuplexStream {
    let (mut send, mut recv) = asked(connection, ("websocket", "13"), OK).await;
    let (near, far) = duplex(64 << 10);
    let (mut read, mut write) = tokio::io::split(far);
    tokio::spawn(async move {
        let mut bytes = vec![0; 16 << 10];
        while let Ok(length @ 1..) = read.read(&mut bytes).await {
            if send.write_all(&frame(0, &bytes[..length])).await.is_err() {
                return;
            }
        }
        let _ = send.finish();
    });
    tokio::spawn(async move {
        while let Some((kind, payload)) = next_frame(&mut recv).await {
            assert_eq!(kind, 0);
            if write.write_all(&payload).await.is_err() {
                return;
            }
        }
        let _ = write.shutdown().await;
    });
    near
}

async fn join(client: &Client) -> WebSocketStream<DuplexStream> {
    WebSocketStream::from_raw_socket(tunnel(&client.connection).await, Role::Client, None).await
}

#[tokio::test]
async fn settings_allow_extended_connect() {
    let (node, at, trusting) = world(echo().await).await;
    let (_endpoint, connection) = trusting.raw(at).await;
    let settings = loop {
        let mut stream = within(connection.accept_uni()).await.unwrap();
        if within(varint(&mut stream)).await == Some(0) {
            break within(next_frame(&mut stream)).await.unwrap();
        }
    };
    assert_eq!(settings.0, 4);
    assert!(settings.1.windows(2).any(|pair| pair == b"\x08\x01"), "{settings:x?}");
    drop(connection);
    settled(&node).await;
}

#[tokio::test]
async fn messages_pass_over_streams_of_http3() {
    let (node, at, trusting) = world(echo().await).await;
    let mut client = trusting.connect(at).await;
    let mut tunnels = Vec::new();
    for _ in 0..3 {
        tunnels.push(join(&client).await);
    }
    for ws in &mut tunnels {
        chat(ws).await;
    }
    assert_eq!(metric(&node, "levada_tunnels").await, 3.0);
    for ws in tunnels {
        leave(ws).await;
    }
    // The connection goes on. The server answers nothing but handshakes.
    assert_eq!(client.get("/").await.status, 502);
    drop(client);
    settled(&node).await;
    let page = admin(&node, "/metrics").await.text();
    assert!(page.contains("levada_tunnels_ended_total{reason=\"closed\"} 3"));
}

#[tokio::test]
async fn handshakes_that_lie_over_http3_reach_no_server() {
    let origin = Origin::start().await;
    let (node, at, trusting) = world(origin.address).await;
    let mut client = trusting.connect(at).await;
    for (protocol, version, status) in [
        ("websocket", "8", UPGRADE_REQUIRED),
        ("connect-udp", "13", NOT_IMPLEMENTED),
        ("webtransport", "13", NOT_IMPLEMENTED),
        ("websocket2", "13", NOT_IMPLEMENTED),
    ] {
        asked(&client.connection, (protocol, version), status).await;
    }
    assert_eq!(origin.hits("/chat"), 0);
    // An answer that is no WebSocket must not look like the beginning of a tunnel.
    asked(&client.connection, ("websocket", "13"), BAD_GATEWAY).await;
    assert_eq!(origin.hits("/chat"), 1);
    origin.on("/chat", Reply::ok("no").status("403 Forbidden"));
    let (_send, mut recv) = asked(&client.connection, ("WebSocket", "13"), FORBIDDEN).await;
    assert_eq!(within(next_frame(&mut recv)).await, Some((0, b"no".to_vec())));
    assert_eq!(within(next_frame(&mut recv)).await, None);
    // A protocol belongs to CONNECT.
    let (mut send, mut recv) = within(client.connection.open_bi()).await.unwrap();
    let get = [&b"\xd1\xd7\xc1"[..], b"\x50\x06a.test", b"\x27\x02:protocol\x09websocket"];
    within(send.write_all(&frame(1, &section(&get)))).await.unwrap();
    let reset = within(recv.read_to_end(1 << 10)).await;
    let expected = quinn::ReadError::Reset(MESSAGE_ERROR.into());
    assert_eq!(reset, Err(quinn::ReadToEndError::Read(expected)));
    assert_eq!(client.get("/").await.status, 200);
    drop(client);
    settled(&node).await;
}

#[tokio::test]
async fn trailers_in_a_tunnel_end_the_connection() {
    let (node, at, trusting) = world(echo().await).await;
    let client = trusting.connect(at).await;
    let (mut send, _recv) = asked(&client.connection, ("websocket", "13"), OK).await;
    within(send.write_all(&frame(1, b"\0\0"))).await.unwrap();
    assert_eq!(closed(&client.connection).await, Some(FRAME_UNEXPECTED));
    drop(client);
    settled(&node).await;
    assert!(ended(&node, "client-broke").await);
}

#[tokio::test]
async fn end_of_one_direction_of_a_stream_leaves_the_other_open() {
    let (origin, mut arrived) = raw_server().await;
    let (node, at, trusting) = world(origin).await;
    let mut connection = trusting.connect(at).await;
    let mut client = tunnel(&connection.connection).await;
    let mut server = within(arrived.recv()).await.unwrap();
    client.write_all(FRAME).await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(rest(&mut server).await, FRAME);
    server.write_all(ANSWER).await.unwrap();
    assert_eq!(take(&mut client, ANSWER.len()).await, ANSWER);
    drop(server);
    assert_eq!(rest(&mut client).await, b"");

    let mut client = tunnel(&connection.connection).await;
    let mut server = within(arrived.recv()).await.unwrap();
    server.write_all(ANSWER).await.unwrap();
    server.shutdown().await.unwrap();
    assert_eq!(rest(&mut client).await, ANSWER);
    // The client has acknowledged all of the response when another one has come.
    connection.get("/").await;
    client.write_all(FRAME).await.unwrap();
    assert_eq!(take(&mut server, FRAME.len()).await, FRAME);
    drop(client);
    assert_eq!(rest(&mut server).await, b"");

    let (mut send, _recv) = asked(&connection.connection, ("websocket", "13"), OK).await;
    let mut server = within(arrived.recv()).await.unwrap();
    send.reset(0x10c_u32.into()).unwrap();
    assert_eq!(rest(&mut server).await, b"");
    drop(connection);
    settled(&node).await;
    assert!(ended(&node, "client-broke").await);
}

#[tokio::test]
async fn drain_and_stop_end_tunnels_over_http3_with_a_goodbye() {
    let (origin, mut arrived) = raw_server().await;
    let (node, at, trusting) = world(origin).await;
    let connection = trusting.connect(at).await;
    let mut client = tunnel(&connection.connection).await;
    let mut server = within(arrived.recv()).await.unwrap();
    let json = [("Content-Type", "application/json"), ("Content-Length", "2")];
    let order = head_of("POST", "/drain", &json) + "{}";
    assert_eq!(Wire::saying(node.addresses.admin.unwrap(), order).await.answer().await.status, 200);
    assert_eq!(take(&mut client, GOODBYE.len()).await, GOODBYE);
    assert_eq!(take(&mut server, MASKED_GOODBYE.len()).await, MASKED_GOODBYE);
    drop((client, server));
    assert_eq!(closed(&connection.connection).await, Some(0x100));
    settled(&node).await;
    assert!(ended(&node, "left").await);

    let (node, at, trusting) = world(echo().await).await;
    let client = trusting.connect(at).await;
    let mut ws = join(&client).await;
    chat(&mut ws).await;
    let stopped = tokio::spawn(node.stop());
    assert_eq!(goodbye(&mut ws).await, CloseCode::Away);
    drop(ws);
    assert_eq!(closed(&client.connection).await, Some(0x100));
    within(stopped).await.unwrap();
}
