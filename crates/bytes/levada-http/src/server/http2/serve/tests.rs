//! The own server side over pipes: frames by themselves, and side by side with hyper's.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use http::StatusCode;
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{
    client::conn::http2::{Builder, SendRequest},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use proptest::prelude::*;
use tokio::{
    io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex},
    sync::Notify,
};

use super::{
    super::frame::{HEAD, LAST_STREAM, LONGEST, flag},
    clocks::SILENCE_PING,
    *,
};
use crate::server::{
    QUIET,
    serve::tests::{LIMITS, Pieces, cases, respond},
};

/// Answers by the path, as over HTTP/1; and some paths of its own.
#[derive(Default)]
struct Paths {
    /// Lets `/wait` go on.
    go: Notify,
    /// Requests that are being answered.
    under_way: AtomicUsize,
    resting: RestingConnections,
}

struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Http2Service for Paths {
    type Body = Pieces;

    async fn call(&self, request: Request<IncomingBody>) -> Response<Pieces> {
        self.under_way.fetch_add(1, Relaxed);
        let _under_way = UnderWay(&self.under_way);
        match request.uri().path() {
            "/wait" | "/wait/long" => self.go.notified().await,
            "/panic" => panic!("as the test wants it"),
            "/work" => {
                for _ in 0..8 {
                    coop::consume_budget().await;
                }
            }
            _ => {}
        }
        respond(request).await.unwrap_or_else(|| Response::new(Pieces::known("")))
    }

    fn resting(&self) -> &RestingConnections {
        &self.resting
    }

    /// Echoes once.
    fn switch(&self, response: &mut Response<Pieces>, mut client: Http2Tunnel) -> bool {
        *response.status_mut() = StatusCode::OK;
        tokio::spawn(async move {
            let mut bytes = [0; 1000];
            let count = client.read(&mut bytes).await.unwrap();
            client.write_all(&bytes[..count]).await.unwrap();
            client.shutdown().await.unwrap();
        });
        true
    }
}

/// A stream that counts its writes.
struct Counted(DuplexStream, Arc<AtomicUsize>);

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.1.fetch_add(1, Relaxed);
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        self.1.fetch_add(1, Relaxed);
        Pin::new(&mut self.0).poll_write_vectored(cx, parts)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl Outlet for Counted {}

/// A connection that is served in a task, and its client's side in frames.
struct World {
    paths: Arc<Paths>,
    far: DuplexStream,
    came: Vec<u8>,
    writes: Arc<AtomicUsize>,
    leave: Arc<Notify>,
    served: tokio::task::JoinHandle<ConnectionEnd>,
}

/// A frame that has come.
#[derive(Debug, PartialEq, Eq)]
struct Came(u8, u8, u32, Vec<u8>);

impl World {
    fn new(limits: ConnectionLimits) -> Self {
        let (near, far) = duplex(1 << 20);
        let (paths, leave): (Arc<Paths>, Arc<Notify>) = Default::default();
        let writes: Arc<AtomicUsize> = Arc::default();
        let (service, leaving) = (paths.clone(), leave.clone());
        let stream = Counted(near, writes.clone());
        let served = tokio::spawn(async move {
            serve_http2(stream, &*service, limits, leaving.notified()).await
        });
        Self { paths, far, came: Vec::new(), writes, leave, served }
    }

    /// After the preface and the settings of both sides.
    async fn greeted(settings: &[u8]) -> Self {
        let mut world = Self::new(LIMITS);
        let mut bytes = PREFACE.to_vec();
        frame::write(&mut bytes, kind::SETTINGS, 0, 0, settings);
        world.send(&bytes).await;
        assert_eq!(world.next().await.unwrap().0, kind::SETTINGS);
        assert_eq!(world.next().await, Some(Came(kind::SETTINGS, flag::ACK, 0, vec![])));
        world
    }

    async fn send(&mut self, bytes: &[u8]) {
        let _ = self.far.write_all(bytes).await;
    }

