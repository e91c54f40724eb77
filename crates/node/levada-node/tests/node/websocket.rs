//! Connections that switch to WebSocket: real clients and servers, and handshakes that lie.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http::{Request, header::SEC_WEBSOCKET_PROTOCOL};
use http_body_util::{BodyExt as _, Empty};
use hyper::ext::Protocol;
use hyper_util::rt::TokioIo;
use levada_config::{AccessLog, LogFormat, Settings};
use levada_node::Running;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async, client_async,
    tungstenite::{
        Error, Message,
        client::IntoClientRequest as _,
        handshake::server::{Request as Asked, Response as Agreed},
        protocol::{CloseFrame, Role, frame::coding::CloseCode},
    },
};

use crate::{
    http2,
    support::{nodes::*, *},
    switch,
};

type Ws<S> = WebSocketStream<S>;

/// A server of WebSocket that sends back what it gets, and names the protocol `chat`.
pub(crate) async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                #[expect(clippy::result_large_err, reason = "tungstenite wants this type")]
                let agree = |asked: &Asked, mut agreed: Agreed| {
                    if asked.headers().contains_key(SEC_WEBSOCKET_PROTOCOL) {
                        agreed
                            .headers_mut()
                            .insert(SEC_WEBSOCKET_PROTOCOL, "chat".parse().unwrap());
                    }
                    let via = asked.headers().contains_key("x-forwarded-for");
                    agreed.headers_mut().insert("x-via-a-node", via.to_string().parse().unwrap());
                    Ok(agreed)
                };
                let Ok(mut ws) = accept_hdr_async(stream, agree).await else { return };
                while let Some(Ok(message)) = ws.next().await {
                    if message.is_text() || message.is_binary() {
                        let _ = ws.send(message).await;
                    }
                }
            });
        }
    });
    address
}

/// A node in front of these servers, quick to end tunnels.
pub(crate) async fn node(
    origins: &[SocketAddr],
    tweak: impl FnOnce(&mut Settings),
) -> (Running, SocketAddr) {
    let mut settings = single(origins);
    settings.limits.tunnel_grace = Duration::from_millis(100);
    tweak(&mut settings);
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    (node, at)
}

async fn join<S>(stream: S) -> Ws<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut request = format!("ws://{HOST}/chat").into_client_request().unwrap();
    request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, "other, chat".parse().unwrap());
    let (ws, answer) = within(client_async(request, stream)).await.unwrap();
    assert_eq!(answer.headers()[SEC_WEBSOCKET_PROTOCOL], "chat");
    assert_eq!(answer.headers()["x-via-a-node"], "true");
    assert!(answer.headers().contains_key("via"));
    ws
}

async fn connect(at: SocketAddr) -> Ws<TcpStream> {
    join(within(TcpStream::connect(at)).await.unwrap()).await
}

/// Sends messages of many sizes and gets them back.
pub(crate) async fn chat<S>(ws: &mut Ws<S>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    for size in [0, 1, 125, 126, 1000, 65_535, 65_536, 1_000_000] {
        let message = Message::binary(vec![size as u8; size]);
        within(ws.send(message.clone())).await.unwrap();
        assert_eq!(within(ws.next()).await.unwrap().unwrap(), message);
    }
    within(ws.send(Message::Ping("are you there".into()))).await.unwrap();
    assert_eq!(within(ws.next()).await.unwrap().unwrap(), Message::Pong("are you there".into()));
}

/// Says goodbye, and waits for the end of the connection.
pub(crate) async fn leave<S>(mut ws: Ws<S>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let goodbye = CloseFrame { code: CloseCode::Normal, reason: "done".into() };
    within(ws.close(Some(goodbye.clone()))).await.unwrap();
    let answer = within(ws.next()).await.unwrap().unwrap();
    assert_eq!(answer, Message::Close(Some(goodbye)));
    assert!(!matches!(within(ws.next()).await, Some(Ok(_))));
}

/// The code of the close frame that comes next.
pub(crate) async fn goodbye<S>(ws: &mut Ws<S>) -> CloseCode
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match within(ws.next()).await {
        Some(Ok(Message::Close(Some(frame)))) => frame.code,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn ended(node: &Running, reason: &str) -> bool {
    let page = admin(node, "/metrics").await.text();
    page.contains(&format!("levada_tunnels_ended_total{{reason=\"{reason}\"}} 1"))
}

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const ASK: [(&str, &str); 4] = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Key", KEY),
    ("Sec-WebSocket-Version", "13"),
];

fn agree(accept: &str) -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    )
}

