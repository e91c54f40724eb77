//! Origins and clients of HTTP/1.0: version, `Connection`, `Date` and framing are the node's own on each side.

use std::{
    net::SocketAddr,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    sync::Notify,
};

use crate::{
    http2,
    support::{nodes::*, *},
};

/// A head with its line ends, byte by byte: nothing after it is lost.
async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within(stream.read_u8()).await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Sends a request and reads the head of its response.
async fn ask(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    read_head(stream).await.to_ascii_lowercase()
}

async fn take(stream: &mut TcpStream, length: usize) -> String {
    let mut bytes = vec![0; length];
    within(stream.read_exact(&mut bytes)).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Python's server, which speaks HTTP/1.0 and closes after each response.
async fn python(directory: &std::path::Path) -> Option<(Child, SocketAddr)> {
    if levada_skip::lacks("python3", "python3") {
        return None;
    }
    let mut server = Command::new("python3")
        .args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1"])
        .current_dir(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut output = BufReader::new(server.stdout.take()?);
    within(output.read_line(&mut said)).await.ok()?;
    let port = said.split("port ").nth(1)?.split(' ').next()?.parse().ok()?;
    Some((server, SocketAddr::from(([127, 0, 0, 1], port))))
}

#[tokio::test]
async fn pythons_server_keeps_no_client_from_its_connection() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a.txt"), "from a file\n").unwrap();
    let Some((_server, origin)) = python(directory.path()).await else { return };
    let node = start(single(&[origin])).await;
    let mut client = TcpStream::connect(node.addresses.clients[0]).await.unwrap();
    for round in 0..3 {
        for path in ["/a.txt", "/a.txt?again"] {
            let head = ask(&mut client, &head_of("GET", path, &[])).await;
            assert!(head.starts_with("http/1.1 200 ok\r\n"), "{round}: {head}");
            assert!(!head.contains("\r\nconnection:"), "{head}");
            assert_eq!(head.matches("\r\ndate: ").count(), 1, "{head}");
            assert_eq!(take(&mut client, 12).await, "from a file\n");
        }
        let head = ask(&mut client, &head_of("GET", "/missing", &[])).await;
        assert!(head.starts_with("http/1.1 404 "), "{head}");
        let length = head.split("content-length: ").nth(1).unwrap().split('\r').next().unwrap();
        take(&mut client, length.parse().unwrap()).await;
    }
    settled(&node).await;
}

/// The answer of an old server: with fields of its own connection, and a body that ends with it.
const OLD: &str = "HTTP/1.0 200 OK\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
    Proxy-Connection: close\r\nServer: old\r\n\r\nhello";

#[tokio::test]
async fn client_sees_nothing_of_the_connection_to_an_old_origin() {
    let (origin, node, at) = alone(|s| s.listeners[0].h2c = true).await;
    origin.on("/a", Reply::raw(OLD));
    origin.on("/counted", Reply::raw(OLD.replace("Server", "Content-Length: 5\r\nServer")));
    let mut client = TcpStream::connect(at).await.unwrap();
    for _ in 0..2 {
        let head = ask(&mut client, &head_of("GET", "/a", &[])).await;
        assert!(head.starts_with("http/1.1 200 ok\r\n"), "{head}");
        assert!(head.contains("\r\ntransfer-encoding: chunked\r\n"), "{head}");
        for gone in ["\r\nconnection:", "x-hop", "keep-alive", "proxy-connection", "content-length"]
        {
            assert!(!head.contains(gone), "{gone}: {head}");
        }
        assert_eq!(take(&mut client, 15).await, "5\r\nhello\r\n0\r\n\r\n");
        let head = ask(&mut client, &head_of("GET", "/counted", &[])).await;
        assert!(head.contains("\r\ncontent-length: 5\r\n") && !head.contains("chunked"), "{head}");
        assert_eq!(take(&mut client, 5).await, "hello");
    }
    let mut sender = http2::h2c(at).await;
    assert_eq!(http2::fetch(&mut sender, http2::ask("/a")).await, (200, "hello".into()));
    settled(&node).await;
}

#[tokio::test]
async fn connections_of_origins_end_as_they_say_and_those_of_clients_go_on() {
    for (head, framing, kept) in [
        ("HTTP/1.0 200 OK", "Connection: keep-alive\r\nContent-Length: 5", true),
        (
            "HTTP/1.0 200 OK",
            "Connection: Keep-Alive\r\nKeep-Alive: timeout=5\r\nContent-Length: 5",
            true,
        ),
        ("HTTP/1.0 200 OK", "Content-Length: 5", false),
        ("HTTP/1.0 200 OK", "Connection: keep-alive, close\r\nContent-Length: 5", false),
        ("HTTP/1.1 200 OK", "Content-Length: 5", true),
        ("HTTP/1.1 200 OK", "Connection: close\r\nContent-Length: 5", false),
        ("HTTP/1.1 200 OK", "Connection: close", false),
        ("HTTP/1.1 200 OK", "Server: old", false),
    ] {
        let (origin, connections) = answering(format!("{head}\r\n{framing}\r\n\r\nhello")).await;
        let mut settings = single(&[origin]);
        settings.sites[0].handling.cache = false;
        let node = start(settings).await;
        let mut wire = Wire::to(node.addresses.clients[0]).await;
        for _ in 0..3 {
            wire.send(head_of("GET", "/", &[])).await;
            let answer = wire.answer().await;
            assert_eq!((answer.text().as_str(), answer.whole), ("hello", true), "{framing}");
            assert_eq!(answer.header("connection"), None);
            settled(&node).await;
        }
        let expected = if kept { 1 } else { 3 };
        assert_eq!(connections.load(Relaxed), expected, "{head} {framing}");
    }
}

/// An origin that answers each request with these bytes, and ends its connection if they have no length.
async fn answering(answer: String) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, connections) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let opened = connections.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            opened.fetch_add(1, Relaxed);
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut asked = Vec::new();
                while stream.read_buf(&mut asked).await.is_ok_and(|read| read > 0) {
                    if asked.ends_with(b"\r\n\r\n") {
                        asked.clear();
                        stream.write_all(answer.as_bytes()).await.unwrap();
                        if !answer.contains("Content-Length") {
                            return;
                        }
                    }
                }
            });
        }
    });
    (address, connections)
}

