//! Servers over HTTP/2 that keep to the protocol and servers that do not, frame by frame.

use std::{
    future::{Future, poll_fn},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, header::HOST};
use levada_upstream::{
    Address, Inbound, InboundError, Relay, RequestBody, Server, ServerBounds, ServerFailure,
    UpstreamHead, UpstreamResponse, Wire,
};
use rcgen::{CertificateParams, KeyPair};
use rustls::{ClientConfig, RootCertStore, ServerConfig, pki_types::PrivatePkcs8KeyDer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_rustls::TlsAcceptor;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const REFUSED_STREAM: u32 = 7;
/// `:status: 200`, from HPACK's static table.
const OK: &[u8] = &[0x88];

/// The server's end of a connection.
struct Peer(TcpStream);

#[derive(Debug)]
struct FrameSeen {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Peer {
    async fn read(&mut self) -> Option<FrameSeen> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some(FrameSeen { kind: head[3], flags: head[4], stream, payload })
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        // The other end may be gone.
        let _ = self.0.write_all(&frame).await;
    }

    /// The number of the next request's stream.
    async fn request(&mut self) -> Option<u32> {
        loop {
            let frame = self.read().await?;
            if frame.kind == HEADERS {
                return Some(frame.stream);
            }
        }
    }

    /// The number of the next request's stream, when its body has come, and the body.
    async fn whole_request(&mut self) -> Option<(u32, Vec<u8>)> {
        let mut body = Vec::new();
        loop {
            let frame = self.read().await?;
            if frame.kind == DATA {
                body.extend(&frame.payload);
            }
            if matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0 {
                return Some((frame.stream, body));
            }
        }
    }

    async fn answer(&mut self, stream: u32, body: &str) {
        self.send(HEADERS, END_HEADERS, stream, OK).await;
        self.send(DATA, END_STREAM, stream, body.as_bytes()).await;
    }

    async fn reset(&mut self, stream: u32, code: u32) {
        self.send(RESET, 0, stream, &code.to_be_bytes()).await;
    }

    /// Keeps the connection open until the other end closes it.
    async fn linger(mut self) {
        while self.read().await.is_some() {}
    }
}

/// A field that HPACK does not compress.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| -> Vec<u8> {
        // An integer with a prefix of seven bits (RFC 7541 Sec. 5.1).
        match text.len() {
            short @ 0..127 => vec![short as u8],
            long => {
                let mut bytes = vec![127];
                let mut rest = long - 127;
                while rest >= 128 {
                    bytes.push((rest % 128) as u8 | 128);
                    rest /= 128;
                }
                bytes.push(rest as u8);
                bytes
            }
        }
    };
    let mut field = vec![0];
    for text in [name, value] {
        field.extend(length(text));
        field.extend(text.as_bytes());
    }
    field
}

struct World {
    server: Arc<Server>,
    connections: Arc<AtomicUsize>,
}

impl World {
    /// A server whose connections are served by `serve`, which gets the number of each one, with these settings.
    async fn with<F: Future<Output = ()> + Send + 'static>(
        settings: &'static [(u16, u32)],
        response_timeout: Duration,
        serve: impl Fn(usize, Peer) -> F + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, serve) = (connections.clone(), Arc::new(serve));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (number, serve) = (count.fetch_add(1, Relaxed), serve.clone());
                tokio::spawn(async move {
                    let mut preface = [0; 24];
                    if stream.read_exact(&mut preface).await.is_err() {
                        return;
                    }
                    assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
                    let mut peer = Peer(stream);
                    let pair = |(key, value): &(u16, u32)| {
                        [&key.to_be_bytes()[..], &value.to_be_bytes()].concat()
                    };
                    let settings: Vec<u8> = settings.iter().flat_map(pair).collect();
                    peer.send(SETTINGS, 0, 0, &settings).await;
                    serve(number, peer).await;
                });
            }
        });
        Self { server: server(address, response_timeout), connections }
    }

    async fn of<F: Future<Output = ()> + Send + 'static>(
        serve: impl Fn(usize, Peer) -> F + Send + Sync + 'static,
    ) -> Self {
        Self::with(&[], Duration::from_secs(20), serve).await
    }

    async fn ask(&self) -> Result<UpstreamResponse, ServerFailure> {
        self.send(Method::GET, RequestBody::None).await
    }

    async fn post(&self, text: &'static str) -> Result<UpstreamResponse, ServerFailure> {
        self.send(Method::POST, RequestBody::Text(Bytes::from_static(text.as_bytes()))).await
    }

    async fn send(
        &self,
        method: Method,
        body: RequestBody,
    ) -> Result<UpstreamResponse, ServerFailure> {
        let mut head = UpstreamHead { method, ..UpstreamHead::get("/a") };
        head.headers.insert(HOST, HeaderValue::from_static("a.test"));
        self.server.exchange(&head, body).await.map_err(|(failure, _)| failure)
    }

    fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }
}