/// A server that reads one head, says `answer`, and hands the connection over with the bytes after the head.
async fn scripted(answer: String) -> (SocketAddr, mpsc::Receiver<(String, Vec<u8>, TcpStream)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = mpsc::channel(10);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (answer, sender) = (answer.clone(), sender.clone());
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                let end = loop {
                    if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                        break at + 4;
                    }
                    if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                        return;
                    }
                };
                let rest = bytes.split_off(end);
                stream.write_all(answer.as_bytes()).await.unwrap();
                let head = String::from_utf8(bytes).unwrap();
                let _ = sender.send((head, rest, stream)).await;
            });
        }
    });
    (address, receiver)
}

/// A tunnel whose two ends are in the test's hands.
async fn raw(tweak: impl FnOnce(&mut Settings)) -> (Running, TcpStream, TcpStream) {
    let (origin, mut arrived) = scripted(agree(ACCEPT)).await;
    let (node, at) = node(&[origin], tweak).await;
    let mut client = TcpStream::connect(at).await.unwrap();
    client.write_all(head_of("GET", "/", &ASK).as_bytes()).await.unwrap();
    let (_, rest, server) = within(arrived.recv()).await.unwrap();
    assert_eq!(rest, b"");
    assert_eq!(
        read_head(&mut client).await.lines().next().unwrap(),
        "HTTP/1.1 101 Switching Protocols"
    );
    (node, client, server)
}

/// Reads a head and no byte more.
async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within(stream.read_u8()).await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

pub(crate) async fn take(stream: &mut (impl AsyncRead + Unpin), length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    within(stream.read_exact(&mut bytes)).await.unwrap();
    bytes
}

pub(crate) async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = within(stream.read_to_end(&mut bytes)).await;
    bytes
}

pub(crate) const FRAME: &[u8] = b"\x82\x85\0\0\0\0hello";
pub(crate) const ANSWER: &[u8] = b"\x82\x05hello";
pub(crate) const GOODBYE: &[u8] = &[0x88, 2, 0x03, 0xe9];
pub(crate) const MASKED_GOODBYE: &[u8] = &[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe9];

#[tokio::test]
async fn messages_pass_both_ways_and_the_close_handshake_ends_the_tunnel() {
    let (node, at) = node(&[echo().await], |_| {}).await;
    let mut ws = connect(at).await;
    chat(&mut ws).await;
    assert_eq!(metric(&node, "levada_tunnels").await, 1.0);
    leave(ws).await;
    settled(&node).await;
    assert_eq!(metric(&node, "levada_tunnels").await, 0.0);
    assert!(ended(&node, "closed").await);
    assert!(metric(&node, "levada_tunnel_bytes_total").await > 2_200_000.0);
}

#[tokio::test]
async fn messages_pass_over_tls() {
    let authority = secure::Authority::new();
    let certificate = authority.issue(&["a.test"]);
    let (node, at) = node(&[echo().await], |s| s.listeners[0].tls = vec![certificate]).await;
    for protocols in [&["http/1.1"][..], &[]] {
        let stream = secure::connect(at, HOST, &authority.path(), protocols, None).await.unwrap();
        let mut ws = join(stream).await;
        chat(&mut ws).await;
        leave(ws).await;
    }
    settled(&node).await;
}

#[tokio::test]
async fn messages_pass_over_streams_of_http2() {
    let (node, at) = node(&[echo().await], |s| s.listeners[0].h2c = true).await;
    let mut sender = http2::h2c(at).await;
    // The client learns from a response that the server's settings have come.
    assert_eq!(http2::fetch(&mut sender, http2::ask("/")).await.0, 502);
    let mut tunnels = Vec::new();
    for _ in 0..3 {
        let (status, stream) =
            extended(&mut sender, "websocket", &[("sec-websocket-version", "13")]).await;
        assert_eq!(status, 200);
        let stream = TokioIo::new(stream.unwrap());
        tunnels.push(WebSocketStream::from_raw_socket(stream, Role::Client, None).await);
    }
    for ws in &mut tunnels {
        chat(ws).await;
    }
    assert_eq!(metric(&node, "levada_tunnels").await, 3.0);
    for ws in tunnels {
        leave(ws).await;
    }
    settled(&node).await;
    // The connection goes on.
    assert_eq!(http2::fetch(&mut sender, http2::ask("/")).await.0, 502);
    settled(&node).await;
}