    async fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut bytes = Vec::new();
        frame::write(&mut bytes, kind, flags, stream, payload);
        self.send(&bytes).await;
    }

    /// The next frame; `None` at the end.
    async fn next(&mut self) -> Option<Came> {
        loop {
            if let Some(head) = FrameHead::read(&self.came)
                && self.came.len() >= HEAD + head.length
            {
                let payload = self.came[HEAD..HEAD + head.length].to_vec();
                self.came.drain(..HEAD + head.length);
                return Some(Came(head.kind, head.flags, head.stream, payload));
            }
            let mut bytes = [0; 4096];
            match self.far.read(&mut bytes).await.unwrap() {
                0 => return None,
                count => self.came.extend_from_slice(&bytes[..count]),
            }
        }
    }

    /// The code of the GOAWAY that ends the connection, and its end.
    async fn ending(mut self) -> (Option<u32>, ConnectionEnd) {
        let mut code = None;
        while let Some(Came(kind, _, _, payload)) = self.next().await {
            if kind == kind::GOAWAY {
                code = Some(frame::number(&payload[4..]));
            }
        }
        drop(self.far);
        (code, self.served.await.unwrap())
    }
}

/// The header block of a request with this method and path.
fn block(method: &str, path: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in
        [(":method", method), (":scheme", "http"), (":authority", "a.test"), (":path", path)]
    {
        super::super::hpack::encoder::write_field(&mut block, name.as_bytes(), value.as_bytes());
    }
    block
}

fn request(stream: u32, path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let flags = flag::END_HEADERS | flag::END_STREAM;
    frame::write(&mut bytes, kind::HEADERS, flags, stream, &block("GET", path));
    bytes
}

#[tokio::test]
async fn requests_that_come_together_are_answered_in_one_write() {
    let mut world = World::greeted(b"").await;
    let requests: Vec<u8> = (0..16).flat_map(|at| request(2 * at + 1, "/")).collect();
    let before = world.writes.load(Relaxed);
    world.send(&requests).await;
    for at in 0..16 {
        assert_eq!(world.next().await.unwrap().2, 2 * at + 1, "the head");
    }
    for at in 0..16 {
        let flags = flag::END_STREAM;
        assert!(matches!(world.next().await, Some(Came(kind::DATA, f, id, body))
            if f == flags || (id, &body[..]) == (2 * at + 1, b"hello")));
    }
    assert_eq!(world.writes.load(Relaxed), before + 1);
}

#[tokio::test]
async fn stream_that_waits_holds_up_no_other_and_one_that_panics_ends_alone() {
    let mut world = World::greeted(b"").await;
    world.send(&[request(1, "/wait"), request(3, "/panic"), request(5, "/")].concat()).await;
    assert_eq!(world.next().await.unwrap(), Came(kind::RST_STREAM, 0, 3, vec![0, 0, 0, 2]));
    assert_eq!(world.next().await.unwrap().2, 5);
    while world.next().await.unwrap().1 & flag::END_STREAM == 0 {}
    world.paths.go.notify_one();
    let Came(kind, _, id, _) = world.next().await.unwrap();
    assert_eq!((kind, id), (kind::HEADERS, 1));
}

#[tokio::test]
async fn poll_that_has_done_much_leaves_the_rest_to_the_next() {
    let mut world = World::greeted(b"").await;
    let before = world.writes.load(Relaxed);
    let requests: Vec<u8> = (0..64).flat_map(|at| request(2 * at + 1, "/work")).collect();
    world.send(&requests).await;
    let mut ended = 0;
    while ended < 64 {
        ended += usize::from(world.next().await.unwrap().1 & flag::END_STREAM);
    }
    let writes = world.writes.load(Relaxed) - before;
    assert!((2..20).contains(&writes), "{writes}");
}