fn server(address: SocketAddr, response_timeout: Duration) -> Arc<Server> {
    server_by(address, Wire { h2: true, ..Wire::default() }, response_timeout)
}

fn server_by(address: SocketAddr, wire: Wire, response_timeout: Duration) -> Arc<Server> {
    let bounds = ServerBounds {
        connections: 1000,
        queue: 0,
        queue_timeout: Duration::from_secs(1),
        connect_timeout: Duration::from_secs(20),
        response_timeout,
    };
    let address = Address::Tcp { host: address.ip().to_string(), port: address.port() };
    Server::new("s".into(), address, wire, bounds, 1)
}

/// The body, whole, or the error that ends it.
async fn text(response: Result<UpstreamResponse, ServerFailure>) -> Result<String, InboundError> {
    read(response.unwrap().into_body()).await
}

async fn read(mut body: Inbound) -> Result<String, InboundError> {
    let mut text = Vec::new();
    while let Some(frame) = poll_fn(|cx| body.poll_frame(cx)).await {
        text.extend_from_slice(frame?.data_ref().map_or(&[][..], |data| data));
    }
    Ok(String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn requests_share_a_connection_up_to_the_limit_of_the_server() {
    const MAX_CONCURRENT_STREAMS: u16 = 3;
    let settings = &[(MAX_CONCURRENT_STREAMS, 2)];
    let (answered, mut waits) = mpsc::unbounded_channel();
    let world = World::with(settings, Duration::from_secs(20), move |_, mut peer| {
        let answered = answered.clone();
        async move {
            while let Some(stream) = peer.request().await {
                peer.send(HEADERS, END_HEADERS, stream, OK).await;
                answered.send(stream).unwrap();
            }
        }
    })
    .await;
    let one = world.ask().await.unwrap();
    assert_eq!(waits.recv().await, Some(1));
    let two = world.ask().await.unwrap();
    assert_eq!((waits.recv().await, world.connections()), (Some(3), 1));
    let three = world.ask().await.unwrap();
    assert_eq!((waits.recv().await, world.connections()), (Some(1), 2));
    // A request that is done gives its place to the next one.
    drop((one, two, three));
    for _ in 0..10 {
        drop(world.ask().await.unwrap());
    }
    assert_eq!(world.connections(), 2);
}

#[tokio::test]
async fn requests_that_come_together_open_one_connection() {
    let world = World::of(|_, mut peer| async move {
        while let Some(stream) = peer.request().await {
            peer.answer(stream, "hi").await;
        }
    })
    .await;
    let world = Arc::new(world);
    let asked = (0..50).map(|_| {
        let world = world.clone();
        tokio::spawn(async move { text(world.ask().await).await.unwrap() })
    });
    for text in asked.collect::<Vec<_>>() {
        assert_eq!(text.await.unwrap(), "hi");
    }
    assert_eq!(world.connections(), 1);
}

#[tokio::test]
async fn refused_stream_is_sent_again_whatever_its_method() {
    let world = World::of(|number, mut peer| async move {
        if number == 0 {
            let (stream, _) = peer.whole_request().await.unwrap();
            peer.answer(stream, "first").await;
        }
        while let Some((stream, body)) = peer.whole_request().await {
            match number {
                0 => peer.reset(stream, REFUSED_STREAM).await,
                _ => peer.answer(stream, std::str::from_utf8(&body).unwrap()).await,
            }
        }
    })
    .await;
    assert_eq!(text(world.ask().await).await.unwrap(), "first");
    assert_eq!(text(world.post("a body").await).await.unwrap(), "a body");
    assert_eq!(world.connections(), 2);
}

#[tokio::test]
async fn server_that_refuses_every_stream_fails_after_few_tries() {
    let world = World::of(|_, mut peer| async move {
        while let Some(stream) = peer.request().await {
            peer.reset(stream, REFUSED_STREAM).await;
        }
    })
    .await;
    assert_eq!(world.post("x").await.err(), Some(ServerFailure::NoResponse));
    assert_eq!(world.connections(), 1);
    assert_eq!(world.post("x").await.err(), Some(ServerFailure::NoResponse));
    assert_eq!(world.connections(), 2, "another connection was tried once");
}

#[tokio::test]
async fn goaway_in_the_middle_lets_requests_end_that_the_server_has_taken() {
    let world = World::of(|number, mut peer| async move {
        let (first, _) = peer.whole_request().await.unwrap();
        peer.send(HEADERS, END_HEADERS, first, OK).await;
        let (second, body) = peer.whole_request().await.unwrap();
        if number > 0 {
            return peer.answer(second, "unreachable").await;
        }
        assert_eq!(body, b"again");
        let last = [&first.to_be_bytes()[..], &[0; 4]].concat();
        peer.send(GOAWAY, 0, 0, &last).await;
        peer.send(DATA, END_STREAM, first, b"taken").await;
        peer.linger().await;
    })
    .await;
    let first = world.ask().await.unwrap();
    let world = Arc::new(world);
    let posting = {
        let world = world.clone();
        tokio::spawn(async move { world.post("again").await.unwrap() })
    };
    assert_eq!(read(first.into_body()).await.unwrap(), "taken");
    // The other connection has got it: its head has come.
    drop(posting.await.unwrap());
    assert_eq!(world.connections(), 2);
}

#[tokio::test]
async fn stream_that_is_reset_before_its_head_is_no_response() {
    for code in 0..14 {
        let world = World::of(move |number, mut peer| async move {
            while let Some(stream) = peer.request().await {
                match number {
                    0 => peer.reset(stream, code).await,
                    _ => peer.answer(stream, "second connection").await,
                }
            }
        })
        .await;
        let expected = match code {
            REFUSED_STREAM => ServerFailure::NoResponse,
            _ => ServerFailure::StreamReset,
        };
        assert_eq!(world.post("x").await.err(), Some(expected), "{code}");
        assert_eq!(world.connections(), 1, "{code}");
    }
}

#[tokio::test]
async fn body_whose_stream_is_reset_is_never_whole() {
    for code in 0..14 {
        let world = World::of(move |_, mut peer| async move {
            let stream = peer.request().await.unwrap();
            peer.send(HEADERS, END_HEADERS, stream, OK).await;
            peer.send(DATA, 0, stream, b"half").await;
            peer.reset(stream, code).await;
            peer.linger().await;
        })
        .await;
        assert!(text(world.ask().await).await.is_err(), "{code}");
    }
}

#[tokio::test]
async fn body_shorter_or_longer_than_it_says_is_never_whole() {
    for body in [&b"four"[..], b"sixsix"] {
        let world = World::of(move |_, mut peer| async move {
            let stream = peer.request().await.unwrap();
            let head = [OK, &literal("content-length", "5")].concat();
            peer.send(HEADERS, END_HEADERS, stream, &head).await;
            peer.send(DATA, END_STREAM, stream, body).await;
            peer.linger().await;
        })
        .await;
        match world.ask().await {
            Ok(response) => assert!(read(response.into_body()).await.is_err(), "{body:?}"),
            Err(failure) => assert_eq!(failure, ServerFailure::BadResponse),
        }
    }
}

#[tokio::test]
async fn flood_of_pings_and_settings_holds_up_no_response() {
    let world = World::of(|_, mut peer| async move {
        let stream = peer.request().await.unwrap();
        let (mut reading, writing) = peer.0.into_split();
        // The other end answers each of them.
        tokio::spawn(async move { tokio::io::copy(&mut reading, &mut tokio::io::sink()).await });
        let mut peer = Peer(reunited(writing).await);
        for _ in 0..5_000 {
            peer.send(PING, 0, 0, &[7; 8]).await;
            peer.send(SETTINGS, 0, 0, &[]).await;
        }
        peer.answer(stream, "after the flood").await;
        peer.linger().await;
    })
    .await;
    assert_eq!(text(world.ask().await).await.unwrap(), "after the flood");
}

/// A stream for a half: the other half reads for itself.
async fn reunited(half: tokio::net::tcp::OwnedWriteHalf) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(to), listener.accept());
    let (mut far, mut half) = (far.unwrap().0, half);
    tokio::spawn(async move { tokio::io::copy(&mut far, &mut half).await });
    near.unwrap()
}