/// An extended CONNECT (RFC 8441), and its stream if there is one.
async fn extended(
    sender: &mut hyper::client::conn::http2::SendRequest<http2::Body>,
    protocol: &'static str,
    fields: &[(&str, &str)],
) -> (u16, Option<hyper::upgrade::Upgraded>) {
    let body = Empty::<Bytes>::new().map_err(|never| match never {}).boxed();
    let mut request = Request::connect(format!("http://{HOST}/chat")).body(body).unwrap();
    for (name, value) in fields {
        let name: http::HeaderName = name.parse().unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request.extensions_mut().insert(Protocol::from_static(protocol));
    let mut response = within(sender.send_request(request)).await.unwrap();
    let status = response.status().as_u16();
    if status != 200 {
        let _ = within(response.into_body().collect()).await;
        return (status, None);
    }
    (status, Some(within(hyper::upgrade::on(&mut response)).await.unwrap()))
}

#[tokio::test]
async fn handshakes_that_lie_over_http2_reach_no_server() {
    let origin = Origin::start().await;
    let (node, at) = node(&[origin.address], |s| s.listeners[0].h2c = true).await;
    let mut sender = http2::h2c(at).await;
    assert_eq!(http2::fetch(&mut sender, http2::ask("/")).await.0, 200);
    for (protocol, version, status) in
        [("websocket", "8", 426), ("websocket", "", 426), ("connect-udp", "13", 501)]
    {
        let asked = extended(&mut sender, protocol, &[("sec-websocket-version", version)]).await;
        assert_eq!(asked.0, status, "{protocol} {version}");
    }
    assert_eq!(origin.hits("/chat"), 0);
    // An answer that is no WebSocket must not look like the beginning of a tunnel.
    let asked = extended(&mut sender, "websocket", &[("sec-websocket-version", "13")]).await;
    assert_eq!((asked.0, origin.hits("/chat")), (502, 1));
    origin.on("/chat", Reply::ok("no").status("403 Forbidden"));
    let asked = extended(&mut sender, "websocket", &[("sec-websocket-version", "13")]).await;
    assert_eq!(asked.0, 403);
    settled(&node).await;
}

#[tokio::test]
async fn handshakes_that_lie_reach_no_server() {
    let origin = Origin::start().await;
    let (node, at) = node(&[origin.address], |_| {}).await;
    let but = |name: &str, value: &'static str| -> Vec<(&'static str, &'static str)> {
        let with = |(n, v): (&'static str, &'static str)| (n, if n == name { value } else { v });
        ASK.map(with).into_iter().filter(|(_, value)| *value != "-").collect()
    };
    let key = "Sec-WebSocket-Key";
    let version = "Sec-WebSocket-Version";
    let body = || ASK.into_iter().chain([("Content-Length", "4")]).collect::<Vec<_>>();
    let chunked = || ASK.into_iter().chain([("Transfer-Encoding", "chunked")]).collect::<Vec<_>>();
    for (method, fields, sent, status) in [
        ("GET", but(key, "-"), "", 400),
        ("GET", but(key, "short"), "", 400),
        ("GET", but(version, "-"), "", 426),
        ("GET", but(version, "8"), "", 426),
        ("GET", body(), "body", 400),
        ("GET", chunked(), "4\r\nbody\r\n0\r\n\r\n", 400),
        ("POST", ASK.to_vec(), "", 400),
        ("HEAD", ASK.to_vec(), "", 400),
    ] {
        let request = head_of(method, "/", &fields) + sent;
        let answer = Wire::saying(at, request).await.answer_to(method).await;
        assert_eq!(answer.status, status, "{method} {fields:?}: {}", answer.text());
        let told = (status == 426).then(|| "13".to_owned());
        assert_eq!(answer.header("sec-websocket-version"), told);
        assert_eq!(answer.header("upgrade"), told.map(|_| "websocket".to_owned()));
    }
    assert_eq!(origin.total(), 0);
    settled(&node).await;
}