#[tokio::test]
async fn bodies_have_their_turns_and_keep_to_their_windows() {
    // Windows of 20 bytes.
    let mut world = World::greeted(b"\0\x04\0\0\0\x14").await;
    world.send(&[request(1, "/long"), request(3, "/long")].concat()).await;
    let mut lengths = Vec::new();
    for _ in 0..4 {
        let Came(kind, _, id, body) = world.next().await.unwrap();
        lengths.push((kind, id, if kind == kind::DATA { body.len() } else { 0 }));
    }
    let (head, data) = (kind::HEADERS, kind::DATA);
    assert_eq!(lengths, [(head, 1, 0), (head, 3, 0), (data, 1, 20), (data, 3, 20)]);
    world.frame(kind::WINDOW_UPDATE, 0, 3, &7_u32.to_be_bytes()).await;
    let Came(_, _, id, body) = world.next().await.unwrap();
    assert_eq!((id, body.len()), (3, 7));
    // The settings open both windows by ten bytes more.
    world.frame(kind::SETTINGS, 0, 0, b"\0\x04\0\0\0\x1e").await;
    assert_eq!(world.next().await.unwrap().0, kind::SETTINGS);
    let mut more = [world.next().await.unwrap(), world.next().await.unwrap()];
    more.sort_by_key(|came| came.2);
    assert_eq!(more.map(|Came(_, _, id, body)| (id, body.len())), [(1, 10), (3, 10)]);
    world.frame(kind::RST_STREAM, 0, 1, &[0; 4]).await;
    world.frame(kind::WINDOW_UPDATE, 0, 3, &100_000_u32.to_be_bytes()).await;
    let mut rest = 0;
    loop {
        let Came(_, flags, id, body) = world.next().await.unwrap();
        assert_eq!(id, 3);
        rest += body.len();
        if flags & flag::END_STREAM != 0 {
            break;
        }
    }
    assert_eq!(rest, 21_000 - 37);
}

#[tokio::test]
async fn window_of_the_connection_is_shared_and_given_back() {
    let mut world = World::greeted(b"").await;
    for stream in [1, 3, 5, 7] {
        let mut bytes = Vec::new();
        frame::write(&mut bytes, kind::HEADERS, flag::END_HEADERS, stream, &block("POST", "/wait"));
        for _ in 0..2 {
            frame::write(&mut bytes, kind::DATA, 0, stream, &[b'x'; 16_000]);
        }
        frame::write(&mut bytes, kind::RST_STREAM, 0, stream, &[0; 4]);
        world.send(&bytes).await;
    }
    // 128,000 bytes in a window of 65,535, which opens as the streams end.
    world.send(&request(9, "/")).await;
    while world.next().await.unwrap().2 != 9 {}
    assert_eq!(
        world.paths.under_way.load(Relaxed),
        0,
        "nothing goes on for streams that were reset"
    );
}

#[tokio::test]
async fn bodies_of_many_streams_may_be_on_their_way_when_these_are_reset() {
    let mut world = World::greeted(b"").await;
    let streams = || (0..streams::MOST as u32).map(|at| 2 * at + 1);
    let (mut heads, mut bodies, mut resets) = (Vec::new(), Vec::new(), 0);
    for stream in streams() {
        frame::write(&mut heads, kind::HEADERS, flag::END_HEADERS, stream, &block("POST", "/"));
        frame::write(&mut bodies, kind::DATA, flag::END_STREAM, stream, b"x");
    }
    world.send(&heads).await;
    while resets < streams::MOST {
        resets += usize::from(world.next().await.unwrap().0 == kind::RST_STREAM);
    }
    frame::write(&mut bodies, kind::PING, 0, 0, &[0; 8]);
    world.send(&bodies).await;
    assert_eq!(world.next().await.unwrap().0, kind::PING);
}

#[tokio::test]
async fn stream_in_the_place_of_one_that_was_reset_has_one_turn() {
    let mut world = World::greeted(b"").await;
    let mut bytes = request(1, "/long");
    frame::write_reset(&mut bytes, 1, ErrorCode::Cancel);
    world.send(&[bytes, request(3, "/long"), request(5, "/long")].concat()).await;
    let mut turns = Vec::new();
    while turns.len() < 6 {
        let Came(kind, _, id, _) = world.next().await.unwrap();
        turns.extend((kind == kind::DATA).then_some(id));
    }
    assert_eq!(turns, [3, 5, 3, 5, 3, 5]);
}