#[tokio::test]
async fn what_came_before_http_1_0_is_a_bad_gateway() {
    let (origin, node, at) = alone(|_| {}).await;
    for answer in [
        "<html><body>hello</body></html>",
        "<html>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/0.9 200 OK\r\n\r\nhello",
        "HTTP/2.0 200 OK\r\n\r\nhello",
        "HTTP/1.2 200 OK\r\n\r\nhello",
        "ICY 200 OK\r\n\r\nhello",
        "hello",
    ] {
        origin.on("/a", Reply::raw(answer));
        let mut wire = Wire::saying(at, head_of("GET", "/a", &[])).await;
        let refused = wire.answer().await;
        assert!(refused.status == 502 && !refused.text().contains("hello"), "{answer}");
        // The client's connection is good for the next request.
        wire.send(head_of("GET", "/b", &[])).await;
        assert_eq!(wire.answer().await.text(), "/b");
    }
    settled(&node).await;
}

#[tokio::test]
async fn client_of_http_1_0_keeps_its_connection_if_it_asks_to() {
    let (origin, node, at) = alone(|_| {}).await;
    origin.on("/unknown", Reply::raw(OLD));
    let request =
        |path: &str, fields: &str| format!("GET {path} HTTP/1.0\r\nHost: {HOST}\r\n{fields}\r\n");
    let keep = "Connection: keep-alive\r\n";
    let mut client = TcpStream::connect(at).await.unwrap();
    for _ in 0..3 {
        let head = ask(&mut client, &request("/known", keep)).await;
        assert!(head.contains("\r\nconnection: keep-alive\r\n"), "{head}");
        assert!(head.contains("\r\ncontent-length: 6\r\n"), "{head}");
        assert_eq!(take(&mut client, 6).await, "/known");
    }
    // The end of a body without a length is that of the connection, whatever the client asked for.
    for (path, fields, body) in
        [("/unknown", keep, "hello"), ("/unknown", "", "hello"), ("/known", "", "/known")]
    {
        let mut client = TcpStream::connect(at).await.unwrap();
        let head = ask(&mut client, &request(path, fields)).await;
        assert!(!head.contains("keep-alive") && !head.contains("transfer-encoding"), "{head}");
        let mut rest = String::new();
        within(client.read_to_string(&mut rest)).await.unwrap();
        assert_eq!(rest, body);
    }
    settled(&node).await;
}