#[tokio::test]
async fn requests_that_do_not_ask_for_websocket_are_ordinary_ones() {
    let origin = Origin::start().await;
    let (node, at) = node(&[origin.address], |_| {}).await;
    for (at_path, fields) in [
        (
            "/h2c",
            vec![
                ("Connection", "Upgrade, HTTP2-Settings"),
                ("Upgrade", "h2c"),
                ("HTTP2-Settings", "AAMAAABk"),
            ],
        ),
        ("/other", vec![("Connection", "Upgrade"), ("Upgrade", "TLS/1.0, irc/6.9")]),
        ("/not-nominated", vec![("Upgrade", "websocket"), ("Sec-WebSocket-Key", KEY)]),
    ] {
        let mut wire = Wire::saying(at, head_of("GET", at_path, &fields)).await;
        let answer = wire.answer().await;
        assert_eq!((answer.status, answer.text()), (200, at_path.to_owned()));
        assert_eq!(origin.asked(at_path)[0].header("upgrade"), None);
        // The connection goes on, and the response is stored like any other.
        wire.send(head_of("GET", at_path, &[])).await;
        assert!(wire.answer().await.is_hit());
    }
    let old = format!(
        "GET /old HTTP/1.0\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    assert_eq!(Wire::saying(at, old).await.answer().await.text(), "/old");
    settled(&node).await;
}

#[tokio::test]
async fn answer_in_http_is_passed_on_and_not_stored() {
    let origin = Origin::start().await;
    let (node, at) = node(&[origin.address], |_| {}).await;
    let refused = Reply::ok("who are you").status("401 Unauthorized").with("www-authenticate", "x");
    origin.on("/refused", refused);
    let mut wire = Wire::to(at).await;
    for (path, status, text) in [("/plain", 200, "/plain"), ("/refused", 401, "who are you")] {
        for asked in 1..3 {
            wire.send(head_of("GET", path, &ASK)).await;
            let answer = wire.answer().await;
            assert_eq!((answer.status, answer.text()), (status, text.to_owned()));
            assert_eq!(answer.header("upgrade"), None);
            assert_eq!(origin.hits(path), asked, "nothing of it comes from the store");
        }
    }
    assert_eq!(origin.asked("/plain")[0].header("upgrade").unwrap(), "websocket");
    // The same connection goes on with requests.
    wire.send(head_of("GET", "/plain", &[])).await;
    assert!(!wire.answer().await.is_hit());
    wire.send(head_of("GET", "/plain", &[("Connection", "close")])).await;
    assert!(wire.answer().await.is_hit());
    assert_eq!(wire.rest().await, b"");
    settled(&node).await;
}

#[tokio::test]
async fn servers_that_lie_get_no_tunnel() {
    for answer in [
        agree("bm8gYW5zd2VyIHRvIGl0IQAAAAA="),
        agree(ACCEPT).replace("Upgrade: websocket", "Upgrade: h2c"),
        agree(ACCEPT).replace("Upgrade: websocket\r\n", ""),
        agree(ACCEPT).replace(&format!("Sec-WebSocket-Accept: {ACCEPT}\r\n"), ""),
        agree(&format!("{ACCEPT}\r\nSec-WebSocket-Accept: {ACCEPT}")),
        agree(ACCEPT).replace("HTTP/1.1", "HTTP/1.0"),
    ] {
        let (origin, _arrived) = scripted(answer.clone()).await;
        let (node, at) = node(&[origin], |_| {}).await;
        let answered = Wire::saying(at, head_of("GET", "/", &ASK)).await.answer().await;
        assert_eq!(answered.status, 502, "{answer}");
        settled(&node).await;
    }
}

#[tokio::test]
async fn switch_that_was_not_asked_for_is_an_error() {
    let (origin, _arrived) = scripted(agree(ACCEPT)).await;
    let (node, at) = node(&[origin], |_| {}).await;
    assert_eq!(get(at, "/").await.status, 502);
    assert_eq!(get_with(at, "/", &[("Upgrade", "websocket")]).await.status, 502);
    settled(&node).await;
}

#[tokio::test]
async fn fields_of_a_body_in_the_answer_mean_nothing() {
    let answer = agree(&format!("{ACCEPT}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked"));
    let (origin, mut arrived) = scripted(answer).await;
    let (node, at) = node(&[origin], |_| {}).await;
    let mut client = TcpStream::connect(at).await.unwrap();
    client.write_all(head_of("GET", "/", &ASK).as_bytes()).await.unwrap();
    let (_, _, mut server) = within(arrived.recv()).await.unwrap();
    let head = read_head(&mut client).await.to_ascii_lowercase();
    assert!(!head.contains("content-length") && !head.contains("transfer-encoding"), "{head}");
    server.write_all(ANSWER).await.unwrap();
    assert_eq!(take(&mut client, ANSWER.len()).await, ANSWER);
    drop((client, server));
    settled(&node).await;
}

#[tokio::test]
async fn frames_before_the_agreement_reach_the_server_after_it() {
    let (origin, mut arrived) = scripted(agree(ACCEPT)).await;
    let (node, at) = node(&[origin], |_| {}).await;
    // Bytes of a tunnel that look like a request are bytes of a tunnel.
    let early = [FRAME, b"GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", FRAME].concat();
    for split in [0, 1, 20] {
        let request = [head_of("GET", "/", &ASK).as_bytes(), &early].concat();
        let mut client = TcpStream::connect(at).await.unwrap();
        client.set_nodelay(true).unwrap();
        let (first, second) = request.split_at(request.len().saturating_sub(split));
        client.write_all(first).await.unwrap();
        let (head, rest, mut server) = within(arrived.recv()).await.unwrap();
        client.write_all(second).await.unwrap();
        assert!(head.starts_with("GET / HTTP/1.1\r\n"));
        let got = [rest.clone(), take(&mut server, early.len() - rest.len()).await].concat();
        assert_eq!((got, rest), (early.clone(), Vec::new()), "nothing came with the request");
        server.write_all(ANSWER).await.unwrap();
        read_head(&mut client).await;
        assert_eq!(take(&mut client, ANSWER.len()).await, ANSWER);
    }
    settled(&node).await;
}

#[tokio::test]
async fn frames_of_the_server_may_come_with_its_agreement() {
    let answer = agree(ACCEPT) + std::str::from_utf8(b"\x01\x03one").unwrap();
    let (origin, arrived) = scripted(answer).await;
    let (node, at) = node(&[origin], |_| {}).await;
    let mut client = TcpStream::connect(at).await.unwrap();
    client.write_all(head_of("GET", "/", &ASK).as_bytes()).await.unwrap();
    read_head(&mut client).await;
    assert_eq!(take(&mut client, 5).await, b"\x01\x03one");
    drop((client, arrived));
    settled(&node).await;
}

#[tokio::test]
async fn frames_without_an_agreement_are_refused_and_a_request_is_answered() {
    let origin = Origin::start().await;
    let (node, at) = node(&[origin.address], |_| {}).await;
    let frames = [FRAME, b"\r\n"].concat();
    let mut wire =
        Wire::saying(at, [head_of("GET", "/a", &ASK).as_bytes(), &frames].concat()).await;
    assert_eq!(wire.answer().await.text(), "/a");
    assert_eq!(wire.answer().await.status, 400);
    assert_eq!(wire.rest().await, b"");
    let both = head_of("GET", "/a", &ASK) + &head_of("GET", "/b", &[]);
    for size in [1, 50, both.len()] {
        let mut wire = Wire::to(at).await;
        for piece in both.as_bytes().chunks(size) {
            wire.send(piece).await;
        }
        assert_eq!(wire.answer().await.text(), "/a");
        assert_eq!(wire.answer().await.text(), "/b");
        wire.send(head_of("GET", "/b", &[])).await;
        assert!(wire.answer().await.is_hit());
    }
    assert_eq!(origin.hits("/b"), 1);
    settled(&node).await;
}

#[tokio::test]
async fn end_of_one_direction_leaves_the_other_open() {
    let (node, mut client, mut server) = raw(|_| {}).await;
    client.write_all(FRAME).await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(rest(&mut server).await, FRAME);
    server.write_all(ANSWER).await.unwrap();
    assert_eq!(take(&mut client, ANSWER.len()).await, ANSWER);
    server.shutdown().await.unwrap();
    assert_eq!(rest(&mut client).await, b"");
    settled(&node).await;
    assert!(ended(&node, "closed").await);

    let (node, mut client, mut server) = raw(|_| {}).await;
    server.write_all(ANSWER).await.unwrap();
    server.shutdown().await.unwrap();
    assert_eq!(rest(&mut client).await, ANSWER);
    client.write_all(FRAME).await.unwrap();
    assert_eq!(take(&mut server, FRAME.len()).await, FRAME);
    drop(client);
    assert_eq!(rest(&mut server).await, b"");
    settled(&node).await;
}

#[tokio::test]
async fn reset_of_one_end_ends_the_other() {
    let (node, client, mut server) = raw(|_| {}).await;
    levada_net::tcp::reset_on_close(&client).unwrap();
    drop(client);
    assert_eq!(rest(&mut server).await, b"");
    settled(&node).await;
    assert!(ended(&node, "client-broke").await);

    let (node, mut client, server) = raw(|_| {}).await;
    levada_net::tcp::reset_on_close(&server).unwrap();
    drop(server);
    assert_eq!(rest(&mut client).await, b"");
    settled(&node).await;
    assert!(ended(&node, "server-broke").await);
}

#[tokio::test]
async fn tunnel_without_a_byte_for_too_long_ends_with_a_goodbye() {
    let short = |s: &mut Settings| {
        s.sites[0].handling.websocket.idle_timeout = Duration::from_millis(300);
    };
    let (node, mut client, mut server) = raw(short).await;
    // Bytes in either direction keep it open.
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        client.write_all(FRAME).await.unwrap();
        assert_eq!(take(&mut server, FRAME.len()).await, FRAME);
    }
    assert_eq!(take(&mut client, GOODBYE.len()).await, GOODBYE);
    assert_eq!(take(&mut server, MASKED_GOODBYE.len()).await, MASKED_GOODBYE);
    client.write_all(MASKED_GOODBYE).await.unwrap();
    server.write_all(GOODBYE).await.unwrap();
    assert_eq!((rest(&mut client).await, rest(&mut server).await), (vec![], vec![]));
    settled(&node).await;
    assert!(ended(&node, "idle-timeout").await);
}

