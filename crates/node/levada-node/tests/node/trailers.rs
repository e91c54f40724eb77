//! Trailers pass by one list, over every protocol, to every server.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response};
use hyper::body::Frame;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::{
    http2::{body_of, frame, h2c},
    http2_origin::{Http2Origin, whole},
    http3,
    support::{
        nodes::*,
        quic::{answer, request},
        *,
    },
    switch::{server, switching_to},
};

/// Fields that a client must not state behind its body.
const FORBIDDEN: [&str; 12] = [
    "x-forwarded-for",
    "forwarded",
    "x-real-ip",
    "authorization",
    "cookie",
    "range",
    "content-encoding",
    "content-type",
    "x-sum",
    "x_forwarded_for",
    "levada-piece",
    "cache-control",
];

fn trailers() -> HeaderMap {
    let names = FORBIDDEN.iter().chain(&["content-digest", "grpc-x"]);
    names.map(|name| (HeaderName::from_static(name), "1".parse().unwrap())).collect()
}

/// An origin over HTTP/1.1 that keeps the bytes of each request.
async fn raw_origin() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, seen) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
    let kept = seen.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = Vec::new();
            let ended = |bytes: &[u8]| {
                let end = bytes.windows(3).position(|three| three == b"0\r\n");
                end.is_some_and(|_| bytes.ends_with(b"\r\n\r\n"))
            };
            while !ended(&bytes) && stream.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {}
            kept.lock().unwrap().push(String::from_utf8_lossy(&bytes).to_ascii_lowercase());
            let reply = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            let _ = stream.write_all(reply.as_bytes()).await;
        }
    });
    (address, seen)
}

/// The names of the trailers in a request in chunks.
fn names(request: &str) -> Vec<String> {
    let (_, trailers) = request.rsplit_once("0\r\n").unwrap();
    let lines = trailers.lines().filter_map(|line| line.split_once(':'));
    sorted(lines.map(|(name, _)| name.to_owned()))
}

fn sorted(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names
}

async fn post_over_http1(at: SocketAddr) -> u16 {
    let mut post = head_of("POST", "/a", &[("Transfer-Encoding", "chunked")]);
    post += "2\r\nhi\r\n0\r\n";
    for (name, value) in &trailers() {
        post += &format!("{name}: {}\r\n", value.to_str().unwrap());
    }
    Wire::saying(at, post + "\r\n").await.answer_to("POST").await.status
}

async fn post_over_http2(at: SocketAddr) -> u16 {
    let (frames, receiver) = tokio::sync::mpsc::channel(2);
    frames.try_send(Ok(Frame::data(Bytes::from("hi")))).unwrap();
    frames.try_send(Ok(Frame::trailers(trailers()))).unwrap();
    drop(frames);
    let request = Request::post(format!("http://{HOST}/a")).body(body_of(receiver)).unwrap();
    within(h2c(at).await.send_request(request)).await.unwrap().status().as_u16()
}

async fn post_over_http3(world: &http3::World) -> u16 {
    let mut client = world.trusting.connect(world.at).await;
    let mut stream = client.send(request("POST", "/a")).await;
    within(stream.send_data("hi".into())).await.unwrap();
    within(stream.send_trailers(trailers())).await.unwrap();
    within(stream.finish()).await.unwrap();
    answer(&mut stream).await.unwrap().status
}

#[tokio::test]
async fn trailers_of_requests_say_nothing_that_a_head_may_not_over_any_protocol() {
    let (origin, seen) = raw_origin().await;
    let mut settings = single(&[origin]);
    settings.listeners[0].h2c = true;
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    assert_eq!((post_over_http1(at).await, post_over_http2(at).await), (200, 200));
    let world = http3::world(|with| with.sites[0].servers.origins = vec![nodes::at(&origin)]).await;
    assert_eq!(post_over_http3(&world).await, 200);
    let switch = start(switching_to("wrr", vec![server("s0", origin)])).await;
    assert_eq!(post_over_http1(switch.addresses.clients[0]).await, 200);
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 4);
    for request in &seen {
        assert_eq!(names(request), ["content-digest", "grpc-x"], "{request}");
    }
    settled(&node).await;
    settled(&switch).await;
}

