//! HTTP/3 for clients.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use levada_config::Settings;
use levada_node::Running;

use crate::support::{
    nodes::metric,
    quic::{Trusting, answer, closed, frame, head, request, section},
    *,
};

/// The codes of RFC 9114 Sec. 8.1 that clients meet here.
const FRAME_UNEXPECTED: u64 = 0x105;
const EXCESSIVE_LOAD: u64 = 0x107;
const MESSAGE_ERROR: u64 = 0x10e;

const METHOD: &[u8] = b"\xd1";
const SCHEME: &[u8] = b"\xd7";
const PATH: &[u8] = b"\xc1";
const AUTHORITY: &[u8] = b"\x50\x06a.test";

/// A node that serves HTTP/3, its origin, and a client's trust in it.
pub(crate) struct World {
    pub(crate) origin: Origin,
    pub(crate) node: Running,
    pub(crate) at: SocketAddr,
    pub(crate) trusting: Trusting,
    pub(crate) authority: secure::Authority,
}

pub(crate) async fn world(tweak: impl FnOnce(&mut Settings)) -> World {
    let authority = secure::Authority::new();
    let certificate = authority.issue(&[HOST]);
    let (origin, node, at) = alone(|settings| {
        settings.listeners[0].tls = vec![certificate];
        settings.listeners[0].http3 = true;
        tweak(settings);
    })
    .await;
    let trusting = Trusting::new(&authority.path());
    World { origin, node, at, trusting, authority }
}

pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

/// The code by which the node ends a stream with these bytes.
async fn reset_of(world: &World, bytes: &[u8]) -> Option<u64> {
    let (_endpoint, connection) = world.trusting.raw(world.at).await;
    let (mut send, mut recv) = within(connection.open_bi()).await.unwrap();
    within(send.write_all(bytes)).await.unwrap();
    let _ = send.finish();
    match within(recv.read_to_end(1 << 20)).await {
        Err(quinn::ReadToEndError::Read(quinn::ReadError::Reset(code))) => Some(code.into_inner()),
        Err(quinn::ReadToEndError::Read(quinn::ReadError::ConnectionLost(_))) => {
            closed(&connection).await
        }
        _ => None,
    }
}

#[tokio::test]
async fn every_head_reaches_clients_as_it_was() {
    // All of the static table that servers say, names of every kind of length, and values beyond one byte of length.
    let names = [
        ["age", "content-disposition", "etag", "last-modified", "link", "location", "set-cookie"],
        [
            "accept-ranges",
            "access-control-allow-headers",
            "access-control-allow-origin",
            "vary",
            "cache-control",
            "content-encoding",
            "content-type",
        ],
        [
            "strict-transport-security",
            "x-content-type-options",
            "x-xss-protection",
            "expect-ct",
            "access-control-allow-credentials",
            "access-control-allow-methods",
            "x-frame-options",
        ],
        [
            "access-control-expose-headers",
            "content-security-policy",
            "timing-allow-origin",
            "a",
            "seven-b",
            "eight-by",
            "a-name-that-is-longer-than-all-that-the-table-has",
        ],
    ];
    let statuses = [
        "200", "201", "204", "206", "302", "304", "400", "403", "404", "418", "421", "425", "500",
        "503", "511",
    ];
    let world = world(|_| {}).await;
    let mut client = world.trusting.connect(world.at).await;
    for (at, status) in statuses.iter().enumerate() {
        for (group, length) in names.iter().zip([1, 126, 127, 300]) {
            let path = format!("/{status}/{length}");
            let value = |name: &str| format!("{name} {}", "\u{e9}".repeat(length));
            let mut reply = Reply::ok(if matches!(*status, "204" | "304") { "" } else { "body" });
            for name in group {
                reply = reply.with(name, &value(name));
            }
            world
                .origin
                .on(&path, reply.status(&format!("{status} X")).with("cache-control", "no-store"));
            let got = client.get(&path).await;
            assert_eq!(got.status.to_string(), *status, "{at}");
            for name in group.iter().filter(|name| **name != "age" && **name != "cache-control") {
                let seen = got.headers.get(*name).map(|seen| seen.as_bytes());
                assert_eq!(seen, Some(value(name).as_bytes()), "{path} {name}");
            }
        }
    }
    // Beyond what is written without h3.
    world.origin.on("/large", Reply::ok("body").with("x", &"y".repeat(6000)));
    let got = client.get("/large").await;
    assert_eq!((got.headers["x"].len(), &*got.body), (6000, &b"body"[..]));
}