#[tokio::test]
async fn real_clients_learn_that_the_node_stops() {
    let (node, at) = node(&[echo().await], |s| s.listeners[0].h2c = true).await;
    let mut over_http1 = connect(at).await;
    chat(&mut over_http1).await;
    let mut sender = http2::h2c(at).await;
    assert_eq!(http2::fetch(&mut sender, http2::ask("/")).await.0, 502);
    let (_, stream) = extended(&mut sender, "websocket", &[("sec-websocket-version", "13")]).await;
    let stream = TokioIo::new(stream.unwrap());
    let mut over_http2 = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
    chat(&mut over_http2).await;
    let stopped = tokio::spawn(node.stop());
    assert_eq!(goodbye(&mut over_http1).await, CloseCode::Away);
    assert_eq!(goodbye(&mut over_http2).await, CloseCode::Away);
    assert!(matches!(within(over_http1.next()).await, None | Some(Err(Error::ConnectionClosed))));
    drop((over_http1, over_http2, sender));
    within(stopped).await.unwrap();
}

#[tokio::test]
async fn stop_waits_for_the_end_of_a_frame() {
    let (node, mut client, mut server) = raw(|_| {}).await;
    let (first, second) = ANSWER.split_at(4);
    server.write_all(first).await.unwrap();
    assert_eq!(take(&mut client, 4).await, first);
    let stopped = tokio::spawn(node.stop());
    // The other direction is between two frames.
    assert_eq!(take(&mut server, MASKED_GOODBYE.len()).await, MASKED_GOODBYE);
    server.write_all(second).await.unwrap();
    server.write_all(ANSWER).await.unwrap();
    let got = rest(&mut client).await;
    assert!(got.starts_with(second) && got.ends_with(GOODBYE), "{got:?}");
    assert!([second.len(), second.len() + ANSWER.len()].contains(&(got.len() - GOODBYE.len())));
    within(stopped).await.unwrap();
}

