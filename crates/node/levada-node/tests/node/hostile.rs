//! Answers that are malformed, cut, late or too many: an invalid answer is never passed on, and bytes
//! left on a connection belong to no request.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::support::{nodes::metric, *};

async fn world(cache: bool) -> (Origin, levada_node::Running, SocketAddr) {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.sites[0].handling.cache = cache;
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    (origin, node, at)
}

/// A server that calls `handle` for every connection, and the number of connections.
async fn by_hand<F>(
    handle: impl Fn(usize, TcpStream) -> F + Send + 'static,
) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(handle(counted.fetch_add(1, Relaxed), stream));
        }
    });
    (address, count)
}

async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

async fn say(stream: &mut TcpStream, text: &str) {
    let _ = stream.write_all(text.as_bytes()).await;
}

const OK: &str = "HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn heads_that_could_be_understood_in_two_ways_are_bad_gateways() {
    let fields = "a: b\r\n".repeat(101);
    let long = format!("a: {}\r\n", "x".repeat(256 << 10));
    let rows = [
        ("both", "content-length: 5\r\ntransfer-encoding: chunked\r\n"),
        ("lengths", "content-length: 5\r\ncontent-length: 6\r\n"),
        ("list", "content-length: 5, 6\r\n"),
        ("sign", "content-length: +5\r\n"),
        ("overflow", "content-length: 18446744073709551616\r\n"),
        ("not-last", "transfer-encoding: chunked, gzip\r\n"),
        ("unknown", "transfer-encoding: gzip, chunked\r\n"),
        ("twice", "transfer-encoding: chunked, chunked\r\n"),
        ("two-lines", "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n"),
        ("quoted", "transfer-encoding: \"chunked\"\r\n"),
        ("empty", "transfer-encoding:\r\ncontent-length: 5\r\n"),
        ("fold", "a: b\r\n c\r\ncontent-length: 5\r\n"),
        ("first-fold", " a: b\r\ncontent-length: 5\r\n"),
        ("space", "content-length : 5\r\n"),
        ("bare-cr", "a: b\rcontent-length: 5\r\n"),
        ("cr-end", "a: b\r\r\ncontent-length: 5\r\n"),
        ("nul", "a: b\0\r\ncontent-length: 5\r\n"),
        ("no-name", ": b\r\ncontent-length: 5\r\n"),
        ("no-colon", "content-length\r\n"),
        ("many", &fields),
        ("long", &long),
    ];
    for cache in [true, false] {
        let (origin, node, at) = world(cache).await;
        for (name, lines) in rows {
            let path = format!("/{name}");
            origin.on(&path, Reply::raw(format!("HTTP/1.1 200 OK\r\n{lines}\r\nhello")));
            assert_eq!(get(at, &path).await.status, 502, "{name}");
        }
        for (name, first) in [
            ("http2", "HTTP/2.0 200 OK"),
            ("http09", "hello"),
            ("two-digits", "HTTP/1.1 20 OK"),
            ("four-digits", "HTTP/1.1 2000 OK"),
            ("zero", "HTTP/1.1 000 OK"),
            ("spaces", "HTTP/1.1  200 OK"),
            ("switching", "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade"),
            ("empty-line", "\r\nHTTP/1.1 200 OK"),
            ("chunked-1-0", "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked"),
        ] {
            let path = format!("/{name}");
            origin.on(&path, Reply::raw(format!("{first}\r\n\r\n0\r\n\r\n")));
            assert_eq!(get(at, &path).await.status, 502, "{name}");
        }
        settled(&node).await;
    }
}