#[tokio::test]
async fn clients_over_tcp_are_offered_http3_which_serves_the_same() {
    let world = world(|_| {}).await;
    world.origin.on("/a", Reply::cached("abc").with("alt-svc", "h3=\":1\""));
    let stream =
        secure::connect(world.at, HOST, &world.authority.path(), &["http/1.1"], None).await;
    let mut wire = Wire::over(stream.unwrap());
    wire.send(head_of("GET", "/a", &[])).await;
    let told = wire.answer().await;
    let offer = format!("h3=\":{}\"; ma=86400", world.at.port());
    assert_eq!(told.field("alt-svc"), offer, "and not that of the origin");
    let mut client = world.trusting.connect(world.at).await;
    let got = client.get("/a").await;
    assert_eq!((got.status, &*got.body), (200, &b"abc"[..]));
    assert!(got.headers["cache-status"].to_str().unwrap().contains("hit"), "{got:?}");
    assert!(got.headers.contains_key("date") && !got.headers.contains_key("alt-svc"));
    assert_eq!(got.headers["content-length"], "3");
    assert_eq!(world.origin.asked("/a").len(), 1);
    assert_eq!(metric(&world.node, "levada_quic_connections").await, 1.0);
    assert_eq!(metric(&world.node, "levada_quic_handshakes_total").await, 1.0);
    drop((client, wire));
    settled(&world.node).await;
}

#[tokio::test]
async fn bodies_of_all_sizes_arrive_whole_from_memory_and_from_the_origin() {
    let world = world(|_| {}).await;
    let mut client = world.trusting.connect(world.at).await;
    for length in [0, 1, 1200, 16 << 10, 1 << 20, 9 << 20] {
        let (path, body) = (format!("/{length}"), pattern(length));
        world.origin.on(&path, Reply::cached(body.clone()));
        for _ in 0..2 {
            let got = client.get(&path).await;
            assert!(got.status == 200 && got.body == body, "{length}: {}", got.body.len());
        }
        let asked = request("HEAD", &path);
        let got = client.ask(asked).await.unwrap();
        assert_eq!(
            (got.headers["content-length"].to_str().unwrap(), got.body.len()),
            (&*length.to_string(), 0)
        );
        assert_eq!(world.origin.asked(&path).len(), 1, "{length}");
    }
    drop(client);
    settled(&world.node).await;
}

#[tokio::test]
async fn many_requests_share_a_connection() {
    let world = world(|_| {}).await;
    world.origin.on("/a", Reply::cached(pattern(100 << 10)));
    let client = world.trusting.connect(world.at).await;
    let asking = (0..200).map(|_| {
        let mut sender = client.sender.clone();
        tokio::spawn(async move {
            let asked = request("GET", "/a").body(()).unwrap();
            let mut stream = within(sender.send_request(asked)).await.unwrap();
            within(stream.finish()).await.unwrap();
            answer(&mut stream).await.unwrap().body.len()
        })
    });
    for asked in asking.collect::<Vec<_>>() {
        assert_eq!(asked.await.unwrap(), 100 << 10);
    }
    assert_eq!(world.origin.asked("/a").len(), 1);
    drop(client);
    settled(&world.node).await;
}

#[tokio::test]
async fn uploads_reach_the_origin_with_crumbs_of_cookies_joined() {
    let world = world(|_| {}).await;
    let mut client = world.trusting.connect(world.at).await;
    let body = pattern(3 << 20);
    for length in [Some(body.len()), None] {
        let mut asked = request("POST", "/up").header("cookie", "a=1").header("cookie", "b=2");
        if let Some(length) = length {
            asked = asked.header("content-length", length);
        }
        let mut stream = client.send(asked).await;
        for piece in body.chunks(64 << 10) {
            within(stream.send_data(Bytes::copy_from_slice(piece))).await.unwrap();
        }
        within(stream.finish()).await.unwrap();
        assert_eq!(answer(&mut stream).await.unwrap().status, 200);
    }
    for asked in world.origin.asked("/up") {
        assert_eq!(asked.header("cookie").unwrap(), "a=1; b=2");
        assert!(asked.body == body, "{}", asked.body.len());
        assert_eq!(asked.header("x-forwarded-proto").unwrap(), "https");
    }
    drop(client);
    settled(&world.node).await;
}