#[tokio::test]
async fn server_without_a_window_times_out_and_takes_the_body_when_it_opens_one() {
    const INITIAL_WINDOW_SIZE: u16 = 4;
    let closed = &[(INITIAL_WINDOW_SIZE, 0)];
    let world = World::with(closed, Duration::from_millis(300), |number, mut peer| async move {
        // The settings must have come before the request.
        let first = peer.request().await.unwrap();
        peer.answer(first, "ready").await;
        while let Some(stream) = peer.request().await {
            if number == 0 {
                continue;
            }
            peer.send(WINDOW_UPDATE, 0, stream, &5_u32.to_be_bytes()).await;
            let (_, body) = peer.whole_request().await.unwrap();
            peer.answer(stream, std::str::from_utf8(&body).unwrap()).await;
        }
    })
    .await;
    assert_eq!(text(world.ask().await).await.unwrap(), "ready");
    assert_eq!(world.post("12345").await.err(), Some(ServerFailure::ResponseTimeout));
    let open = World::with(closed, Duration::from_secs(20), |_, mut peer| async move {
        let first = peer.request().await.unwrap();
        peer.answer(first, "ready").await;
        let stream = peer.request().await.unwrap();
        peer.send(WINDOW_UPDATE, 0, stream, &5_u32.to_be_bytes()).await;
        let (_, body) = peer.whole_request().await.unwrap();
        peer.answer(stream, std::str::from_utf8(&body).unwrap()).await;
        peer.linger().await;
    })
    .await;
    assert_eq!(text(open.ask().await).await.unwrap(), "ready");
    assert_eq!(text(open.post("12345").await).await.unwrap(), "12345");
}

