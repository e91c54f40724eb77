//! The server side of HTTP/1 over real sockets: its faults, deadlines and ends.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::{sleep, timeout},
};

use super::{fault::Fault, *};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const CHUNKED: &str = "Host: a\r\nTransfer-Encoding: chunked\r\n\r\n";
/// Longer than any test takes, however busy the machine.
const FOREVER: Duration = Duration::from_secs(60);
const LIMITS: ConnectionLimits = ConnectionLimits {
    head: HeadBounds { head: 32 << 10, fields: 100 },
    idle_timeout: Duration::from_secs(75),
    head_timeout: Duration::from_secs(10),
    body: Patience { time: Duration::from_secs(30), min_rate: 500 },
    send: Patience { time: Duration::from_secs(60), min_rate: 500 },
};

/// A server, and the endings of its connections in the order of their ends.
struct Server {
    address: SocketAddr,
    endings: mpsc::UnboundedReceiver<ConnectionEnd>,
}

impl Server {
    async fn start(limits: ConnectionLimits) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, endings) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sender = sender.clone();
                tokio::spawn(async move { sender.send(serve(stream, limits).await) });
            }
        });
        Self { address, endings }
    }

    async fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Sends `request`, and returns everything that comes back until the server closes.
    async fn tell(&self, request: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request).await.unwrap();
        rest(&mut stream).await
    }

    async fn ending(&mut self) -> ConnectionEnd {
        timeout(FOREVER, self.endings.recv()).await.unwrap().unwrap()
    }
}

async fn serve(stream: TcpStream, limits: ConnectionLimits) -> ConnectionEnd {
    let conduct = Http1Conduct {
        limits,
        interims: Arc::default(),
        zero_copy: None,
        pause: Pause::Between { rests_after: None, idle_until: None },
    };
    match serve_http1(stream, &TestService, conduct, std::future::pending()).await {
        Served::Ended(end) => end,
        _ => panic!("it has not ended"),
    }
}

struct TestService;

impl Http1Service for TestService {
    type Body = BoxBody<Bytes, IncomingBodyError>;

    async fn call(&self, request: Request<IncomingBody>) -> Option<Response<Self::Body>> {
        Some(Response::new(respond(request).await))
    }
}

async fn respond(request: Request<IncomingBody>) -> BoxBody<Bytes, IncomingBodyError> {
    match request.uri().path() {
        "/slow" => sleep(Duration::from_millis(500)).await,
        "/never" => std::future::pending().await,
        "/big" => return full(vec![b'x'; 64 << 20]),
        "/early" => return full("early"),
        "/echo" => return request.into_body().boxed(),
        _ => {}
    }
    match request.into_body().collect().await {
        Ok(body) => full(format!("took {}", body.to_bytes().len())),
        Err(_) => full("a broken body"),
    }
}

fn full(body: impl Into<Bytes>) -> BoxBody<Bytes, IncomingBodyError> {
    Full::new(body.into()).map_err(|never| match never {}).boxed()
}

/// Everything until the end of the stream.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    timeout(FOREVER, stream.read_to_end(&mut bytes))
        .await
        .expect("the connection stays open")
        .unwrap();
    String::from_utf8(bytes).unwrap()
}

/// The error by which the stream ends.
async fn cut(stream: &mut TcpStream) -> std::io::ErrorKind {
    let read = timeout(FOREVER, stream.read_to_end(&mut Vec::new())).await;
    read.expect("the connection stays open").expect_err("it ends in order").kind()
}

/// Everything until `end` has come.
async fn until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        let byte = timeout(FOREVER, stream.read_u8()).await.expect("nothing comes").expect(&text);
        text.push(byte.into());
    }
    text
}

/// The statuses of all responses; a sentence may name the version too.
fn statuses(text: &str) -> Vec<&str> {
    let responses = text.split("HTTP/1.1 ").skip(1).filter_map(|response| response.get(..3));
    responses.filter(|status| status.bytes().all(|byte| byte.is_ascii_digit())).collect()
}

/// Limits whose deadlines are `milliseconds`.
fn within(milliseconds: u64) -> ConnectionLimits {
    let timeout = Duration::from_millis(milliseconds);
    ConnectionLimits {
        head_timeout: timeout,
        idle_timeout: timeout,
        body: Patience { time: timeout, min_rate: 0 },
        send: Patience { time: timeout, min_rate: 0 },
        ..LIMITS
    }
}