#[tokio::test(start_paused = true)]
async fn body_that_is_given_up_holds_no_window_of_the_connection() {
    let mut world = World::greeted(b"\0\x04\0\0\0\0").await;
    world.frame(kind::HEADERS, flag::END_HEADERS, 1, &block("POST", "/wait/long")).await;
    for _ in 0..4 {
        world.frame(kind::DATA, 0, 1, &[b'x'; 16_000]).await;
    }
    tokio::task::yield_now().await;
    world.paths.go.notify_one();
    assert_eq!(world.next().await.unwrap().0, kind::HEADERS);
    // The response goes on, and the request with its body is gone.
    let Came(kind, _, id, _) = world.next().await.unwrap();
    assert_eq!((kind, id), (kind::WINDOW_UPDATE, 0));
}

#[tokio::test]
async fn client_that_wants_a_smaller_table_of_fields_is_told_of_it_once() {
    let mut world = World::greeted(b"\0\x01\0\0\0\0").await;
    for (stream, first) in [(1, 0x20), (3, 0x88)] {
        world.send(&request(stream, "/")).await;
        assert_eq!(world.next().await.unwrap().3[0], first);
        while world.next().await.unwrap().1 & flag::END_STREAM == 0 {}
    }
}

#[tokio::test]
async fn faults_end_streams_or_connections() {
    let frames = |frames: &[(u8, u8, u32, &[u8])]| {
        let mut bytes = Vec::new();
        for (kind, flags, stream, payload) in frames {
            frame::write(&mut bytes, *kind, *flags, *stream, payload);
        }
        bytes
    };
    let whole = flag::END_HEADERS | flag::END_STREAM;
    let get = &block("GET", "/")[..];
    let slow = &block("POST", "/wait")[..];
    let (stream, connection) = (kind::RST_STREAM, kind::GOAWAY);
    for (bytes, kind, code) in [
        (frames(&[(kind::HEADERS, whole, 2, get)]), connection, ErrorCode::ProtocolError),
        (frames(&[(kind::HEADERS, whole, 1, b"\x80")]), connection, ErrorCode::CompressionError),
        (frames(&[(kind::HEADERS, whole, 1, b"\x82")]), stream, ErrorCode::ProtocolError),
        (frames(&[(kind::DATA, 0, 1, b"")]), connection, ErrorCode::ProtocolError),
        (frames(&[(kind::RST_STREAM, 0, 1, &[0; 4])]), connection, ErrorCode::ProtocolError),
        (frames(&[(kind::WINDOW_UPDATE, 0, 0, &[0; 4])]), connection, ErrorCode::ProtocolError),
        (frames(&[(kind::PING, 0, 0, b"short")]), connection, ErrorCode::FrameSizeError),
        (frames(&[(kind::SETTINGS, 0, 0, b"short")]), connection, ErrorCode::FrameSizeError),
        (frames(&[(kind::PUSH_PROMISE, 0, 1, b"")]), connection, ErrorCode::ProtocolError),
        (frames(&[(kind::DATA, 0, 1, &[0; LONGEST + 1])]), connection, ErrorCode::FrameSizeError),
        (
            frames(&[(kind::HEADERS, 0, 1, get), (kind::PING, 0, 0, &[0; 8])]),
            connection,
            ErrorCode::ProtocolError,
        ),
        (
            frames(&[(kind::HEADERS, 4, 1, slow), (kind::HEADERS, 4, 1, b"")]),
            stream,
            ErrorCode::ProtocolError,
        ),
        (
            frames(&[(kind::HEADERS, whole, 1, slow), (kind::DATA, 0, 1, b"x")]),
            stream,
            ErrorCode::StreamClosed,
        ),
        (
            frames(&[(kind::HEADERS, 4, 1, slow), (kind::WINDOW_UPDATE, 0, 1, &[0; 4])]),
            stream,
            ErrorCode::ProtocolError,
        ),
        (
            frames(&[
                (kind::HEADERS, 4, 1, slow),
                (kind::WINDOW_UPDATE, 0, 1, &[0x7f, 255, 255, 255]),
            ]),
            stream,
            ErrorCode::FlowControlError,
        ),
    ] {
        let mut world = World::greeted(b"").await;
        world.send(&bytes).await;
        let came = world.next().await.unwrap();
        let found = frame::number(&came.3[if kind == connection { 4.. } else { 0.. }]);
        assert_eq!((came.0, found), (kind, code as u32), "{bytes:x?}");
        // The connection goes on after a fault of a stream.
        world.send(&request(9, "/")).await;
        assert_eq!(world.next().await.is_some(), kind == stream, "{bytes:x?}");
    }
}