#[tokio::test]
async fn huge_trailers_and_heads_are_refused() {
    let fields = |count| -> Vec<u8> {
        (0..count).flat_map(|n| literal(&format!("x-{n}"), &"y".repeat(100))).collect()
    };
    let trailers = World::of(move |_, mut peer| async move {
        let stream = peer.request().await.unwrap();
        peer.send(HEADERS, END_HEADERS, stream, OK).await;
        peer.send(DATA, 0, stream, b"body").await;
        peer.send(HEADERS, END_HEADERS | END_STREAM, stream, &fields(65)).await;
        peer.linger().await;
    })
    .await;
    let result = text(trailers.ask().await).await;
    assert!(matches!(result, Err(InboundError::Trailers)), "{result:?}");
    let heads = World::of(move |_, mut peer| async move {
        let stream = peer.request().await.unwrap();
        peer.send(HEADERS, END_HEADERS | END_STREAM, stream, &[OK, &fields(101)].concat()).await;
        peer.linger().await;
    })
    .await;
    assert_eq!(heads.ask().await.err(), Some(ServerFailure::BadResponse));
}

#[tokio::test]
async fn trailers_without_end_are_cut() {
    // A section that goes on for ever is cut by its size,
    let world = World::of(|_, mut peer| async move {
        let stream = peer.request().await.unwrap();
        peer.send(HEADERS, END_HEADERS, stream, OK).await;
        peer.send(HEADERS, END_STREAM, stream, &literal("x", "y")).await;
        for _ in 0..2_000 {
            peer.send(CONTINUATION, 0, stream, &literal("x", &"y".repeat(1_000))).await;
        }
        peer.linger().await;
    })
    .await;
    assert!(text(world.ask().await).await.is_err());
    // and one that does not come by the time between two pieces.
    let world = World::of(|_, mut peer| async move {
        let stream = peer.request().await.unwrap();
        peer.send(HEADERS, END_HEADERS, stream, OK).await;
        peer.send(DATA, 0, stream, b"body").await;
        peer.linger().await;
    })
    .await;
    let body = world.ask().await.unwrap().into_body();
    let mut relay = Relay::new(body, Duration::from_millis(200));
    assert_eq!(relay.next_data().await.unwrap().unwrap(), "body");
    assert!(matches!(relay.next_data().await, Some(Err(InboundError::Stalled))));
}