#[tokio::test]
async fn body_that_trickles_is_ended() {
    let world = world(|settings| {
        settings.limits.body_timeout = Duration::from_millis(300);
        settings.limits.body_min_rate = 10_000;
    })
    .await;
    let mut client = world.trusting.connect(world.at).await;
    let mut stream = client.send(request("POST", "/up")).await;
    let trickle = async {
        while stream.send_data(Bytes::from_static(b"x")).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within(trickle).await;
    assert_eq!(client.get("/a").await.status, 200, "the connection goes on");
    assert!(world.origin.asked("/up").is_empty());
    drop((client, stream));
    settled(&world.node).await;
}

#[tokio::test]
async fn body_that_is_not_as_long_as_it_says_ends_its_stream() {
    let world = world(|_| {}).await;
    let mut client = world.trusting.connect(world.at).await;
    for (says, data) in [(5, "abc"), (2, "abc"), (3, "")] {
        let mut stream = client.send(request("POST", "/up").header("content-length", says)).await;
        if !data.is_empty() {
            within(stream.send_data(data.into())).await.unwrap();
        }
        within(stream.finish()).await.unwrap();
        let answered = answer(&mut stream).await;
        // A reset, unless the origin could not be asked any more.
        assert!(answered.as_ref().map_or(true, |got| got.status >= 400), "{says}: {answered:?}");
    }
    assert!(world.origin.asked("/up").is_empty());
    assert_eq!(client.get("/a").await.status, 200, "the connection goes on");
    drop(client);
    settled(&world.node).await;
}

#[tokio::test]
async fn malformed_heads_end_their_stream_only() {
    let world = world(|_| {}).await;
    let regular: &[u8] = b"\x23x-a\x01b";
    let mut client = world.trusting.connect(world.at).await;
    for (what, lines) in [
        ("a repeated method", &[METHOD, METHOD, SCHEME, PATH, AUTHORITY][..]),
        ("a pseudo field behind others", &[METHOD, SCHEME, regular, PATH, AUTHORITY]),
        ("no path", &[METHOD, SCHEME, AUTHORITY]),
        ("no scheme", &[METHOD, PATH, AUTHORITY]),
        ("no method", &[SCHEME, PATH, AUTHORITY]),
        ("a status", &[METHOD, SCHEME, PATH, AUTHORITY, b"\xd9"]),
        ("an unknown pseudo field", &[METHOD, SCHEME, PATH, AUTHORITY, b"\x23:no\x01x"]),
        ("upper case", &[METHOD, SCHEME, PATH, AUTHORITY, b"\x23X-A\x01b"]),
        (
            "a field of connections",
            &[METHOD, SCHEME, PATH, AUTHORITY, b"\x27\x03connection\x05close"],
        ),
        (
            "a coding of transfer",
            &[METHOD, SCHEME, PATH, AUTHORITY, b"\x27\x0atransfer-encoding\x07chunked"],
        ),
        ("te", &[METHOD, SCHEME, PATH, AUTHORITY, b"\x22te\x04gzip"]),
        ("no host", &[METHOD, SCHEME, PATH]),
    ] {
        let code = reset_of(&world, &frame(1, &section(lines))).await;
        assert_eq!(code, Some(MESSAGE_ERROR), "{what}");
    }
    assert_eq!(world.origin.total(), 0);
    assert_eq!(client.get("/a").await.status, 200);
    drop(client);
    settled(&world.node).await;
}

#[tokio::test]
async fn frames_in_wrong_places_end_the_connection() {
    let world = world(|_| {}).await;
    let good = frame(1, &section(&[METHOD, SCHEME, PATH, AUTHORITY]));
    for (what, bytes, code) in [
        ("data before the head", frame(0, b"abc"), FRAME_UNEXPECTED),
        ("settings", frame(4, b""), FRAME_UNEXPECTED),
        ("a push", [good.clone(), frame(5, b"ab")].concat(), FRAME_UNEXPECTED),
        ("a head cut short", good[..good.len() - 1].to_vec(), 0x106),
        ("QPACK's dynamic table", frame(1, b"\x02\x00\x80"), 0x200),
    ] {
        assert_eq!(reset_of(&world, &bytes).await, Some(code), "{what}");
    }
    settled(&world.node).await;
}

#[tokio::test]
async fn streams_and_numbers_that_a_client_must_not_send_end_the_connection() {
    let world = world(|_| {}).await;
    let control = |frames: &[Vec<u8>]| [&b"\0\x04\0"[..], &frames.concat()].concat();
    for (what, streams, code) in [
        ("a push", vec![b"\x01\x00".to_vec()], 0x103),
        ("two encoders", vec![b"\x02".to_vec(), b"\x02".to_vec()], 0x103),
        ("two decoders", vec![b"\x03".to_vec(), b"\x03".to_vec()], 0x103),
        ("fewer pushes", vec![control(&[frame(13, b"\x07"), frame(13, b"\x06")])], 0x108),
        ("a cancelled push", vec![control(&[frame(3, b"\x00")])], 0x108),
        ("a long GOAWAY", vec![control(&[frame(7, b"\x00\x00")])], 0x106),
    ] {
        let (_endpoint, connection) = world.trusting.raw(world.at).await;
        let mut open = Vec::new();
        for bytes in streams {
            let mut stream = within(connection.open_uni()).await.unwrap();
            within(stream.write_all(&bytes)).await.unwrap();
            open.push(stream);
        }
        assert_eq!(closed(&connection).await, Some(code), "{what}");
    }
    settled(&world.node).await;
}

#[tokio::test]
async fn heads_are_bounded_in_bytes_and_in_time() {
    let world = world(|settings| {
        settings.limits.head_size = 8 << 10;
        settings.limits.head_timeout = Duration::from_millis(500);
    })
    .await;
    let mut client = world.trusting.connect(world.at).await;
    let large = request("GET", "/a").header("x-large", "x".repeat(9 << 10));
    assert_eq!(client.ask(large).await.unwrap().status, 431);
    let huge = frame(1, &vec![0; 17 << 10]);
    assert_eq!(reset_of(&world, &huge).await, Some(EXCESSIVE_LOAD));
    let (_endpoint, connection) = world.trusting.raw(world.at).await;
    let (mut send, mut recv) = within(connection.open_bi()).await.unwrap();
    within(send.write_all(&frame(1, &[0; 100])[..50])).await.unwrap();
    let ended = within(recv.read_to_end(100)).await;
    assert!(
        matches!(ended, Err(quinn::ReadToEndError::Read(quinn::ReadError::Reset(_)))),
        "{ended:?}"
    );
    assert_eq!(world.origin.total(), 0);
    drop(client);
    settled(&world.node).await;
}

#[tokio::test]
async fn stream_that_breaks_off_at_the_origin_is_reset() {
    let world = world(|_| {}).await;
    let pieces = vec![Piece::Bytes(pattern(50_000)), Piece::Cut];
    world.origin.on("/cut", Reply::ok("").with("content-length", "100000").pieces(pieces));
    let mut client = world.trusting.connect(world.at).await;
    assert!(client.ask(request("GET", "/cut")).await.is_err(), "an end would be a lie");
    assert_eq!(client.get("/a").await.status, 200);
    drop(client);
    settled(&world.node).await;
}

#[tokio::test]
async fn requests_under_way_are_answered_when_the_node_stops() {
    let world = world(|_| {}).await;
    let gate = Gate::new();
    world.origin.on("/slow", Reply::ok(pattern(300_000)).after(&gate));
    let mut client = world.trusting.connect(world.at).await;
    let mut stream = client.send(request("GET", "/slow")).await;
    within(stream.finish()).await.unwrap();
    eventually("the origin is asked", || world.origin.asked("/slow").len() == 1).await;
    let stopping = tokio::spawn(world.node.stop());
    // The end is announced, and no further request is answered.
    let mut sender = client.sender.clone();
    within(async {
        loop {
            let Ok(mut late) = sender.send_request(request("GET", "/a").body(()).unwrap()).await
            else {
                break;
            };
            let _ = late.finish().await;
            if late.recv_response().await.is_err() {
                break;
            }
        }
    })
    .await;
    gate.open();
    let got = answer(&mut stream).await.unwrap();
    assert!(got.status == 200 && got.body == pattern(300_000), "{}", got.body.len());
    assert_eq!(closed(&client.connection).await, Some(0x100));
    within(stopping).await.unwrap();
}

#[tokio::test]
async fn client_that_goes_away_frees_the_origin() {
    let world = world(|_| {}).await;
    let gate = Gate::new();
    world.origin.on("/slow", Reply::ok("late").after(&gate));
    let mut client = world.trusting.connect(world.at).await;
    let mut stream = client.send(request("POST", "/slow")).await;
    within(stream.finish()).await.unwrap();
    eventually("the origin is asked", || world.origin.asked("/slow").len() == 1).await;
    stream.stop_sending(h3::error::Code::H3_REQUEST_CANCELLED);
    drop(stream);
    settled(&world.node).await;
    assert_eq!(client.get("/a").await.status, 200);
    gate.open();
}

#[tokio::test]
async fn datagrams_are_off_and_streams_are_bounded() {
    let world = world(|_| {}).await;
    let gate = Gate::new();
    world.origin.on("/slow", Reply::ok("late").after(&gate));
    let (_endpoint, connection) = world.trusting.raw(world.at).await;
    assert_eq!(connection.max_datagram_size(), None);
    let head = frame(1, &section(&[METHOD, SCHEME, b"\x51\x05/slow", AUTHORITY]));
    let mut open = Vec::new();
    for _ in 0..128 {
        let (mut send, recv) = within(connection.open_bi()).await.unwrap();
        within(send.write_all(&head)).await.unwrap();
        send.finish().unwrap();
        open.push(recv);
    }
    let more = tokio::time::timeout(Duration::from_millis(200), connection.open_bi()).await;
    assert!(more.is_err(), "the 129th waits");
    gate.open();
    within(connection.open_bi()).await.unwrap();
    connection.close(0u32.into(), b"");
    settled(&world.node).await;
}

#[tokio::test]
async fn client_that_only_cancels_requests_loses_its_connection() {
    let world = world(|_| {}).await;
    let gate = Gate::new();
    world.origin.on("/slow", Reply::ok("late").after(&gate));
    let (_endpoint, connection) = world.trusting.raw(world.at).await;
    let head = frame(1, &section(&[METHOD, SCHEME, b"\x51\x05/slow", AUTHORITY]));
    let flood = async {
        while let Ok((mut send, mut recv)) = connection.open_bi().await {
            let _ = send.write_all(&head).await;
            let _ = send.finish();
            let _ = recv.stop(0x10cu32.into());
        }
    };
    within(flood).await;
    assert_eq!(closed(&connection).await, Some(EXCESSIVE_LOAD));
    gate.open();
    settled(&world.node).await;
}

#[tokio::test]
async fn head_without_a_body_may_end_later() {
    let world = world(|_| {}).await;
    let mut client = world.trusting.connect(world.at).await;
    let mut stream = client.send(request("GET", "/a")).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    within(stream.finish()).await.unwrap();
    assert_eq!(head(&mut stream).await.unwrap().status(), 200);
    drop((stream, client));
    settled(&world.node).await;
}

#[tokio::test]
async fn head_may_come_in_any_pieces() {
    let world = world(|_| {}).await;
    let head = frame(1, &section(&[METHOD, SCHEME, AUTHORITY, PATH]));
    for cut in 1..head.len() {
        let (_endpoint, connection) = world.trusting.raw(world.at).await;
        let (mut send, mut recv) = within(connection.open_bi()).await.unwrap();
        let (first, rest) = head.split_at(cut);
        within(send.write_all(first)).await.unwrap();
        // The node has read the first piece when it has acknowledged a later packet.
        for _ in 0..2 {
            let mut other = within(connection.open_uni()).await.unwrap();
            within(other.write_all(b"\x21")).await.unwrap();
            other.finish().unwrap();
            let _ = within(other.stopped()).await;
        }
        within(send.write_all(rest)).await.unwrap();
        send.finish().unwrap();
        let got = within(recv.read_to_end(1 << 20)).await;
        assert_eq!(got.map(|bytes| bytes[0]), Ok(1), "cut at {cut}: a head");
    }
}

#[tokio::test]
async fn hints_reach_the_client_before_the_final_response() {
    let world = world(|_| {}).await;
    let (gate, hint) =
        (Gate::new(), "HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\nx-hint: 1\r\n\r\n");
    let last = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncache-control: max-age=60\r\n\r\nhi";
    world.origin.on(
        "/a",
        Reply::raw("").pieces(vec![
            Piece::Bytes(hint.into()),
            Piece::Gate(gate.clone()),
            Piece::Bytes(last.into()),
        ]),
    );
    let mut client = world.trusting.connect(world.at).await;
    let mut stream = client.send(request("GET", "/a")).await;
    within(stream.finish()).await.unwrap();
    let hints = head(&mut stream).await.unwrap();
    assert_eq!((hints.status().as_u16(), &hints.headers()["x-hint"]), (103, &"1".parse().unwrap()));
    gate.open();
    let got = answer(&mut stream).await.unwrap();
    assert_eq!((got.status, &*got.body), (200, &b"hi"[..]));
    assert!(!got.headers.contains_key("x-hint"));
    // Only the final response is stored.
    assert_eq!(client.get("/a").await.status, 200);
    assert_eq!(world.origin.hits("/a"), 1);
    drop((stream, client));
    settled(&world.node).await;
}