#[tokio::test]
async fn body_that_is_not_as_long_as_it_says_is_malformed() {
    for (pieces, is_good) in [(&[5][..], true), (&[2, 3], true), (&[4], false), (&[3, 3], false)] {
        let mut world = World::greeted(b"").await;
        let mut head = block("POST", "/read");
        super::super::hpack::encoder::write_field(&mut head, b"content-length", b"5");
        let mut bytes = Vec::new();
        frame::write(&mut bytes, kind::HEADERS, flag::END_HEADERS, 1, &head);
        for (at, length) in pieces.iter().enumerate() {
            let flags = if at + 1 == pieces.len() { flag::END_STREAM } else { 0 };
            frame::write(&mut bytes, kind::DATA, flags, 1, &b"xxxxxx"[..*length]);
        }
        world.send(&bytes).await;
        let kind = world.next().await.unwrap().0;
        assert_eq!(kind == kind::HEADERS, is_good, "{pieces:?}");
    }
}

#[tokio::test]
async fn floods_are_stopped() {
    let whole = flag::END_HEADERS | flag::END_STREAM;
    type Flood = fn(&mut Vec<u8>, u32);
    let rapid_reset: Flood = |bytes, stream| {
        bytes.extend(request(stream, "/wait"));
        frame::write_reset(bytes, stream, ErrorCode::Cancel);
    };
    let made_you_reset: Flood = |bytes, stream| {
        bytes.extend(request(stream, "/wait"));
        frame::write_window_update(bytes, stream, 0);
    };
    let floods: [Flood; 6] = [
        rapid_reset,
        made_you_reset,
        |bytes, _| frame::write(bytes, kind::PING, 0, 0, &[0; 8]),
        |bytes, _| frame::write(bytes, kind::SETTINGS, 0, 0, &[]),
        |bytes, _| frame::write(bytes, kind::PRIORITY, 0, 1, &[0, 0, 0, 3, 0]),
        |bytes, stream| {
            if stream == 1 {
                frame::write(bytes, kind::HEADERS, flag::END_HEADERS, 1, &block("POST", "/wait"));
            }
            frame::write(bytes, kind::DATA, 0, 1, &[]);
        },
    ];
    for (at, flood) in floods.into_iter().enumerate() {
        let mut world = World::greeted(b"").await;
        let mut bytes = Vec::new();
        (0..2000).for_each(|number| flood(&mut bytes, 2 * number + 1));
        world.send(&bytes).await;
        let paths = world.paths.clone();
        let ended = world.ending().await;
        assert_eq!(ended, (Some(ErrorCode::EnhanceYourCalm as u32), ConnectionEnd::Broken), "{at}");
        assert_eq!(paths.under_way.load(Relaxed), 0, "{at}");
    }
    // CONTINUATION without an end (CVE-2024-27316), in small pieces and in large ones.
    for piece in [&b""[..], &[0; 10_000]] {
        let mut world = World::greeted(b"").await;
        let mut bytes = Vec::new();
        frame::write(&mut bytes, kind::HEADERS, whole - flag::END_HEADERS, 1, b"");
        (0..80).for_each(|_| frame::write(&mut bytes, kind::CONTINUATION, 0, 1, piece));
        world.send(&bytes).await;
        assert_eq!(world.ending().await.0, Some(ErrorCode::EnhanceYourCalm as u32));
    }
}

#[tokio::test]
async fn client_that_cancels_some_requests_is_served_on() {
    let mut world = World::greeted(b"").await;
    for round in 0..500 {
        let stream = 4 * round + 1;
        let mut bytes = request(stream, "/wait");
        frame::write_reset(&mut bytes, stream, ErrorCode::Cancel);
        bytes.extend(request(stream + 2, "/"));
        world.send(&bytes).await;
        while world.next().await.unwrap().1 & flag::END_STREAM == 0 {}
    }
}