fn expect_refusal(text: &str, fault: Fault, request: &[u8]) {
    let shown = request[..request.len().min(200)].escape_ascii();
    let Some(status) = fault.status() else {
        assert_eq!(text, "", "{shown}");
        return;
    };
    assert_eq!(statuses(text), [status.as_str()], "{shown}: {text}");
    assert!(
        text.contains("\r\nConnection: close\r\n") && text.contains(fault.sentence()),
        "{shown}: {text}"
    );
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_request() {
    let mut server = Server::start(LIMITS).await;
    let request =
        |method: &str, fields| format!("{method} /never HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    for request in [
        request("GET", ""),
        // The next request has come, too.
        request("GET", "") + GET,
        // The service has not asked for the body.
        request("POST", "Content-Length: 5\r\n") + "abc",
    ] {
        let mut stream = server.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(server.ending().await, ConnectionEnd::Cut, "{request}");
        let mut stream = server.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.set_zero_linger().unwrap();
        drop(stream);
        assert!(
            matches!(server.ending().await, ConnectionEnd::Broken | ConnectionEnd::Cut),
            "{request}"
        );
    }
}

#[tokio::test]
async fn every_fault_gets_its_status_and_ends_the_connection() {
    let mut server = Server::start(LIMITS).await;
    for (request, fault) in parser::tests::bad() {
        expect_refusal(&server.tell(&request).await, fault, &request);
        assert_eq!(server.ending().await, ConnectionEnd::Violation(fault));
    }
}

#[tokio::test]
async fn a_fault_that_arrives_in_pieces_gets_its_status_too() {
    let mut server = Server::start(LIMITS).await;
    let small = |row: &(Vec<u8>, Fault)| row.0.len() < 150;
    for (request, fault) in parser::tests::bad().into_iter().filter(small) {
        let mut stream = server.connect().await;
        for piece in request.chunks(11) {
            // The server may have refused already, and closed.
            if stream.write_all(piece).await.is_err() {
                break;
            }
            sleep(Duration::from_millis(1)).await;
        }
        expect_refusal(&rest(&mut stream).await, fault, &request);
        drop(stream);
        assert_eq!(server.ending().await, ConnectionEnd::Violation(fault));
    }
}

#[tokio::test]
async fn requests_in_pieces_are_answered() {
    let mut server = Server::start(LIMITS).await;
    let mut stream = server.connect().await;
    let request = format!(
        "POST / HTTP/1.1\r\n{CHUNKED}5;a\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\nX: y\r\n\r\n"
    );
    for size in [1, 2, 3, 7, 40, 1000] {
        for piece in request.as_bytes().chunks(size) {
            stream.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        assert_eq!(statuses(&until(&mut stream, "took 21").await), ["200"]);
    }
    drop(stream);
    assert_eq!(server.ending().await, ConnectionEnd::Closed);
}

#[tokio::test]
async fn a_good_request_is_answered_before_a_bad_one_is_refused() {
    let mut server = Server::start(LIMITS).await;
    for good in [GET, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"]
    {
        let text = server.tell(format!("{good}{good}GET / HTTP/1.1\r\n\r\n").as_bytes()).await;
        assert_eq!(statuses(&text), ["200", "200", "400"], "{text}");
        assert_eq!(server.ending().await, ConnectionEnd::Violation(Fault::HostMissing));
    }
}

#[tokio::test]
async fn a_bad_request_that_comes_during_a_response_waits_for_its_end() {
    let server = Server::start(LIMITS).await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    sleep(Duration::from_millis(100)).await;
    stream.write_all(b"GET / HTTP/1.1\nHost: a\n\n").await.unwrap();
    let text = rest(&mut stream).await;
    assert_eq!(statuses(&text), ["200", "400"], "{text}");
}

#[tokio::test]
async fn a_broken_body_never_looks_complete() {
    let mut server = Server::start(LIMITS).await;
    let mut stream = server.connect().await;
    stream
        .write_all(format!("POST /echo HTTP/1.1\r\n{CHUNKED}5\r\nhello\r\n").as_bytes())
        .await
        .unwrap();
    let mut text = until(&mut stream, "hello\r\n").await;
    stream.write_all(b"x\r\n0\r\n\r\n").await.unwrap();
    let mut bytes = Vec::new();
    // A reset is as good an end as any here: the response is cut.
    let _ = timeout(FOREVER, stream.read_to_end(&mut bytes)).await.unwrap();
    text.push_str(&String::from_utf8(bytes).unwrap());
    assert_eq!(statuses(&text), ["200"], "{text}");
    assert!(text.ends_with("hello\r\n"), "{text}");
    assert_eq!(server.ending().await, ConnectionEnd::Violation(Fault::ChunkSize));
}

#[tokio::test]
async fn a_response_that_a_late_body_cuts_ends_by_a_reset() {
    let mut server = Server::start(within(200)).await;
    let mut stream = server.connect().await;
    let request = format!("POST /echo HTTP/1.1\r\n{CHUNKED}5\r\nhello\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    until(&mut stream, "hello\r\n").await;
    assert_eq!(cut(&mut stream).await, std::io::ErrorKind::ConnectionReset);
    assert_eq!(server.ending().await, ConnectionEnd::BodyTimeout);
}

#[tokio::test]
async fn a_last_response_reaches_a_client_that_has_sent_more_requests() {
    let server = Server::start(LIMITS).await;
    let last = "GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert!(server.tell((last.to_owned() + &GET.repeat(2000)).as_bytes()).await.len() > 64 << 20);
}

#[tokio::test]
async fn a_bad_body_is_refused_after_it_was_asked_for() {
    let server = Server::start(LIMITS).await;
    let mut stream = server.connect().await;
    let request = format!("POST / HTTP/1.1\r\nExpect: 100-continue\r\n{CHUNKED}");
    stream.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(statuses(&until(&mut stream, "\r\n\r\n").await), ["100"]);
    stream.write_all(b"x\r\n").await.unwrap();
    assert_eq!(statuses(&rest(&mut stream).await), ["400"]);
}

#[tokio::test]
async fn a_slow_head_gets_408_however_steadily_it_drips() {
    let mut server =
        Server::start(ConnectionLimits { head_timeout: Duration::from_millis(300), ..LIMITS })
            .await;
    for kept_alive in [false, true] {
        let mut stream = server.connect().await;
        if kept_alive {
            stream.write_all(GET.as_bytes()).await.unwrap();
            until(&mut stream, "took 0").await;
        }
        let (mut read, mut write) = stream.split();
        let drip = async {
            loop {
                let _ = write.write_all(b"G").await;
                sleep(Duration::from_millis(20)).await;
            }
        };
        let mut text = String::new();
        tokio::select! {
            _ = drip => {}
            read = timeout(FOREVER, read.read_to_string(&mut text)) => { read.unwrap().unwrap(); }
        }
        assert_eq!(statuses(&text), ["408"], "{text}");
        drop(stream);
        assert_eq!(server.ending().await, ConnectionEnd::HeadTimeout);
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_without_a_word() {
    let mut server = Server::start(within(200)).await;
    assert_eq!(server.tell(b"").await, "");
    assert_eq!(server.ending().await, ConnectionEnd::IdleTimeout);
    let text = server.tell(GET.as_bytes()).await;
    assert_eq!(statuses(&text), ["200"]);
    assert_eq!(server.ending().await, ConnectionEnd::IdleTimeout);
    assert_eq!(server.tell(b"\r\n").await, "");
    assert_eq!(server.ending().await, ConnectionEnd::IdleTimeout);
}

#[tokio::test]
async fn every_request_starts_the_idle_deadline_anew() {
    let mut server = Server::start(within(1500)).await;
    let mut stream = server.connect().await;
    // Together longer than the deadline.
    for _ in 0..8 {
        stream.write_all(GET.as_bytes()).await.unwrap();
        until(&mut stream, "took 0").await;
        sleep(Duration::from_millis(300)).await;
    }
    drop(stream);
    assert_eq!(server.ending().await, ConnectionEnd::Closed);
}

#[tokio::test]
async fn a_slow_service_costs_the_client_nothing() {
    let server = Server::start(within(100)).await;
    let text = server.tell(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(statuses(&text), ["200"], "{text}");
}

#[tokio::test]
async fn a_body_that_stops_gets_408() {
    let mut server = Server::start(within(200)).await;
    for request in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhel",
        &format!("POST / HTTP/1.1\r\n{CHUNKED}5\r\nhe"),
    ] {
        let text = server.tell(request.as_bytes()).await;
        assert_eq!(statuses(&text), ["408"], "{text}");
        assert_eq!(server.ending().await, ConnectionEnd::BodyTimeout);
    }
}

#[tokio::test]
async fn a_body_that_goes_on_slowly_is_taken() {
    let server = Server::start(within(1500)).await;
    let mut stream = server.connect().await;
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n").await.unwrap();
    for _ in 0..8 {
        sleep(Duration::from_millis(300)).await;
        stream.write_all(b"x").await.unwrap();
    }
    until(&mut stream, "took 8").await;
}

#[tokio::test]
async fn a_reader_that_stops_is_cut() {
    let mut server = Server::start(within(300)).await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert_eq!(server.ending().await, ConnectionEnd::SendTimeout);
    assert_eq!(cut(&mut stream).await, std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_reader_that_goes_on_slowly_is_served() {
    let server = Server::start(within(2000)).await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut piece = vec![0; 4 << 20];
    let mut total = 0;
    loop {
        match timeout(FOREVER, stream.read(&mut piece)).await.unwrap().unwrap() {
            0 => break,
            count => total += count,
        }
        sleep(Duration::from_millis(5)).await;
    }
    assert!(total > 64 << 20, "{total}");
}

#[tokio::test]
async fn an_early_response_reaches_a_client_that_is_still_sending() {
    let server = Server::start(LIMITS).await;
    let mut stream = server.connect().await;
    let head = b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 600000\r\n\r\n";
    stream.write_all(head).await.unwrap();
    for _ in 0..6 {
        stream.write_all(&[b'x'; 100_000]).await.unwrap();
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(statuses(&rest(&mut stream).await), ["200"]);
}

#[tokio::test]
async fn a_client_that_leaves_is_told_from_one_that_breaks_off() {
    let partial = format!("POST / HTTP/1.1\r\n{CHUNKED}5\r\nhe");
    let rows = [
        ("", ConnectionEnd::Closed),
        ("GET / HT", ConnectionEnd::Cut),
        (&partial, ConnectionEnd::Cut),
    ];
    let mut server = Server::start(LIMITS).await;
    for (request, ending) in rows {
        let mut stream = server.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        drop(stream);
        assert_eq!(server.ending().await, ending, "{request}");
    }
}

/// Limits with little time, all of which `min_rate` bytes per second renew.
fn at_least(min_rate: u64) -> ConnectionLimits {
    let patience = Patience { time: Duration::from_millis(1500), min_rate };
    ConnectionLimits { body: patience, send: patience, ..LIMITS }
}

/// Reads a little at a time for much longer than the limits allow without a byte, then everything.
async fn read_slowly(server: &Server) -> usize {
    let mut stream = server.connect().await;
    stream.write_all(b"GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    let (mut piece, mut read) = (vec![0; 4096], 0);
    for _ in 0..120 {
        read += timeout(FOREVER, stream.read(&mut piece)).await.unwrap().unwrap_or(0);
        sleep(Duration::from_millis(30)).await;
    }
    let mut rest = Vec::new();
    let _ = timeout(FOREVER, stream.read_to_end(&mut rest)).await.expect("it ends");
    read + rest.len()
}

#[tokio::test]
async fn slow_but_steady_reader_is_served_to_the_end() {
    let mut server = Server::start(at_least(500)).await;
    assert!(read_slowly(&server).await > 64 << 20);
    assert_eq!(server.ending().await, ConnectionEnd::Finished);
}

#[tokio::test]
async fn reader_below_the_least_rate_is_cut() {
    let mut server = Server::start(at_least(100 << 20)).await;
    assert!(read_slowly(&server).await < 64 << 20);
    assert_eq!(server.ending().await, ConnectionEnd::SendTimeout);
}

/// Sends a body in pieces of `length` bytes; returns the answer.
async fn send_slowly(server: &Server, length: usize) -> String {
    let mut stream = server.connect().await;
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 150 * length);
    stream.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..150 {
        if stream.write_all(&vec![b'x'; length]).await.is_err() {
            break;
        }
        sleep(Duration::from_millis(20)).await;
    }
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let _ = timeout(FOREVER, stream.read_to_end(&mut answer)).await.expect("it ends");
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn body_that_trickles_gets_408_and_a_slow_one_is_taken() {
    let mut server = Server::start(at_least(500)).await;
    assert_eq!(statuses(&send_slowly(&server, 1).await), ["408"]);
    assert_eq!(server.ending().await, ConnectionEnd::BodyTimeout);
    let taken = send_slowly(&server, 100).await;
    assert!(taken.ends_with("took 15000"), "{taken}");
}