#[tokio::test]
async fn trailers_come_after_the_body_without_fields_of_the_connection() {
    let world = World::of(|_, mut peer| async move {
        let stream = peer.request().await.unwrap();
        peer.send(HEADERS, END_HEADERS, stream, OK).await;
        peer.send(DATA, 0, stream, b"body").await;
        let fields = [literal("grpc-status", "0"), literal("proxy-authenticate", "x")].concat();
        peer.send(HEADERS, END_HEADERS | END_STREAM, stream, &fields).await;
        peer.linger().await;
    })
    .await;
    let mut body = world.ask().await.unwrap().into_body();
    let data = poll_fn(|cx| body.poll_frame(cx)).await.unwrap().unwrap();
    assert_eq!(data.into_data().unwrap(), "body");
    let trailers = poll_fn(|cx| body.poll_frame(cx)).await.unwrap().unwrap();
    let trailers = trailers.into_trailers().unwrap();
    assert_eq!((trailers.len(), &trailers["grpc-status"]), (1, &HeaderValue::from_static("0")));
    assert!(poll_fn(|cx| body.poll_frame(cx)).await.is_none());
}

#[tokio::test]
async fn flood_of_interim_responses_is_a_bad_response() {
    let world = World::of(|_, mut peer| async move {
        let stream = peer.request().await.unwrap();
        let hint = [&[0x08, 3], &b"103"[..], &literal("link", "</a>")].concat();
        for _ in 0..1_000 {
            peer.send(HEADERS, END_HEADERS, stream, &hint).await;
        }
        peer.answer(stream, "hi").await;
        peer.linger().await;
    })
    .await;
    assert_eq!(world.ask().await.err(), Some(ServerFailure::BadResponse));
}

#[tokio::test]
async fn server_that_does_not_speak_http2_is_called_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut read = [0; 1024];
            let _ = stream.read(&mut read).await;
            let _ =
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
        }
    });
    let server = server(address, Duration::from_secs(20));
    let world = World { server, connections: Arc::default() };
    assert_eq!(world.ask().await.err(), Some(ServerFailure::NotHttp2));
}

#[tokio::test]
async fn readers_that_are_behind_hold_up_no_other_stream_and_hold_bounded_memory() {
    /// The bytes that a connection may hold of bodies that are not read.
    const BOUND: usize = 16 << 20;
    let (sent, mut sents) = mpsc::unbounded_channel();
    let world = World::of(move |_, mut peer| {
        let sent = sent.clone();
        async move {
            let (mut windows, mut connection) = (std::collections::BTreeMap::new(), 65_535_i64);
            let (mut initial, mut total) = (65_535_i64, 0_usize);
            while let Some(frame) = peer.read().await {
                match (frame.kind, frame.stream) {
                    (SETTINGS, _) if frame.flags & ACK == 0 => {
                        for pair in frame.payload.chunks(6) {
                            if pair[..2] == [0, 4] {
                                let size = u32::from_be_bytes(pair[2..].try_into().unwrap());
                                let change = i64::from(size) - initial;
                                windows.values_mut().for_each(|window| *window += change);
                                initial = size.into();
                            }
                        }
                        peer.send(SETTINGS, ACK, 0, &[]).await;
                    }
                    (WINDOW_UPDATE, stream) => {
                        let more = u32::from_be_bytes(frame.payload[..4].try_into().unwrap());
                        match stream {
                            0 => connection += i64::from(more),
                            stream => {
                                *windows.entry(stream).or_insert(initial) += i64::from(more);
                            }
                        }
                    }
                    (HEADERS, stream) => {
                        windows.insert(stream, initial);
                        peer.send(HEADERS, END_HEADERS, stream, OK).await;
                    }
                    _ => {}
                }
                // As much as the windows allow, to every stream but the last one.
                let last = windows.keys().max().copied().unwrap_or(0);
                for (&stream, window) in &mut windows {
                    while *window > 0 && connection > 0 {
                        let piece = (*window).min(connection).min(16_384);
                        if stream == last && piece < 16_384 {
                            break;
                        }
                        *window -= piece;
                        connection -= piece;
                        total += piece as usize;
                        peer.send(DATA, 0, stream, &vec![b'x'; piece as usize]).await;
                    }
                }
                let _ = sent.send(total);
            }
        }
    })
    .await;
    let mut behind = Vec::new();
    for _ in 0..60 {
        behind.push(world.ask().await.unwrap());
    }
    // None of them is read; this one is.
    let mut body = world.ask().await.unwrap().into_body();
    let mut received = 0;
    while received < 1 << 20 {
        let frame = poll_fn(|cx| body.poll_frame(cx)).await.unwrap().unwrap();
        received += frame.data_ref().unwrap().len();
    }
    let mut total = 0;
    while let Ok(more) = sents.try_recv() {
        total = more;
    }
    assert!(total - received <= BOUND, "{total} bytes are held");
    assert_eq!(world.connections(), 1);
    drop(behind);
}

