//! Invalid input from clients, sent to a complete node.

use std::time::Duration;

use crate::support::{nodes, *};

#[tokio::test]
async fn each_fault_gets_its_status_and_reaches_nobody() {
    let (origin, node, at) = alone(|_| {}).await;
    let many: String = (0..120).map(|n| format!("x-{n}: v\r\n")).collect();
    let cookie = format!("Cookie: {}\r\n", "c".repeat(40 << 10));
    let get = |fields: &str| format!("GET /a HTTP/1.1\r\n{fields}\r\n");
    let host = "Host: a.test\r\n";
    for (status, what, bytes) in [
        (421, "unknown host", get("Host: b.test\r\n")),
        (421, "unknown host with a known suffix", get("Host: xa.test\r\n")),
        (400, "two hosts", get("Host: a.test\r\nHost: b.test\r\n")),
        (400, "the same host twice", get("Host: a.test\r\nHost: a.test\r\n")),
        (400, "no host", get("")),
        (400, "no host at all", get("Host:\r\n")),
        (400, "bad host", get("Host: a b\r\n")),
        (
            400,
            "length and coding",
            get(&format!("{host}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n")),
        ),
        (400, "bare LF", "GET /a HTTP/1.1\nHost: a.test\n\n".to_owned()),
        (400, "space before the colon", get(&format!("{host}X : y\r\n"))),
        (400, "folded", get(&format!("{host}X: y\r\n z\r\n"))),
        (400, "negative length", get(&format!("{host}Content-Length: -1\r\n"))),
        (501, "unknown coding", get(&format!("{host}Transfer-Encoding: gzip\r\n"))),
        (431, "too many fields", get(&format!("{host}{many}"))),
        (431, "too large a head", get(&format!("{host}{cookie}"))),
        (414, "too long a line", format!("GET /{} HTTP/1.1\r\n{host}\r\n", "x".repeat(20 << 10))),
        (505, "version", "GET /a HTTP/2.0\r\nHost: a.test\r\n\r\n".to_owned()),
        (400, "no version", "GET /a\r\n\r\n".to_owned()),
        (400, "garbage", "\u{1}\u{2}\u{3}\r\n\r\n".to_owned()),
        (501, "TRACE", format!("TRACE /a HTTP/1.1\r\n{host}\r\n")),
        (501, "CONNECT", format!("CONNECT a.test:443 HTTP/1.1\r\n{host}\r\n")),
        (417, "expectation", get(&format!("{host}Expect: 200-fine\r\n"))),
        (
            421,
            "absolute form with another host",
            format!("GET http://b.test/a HTTP/1.1\r\n{host}\r\n"),
        ),
        (400, "asterisk for a GET", format!("GET * HTTP/1.1\r\n{host}\r\n")),
    ] {
        let answer = Wire::saying(at, bytes).await.answer().await;
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        assert!(answer.whole, "{what}");
        settled(&node).await;
    }
    assert_eq!(origin.total(), 0);
}

#[tokio::test]
async fn absolute_form_is_what_counts() {
    let (origin, node, at) = alone(|_| {}).await;
    let request = "GET http://A.TEST/x?y HTTP/1.1\r\nHost: b.test\r\n\r\n";
    assert_eq!(Wire::saying(at, request).await.answer().await.text(), "/x?y");
    assert_eq!(origin.asked("/x")[0].header("host").unwrap(), HOST);
    settled(&node).await;
    assert!(get(at, "/x?y").await.is_hit(), "the same object");
    settled(&node).await;
}

#[tokio::test]
async fn options_of_the_server_are_the_nodes_own() {
    let (origin, node, at) = alone(|_| {}).await;
    let answer = Wire::saying(at, head_of("OPTIONS", "*", &[])).await.answer().await;
    assert_eq!(answer.status, 204, "{answer:?}");
    assert!(answer.field("allow").contains("GET"), "{answer:?}");
    assert_eq!(origin.total(), 0);
    let answer = Wire::saying(at, head_of("OPTIONS", "/a", &[])).await.answer().await;
    assert_eq!(answer.status, 200);
    assert_eq!(origin.asked("/a")[0].method, "OPTIONS");
    settled(&node).await;
}

