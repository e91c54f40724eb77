//! HTTP/2 and TLS for clients.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt, Empty, Full, combinators::BoxBody};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use levada_config::Settings;

use crate::support::{client::Io, *};

pub(crate) type Body = BoxBody<Bytes, std::io::Error>;

async fn world(tweak: impl FnOnce(&mut Settings)) -> (Origin, levada_node::Running, SocketAddr) {
    alone(|settings| {
        settings.listeners[0].h2c = true;
        tweak(settings);
    })
    .await
}

pub(crate) async fn speak(io: impl Io + 'static) -> SendRequest<Body> {
    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .handshake(TokioIo::new(io))
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

pub(crate) async fn h2c(at: SocketAddr) -> SendRequest<Body> {
    speak(within(tokio::net::TcpStream::connect(at)).await.unwrap()).await
}

fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed()
}

pub(crate) fn ask(path: &str) -> Request<Body> {
    let uri = format!("http://{HOST}{path}");
    Request::builder().version(Version::HTTP_2).uri(uri).body(empty()).unwrap()
}

/// A request for another host.
pub(crate) fn ask_at(host: &str) -> Request<Body> {
    Request::builder().uri(format!("https://{host}/h2")).body(empty()).unwrap()
}

pub(crate) async fn fetch(sender: &mut SendRequest<Body>, request: Request<Body>) -> (u16, Bytes) {
    let response = within(sender.send_request(request)).await.unwrap();
    let status = response.status().as_u16();
    (status, within(response.into_body().collect()).await.unwrap().to_bytes())
}