#[tokio::test]
async fn response_that_nobody_wants_any_more_is_reset() {
    let (reset, mut resets) = mpsc::unbounded_channel();
    let world = World::of(move |_, mut peer| {
        let reset = reset.clone();
        async move {
            while let Some(frame) = peer.read().await {
                match frame.kind {
                    HEADERS if frame.stream == 1 => {
                        peer.send(HEADERS, END_HEADERS, frame.stream, OK).await;
                    }
                    RESET => reset.send((frame.stream, frame.payload)).unwrap(),
                    _ => {}
                }
            }
        }
    })
    .await;
    let cancelled = vec![0, 0, 0, 8];
    drop(world.ask().await.unwrap());
    assert_eq!(resets.recv().await, Some((1, cancelled.clone())));
    // So is a request whose head does not come.
    let asked = tokio::time::timeout(Duration::from_millis(100), world.ask()).await;
    assert!(asked.is_err());
    assert_eq!(resets.recv().await, Some((3, cancelled)));
    assert_eq!(world.connections(), 1, "the connection goes on");
}

#[tokio::test]
async fn server_that_does_not_answer_a_ping_is_dead() {
    let (asked, mut asks) = mpsc::unbounded_channel();
    let world = World::with(&[], Duration::from_secs(600), move |_, mut peer| {
        let asked = asked.clone();
        async move {
            peer.request().await.unwrap();
            asked.send(()).unwrap();
            while peer.read().await.is_some() {}
        }
    })
    .await;
    let world = Arc::new(world);
    let asking = tokio::spawn({
        let world = world.clone();
        async move { world.post("x").await.err() }
    });
    asks.recv().await.unwrap();
    // From here on the clock goes from timer to timer.
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    assert_eq!(asking.await.unwrap(), Some(ServerFailure::NoResponse));
    assert!(began.elapsed() <= Duration::from_secs(30), "{:?}", began.elapsed());
}

/// A server over TLS that offers these protocols and answers over HTTP/2, and what its clients trust.
async fn over_tls(protocols: &[&[u8]]) -> World {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let own = ServerConfig::builder_with_provider(provider.clone());
    let own = own.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let mut own = own.with_single_cert(vec![certificate], key.into()).unwrap();
    own.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let client = ClientConfig::builder_with_provider(provider);
    let client = client.with_safe_default_protocol_versions().unwrap();
    let mut client = client.with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = vec![b"h2".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(own));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let Ok(mut connection) = h2::server::handshake(stream).await else { continue };
            tokio::spawn(async move {
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let mut body = respond.send_response(http::Response::new(()), false).unwrap();
                    body.send_data(request.uri().to_string().into(), true).unwrap();
                }
            });
        }
    });
    let wire = Wire { h2: true, tls: Some(Arc::new(client)), ..Wire::default() };
    World { server: server_by(address, wire, Duration::from_secs(20)), connections: Arc::default() }
}

#[tokio::test]
async fn protocol_is_agreed_by_alpn() {
    let world = over_tls(&[b"h2", b"http/1.1"]).await;
    assert_eq!(text(world.ask().await).await.unwrap(), "https://a.test/a");
    // One that knows no ALPN has not agreed.
    assert_eq!(over_tls(&[]).await.ask().await.err(), Some(ServerFailure::NotHttp2));
}