#[tokio::test]
async fn head_that_is_too_large_is_refused_and_others_are_answered() {
    let mut world = World::greeted(b"").await;
    let mut head = block("GET", "/");
    for at in 0..40 {
        let name = format!("x-{at}");
        super::super::hpack::encoder::write_field(&mut head, name.as_bytes(), &[b'x'; 1000]);
    }
    let mut bytes = Vec::new();
    frame::write_block(&mut bytes, 1, flag::END_STREAM, |block| block.extend(&head));
    world.send(&bytes).await;
    let Came(kind, flags, id, block) = world.next().await.unwrap();
    assert_eq!((kind, flags, id), (kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1));
    assert!(block.ends_with(b"431"));
    world.send(&request(3, "/")).await;
    assert_eq!(world.next().await.unwrap().2, 3);
}

#[tokio::test]
async fn streams_beyond_the_limit_are_refused() {
    let mut world = World::greeted(b"").await;
    let count = streams::MOST as u32;
    let requests: Vec<u8> = (0..=count).flat_map(|at| request(2 * at + 1, "/wait")).collect();
    world.send(&requests).await;
    let refused = Came(kind::RST_STREAM, 0, 2 * count + 1, vec![0, 0, 0, 7]);
    assert_eq!(world.next().await, Some(refused));
}

#[tokio::test]
async fn connection_that_leaves_answers_what_is_on_its_way() {
    let mut world = World::greeted(b"").await;
    world.send(&request(1, "/wait")).await;
    while world.paths.under_way.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    world.leave.notify_one();
    // A client that takes no other frame after GOAWAY has answered PING by then.
    let Came(kind, _, _, ping) = world.next().await.unwrap();
    assert_eq!(kind, kind::PING);
    let Came(kind, _, _, payload) = world.next().await.unwrap();
    assert_eq!((kind, frame::number(&payload)), (kind::GOAWAY, LAST_STREAM));
    // Has crossed the news.
    world.send(&request(3, "/")).await;
    while world.next().await.unwrap().1 & flag::END_STREAM == 0 {}
    world.frame(kind::PING, flag::ACK, 0, &ping).await;
    let Came(kind, _, _, payload) = world.next().await.unwrap();
    assert_eq!((kind, frame::number(&payload)), (kind::GOAWAY, 3));
    world.send(&request(5, "/")).await;
    world.frame(kind::WINDOW_UPDATE, 0, 5, &[0, 0, 0, 1]).await;
    world.paths.go.notify_one();
    assert_eq!(world.next().await.unwrap().2, 1, "the last request is not answered");
    assert_eq!(world.ending().await, (None, ConnectionEnd::Finished));
}

#[test]
fn connection_keeps_no_memory_for_its_farewell() {
    let (near, _far) = duplex(1);
    let paths = Paths::default();
    let size = size_of_val(&serve_http2(near, &paths, LIMITS, std::future::pending()));
    assert!(size <= 2 << 10, "{size}");
}

#[tokio::test(start_paused = true)]
async fn deadlines_end_connections() {
    // Nothing after the preface, half of it, half a head, and a client that does not answer a PING.
    let mut silent = World::greeted(b"").await;
    assert_eq!(
        silent.next().await.map(|came| (came.0, came.3)),
        Some((kind::PING, SILENCE_PING.to_vec()))
    );
    assert_eq!(silent.ending().await, (None, ConnectionEnd::Broken));
    for bytes in [&PREFACE[..10], &[PREFACE, &request(1, "/")[..20]].concat()] {
        let mut world = World::new(LIMITS);
        world.send(bytes).await;
        assert_eq!(world.ending().await.1, ConnectionEnd::HeadTimeout);
    }
    let mut idle = World::greeted(b"").await;
    idle.send(&request(1, "/")).await;
    let mut ended = false;
    while let Some(Came(kind, _, _, payload)) = idle.next().await {
        if kind == kind::PING {
            idle.frame(kind::PING, flag::ACK, 0, &payload).await;
        }
        if kind == kind::GOAWAY {
            assert_eq!(payload, [0, 0, 0, 1, 0, 0, 0, 0]);
            ended = true;
            break;
        }
    }
    assert!(ended);
    assert_eq!(idle.ending().await.1, ConnectionEnd::IdleTimeout);
}