#[tokio::test]
async fn certificate_is_the_one_of_the_name_asked_for() {
    let authority = secure::Authority::new();
    let (a, b) = (authority.issue(&["a.test"]), authority.issue(&["*.b.test"]));
    let (origin, node, at) = world(|settings| {
        settings.listeners[0].tls = vec![a, b];
        settings.sites[0].hosts.push("*.b.test".to_owned());
    })
    .await;
    for name in ["a.test", "x.b.test"] {
        let mut shown = Vec::new();
        for protocol in ["h2", "http/1.1"] {
            let stream =
                secure::connect(at, name, &authority.path(), &[protocol], None).await.unwrap();
            let session = stream.get_ref().1;
            assert_eq!(session.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
            assert_eq!(session.alpn_protocol(), Some(protocol.as_bytes()));
            shown.push(session.peer_certificates().unwrap()[0].clone());
            if protocol == "h2" {
                let mut sender = speak(stream).await;
                let uri = format!("https://{name}/h2");
                let request = Request::builder().uri(uri).body(empty()).unwrap();
                assert_eq!(fetch(&mut sender, request).await, (200, "/h2".into()));
            } else {
                let mut wire = Wire::over(stream);
                wire.send(head_of("GET", "/h1", &[("Host", name)])).await;
                assert_eq!(wire.answer().await.text(), "/h1");
            }
        }
        assert_eq!(shown[0], shown[1]);
    }
    assert_eq!(origin.asked("/h2")[0].header("x-forwarded-proto").unwrap(), "https");
    // A name in no certificate gets one that does not match, and the client refuses it.
    assert!(secure::connect(at, "c.test", &authority.path(), &["h2"], None).await.is_err());
    settled(&node).await;
}

#[tokio::test]
async fn garbage_on_a_tls_port_is_turned_away() {
    let authority = secure::Authority::new();
    let certificate = authority.issue(&["a.test"]);
    let (origin, node, at) = world(|s| s.listeners[0].tls = vec![certificate]).await;
    for bytes in [
        &b"\x16\x03\x01\xff\xffgarbage"[..],
        b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        b"\0\0\0\0\0\0\0\0",
    ] {
        let mut wire = Wire::saying(at, bytes).await;
        if bytes[0] == 0x16 {
            // The client ends an incomplete record here; otherwise a deadline would.
            drop(wire);
            continue;
        }
        wire.rest().await;
    }
    assert_eq!(origin.total(), 0);
    settled(&node).await;
}

#[tokio::test]
async fn tls_on_a_plain_port_is_turned_away() {
    let (_origin, node, at) = world(|_| {}).await;
    let authority = secure::Authority::new();
    assert!(secure::connect(at, "a.test", &authority.path(), &["h2"], None).await.is_err());
    settled(&node).await;
}

#[tokio::test]
async fn tls_handshake_has_a_deadline() {
    let authority = secure::Authority::new();
    let certificate = authority.issue(&["a.test"]);
    let (_origin, node, at) = world(|s| {
        s.listeners[0].tls = vec![certificate];
        s.limits.head_timeout = Duration::from_millis(300);
    })
    .await;
    assert!(Wire::saying(at, b"\x16\x03\x01").await.rest().await.is_empty());
    settled(&node).await;
}

#[tokio::test]
async fn prior_knowledge_and_http1_share_a_listener() {
    let (origin, node, at) = world(|_| {}).await;
    let mut sender = h2c(at).await;
    assert_eq!(fetch(&mut sender, ask("/a")).await, (200, "/a".into()));
    assert!(get(at, "/a").await.is_hit());
    let (status, _) =
        fetch(&mut sender, Request::get("http://b.test/").body(empty()).unwrap()).await;
    assert_eq!(status, 421);
    let mut head = ask("/a");
    *head.method_mut() = http::Method::HEAD;
    let response = within(sender.send_request(head)).await.unwrap();
    assert_eq!(response.headers()["content-length"], "2");
    assert_eq!(origin.hits("/a"), 1);
    settled(&node).await;
}

#[tokio::test]
async fn many_streams_of_one_connection_are_answered() {
    let (origin, node, at) = world(|_| {}).await;
    let sender = h2c(at).await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..100 {
        let mut sender = sender.clone();
        tasks.spawn(async move {
            let path = format!("/{}", n % 10);
            assert_eq!(fetch(&mut sender, ask(&path)).await, (200, path.into()));
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert!((10..=20).contains(&origin.total()), "{}", origin.total());
    settled(&node).await;
}

#[tokio::test]
async fn response_for_a_client_that_left_does_not_hold_up_the_others() {
    let (origin, node, at) = world(|s| s.limits.server_connections = 1).await;
    let gate = Gate::new();
    let pieces = vec![Piece::Bytes(vec![b'x'; 1 << 20])];
    origin.on("/a", Reply::chunked(pieces).with("cache-control", "no-store").after(&gate));
    let mut sender = h2c(at).await;
    let leader = tokio::spawn(sender.send_request(ask("/a")));
    eventually("the leader asks", || origin.hits("/a") == 1).await;
    let mut follower = Wire::saying(at, head_of("GET", "/a", &[])).await;
    eventually("the follower waits", || node.counts().in_flight == 2).await;
    leader.abort();
    eventually("the leader is gone", || node.counts().in_flight == 1).await;
    gate.open();
    assert_eq!(follower.answer().await.body.len(), 1 << 20);
    settled(&node).await;
}

#[tokio::test]
async fn crumbs_of_a_cookie_become_one_field() {
    let (origin, node, at) = world(|_| {}).await;
    let mut request = ask("/a");
    request.headers_mut().append("cookie", "a=1".parse().unwrap());
    request.headers_mut().append("cookie", "b=2".parse().unwrap());
    fetch(&mut h2c(at).await, request).await;
    // RFC 9113 section 8.2.3.
    let asked = &origin.asked("/a")[0];
    assert_eq!((asked.lines("cookie"), asked.header("cookie").unwrap().as_str()), (1, "a=1; b=2"));
    settled(&node).await;
}

#[tokio::test]
async fn body_that_breaks_off_resets_the_stream_only() {
    let (origin, node, at) = world(|_| {}).await;
    let pieces = vec![Piece::Bytes(b"half".to_vec()), Piece::Cut];
    origin.on("/cut", Reply::chunked(pieces).with("cache-control", "max-age=60"));
    let mut sender = h2c(at).await;
    let response = within(sender.send_request(ask("/cut"))).await.unwrap();
    assert!(within(response.into_body().collect()).await.is_err());
    assert_eq!(fetch(&mut sender, ask("/a")).await, (200, "/a".into()));
    settled(&node).await;
}

#[tokio::test]
async fn post_is_streamed_and_its_end_awaited() {
    let (origin, node, at) = world(|_| {}).await;
    let body = Full::new(Bytes::from(vec![b'x'; 300_000]));
    let request = Request::post(format!("http://{HOST}/a"))
        .body(body.map_err(|never| match never {}).boxed())
        .unwrap();
    assert_eq!(fetch(&mut h2c(at).await, request).await.0, 200);
    assert_eq!(origin.asked("/a")[0].body.len(), 300_000);
    settled(&node).await;
}

#[tokio::test]
async fn slow_body_over_http2_is_ended() {
    let (origin, node, at) = world(|s| {
        s.limits.body_timeout = Duration::from_millis(300);
        s.sites[0].servers.health.eject_after = 1;
    })
    .await;
    let (sender_of_body, receiver) = tokio::sync::mpsc::channel::<Result<_, std::io::Error>>(1);
    let stream = body_of(receiver);
    let request = Request::post(format!("http://{HOST}/a")).body(stream).unwrap();
    let mut sender = h2c(at).await;
    let answer = within(sender.send_request(request)).await;
    assert!(answer.is_err() || answer.is_ok_and(|response| response.status().is_client_error()));
    drop(sender_of_body);
    assert_eq!(origin.total(), 0);
    assert_eq!(fetch(&mut h2c(at).await, ask("/b")).await.0, 200, "the origin is not blamed");
    settled(&node).await;
}

/// A body of unknown length.
pub(crate) fn body_of(
    receiver: tokio::sync::mpsc::Receiver<Result<hyper::body::Frame<Bytes>, std::io::Error>>,
) -> Body {
    struct Pieces(tokio::sync::mpsc::Receiver<Result<hyper::body::Frame<Bytes>, std::io::Error>>);
    impl hyper::body::Body for Pieces {
        type Data = Bytes;
        type Error = std::io::Error;
        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, std::io::Error>>> {
            self.0.poll_recv(cx)
        }
    }
    Pieces(receiver).boxed()
}

#[tokio::test]
async fn body_that_trickles_over_http2_is_ended() {
    let (origin, node, at) = world(|s| {
        s.limits.body_timeout = Duration::from_millis(300);
        s.limits.body_min_rate = 10_000;
    })
    .await;
    let (pieces, receiver) = tokio::sync::mpsc::channel(1);
    let request = Request::post(format!("http://{HOST}/a")).body(body_of(receiver)).unwrap();
    let mut sender = h2c(at).await;
    let trickle = async {
        while pieces.send(Ok(hyper::body::Frame::data(Bytes::from_static(b"x")))).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let answer = async {
        let answer = sender.send_request(request).await;
        answer.is_err() || answer.is_ok_and(|response| response.status().is_client_error())
    };
    tokio::select! {
        refused = within(answer) => assert!(refused),
        () = trickle => {}
    }
    settled(&node).await;
    assert_eq!(origin.total(), 0);
}

/// Reads a response a frame at a time for longer than `send_timeout`, then the rest. Returns its length.
async fn read_slowly(min_rate: u64) -> Result<usize, hyper::Error> {
    let (origin, node, at) = world(|s| {
        s.limits.send_timeout = Duration::from_millis(1500);
        s.limits.send_min_rate = min_rate;
    })
    .await;
    origin.on("/big", Reply::cached(vec![b'x'; 16 << 20]));
    let mut sender = h2c(at).await;
    let mut body = within(sender.send_request(ask("/big"))).await.unwrap().into_body();
    let mut length = 0;
    for _ in 0..12 {
        let Some(frame) = within(body.frame()).await else { break };
        length += frame?.into_data().map_or(0, |data| data.len());
        tokio::time::sleep(Duration::from_millis(350)).await;
    }
    length += within(body.collect()).await?.to_bytes().len();
    drop(sender);
    settled(&node).await;
    Ok(length)
}

#[tokio::test]
async fn slow_but_steady_reader_over_http2_is_served_to_the_end() {
    assert_eq!(read_slowly(500).await.unwrap(), 16 << 20);
}

#[tokio::test]
async fn reader_below_the_least_rate_over_http2_is_dropped() {
    assert!(read_slowly(100 << 20).await.is_err());
}

#[tokio::test]
async fn reader_that_takes_nothing_over_http2_is_dropped() {
    let (origin, node, at) = world(|s| s.limits.send_timeout = Duration::from_millis(400)).await;
    origin.on("/big", Reply::cached(vec![b'x'; 16 << 20]));
    let mut sender = h2c(at).await;
    let response = within(sender.send_request(ask("/big"))).await.unwrap();
    assert_eq!(response.status(), 200);
    // The client does not read the body: its window fills, then the time is over.
    settled(&node).await;
    assert!(within(response.into_body().collect()).await.is_err());
}

#[tokio::test]
async fn idle_connection_is_closed_over_http2() {
    let (_origin, node, at) = world(|s| s.limits.idle_timeout = Duration::from_millis(300)).await;
    let mut sender = h2c(at).await;
    assert_eq!(fetch(&mut sender, ask("/a")).await.0, 200);
    eventually("the connection closes", || sender.is_closed()).await;
    settled(&node).await;
}

#[tokio::test]
async fn preface_and_nothing_more_is_closed() {
    let (_origin, node, at) = world(|s| {
        s.limits.idle_timeout = Duration::from_millis(300);
        s.limits.head_timeout = Duration::from_millis(300);
    })
    .await;
    let mut wire = Wire::saying(at, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    wire.rest().await;
    let mut wire = Wire::saying(at, b"PRI * HT").await;
    wire.rest().await;
    settled(&node).await;
}

/// A frame (RFC 9113 section 4.1).
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The header block of `GET http://a.test/slow`, with HPACK's static table and literals.
fn slow() -> Vec<u8> {
    let mut block = vec![0x82, 0x86, 0x01];
    block.push(HOST.len() as u8);
    block.extend(HOST.as_bytes());
    block.push(0x04);
    block.push(5);
    block.extend(b"/slow");
    block
}

#[tokio::test]
async fn rapid_reset_is_stopped() {
    let (origin, node, at) = world(|_| {}).await;
    origin.on("/slow", Reply::ok("late").after(&Gate::new()));
    let mut wire = Wire::saying(at, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    wire.send(frame(4, 0, 0, &[])).await;
    let mut opened = 0u32;
    let mut flood = Vec::new();
    for stream in (1..4001u32).step_by(2) {
        flood.extend(frame(1, 0x05, stream, &slow()));
        flood.extend(frame(3, 0, stream, &8u32.to_be_bytes()));
    }
    for piece in flood.chunks(3000) {
        if !wire.try_send(piece).await {
            break;
        }
        opened += 1;
    }
    let end = wire.rest().await;
    // GOAWAY with ENHANCE_YOUR_CALM, unless the reset of the connection has overtaken it.
    let calm = end.windows(4).any(|code| code == 11u32.to_be_bytes());
    assert!(calm || end.is_empty() || opened > 0, "{end:?}");
    assert!(origin.total() < 500, "{}", origin.total());
    drop(wire);
    settled_but_for_fetches(&node).await;
}

/// Waits for everything but the fetch of an object that never arrives, which runs until its own
/// deadline.
async fn settled_but_for_fetches(node: &levada_node::Running) {
    eventually("nothing in flight", || {
        let counts = node.counts();
        counts.in_flight == 0 && counts.in_service == 0 && counts.fills <= 1
    })
    .await;
}

#[tokio::test]
async fn half_a_head_is_not_waited_for() {
    let (_origin, node, at) =
        world(|settings| settings.limits.head_timeout = Duration::from_millis(300)).await;
    let mut wire = Wire::saying(at, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    wire.send([frame(4, 0, 0, &[]), frame(1, 0, 1, &slow())].concat()).await;
    wire.rest().await;
    settled(&node).await;
    let page = nodes::admin(&node, "/metrics").await.text();
    assert!(page.contains("reason=\"head-timeout\"} 1"), "{page}");
}
