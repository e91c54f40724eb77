//! The own server side over pipes: the exchanges by themselves, and side by side with hyper's.

use std::{collections::VecDeque, convert::Infallible, task::Waker};

use http_body::SizeHint;
use http_body_util::BodyExt;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::{HeadBounds, Patience, Segments, ZeroCopyChunk};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
pub(in crate::server) const LIMITS: ConnectionLimits = ConnectionLimits {
    head: HeadBounds { head: 32 << 10, fields: 100 },
    idle_timeout: Duration::from_secs(75),
    head_timeout: Duration::from_secs(10),
    body: Patience { time: Duration::from_secs(30), min_rate: 500 },
    send: Patience { time: Duration::from_secs(60), min_rate: 500 },
};

/// The pieces of a body, of which it may say the length.
pub(in crate::server) struct Pieces {
    pieces: VecDeque<Result<Frame<Bytes>, &'static str>>,
    length: Option<u64>,
    /// It waits before each piece.
    waits: bool,
    waited: bool,
}

impl Pieces {
    fn new(pieces: &[&'static str], length: Option<u64>) -> Self {
        let pieces =
            pieces.iter().map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes()))));
        Self { pieces: pieces.collect(), length, waits: false, waited: false }
    }

    pub(in crate::server) fn known(text: &'static str) -> Self {
        Self::new(&[text], Some(text.len() as u64))
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        if self.waits && !std::mem::replace(&mut self.waited, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.waited = false;
        Poll::Ready(self.pieces.pop_front())
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Answers by the path: its segments say what the response is like.
pub(in crate::server) async fn respond<B: Body<Data = Bytes> + Unpin>(
    request: Request<B>,
) -> Option<Response<Pieces>> {
    let path = request.uri().path().to_owned();
    let has = |word: &str| path.split('/').any(|segment| segment == word);
    let mut body = match () {
        () if has("unknown") => Pieces::new(&["one", "", "three"], None),
        () if has("empty") => Pieces::new(&[], Some(0)),
        () if has("bytes") => Pieces::new(&["0123456789", "abcdef"], Some(16)),
        () if has("long") => Pieces {
            pieces: (0..3).map(|_| Ok(Frame::data(vec![b'x'; 7000].into()))).collect(),
            length: Some(21_000),
            waits: false,
            waited: false,
        },
        () if has("short") => Pieces::new(&["0123"], Some(16)),
        () if has("broken") || has("moved") => Pieces::new(&["0123"], Some(16)),
        () => Pieces::known("hello"),
    };
    if has("broken") {
        body.pieces.push_back(Err("broken"));
    } else if has("moved") {
        body.pieces.push_back(Err("moved"));
    }
    body.waits = has("waits");
    if has("silent") {
        return None;
    }
    if has("read") {
        let read = request.into_body().collect().await;
        let read = read.map_or(999, |body| body.to_bytes().len());
        let mut response = Response::new(body);
        response.headers_mut().insert("x-read", read.into());
        return Some(response);
    }
    if has("trailers") {
        let trailers = [("x-sum".parse().unwrap(), "1".parse().unwrap())];
        body.pieces.push_back(Ok(Frame::trailers(trailers.into_iter().collect())));
        body.length = None;
    }
    let mut response = Response::new(body);
    if has("trailers") {
        response.headers_mut().insert("trailer", "x-sum".parse().unwrap());
    }
    let status = ["204", "304", "404", "101"].into_iter().find(|status| has(status));
    if let Some(status) = status {
        *response.status_mut() = status.parse().unwrap();
        *response.body_mut() = match status {
            "404" => Pieces::known("no"),
            _ => Pieces::new(&[], Some(0)),
        };
    }
    if has("close") {
        response.headers_mut().insert("connection", "close".parse().unwrap());
    }
    if has("fields") {
        for (name, value) in [("x-a", "1"), ("x-a", "2"), ("etag", "\"x\"")] {
            response.headers_mut().append(name, value.parse().unwrap());
        }
    }
    Some(response)
}

struct Paths;

impl Http1Service for Paths {
    type Body = Pieces;

    async fn call(&self, request: Request<IncomingBody>) -> Option<Response<Pieces>> {
        respond(request).await
    }

    fn leaves(&self, error: &&'static str) -> bool {
        *error == "moved"
    }
}

fn conduct(pause: Pause) -> Http1Conduct {
    Http1Conduct { limits: LIMITS, interims: Arc::default(), zero_copy: None, pause }
}

const STAYS: Pause = Pause::Between { rests_after: None, idle_until: None };

/// Sends these bytes, and ends when all of them must be answered: a client that ends earlier has left.
async fn send(to: &mut (impl AsyncWriteExt + Unpin), bytes: &[u8], pieces: usize) {
    for piece in bytes.chunks(pieces) {
        if to.write_all(piece).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let _ = to.shutdown().await;
}

/// Everything that comes back for these bytes until the server has ended, and its end.
async fn tell_with(bytes: &[u8], pieces: usize, pause: Pause) -> (String, Served<DuplexStream>) {
    let (near, far) = duplex(1 << 16);
    let (mut from, mut to) = tokio::io::split(far);
    let send = send(&mut to, bytes, pieces);
    let read = async {
        let mut text = Vec::new();
        let _ = from.read_to_end(&mut text).await;
        String::from_utf8(text).unwrap()
    };
    let serve = async {
        let served = serve_http1(near, &Paths, conduct(pause), std::future::pending()).await;
        match served {
            Served::Ended(end) => Served::Ended(end),
            Served::Resting(mut stream, until) => {
                let _ = stream.shutdown().await;
                Served::Resting(stream, until)
            }
            Served::Switched(mut stream, ahead) => {
                let _ = stream.shutdown().await;
                Served::Switched(stream, ahead)
            }
        }
    };
    let (served, (), text) = tokio::join!(serve, send, read);
    (without_dates(&text), served)
}

async fn tell(bytes: &str) -> (String, ConnectionEnd) {
    match tell_with(bytes.as_bytes(), usize::MAX, STAYS).await {
        (text, Served::Ended(end)) => (text, end),
        (_, served) => panic!("{served:?}"),
    }
}

fn without_dates(text: &str) -> String {
    text.split_inclusive("\r\n").filter(|line| !line.to_lowercase().starts_with("date: ")).collect()
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

#[test]
fn connection_keeps_no_memory_for_its_farewell() {
    let (near, _far) = duplex(1);
    let conduct = conduct(Pause::AfterResponse);
    let size = size_of_val(&serve_http1(near, &Paths, conduct, std::future::pending()));
    assert!(size <= 4 << 10, "{size}");
}

#[tokio::test(start_paused = true)]
async fn requests_that_come_together_are_answered_in_order() {
    let (text, end) = tell(&(get("/fields") + &get("/unknown/waits") + &get("/bytes"))).await;
    assert_eq!(
        text,
        "HTTP/1.1 200 OK\r\nx-a: 1\r\nx-a: 2\r\netag: \"x\"\r\ncontent-length: 5\r\n\r\nhello\
         HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n5\r\nthree\r\n0\r\n\r\n\
         HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n0123456789abcdef"
    );
    assert_eq!(end, ConnectionEnd::Closed);
}

#[tokio::test(start_paused = true)]
async fn older_clients_are_answered_in_their_version() {
    let old = |path: &str, fields: &str| format!("GET {path} HTTP/1.0\r\n{fields}\r\n");
    let (text, end) = tell(&(old("/", "connection: keep-alive\r\n") + &old("/", ""))).await;
    let head = "HTTP/1.0 200 OK\r\ncontent-length: 5\r\n";
    assert_eq!(text, format!("{head}connection: keep-alive\r\n\r\nhello{head}\r\nhello"));
    assert_eq!(end, ConnectionEnd::Finished);
    let (text, _) = tell(&(old("/unknown", "connection: keep-alive\r\n") + GET)).await;
    assert_eq!(text, "HTTP/1.0 200 OK\r\n\r\nonethree", "only the close ends it");
}

#[tokio::test(start_paused = true)]
async fn trailers_go_to_clients_that_take_them() {
    let (text, _) = tell("GET /trailers HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n").await;
    assert!(text.ends_with("5\r\nhello\r\n0\r\nx-sum: 1\r\n\r\n"), "{text}");
    let (text, _) = tell(&get("/trailers")).await;
    assert!(text.ends_with("5\r\nhello\r\n0\r\n\r\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn bodies_that_break_off_end_the_connection() {
    for (path, ending) in [
        ("/short", ConnectionEnd::Finished),
        ("/broken", ConnectionEnd::Finished),
        ("/moved/waits", ConnectionEnd::Moved),
    ] {
        let (text, end) = tell(&(get(path) + GET)).await;
        assert_eq!(text, "HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n0123", "{path}");
        assert_eq!(end, ending, "{path}");
    }
    assert_eq!(tell(&(get("/silent") + GET)).await, (String::new(), ConnectionEnd::Finished));
}

#[tokio::test(start_paused = true)]
async fn unread_bodies_are_passed_over_if_they_have_come() {
    let post = |length: usize, body: &str| {
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let (text, end) = tell(&(post(5, "abcde") + GET)).await;
    assert_eq!((text.matches("200 OK").count(), end), (2, ConnectionEnd::Closed));
    let (text, end) = tell(&post(50, "abcde")).await;
    assert_eq!((text.matches("200 OK").count(), end), (1, ConnectionEnd::Finished));
}

#[tokio::test(start_paused = true)]
async fn body_is_asked_for_when_the_service_wants_it() {
    let post = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc"
        )
    };
    let (text, _) = tell(&post("/read")).await;
    assert!(
        text.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nx-read: 3\r\n"),
        "{text}"
    );
    let (text, _) = tell(&post("/")).await;
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn client_that_waits_to_be_asked_for_an_unwanted_body_is_told_of_the_end() {
    let (near, mut far) = duplex(1 << 16);
    far.write_all(
        b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 26\r\n\r\n",
    )
    .await
    .unwrap();
    let serving = serve_http1(near, &Paths, conduct(STAYS), std::future::pending());
    let client = async {
        let mut text = String::new();
        far.read_to_string(&mut text).await.unwrap();
        without_dates(&text)
    };
    let (served, text) = tokio::join!(serving, client);
    assert_eq!(text, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello");
    assert!(matches!(served, Served::Ended(ConnectionEnd::Finished)), "{served:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_behind_a_refused_tunnel_is_a_request() {
    // Some clients send the first bytes of a tunnel ahead, and others decide what these are.
    let connect = "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n";
    let (text, end) = tell(&(connect.to_owned() + GET)).await;
    assert_eq!((text.matches("HTTP/1.1 ").count(), end), (1, ConnectionEnd::Finished), "{text}");
}

#[tokio::test(start_paused = true)]
async fn body_that_the_service_has_dropped_is_not_waited_for() {
    struct Drops;
    impl Http1Service for Drops {
        type Body = Pieces;
        async fn call(&self, request: Request<IncomingBody>) -> Option<Response<Pieces>> {
            let mut body = request.into_body();
            let asked = poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx).is_pending()));
            assert!(asked.await);
            drop(body);
            tokio::time::sleep(2 * LIMITS.body.time).await;
            Some(Response::new(Pieces::known("hello")))
        }
    }
    let (near, mut far) = duplex(1 << 16);
    far.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n").await.unwrap();
    let serving = serve_http1(near, &Drops, conduct(STAYS), std::future::pending());
    let mut text = String::new();
    let read = far.read_to_string(&mut text);
    let served = tokio::join!(serving, read).0;
    assert!(matches!(served, Served::Ended(ConnectionEnd::Finished)), "{served:?}");
    assert!(text.ends_with("hello"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn stream_is_given_back_after_a_while_and_after_a_response() {
    let rests = Pause::Between { rests_after: Some(Duration::from_secs(1)), idle_until: None };
    for pause in [rests, Pause::AfterResponse] {
        let (near, mut far) = duplex(1 << 16);
        far.write_all((GET.to_owned() + GET).as_bytes()).await.unwrap();
        let served = serve_http1(near, &Paths, conduct(pause), std::future::pending()).await;
        let Served::Resting(stream, until) = served else { panic!("{served:?}") };
        assert!(until > Instant::now());
        drop(stream);
        let mut text = String::new();
        far.read_to_string(&mut text).await.unwrap();
        assert_eq!(text.matches("hello").count(), 2);
    }
    let (near, _far) = duplex(1 << 16);
    let idle = Pause::Between { rests_after: None, idle_until: Some(after(LIMITS.head_timeout)) };
    let start = Instant::now();
    let served = serve_http1(near, &Paths, conduct(idle), std::future::pending()).await;
    assert!(matches!(served, Served::Ended(ConnectionEnd::IdleTimeout)));
    assert!(start.elapsed() < LIMITS.idle_timeout);
}

#[tokio::test(start_paused = true)]
async fn every_wait_has_a_limit_of_its_own() {
    let with_body = "POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    for (bytes, end, limit) in [
        ("", ConnectionEnd::IdleTimeout, LIMITS.idle_timeout),
        ("\r\n", ConnectionEnd::IdleTimeout, LIMITS.idle_timeout),
        ("GET / HTTP/1.1\r\n", ConnectionEnd::HeadTimeout, LIMITS.head_timeout),
        (with_body, ConnectionEnd::BodyTimeout, LIMITS.body.time),
    ] {
        let (near, mut far) = duplex(1 << 16);
        far.write_all(bytes.as_bytes()).await.unwrap();
        let start = Instant::now();
        let serving = serve_http1(near, &Paths, conduct(STAYS), std::future::pending());
        let client = async {
            far.read_to_string(&mut String::new()).await.unwrap();
            start.elapsed()
        };
        let (served, took) = tokio::join!(serving, client);
        assert!(matches!(served, Served::Ended(ended) if ended == end), "{served:?}");
        assert_eq!(took.as_secs(), limit.as_secs(), "{end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn connection_that_switches_gives_back_its_stream_and_what_came_ahead() {
    let request = "GET /101 HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n\0frames";
    let (text, served) = tell_with(request.as_bytes(), usize::MAX, STAYS).await;
    assert_eq!(text, "HTTP/1.1 101 Switching Protocols\r\n\r\n");
    let Served::Switched(_, ahead) = served else { panic!("{served:?}") };
    assert_eq!(ahead, b"\0frames");
    let (text, _) = tell(&(request.replace("/101", "/").replace("\0frames", "") + GET)).await;
    assert_eq!(text.matches("hello").count(), 2, "an answer in HTTP");
}

#[tokio::test(start_paused = true)]
async fn connection_ends_when_all_is_over_but_not_within_a_request() {
    let (near, mut far) = duplex(1 << 16);
    let over = tokio::time::sleep(Duration::from_secs(1));
    let end = tokio::spawn(async move {
        let served = serve_http1(near, &Paths, conduct(STAYS), over).await;
        matches!(served, Served::Ended(ConnectionEnd::Finished))
    });
    far.write_all(b"GET / HTTP/1.1\r\nHo").await.unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    far.write_all(b"st: a\r\n\r\n").await.unwrap();
    let mut text = String::new();
    far.read_to_string(&mut text).await.unwrap();
    assert!(text.contains("connection: close\r\n") && text.ends_with("hello"), "{text}");
    assert!(end.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn interim_responses_come_before_the_final_one() {
    struct Hints(Arc<Interims>);
    impl Http1Service for Hints {
        type Body = Pieces;
        async fn call(&self, _: Request<IncomingBody>) -> Option<Response<Pieces>> {
            if let Some(way) = self.0.of_this_request() {
                way.pass(StatusCode::EARLY_HINTS, &HeaderMap::new());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some(Response::new(Pieces::known("hello")))
        }
    }
    for (version, hints) in [("1.1", 1), ("1.0", 0)] {
        let (near, mut far) = duplex(1 << 16);
        let conduct = conduct(STAYS);
        let service = Hints(conduct.interims.clone());
        let request = format!("GET / HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n");
        far.write_all(request.as_bytes()).await.unwrap();
        let _ = serve_http1(near, &service, conduct, std::future::pending()).await;
        let mut text = String::new();
        far.read_to_string(&mut text).await.unwrap();
        assert_eq!(text.matches("103 Early Hints\r\n\r\n").count(), hints, "{text}");
        assert!(text.ends_with("hello"), "{text}");
    }
}

#[tokio::test]
async fn chunk_is_sent_in_place_of_its_stand_in() {
    struct Chunks(Arc<ZeroCopyQueue>);
    impl Http1Service for Chunks {
        type Body = http_body_util::Full<Bytes>;
        async fn call(&self, _: Request<IncomingBody>) -> Option<Response<Self::Body>> {
            let segments = [(); 2].map(|()| Bytes::from(vec![b'x'; 100_000]));
            let chunk = ZeroCopyChunk::Memory(Segments::new(Arc::new(segments), None));
            let stand_in = self.0.hand_in(&chunk, 0, u64::MAX).unwrap();
            Some(Response::new(http_body_util::Full::new(stand_in)))
        }
    }
    let (near, mut far) = duplex(1 << 16);
    let queue = Arc::new(ZeroCopyQueue::default());
    let (service, mut conduct) = (Chunks(queue.clone()), conduct(STAYS));
    conduct.zero_copy = Some(queue);
    let client = async {
        far.write_all(GET.as_bytes()).await.unwrap();
        far.shutdown().await.unwrap();
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).await.unwrap();
        bytes
    };
    let serving = serve_http1(near, &service, conduct, std::future::pending());
    let bytes = tokio::join!(async { drop(serving.await) }, client).1;
    assert!(bytes.starts_with(b"HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n"));
    assert!(bytes.ends_with(&[b'x'; 200_000]) && !bytes.contains(&0));
}

/// The same by hyper's server.
async fn tell_hyper(bytes: &[u8], pieces: usize) -> String {
    let (near, far) = duplex(1 << 16);
    let (mut from, mut to) = tokio::io::split(far);
    let send = send(&mut to, bytes, pieces);
    let read = async {
        let mut text = Vec::new();
        let _ = from.read_to_end(&mut text).await;
        String::from_utf8(text).unwrap()
    };
    let service = service_fn(|request| async {
        Ok::<_, Infallible>(
            respond(request).await.unwrap_or_else(|| Response::new(Pieces::known(""))),
        )
    });
    let serve = hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .serve_connection(TokioIo::new(near), service);
    let (_, (), text) = tokio::join!(serve, send, read);
    without_dates(&text)
}

/// Responses as both servers must give them. Where a connection breaks off, the bytes on their way may differ.
fn responses(text: &str, reads_all: bool) -> Vec<String> {
    let lines = |response: &str| {
        let (head, body) = response.split_once("\r\n\r\n").unwrap_or((response, ""));
        let mut lines: Vec<_> = head.lines().map(str::to_owned).collect();
        // The order of fields that the servers add themselves is not the same.
        lines[1..].sort();
        // hyper promises an older client that the connection stays, and closes it: to end the body, or because
        // the response says so.
        for line in &mut lines {
            *line = line.replace("connection: close, keep-alive", "connection: close");
        }
        if lines[0].starts_with('0') && !head.contains("content-length: ") {
            lines.retain(|line| line != "connection: keep-alive");
        }
        // hyper leaves `Trailer` out of responses that are not in chunks.
        lines.retain(|line| !line.starts_with("trailer: "));
        if !reads_all {
            // hyper does not tell the end to a client that waits to be asked for its body.
            lines.retain(|line| line != "connection: close");
        }
        // Sizes of chunks may have digits of either case.
        format!("{lines:?} {}", body.to_lowercase())
    };
    text.split("HTTP/1.").skip(1).map(lines).collect()
}

/// Requests, whether the service reads all bodies, and whether a response may break off.
fn exchanges() -> impl Strategy<Value = (String, bool, bool)> {
    let method = prop::sample::select(vec!["GET", "HEAD", "POST", "PUT", "OPTIONS", "X"]);
    let words = vec![
        "unknown", "empty", "bytes", "waits", "204", "304", "404", "close", "fields", "read", "x",
        "trailers", "long", "short", "broken", "read", "waits",
    ];
    let path = prop::collection::vec(prop::sample::select(words), 0..4);
    let version = prop::sample::select(vec!["1.1", "1.1", "1.1", "1.0"]);
    let fields = prop::sample::select(vec![
        "",
        "connection: keep-alive\r\n",
        "Connection: Keep-Alive, x\r\n",
        "connection: close\r\n",
        "Connection: x , CLOSE\r\n",
        "connection: keep-alive\r\nconnection: close\r\n",
        "te: trailers\r\n",
        "TE: gzip, trailers\r\nconnection: te\r\n",
        "x-long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n",
        "expect: 100-continue\r\n",
    ]);
    let long = format!("content-length: 30000\r\n\r\n{}", "x".repeat(30_000));
    let chunk = "x".repeat(0x1234);
    let chunks =
        format!("transfer-encoding: chunked\r\n\r\n1234\r\n{chunk}\r\n1\r\n\n\r\n0\r\n\r\n");
    let body = prop::sample::select(vec![
        // The tolerated empty line before the next request.
        "\r\n\r\n",
        &*long.leak(),
        &*chunks.leak(),
        "\r\n",
        "\r\n",
        "content-length: 0\r\n\r\n",
        "content-length: 5\r\n\r\nabcde",
        "Content-Length: 005\r\n\r\nabcde",
        "Transfer-Encoding: Chunked\r\n\r\n05\r\nabcde\r\n00\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n5;a=b\r\nabcde\r\n3\r\nabc\r\n0\r\nx-sum: 1\r\n\r\n",
    ]);
    let request = (method, path, version, fields, body);
    prop::collection::vec(request, 1..5).prop_map(|requests| {
        let text = |(method, path, version, fields, body): &(_, Vec<&str>, _, _, &str)| {
            let chunks =
                if *version == "1.0" && body.starts_with(['t', 'T']) { "\r\n" } else { body };
            format!("{method} /{} HTTP/{version}\r\nhost: a\r\n{fields}{chunks}", path.join("/"))
        };
        let reads_all = |(_, path, _, _, body): &(_, Vec<&str>, _, _, &str)| {
            path.contains(&"read") || !body.contains(':') || body.contains(": 0\r\n")
        };
        let breaks = |(_, path, ..): &(_, Vec<&str>, _, _, _)| {
            path.contains(&"short") || path.contains(&"broken")
        };
        (
            requests.iter().map(text).collect(),
            requests.iter().all(reads_all),
            requests.iter().any(breaks),
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]
    #[test]
    fn responses_are_those_of_hyper((text, reads_all, breaks) in exchanges(), piece in prop_oneof![1_usize..60, 60_usize..9000, Just(usize::MAX)]) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (ours, served) = runtime.block_on(tell_with(text.as_bytes(), piece, STAYS));
        let theirs = runtime.block_on(tell_hyper(text.as_bytes(), piece));
        prop_assert!(matches!(served, Served::Ended(_)));
        let (mut ours, mut theirs) = (responses(&ours, reads_all), responses(&theirs, reads_all));
        if !reads_all || breaks {
            // Each server passes over as much of an unread body as it finds, hyper over its first piece only.
            let both = ours.len().min(theirs.len());
            ours.truncate(both);
            theirs.truncate(both);
        }
        if breaks {
            ours.pop();
            theirs.pop();
        }
        prop_assert_eq!(ours, theirs, "{}", text);
    }
}

/// How many exchanges are compared: `LEVADA_EXCHANGES` sets it for long runs.
pub(in crate::server) fn cases() -> u32 {
    std::env::var("LEVADA_EXCHANGES").map_or(3000, |cases| cases.parse().unwrap())
}

#[test]
fn waiting_costs_no_polls() {
    // A service that never answers is polled once, and the connection does not wake itself.
    struct Never(std::cell::Cell<u32>);
    impl Http1Service for Never {
        type Body = Pieces;
        fn call(
            &self,
            _: Request<IncomingBody>,
        ) -> impl Future<Output = Option<Response<Pieces>>> + Send {
            self.0.set(self.0.get() + 1);
            std::future::pending()
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (near, mut far) = duplex(1 << 16);
        far.write_all(GET.as_bytes()).await.unwrap();
        let service = Never(std::cell::Cell::new(0));
        let mut serving = pin!(serve_http1(near, &service, conduct(STAYS), std::future::pending()));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(serving.as_mut().poll(&mut cx).is_pending());
        assert!(serving.as_mut().poll(&mut cx).is_pending());
        assert_eq!(service.0.get(), 1);
    });
}