#[tokio::test]
async fn frame_that_does_not_end_is_cut() {
    let (node, mut client, mut server) = raw(|_| {}).await;
    server.write_all(&ANSWER[..4]).await.unwrap();
    client.write_all(&FRAME[..3]).await.unwrap();
    assert_eq!(take(&mut client, 4).await, &ANSWER[..4]);
    let stopped = tokio::spawn(node.stop());
    assert_eq!(rest(&mut client).await, b"");
    assert_eq!(rest(&mut server).await, &FRAME[..3]);
    within(stopped).await.unwrap();
}

#[tokio::test]
async fn drain_ends_tunnels_and_a_reload_does_not() {
    let (origin, mut arrived) = scripted(agree(ACCEPT)).await;
    let mut settings = single(&[origin]);
    settings.limits.tunnel_grace = Duration::from_millis(100);
    let (node, file) = world(settings.clone()).await;
    let mut client = TcpStream::connect(node.addresses.clients[0]).await.unwrap();
    client.write_all(head_of("GET", "/", &ASK).as_bytes()).await.unwrap();
    let (_, _, mut server) = within(arrived.recv()).await.unwrap();
    read_head(&mut client).await;
    settings.sites[0].handling.websocket.enabled = false;
    settings.limits.tunnels = 0;
    *file.lock().unwrap() = Ok(settings);
    assert_eq!(reload(&node).await.status, 200);
    client.write_all(FRAME).await.unwrap();
    assert_eq!(take(&mut server, FRAME.len()).await, FRAME);
    let refused = Wire::saying(node.addresses.clients[0], head_of("GET", "/", &ASK)).await;
    assert_eq!({ refused }.answer().await.status, 403);
    let json = [("Content-Type", "application/json"), ("Content-Length", "2")];
    let order = head_of("POST", "/drain", &json) + "{}";
    assert_eq!(Wire::saying(node.addresses.admin.unwrap(), order).await.answer().await.status, 200);
    assert_eq!(take(&mut client, GOODBYE.len()).await, GOODBYE);
    assert_eq!(take(&mut server, MASKED_GOODBYE.len()).await, MASKED_GOODBYE);
    drop((client, server));
    settled(&node).await;
    assert!(ended(&node, "left").await);
}