#[tokio::test]
async fn trailers_of_requests_are_the_same_for_origins_over_http2() {
    let (told, mut tells) = tokio::sync::mpsc::unbounded_channel();
    let origin = Http2Origin::start(move |request, mut respond| {
        let told = told.clone();
        async move {
            let (_, trailers) = whole(request.into_body()).await;
            told.send(trailers.unwrap_or_default()).unwrap();
            respond.send_response(Response::new(()), true).unwrap();
        }
    })
    .await;
    let mut settings = single(&[origin.address]);
    settings.sites[0].servers.protocols.h2 = true;
    let node = start(settings).await;
    assert_eq!(post_over_http1(node.addresses.clients[0]).await, 200);
    let trailers = within(tells.recv()).await.unwrap();
    let names = sorted(trailers.keys().map(ToString::to_string));
    assert_eq!(names, ["content-digest", "grpc-x"]);
    settled(&node).await;
}

#[tokio::test]
async fn trailers_of_responses_say_nothing_that_a_head_may_not() {
    let origin = Http2Origin::start(|request, mut respond| async move {
        let is_call = request.uri().path() == "/call";
        let mut body = respond.send_response(Response::new(()), false).unwrap();
        body.send_data("hi".into(), false).unwrap();
        let mut back = trailers();
        if is_call {
            back.insert("grpc-status", "0".parse().unwrap());
            back.insert("trailing-bin", "AAEC".parse().unwrap());
        }
        body.send_trailers(back).unwrap();
    })
    .await;
    let mut settings = single(&[origin.address]);
    settings.sites[0].servers.protocols.h2 = true;
    settings.listeners[0].h2c = true;
    let node = start(settings).await;
    for (path, expected) in [
        ("/a", &["content-digest", "grpc-x"][..]),
        ("/call", &["content-digest", "grpc-status", "grpc-x", "trailing-bin", "x-sum"]),
    ] {
        let (_, receiver) = tokio::sync::mpsc::channel(1);
        let asked = Request::post(format!("http://{HOST}{path}")).header("te", "trailers");
        let request = asked.body(body_of(receiver)).unwrap();
        let mut sender = h2c(node.addresses.clients[0]).await;
        let response = within(sender.send_request(request)).await.unwrap();
        let collected = http_body_util::BodyExt::collect(response.into_body());
        let trailers = within(collected).await.unwrap().trailers().cloned().unwrap();
        let names = sorted(trailers.keys().map(ToString::to_string));
        assert_eq!(names, expected, "{path}");
    }
    settled(&node).await;
}

#[tokio::test]
async fn trailers_of_pseudo_fields_are_a_fault_over_http2() {
    let (origin, node, at) = alone(|settings| settings.listeners[0].h2c = true).await;
    // `POST http://a.test/a`, by the static table and literals.
    let mut head = vec![0x83, 0x86, 0x01, HOST.len() as u8];
    head.extend(HOST.as_bytes());
    head.extend(b"\x04\x02/a");
    // `:path: /`, `:method: GET`, `:status: 200`.
    for pseudo in [0x84, 0x82, 0x88] {
        let mut wire = Wire::saying(at, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        let request = [
            frame(4, 0, 0, &[]),
            frame(1, 0x04, 1, &head),
            frame(0, 0, 1, b"hi"),
            frame(1, 0x05, 1, &[pseudo]),
        ];
        wire.send(request.concat()).await;
        // A HEADERS frame whose first field is `:status: 400`, or a reset.
        let mut came = Vec::new();
        let is_refused = |came: &[u8]| {
            let refusal =
                |nine: &[u8]| nine[3] == 1 && nine[5..9] == [0, 0, 0, 1] && nine[9] == 0x8c;
            let reset = |nine: &[u8]| nine[3] == 3 && nine[5..9] == [0, 0, 0, 1];
            came.windows(10).any(|ten| refusal(ten) || reset(ten))
        };
        while !is_refused(&came) {
            let more = wire.some().await;
            assert!(!more.is_empty(), "{pseudo:x}: {came:x?}");
            came.extend(more);
            // An answer of the origin.
            assert!(!came.windows(10).any(|ten| ten[3] == 1 && ten[9] == 0x88), "{came:x?}");
        }
    }
    assert_eq!(origin.total(), 0);
    settled(&node).await;
}