#[tokio::test]
async fn old_clients_get_one_answer_and_an_end() {
    let (origin, node, at) = alone(|_| {}).await;
    origin.on("/chunks", Reply::chunked(vec![Piece::Bytes(b"abc".to_vec())]));
    for (path, body) in [("/a", "/a"), ("/a", "/a"), ("/chunks", "abc")] {
        let request = format!("GET {path} HTTP/1.0\r\nHost: {HOST}\r\n\r\n");
        let mut wire = Wire::saying(at, request).await;
        let answer = wire.answer().await;
        assert_eq!((answer.status, answer.text()), (200, body.to_owned()));
        assert_eq!(answer.header("transfer-encoding"), None, "HTTP/1.0 knows no chunks");
        assert!(wire.rest().await.is_empty());
        settled(&node).await;
    }
}

#[tokio::test]
async fn old_client_that_names_no_host_is_served_by_the_site_of_all_hosts() {
    let get = "GET /a HTTP/1.0\r\n\r\n";
    let (origin, node, at) = alone(|_| {}).await;
    assert_eq!(Wire::saying(at, get).await.answer().await.status, 421);
    assert_eq!(origin.total(), 0);
    settled(&node).await;
    let (origin, node, at) = alone(|s| s.sites[0].hosts = vec!["*".to_owned()]).await;
    for _ in 0..2 {
        let answer = Wire::saying(at, get).await.answer().await;
        assert_eq!((answer.status, answer.text()), (200, "/a".to_owned()));
        settled(&node).await;
    }
    let [asked] = &origin.asked("/a")[..] else { panic!("it is cached") };
    assert_eq!(asked.header("host").unwrap(), origin.address.to_string());
    assert_eq!(asked.header("x-forwarded-host"), None);
    assert_eq!(Wire::saying(at, "GET /a HTTP/1.1\r\n\r\n").await.answer().await.status, 400);
    settled(&node).await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let (_origin, node, at) = alone(|_| {}).await;
    let requests: String = (0..20).map(|n| head_of("GET", &format!("/{}", n % 7), &[])).collect();
    let mut wire = Wire::saying(at, requests).await;
    for n in 0..20 {
        assert_eq!(wire.answer().await.text(), format!("/{}", n % 7));
    }
    settled(&node).await;
}

#[tokio::test]
async fn request_smuggled_in_a_body_stays_a_body() {
    let (origin, node, at) = alone(|_| {}).await;
    let inner = head_of("GET", "/secret", &[]);
    let post = head_of("POST", "/a", &[("Content-Length", &inner.len().to_string())]) + &inner;
    let mut wire = Wire::saying(at, post + &head_of("GET", "/b", &[])).await;
    assert_eq!(wire.answer().await.text(), "/a");
    assert_eq!(wire.answer().await.text(), "/b");
    assert_eq!(origin.hits("/secret"), 0);
    settled(&node).await;
}