#[tokio::test]
async fn chunks_that_are_malformed_are_never_a_whole_body() {
    let extensions = format!("1;{}\r\nx\r\n", "e".repeat(1000)).repeat(20) + "0\r\n\r\n";
    let trailers = format!("0\r\n{}\r\n", "a: b\r\n".repeat(65));
    let long = format!("0\r\na: {}\r\n\r\n", "b".repeat(16 << 10));
    let rows = [
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello!\r\n0\r\n\r\n",
        "ffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n",
        "5\r\nhello\r\n0\r\n",
        "5\r\nhello\r\n0\r\nbad name: x\r\n\r\n",
        "5\r\nhello\r\n0\r\n\n\n",
        "5;a\rb\r\nhello\r\n0\r\n\r\n",
        &extensions,
        &trailers,
        &long,
    ];
    for cache in [true, false] {
        let (origin, node, at) = world(cache).await;
        for body in rows {
            let head = "HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ntransfer-encoding: chunked\r\n\r\n";
            origin.on("/a", Reply::raw(format!("{head}{body}")));
            for _ in 0..2 {
                let answer = get(at, "/a").await;
                assert!(!answer.whole || answer.status == 502, "{:.40}", body.escape_debug());
                assert!(!answer.is_hit());
            }
        }
        settled(&node).await;
    }
}

#[tokio::test]
async fn answer_that_is_cut_anywhere_is_never_whole() {
    let chunked = "HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ntransfer-encoding: chunked\r\n\r\n\
                   2;a\r\nok\r\n0\r\nx: y\r\n\r\n";
    for cache in [true, false] {
        let (origin, node, at) = world(cache).await;
        for text in [OK, chunked] {
            for length in 0..text.len() {
                let path = format!("/{}/{length}", text.len());
                origin.on(&path, Reply::raw(&text[..length]));
                let answer = get(at, &path).await;
                let in_head = length < text.find("\r\n\r\n").unwrap() + 4;
                assert_eq!(answer.status, if in_head { 502 } else { 200 }, "{length}");
                assert!(in_head || !answer.whole, "{length}");
            }
        }
        settled(&node).await;
    }
}

#[tokio::test]
async fn answer_is_whole_however_it_is_cut_into_pieces() {
    let text = "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
                2;a\r\nok\r\n0\r\nx: y\r\n\r\n";
    let (address, _) = by_hand(move |_, mut stream| async move {
        let _ = stream.set_nodelay(true);
        for at in 1..text.len() {
            if read_head(&mut stream).await.is_empty() {
                return;
            }
            say(&mut stream, &text[..at]).await;
            tokio::time::sleep(Duration::from_millis(2)).await;
            say(&mut stream, &text[at..]).await;
        }
    })
    .await;
    let mut settings = single(&[address]);
    settings.sites[0].handling.cache = false;
    let node = start(settings).await;
    let mut wire = Wire::to(node.addresses.clients[0]).await;
    for at in 1..text.len() {
        wire.send(head_of("GET", "/a", &[])).await;
        let answer = wire.answer().await;
        assert_eq!(
            (answer.status, answer.text().as_str(), answer.whole),
            (200, "ok", true),
            "{at}"
        );
    }
    settled(&node).await;
}

#[tokio::test]
async fn endless_interim_responses_end_in_a_bad_gateway() {
    let (address, _) = by_hand(|_, mut stream| async move {
        read_head(&mut stream).await;
        let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(100);
        while stream.write_all(interim.as_bytes()).await.is_ok() {}
    })
    .await;
    let node = start(single(&[address])).await;
    assert_eq!(get(node.addresses.clients[0], "/a").await.status, 502);
    settled(&node).await;
}