#[tokio::test]
async fn reader_that_takes_nothing_holds_its_writer_back() {
    const MUCH: usize = 256 << 20;
    let (node, client, mut server) = raw(|_| {}).await;
    let written = tokio::spawn(async move {
        let (chunk, mut written) = (vec![0x55; 64 << 10], 0);
        while written < MUCH {
            match tokio::time::timeout(Duration::from_secs(2), server.write(&chunk)).await {
                Ok(Ok(count)) => written += count,
                _ => break,
            }
        }
        written
    });
    let written = within(written).await.unwrap();
    assert!(written < MUCH / 2, "{written}");
    drop(client);
    settled(&node).await;
}

#[tokio::test]
async fn bytes_that_are_no_frames_pass_all_the_same() {
    let (node, mut client, mut server) = raw(|_| {}).await;
    let noise: Vec<u8> =
        (0..200_000_u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let sent = noise.clone();
    let writing = tokio::spawn(async move {
        client.write_all(&sent).await.unwrap();
        client.shutdown().await.unwrap();
        rest(&mut client).await
    });
    assert_eq!(rest(&mut server).await, noise);
    server.write_all(&noise).await.unwrap();
    drop(server);
    assert_eq!(within(writing).await.unwrap(), noise);
    settled(&node).await;
}

#[tokio::test]
async fn frame_that_is_cut_in_the_middle_reaches_the_other_end_as_far_as_it_came() {
    // In the head, in the mask and in the payload; the end that is left learns that the stream has ended.
    for cut in 1..FRAME.len() {
        let (node, mut client, mut server) = raw(|_| {}).await;
        client.write_all(&FRAME[..cut]).await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(rest(&mut server).await, &FRAME[..cut]);
        drop(server);
        assert_eq!(rest(&mut client).await, b"");
        settled(&node).await;
    }
    for cut in 1..ANSWER.len() {
        let (node, mut client, mut server) = raw(|_| {}).await;
        server.write_all(&ANSWER[..cut]).await.unwrap();
        drop(server);
        assert_eq!(rest(&mut client).await, &ANSWER[..cut]);
        drop(client);
        settled(&node).await;
    }
}

#[tokio::test]
async fn flood_of_pings_waits_for_its_reader_and_holds_up_nobody_else() {
    const BOUND: usize = 64 << 20;
    let (origin, mut arrived) = scripted(agree(ACCEPT)).await;
    let (node, at) = node(&[origin], |_| {}).await;
    let mut opened = Vec::new();
    for _ in 0..2 {
        let mut client = TcpStream::connect(at).await.unwrap();
        client.write_all(head_of("GET", "/", &ASK).as_bytes()).await.unwrap();
        read_head(&mut client).await;
        opened.push((client, within(arrived.recv()).await.unwrap().2));
    }
    let [(mut client, mut server), (mut other, mut others_server)] =
        <[_; 2]>::try_from(opened).unwrap();
    let ping = [&[0x89, 0xfd, 0, 0, 0, 0][..], &[b'p'; 125]].concat();
    let (flood, mut sent) = (ping.repeat(1000), 0);
    // The server reads nothing.
    while let Ok(count) =
        tokio::time::timeout(Duration::from_secs(1), client.write(&flood[sent % ping.len()..]))
            .await
    {
        sent += count.unwrap();
        assert!(sent < BOUND, "the node takes everything");
    }
    for _ in 0..20 {
        other.write_all(FRAME).await.unwrap();
        assert_eq!(take(&mut others_server, FRAME.len()).await, FRAME);
        others_server.write_all(ANSWER).await.unwrap();
        assert_eq!(take(&mut other, ANSWER.len()).await, ANSWER);
    }
    // Nothing of it is lost or changed.
    let came = take(&mut server, sent).await;
    assert!(came.chunks(ping.len()).all(|one| ping.starts_with(one)));
    drop((client, server, other, others_server));
    settled(&node).await;
}

#[tokio::test]
async fn tunnel_counts_at_its_server_and_holds_no_place_of_requests() {
    let (tunnelled, other) = (Origin::start().await, Origin::start().await);
    drop(tunnelled);
    let (address, mut arrived) = scripted(agree(ACCEPT)).await;
    let mut settings = switch::switching("least_conn", &[&other]);
    switch::switch(&mut settings).servers.insert(0, switch::server("ws", address));
    settings.limits.tunnel_grace = Duration::from_millis(100);
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    let mut clients = Vec::new();
    while clients.is_empty() {
        let mut client = TcpStream::connect(at).await.unwrap();
        client.write_all(head_of("GET", "/", &ASK).as_bytes()).await.unwrap();
        if read_head(&mut client).await.starts_with("HTTP/1.1 101") {
            clients.push(client);
        }
    }
    let server = within(arrived.recv()).await.unwrap();
    eventually("the others end", || node.counts().switched == 1).await;
    // The server with the tunnel has more to do than the other one.
    for _ in 0..5 {
        assert_eq!(get(at, "/").await.text(), "/");
    }
    assert_eq!((node.counts().switched, node.counts().in_service), (1, 0));
    drop((clients, server));
    settled(&node).await;
}

#[tokio::test]
async fn tunnels_do_not_keep_requests_from_the_origin() {
    let tweak = |s: &mut Settings| {
        s.sites[0].servers.misses.at_once = 1;
        s.limits.server_connections = 1;
        s.limits.capacity = 2;
    };
    let (node, at) = node(&[echo().await], tweak).await;
    let mut tunnels = vec![connect(at).await, connect(at).await, connect(at).await];
    // The server hangs up: this is no handshake.
    assert_eq!(get(at, "/").await.status, 502);
    for ws in &mut tunnels {
        chat(ws).await;
    }
    let counts = node.counts();
    assert_eq!((counts.misses, counts.in_service, counts.origin_connections_busy), (0, 0, 0));
    drop(tunnels);
    settled(&node).await;
}

#[tokio::test]
async fn number_of_tunnels_is_bounded() {
    let (node, at) = node(&[echo().await], |s| s.limits.tunnels = 2).await;
    let first = connect(at).await;
    let refused = Wire::saying(at, head_of("GET", "/", &ASK)).await.answer().await;
    assert_eq!((refused.status, refused.field("retry-after")), (503, "1".to_owned()));
    leave(first).await;
    settled(&node).await;
    leave(connect(at).await).await;
    settled(&node).await;
}

#[tokio::test]
async fn site_and_route_say_whether_there_is_websocket() {
    let server = echo().await;
    let text = format!(
        "[[site]]\nhosts = '{HOST}'\norigin = 'http://{server}'\nwebsocket.enabled = false\n\
         [[site.route]]\npath = '/chat'\nwebsocket.enabled = true\n\
         [[site.route]]\npath = '/nobody'\nwebsocket.enabled = true\naccess = ['deny all']\n"
    );
    let (node, at) = node(&[], |s| s.sites = sites(&text)).await;
    let mut ws = connect(at).await;
    chat(&mut ws).await;
    leave(ws).await;
    let refused = Wire::saying(at, head_of("GET", "/", &ASK)).await.answer().await;
    let told = "403 Forbidden: WebSocket is switched off here\n".to_owned();
    assert_eq!((refused.status, refused.text()), (403, told));
    // The rules of access hold as for any request.
    let refused = Wire::saying(at, head_of("GET", "/nobody", &ASK)).await.answer().await;
    assert_eq!(refused.status, 403);
    assert_eq!(metric(&node, "levada_upstream_requests_total").await, 1.0);
    settled(&node).await;
}

#[tokio::test]
async fn access_log_has_the_tunnel_at_its_end_with_its_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let format = LogFormat::parse(
        "$request_method $request_uri $status $body_bytes_sent $upstream_cache_status",
    )
    .unwrap();
    let (node, mut client, mut server) =
        raw(|s| s.access_log = Some(AccessLog::to_file(path.clone(), format))).await;
    client.write_all(FRAME).await.unwrap();
    assert_eq!(take(&mut server, FRAME.len()).await, FRAME);
    server.write_all(ANSWER).await.unwrap();
    server.write_all(ANSWER).await.unwrap();
    assert_eq!(take(&mut client, 2 * ANSWER.len()).await, [ANSWER, ANSWER].concat());
    drop(client);
    rest(&mut server).await;
    drop(server);
    settled(&node).await;
    node.stop().await;
    let log = std::fs::read_to_string(&path).unwrap();
    assert_eq!(log, format!("GET / 101 {} bypass\n", 2 * ANSWER.len()));
}