#[tokio::test(start_paused = true)]
async fn connection_without_streams_gives_way_when_it_rests() {
    for rests in [false, true] {
        let mut world = World::greeted(b"").await;
        world.send(&request(1, "/wait")).await;
        tokio::time::sleep(2 * QUIET).await;
        world.paths.go.notify_one();
        while world.next().await.unwrap().1 & flag::END_STREAM == 0 {}
        if rests {
            tokio::time::sleep(2 * QUIET).await;
        }
        world.paths.resting.give_way(1);
        if rests {
            let Came(kind, _, _, payload) = world.next().await.unwrap();
            assert_eq!((kind, frame::number(&payload)), (kind::GOAWAY, 1));
            assert_eq!(world.ending().await, (None, ConnectionEnd::GaveWay));
        } else {
            world.send(&request(3, "/")).await;
            assert_eq!(world.next().await.unwrap().0, kind::HEADERS);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn reader_that_opens_no_window_is_given_up() {
    let mut world = World::greeted(b"\0\x04\0\0\0\0").await;
    world.send(&request(1, "/long")).await;
    while let Some(Came(kind, _, _, payload)) = world.next().await {
        if kind == kind::PING {
            world.frame(kind::PING, flag::ACK, 0, &payload).await;
        }
    }
    assert_eq!(world.ending().await.1, ConnectionEnd::SendTimeout);
}

#[tokio::test]
async fn stream_of_a_connect_becomes_a_tunnel() {
    let mut world = World::greeted(b"").await;
    let mut head = block("CONNECT", "/");
    super::super::hpack::encoder::write_field(&mut head, b"x", b"y");
    // `:protocol` comes before other fields.
    let at = head.len() - 5;
    let mut protocol = Vec::new();
    super::super::hpack::encoder::write_field(&mut protocol, b":protocol", b"websocket");
    head.splice(at..at, protocol);
    world.frame(kind::HEADERS, flag::END_HEADERS, 1, &head).await;
    let Came(kind, flags, ..) = world.next().await.unwrap();
    assert_eq!((kind, flags), (kind::HEADERS, flag::END_HEADERS));
    world.frame(kind::DATA, 0, 1, b"hello").await;
    assert_eq!(world.next().await, Some(Came(kind::DATA, 0, 1, b"hello".to_vec())));
    assert_eq!(world.next().await, Some(Came(kind::DATA, flag::END_STREAM, 1, vec![])));
    // The tunnel is gone, and the client has not ended its side.
    assert_eq!(world.next().await, Some(Came(kind::RST_STREAM, 0, 1, vec![0; 4])));
}

type Client = SendRequest<BoxBody<Bytes, Infallible>>;

/// A request of a generated exchange.
#[derive(Clone, Debug)]
struct Draft {
    method: &'static str,
    path: String,
    fields: Vec<(&'static str, &'static str)>,
    pieces: Vec<usize>,
    states_length: bool,
    has_trailers: bool,
}

fn drafts() -> impl Strategy<Value = Draft> {
    let words = vec![
        "unknown", "empty", "bytes", "waits", "404", "204", "fields", "read", "x", "trailers",
        "long", "short", "broken", "close",
    ];
    let field = prop::sample::select(vec![
        ("te", "trailers"),
        ("cookie", "a=1"),
        ("cookie", "b=2"),
        ("x-long", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
        ("accept-encoding", "gzip, deflate"),
        ("user-agent", "own \u{7e}"),
        ("x-empty", ""),
    ]);
    let size = prop_oneof![Just(0_usize), 1_usize..100, 10_000_usize..70_000];
    (
        prop::sample::select(vec!["GET", "POST", "PUT", "OPTIONS", "X"]),
        prop::collection::vec(prop::sample::select(words), 0..4),
        prop::collection::vec(field, 0..4),
        prop::collection::vec(size, 0..4),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(method, path, fields, pieces, states_length, has_trailers)| Draft {
            method,
            path: format!("/{}", path.join("/")),
            fields,
            pieces: if method == "GET" { Vec::new() } else { pieces },
            states_length,
            has_trailers: has_trailers && method != "GET",
        })
}

/// The response as its client sees it.
async fn outcome(mut client: Client, draft: Draft) -> String {
    let mut request =
        Request::builder().method(draft.method).uri(format!("http://a.test{}", draft.path));
    for (name, value) in &draft.fields {
        request = request.header(*name, *value);
    }
    let length: usize = draft.pieces.iter().sum();
    if draft.states_length && !draft.pieces.is_empty() {
        request = request.header("content-length", length);
    }
    let mut frames: Vec<_> =
        draft.pieces.iter().map(|&size| Frame::data(vec![b'x'; size].into())).collect();
    if draft.has_trailers {
        let trailers = [("x-sum".parse().unwrap(), "1".parse().unwrap())];
        frames.push(Frame::trailers(trailers.into_iter().collect()));
    }
    let body = match frames.is_empty() {
        true => Full::default().boxed(),
        false => Frames(frames.into_iter()).boxed(),
    };
    let Ok(response) = client.send_request(request.body(body).unwrap()).await else {
        return "error".to_owned();
    };
    let (mut head, body) = response.into_parts();
    head.headers.remove("date").unwrap();
    if head.status == StatusCode::NO_CONTENT {
        // hyper states the length 0 here, where there cannot be a body (RFC 9110 Sec. 8.6).
        head.headers.remove("content-length");
    }
    let mut fields: Vec<_> = head.headers.iter().map(|field| format!("{field:?}")).collect();
    fields.sort();
    let Ok(body) = body.collect().await else { return "error".to_owned() };
    let trailers = body.trailers().cloned();
    format!("{} {fields:?} {:?} {trailers:?}", head.status, body.to_bytes())
}

/// The parts of a body.
struct Frames(std::vec::IntoIter<Frame<Bytes>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.next().map(Ok))
    }
}

/// The responses to a client that sends all requests at once on one connection.
async fn outcomes(far: DuplexStream, drafts: &[Draft], window: u32) -> Vec<String> {
    let (client, connection) = Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window)
        .handshake(TokioIo::new(far))
        .await
        .unwrap();
    tokio::spawn(connection);
    let all = drafts.iter().map(|draft| tokio::spawn(outcome(client.clone(), draft.clone())));
    let mut found = Vec::new();
    for one in all.collect::<Vec<_>>() {
        found.push(one.await.unwrap());
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases() / 10, ..ProptestConfig::default() })]
    #[test]
    fn responses_are_those_of_hyper(
        drafts in prop::collection::vec(drafts(), 1..6),
        window in prop::sample::select(vec![1_u32, 1000, 65_535, 1 << 20]),
        pipe in prop::sample::select(vec![100_usize, 10_000, 1 << 20]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let ours = runtime.block_on(async {
            let (near, far) = duplex(pipe);
            let served = tokio::spawn(async {
                serve_http2(near, &Paths::default(), LIMITS, std::future::pending()).await
            });
            let found = outcomes(far, &drafts, window).await;
            assert!(matches!(served.await.unwrap(), ConnectionEnd::Closed | ConnectionEnd::Finished));
            found
        });
        let theirs = runtime.block_on(async {
            let (near, far) = duplex(pipe);
            let service = service_fn(|request| async {
                let response = respond(request).await;
                Ok::<_, Infallible>(response.unwrap_or_else(|| Response::new(Pieces::known(""))))
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(near), service);
            let served = tokio::spawn(server);
            let found = outcomes(far, &drafts, window).await;
            let _ = served.await;
            found
        });
        for ((ours, theirs), draft) in ours.iter().zip(&theirs).zip(&drafts) {
            // Behind a body that is not read comes a reset, which may keep hyper's client from seeing that a response is
            // shorter than it says.
            let has_body = !draft.pieces.is_empty() || draft.has_trailers;
            if draft.path.contains("short") && has_body {
                continue;
            }
            prop_assert_eq!(ours, theirs, "{:?}", draft);
        }
    }
}