#[tokio::test]
async fn head_that_trickles_in_is_a_gateway_timeout() {
    let (address, _) = by_hand(|_, mut stream| async move {
        read_head(&mut stream).await;
        say(&mut stream, "HTTP/1.1 200 OK\r\na: ").await;
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let mut settings = single(&[address]);
    settings.limits.response_timeout = Duration::from_millis(300);
    let node = start(settings).await;
    assert_eq!(get(node.addresses.clients[0], "/a").await.status, 504);
    settled(&node).await;
}

#[tokio::test]
async fn body_without_a_length_ends_with_its_connection() {
    for first in ["HTTP/1.0 200 OK\r\nconnection: keep-alive", "HTTP/1.1 200 OK"] {
        let (origin, node, at) = world(false).await;
        origin.on("/a", Reply::raw(format!("{first}\r\n\r\nhello")));
        for n in 1..=3 {
            let answer = get(at, "/a").await;
            assert_eq!((answer.text().as_str(), answer.whole), ("hello", true));
            assert_eq!(origin.connections(), n, "never used again");
        }
        settled(&node).await;
    }
}

#[tokio::test]
async fn bytes_after_an_answer_without_a_body_are_nobodys() {
    let evil = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";
    for (method, status) in
        [("HEAD", "200 OK"), ("GET", "204 No Content"), ("GET", "304 Not Modified")]
    {
        for late in [false, true] {
            let (origin, node, at) = world(false).await;
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", evil.len());
            let gate = Gate::new();
            let mut pieces = vec![Piece::Bytes(head.into()), Piece::Bytes(evil.into())];
            if late {
                pieces.insert(1, Piece::Gate(gate.clone()));
            }
            pieces.push(Piece::Gate(Gate::new()));
            origin.on("/a", Reply::raw("").pieces(pieces));
            let mut wire =
                Wire::saying(at, head_of(method, "/a", &[("If-None-Match", "\"x\"")])).await;
            let answer = wire.answer_to(method).await;
            assert!(status.starts_with(&answer.status.to_string()), "{method} {status}");
            gate.open();
            tokio::time::sleep(Duration::from_millis(50)).await;
            wire.send(head_of("GET", "/b", &[])).await;
            assert_eq!(wire.answer().await.text(), "/b", "{method} {status} {late}");
            assert_eq!(origin.connections(), 2);
            settled(&node).await;
        }
    }
}

#[tokio::test]
async fn upload_to_a_connection_that_breaks_is_not_sent_again() {
    let uploads = Arc::new(AtomicUsize::new(0));
    let seen = uploads.clone();
    let (address, _) = by_hand(move |_, mut stream| {
        let uploads = seen.clone();
        async move {
            loop {
                let head = read_head(&mut stream).await;
                if !head.starts_with("GET") {
                    uploads.fetch_add(1, Relaxed);
                    // Read a little, so that the rest of the upload is refused with a reset.
                    let _ = stream.read(&mut [0; 1024]).await;
                    return;
                }
                say(&mut stream, OK).await;
            }
        }
    })
    .await;
    let mut settings = single(&[address]);
    settings.sites[0].handling.cache = false;
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    let body = vec![b'x'; 4 << 20];
    for fields in ["Content-Length: 4194304", "Transfer-Encoding: chunked"] {
        for _ in 0..5 {
            // An upload begins on a connection that was just used twice, if that is not long ago.
            for _ in 0..2 {
                assert_eq!(get(at, "/warm").await.text(), "ok");
                settled(&node).await;
            }
            let before = uploads.load(Relaxed);
            let mut wire = Wire::to(at).await;
            wire.send(format!("POST /up HTTP/1.1\r\nHost: {HOST}\r\n{fields}\r\n\r\n")).await;
            if fields.starts_with('T') {
                wire.send("400000\r\n").await;
            }
            let _ = wire.try_send(&body).await;
            let answer = wire.answer().await;
            assert!(matches!(answer.status, 502 | 0), "{}", answer.status);
            settled(&node).await;
            assert_eq!(uploads.load(Relaxed), before + 1, "sent once");
        }
    }
}

#[tokio::test]
async fn answer_before_the_end_of_an_upload_reaches_the_client() {
    let (address, _) = by_hand(|_, mut stream| async move {
        read_head(&mut stream).await;
        say(&mut stream, "HTTP/1.1 413 Content Too Large\r\ncontent-length: 2\r\n\r\nno").await;
        let mut sink = [0; 1 << 16];
        while stream.read(&mut sink).await.is_ok_and(|count| count > 0) {}
    })
    .await;
    let node = start(single(&[address])).await;
    let mut wire = Wire::to(node.addresses.clients[0]).await;
    wire.send(head_of("POST", "/up", &[("Content-Length", "1000000")])).await;
    let answer = wire.answer().await;
    assert_eq!((answer.status, answer.text().as_str()), (413, "no"));
    drop(wire);
    settled(&node).await;
}

#[tokio::test]
async fn connection_that_is_reset_after_the_head_cuts_the_body() {
    let (address, _) = by_hand(|_, mut stream| async move {
        read_head(&mut stream).await;
        say(&mut stream, "HTTP/1.1 200 OK\r\n\r\nhel").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
    })
    .await;
    for cache in [true, false] {
        let mut settings = single(&[address]);
        settings.sites[0].handling.cache = cache;
        let node = start(settings).await;
        // The body ends with the connection, and a reset is no end.
        let mut wire = Wire::saying(node.addresses.clients[0], head_of("GET", "/a", &[])).await;
        let answer = wire.answer().await;
        assert_eq!((answer.status, answer.whole), (200, false));
        settled(&node).await;
    }
}

#[tokio::test]
async fn connection_that_closes_when_used_again_is_followed_by_new_ones_where_that_is_safe() {
    let (address, connections) = by_hand(|_, mut stream| async move {
        if read_head(&mut stream).await.contains(" /warm") {
            say(&mut stream, OK).await;
            // Reads the next request and closes without an answer.
            read_head(&mut stream).await;
        }
    })
    .await;
    let mut settings = single(&[address]);
    settings.sites[0].handling.cache = false;
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    // A GET goes on with a new connection, and asks the only origin once more after that. A POST does not
    // begin on the connection that was used before.
    for (method, tries, used_again) in [("GET", 3, 1), ("POST", 1, 0)] {
        assert_eq!(get(at, "/warm").await.text(), "ok");
        let before = connections.load(Relaxed);
        let request = head_of(method, "/a", &[("Content-Length", "0")]);
        assert_eq!(Wire::saying(at, request).await.answer().await.status, 502);
        assert_eq!(connections.load(Relaxed) - before + used_again, tries, "{method}");
        settled(&node).await;
    }
    assert!(metric(&node, "levada_upstream_failures_total").await >= 2.0);
}

/// A site that denies a path, and its origin.
async fn denying(lines: &str) -> (Origin, levada_node::Running, std::net::SocketAddr) {
    alone(|settings| {
        let origin = settings.sites[0].servers.origins[0].to_string();
        let text = format!(
            "[[site]]\nhosts = '{HOST}'\norigin = '{origin}'\n{lines}
             [[site.route]]\npath = '/admin/**'\naccess = ['deny all']\n"
        );
        settings.sites = nodes::sites(&text);
    })
    .await
}

#[tokio::test]
async fn encoded_control_characters_in_a_path_are_refused() {
    let (origin, node, at) = denying("").await;
    for path in ["/a%00", "/admin%00/x", "/%0d%0ax", "/a%1f?b", "/%7F.css"] {
        let answer = get(at, path).await;
        assert_eq!(answer.status, 400, "{path}");
        assert!(answer.text().contains("encoded control character"), "{}", answer.text());
    }
    assert_eq!(origin.total(), 0);
    for (path, status) in [("/a%20b", 200), ("/a?b=%00", 200), ("/admin/x", 403)] {
        assert_eq!(get(at, path).await.status, status, "{path}");
    }
    settled(&node).await;
    let (origin, node, at) = denying("encoded_controls = true").await;
    assert_eq!(get(at, "/a%00").await.status, 200);
    assert_eq!(origin.hits("/a%00"), 1);
    settled(&node).await;
}