/// An origin that resets its connection in the middle of a body that ends with it, when the test asks for it.
async fn resetting() -> (SocketAddr, Arc<Notify>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, reset) = (listener.local_addr().unwrap(), Arc::new(Notify::new()));
    let told = reset.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let told = told.clone();
            tokio::spawn(async move {
                read_head(&mut stream).await;
                let head = "HTTP/1.0 200 OK\r\nCache-Control: max-age=60\r\n\r\nhalf";
                stream.write_all(head.as_bytes()).await.unwrap();
                told.notified().await;
                levada_net::tcp::reset_on_close(&stream).unwrap();
            });
        }
    });
    (address, reset)
}

#[tokio::test]
async fn body_that_ends_with_its_connection_is_whole_or_known_to_be_cut() {
    let (origin, reset) = resetting().await;
    let node = start(single(&[origin])).await;
    let at = node.addresses.clients[0];
    for _ in 0..2 {
        let mut wire = Wire::saying(at, head_of("GET", "/a", &[])).await;
        let head = wire.head().await;
        assert!(head.status == 200 && !head.is_hit(), "{head:?}");
        assert_eq!(wire.take(9).await, b"4\r\nhalf\r\n");
        reset.notify_one();
        assert_eq!(wire.rest().await, b"", "no last chunk");
    }
    // A client of HTTP/1.0 has no other sign than the reset.
    let request = format!("GET /a HTTP/1.0\r\nHost: {HOST}\r\n\r\n");
    let mut wire = Wire::saying(at, request).await;
    assert_eq!(wire.head().await.status, 200);
    assert_eq!(wire.take(4).await, b"half");
    reset.notify_one();
    let (_, end) = wire.read_out().await;
    assert!(end.is_err(), "{end:?}");
    settled(&node).await;
    let (origin, node, at) = alone(|_| {}).await;
    origin.on("/a", Reply::raw("HTTP/1.0 200 OK\r\nCache-Control: max-age=60\r\n\r\nall of it"));
    for hit in [false, true] {
        let answer = get(at, "/a").await;
        assert_eq!(
            (answer.text().as_str(), answer.whole, answer.is_hit()),
            ("all of it", true, hit)
        );
    }
    settled(&node).await;
}

#[tokio::test]
async fn date_is_that_of_the_origin_or_of_the_arrival_of_its_answer() {
    let (origin, node, at) = alone(|_| {}).await;
    let dated = "Sun, 06 Nov 1994 08:49:37 GMT";
    origin.on(
        "/dated",
        Reply::cached("x").with("date", dated).with("cache-control", "max-age=9999999999"),
    );
    assert_eq!(get(at, "/dated").await.field("date"), dated);
    for (path, caching) in [("/undated", "max-age=60"), ("/passed", "no-store")] {
        origin.on(path, Reply::ok("x").with("cache-control", caching));
        let before = SystemTime::now() - Duration::from_secs(1);
        let first = get(at, path).await.field("date");
        let arrived = httpdate::parse_http_date(&first).unwrap();
        assert!((before..=SystemTime::now()).contains(&arrived), "{path}: {first}");
    }
    // A hit shows when the answer came, not when the hit was made.
    let first = get(at, "/undated").await;
    assert!(first.is_hit());
    let same_second = || {
        let now = httpdate::fmt_http_date(SystemTime::now());
        now == first.field("date")
    };
    eventually("the next second", || !same_second()).await;
    let later = get(at, "/undated").await;
    assert_eq!((later.is_hit(), later.field("date")), (true, first.field("date")));
    settled(&node).await;
}