#[tokio::test]
async fn slow_head_gets_408() {
    let (_origin, node, at) = alone(|s| s.limits.head_timeout = Duration::from_millis(300)).await;
    let mut wire = Wire::saying(at, "GET /a HTTP/1.1\r\nHost: a").await;
    assert_eq!(wire.answer().await.status, 408);
    assert!(wire.rest().await.is_empty());
    // A client that sends one byte at a time gets the same.
    let mut wire = Wire::to(at).await;
    for byte in b"GET /a HTTP/1.1\r\nHost: a.test\r\nX: ".iter().cycle() {
        if !wire.try_send(&[*byte]).await {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    settled(&node).await;
}

#[tokio::test]
async fn slow_body_gets_408() {
    let (_origin, node, at) = alone(|s| s.limits.body_timeout = Duration::from_millis(300)).await;
    let post = head_of("POST", "/a", &[("Content-Length", "10")]) + "half";
    let mut wire = Wire::saying(at, post).await;
    assert_eq!(wire.answer().await.status, 408);
    assert!(wire.rest().await.is_empty());
    settled(&node).await;
}

#[tokio::test]
async fn idle_connection_is_closed() {
    let (_origin, node, at) = alone(|s| s.limits.idle_timeout = Duration::from_millis(300)).await;
    let mut silent = Wire::to(at).await;
    let mut spoken = Wire::saying(at, head_of("GET", "/a", &[])).await;
    assert_eq!(spoken.answer().await.status, 200);
    assert!(silent.rest().await.is_empty());
    assert!(spoken.rest().await.is_empty());
    settled(&node).await;
}

#[tokio::test]
async fn client_that_takes_nothing_is_dropped() {
    let (origin, node, at) = alone(|s| s.limits.send_timeout = Duration::from_millis(400)).await;
    let big = vec![b'x'; 16 << 20];
    origin.on("/stored", Reply::cached(big.clone()));
    origin.on("/passed", Reply::ok(big).with("cache-control", "no-store"));
    for path in ["/passed", "/stored", "/stored"] {
        let mut wire = Wire::narrow(at).await;
        wire.send(head_of("GET", path, &[])).await;
        assert_eq!(wire.head().await.status, 200);
        settled(&node).await;
        let rest = wire.rest().await;
        assert!(rest.len() < 16 << 20, "cut");
    }
}

#[tokio::test]
async fn client_that_vanishes_in_an_answer_leaves_nothing() {
    let (origin, node, at) = alone(|_| {}).await;
    let big = vec![b'x'; 16 << 20];
    origin.on("/stored", Reply::cached(big.clone()));
    origin.on("/passed", Reply::ok(big.clone()).with("cache-control", "no-store"));
    origin
        .on("/unknown", Reply::chunked(vec![Piece::Bytes(big)]).with("cache-control", "max-age=9"));
    for path in ["/passed", "/stored", "/stored", "/unknown"] {
        let mut wire = Wire::narrow(at).await;
        wire.send(head_of("GET", path, &[])).await;
        assert_eq!(wire.head().await.status, 200);
        drop(wire);
        settled(&node).await;
    }
}

#[tokio::test]
async fn client_that_vanishes_in_its_head_leaves_nothing() {
    let (origin, node, at) = alone(|_| {}).await;
    for part in ["", "G", "GET /a HTTP/1.1\r\n", "GET /a HTTP/1.1\r\nHost: a.test\r\n"] {
        drop(Wire::saying(at, part).await);
    }
    settled(&node).await;
    assert_eq!(origin.total(), 0);
    assert_eq!(get(at, "/a").await.status, 200);
    settled(&node).await;
}

#[tokio::test]
async fn client_that_half_closes_gets_what_is_stored() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (_origin, node, at) = alone(|_| {}).await;
    // It has left before the origin has answered.
    for expected in ["", "HTTP/1.1 200 OK"] {
        let mut stream = tokio::net::TcpStream::connect(at).await.unwrap();
        stream.write_all(head_of("GET", "/half", &[]).as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        within(stream.read_to_string(&mut answer)).await.unwrap();
        assert_eq!(answer.lines().next().unwrap_or_default(), expected, "{answer}");
        settled(&node).await;
        assert_eq!(get(at, "/half").await.status, 200);
    }
}

#[tokio::test]
async fn clients_that_reset_at_random_leave_nothing() {
    let (origin, node, at) = alone(|_| {}).await;
    let gate = Gate::new();
    origin.on("/slow", Reply::cached(vec![b'x'; 1 << 20]).after(&gate));
    for n in 0..60 {
        let stream = within(tokio::net::TcpStream::connect(at)).await.unwrap();
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        let mut wire = Wire::over(stream);
        let path = if n % 2 == 0 { "/slow" } else { "/quick" };
        wire.send(&head_of("GET", path, &[])[..5 + n % 30]).await;
        wire.send(head_of("GET", path, &[("X-A", "b")])).await;
        if n == 40 {
            gate.open();
        }
    }
    settled(&node).await;
}

#[tokio::test]
async fn most_exact_pattern_of_a_host_wins() {
    let (origin, node, at) = alone(|settings| {
        let origin = settings.sites[0].servers.origins[0].clone();
        let patterns = ["*", "*.test", "*.b.test", "*.a.b.test", "x.a.b.test"];
        settings.sites = patterns
            .map(|pattern| {
                let mut site = nodes::site(pattern, &[]);
                site.servers.origins = vec![origin.clone()];
                site.servers.origin_host = Some(pattern.replace('*', "any"));
                site
            })
            .to_vec();
    })
    .await;
    for (host, pattern) in [
        ("x.a.b.test", "x.a.b.test"),
        ("y.a.b.test", "any.a.b.test"),
        ("y.x.a.b.test", "any.a.b.test"),
        ("a.b.test", "any.b.test"),
        ("b.test", "any.test"),
        ("test", "any"),
        ("elsewhere", "any"),
    ] {
        let mut wire = Wire::to(at).await;
        wire.send(head_of("GET", &format!("/{host}"), &[("Host", host)])).await;
        assert_eq!(wire.answer().await.status, 200);
        let asked = origin.asked(&format!("/{host}"));
        assert_eq!(asked[0].header("host").unwrap(), pattern, "{host}");
    }
    settled(&node).await;
}
