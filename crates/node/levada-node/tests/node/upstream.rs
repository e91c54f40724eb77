//! Origins that are dead, slow, wrong or full.

use std::time::{Duration, Instant};

use levada_config::FetchFields;

use crate::support::{nodes::metric, *};

#[tokio::test]
async fn dead_origin_is_a_bad_gateway() {
    let dead = nodes::reserve(1)[0];
    let node = start(single(&[dead])).await;
    let answer = get(node.addresses.clients[0], "/a").await;
    assert_eq!(answer.status, 502);
    assert_eq!(
        answer.field("proxy-status"),
        format!("n0; error=connection_refused; next-hop=\"{dead}\"")
    );
    assert_eq!(answer.field("cache-control"), "no-store");
    settled(&node).await;
}

#[tokio::test]
async fn silent_origin_is_a_gateway_timeout() {
    let (origin, node, at) =
        alone(|s| s.limits.response_timeout = Duration::from_millis(300)).await;
    origin.on("/a", Reply::ok("late").after(&Gate::new()));
    for method in ["GET", "POST"] {
        let head = head_of(method, "/a", &[("Content-Length", "0")]);
        let answer = Wire::saying(at, head).await.answer().await;
        assert_eq!(answer.status, 504, "{method}");
        assert!(answer.field("proxy-status").contains("error=http_response_timeout"));
    }
    settled(&node).await;
}

#[tokio::test]
async fn body_that_stalls_is_cut() {
    let (origin, node, at) =
        alone(|s| s.limits.response_body_timeout = Duration::from_millis(300)).await;
    for caching in ["max-age=60", "no-store"] {
        let pieces = vec![Piece::Bytes(b"half".to_vec()), Piece::Gate(Gate::new())];
        let reply = Reply::ok("").with("content-length", "8").pieces(pieces);
        origin.on("/a", reply.with("cache-control", caching));
        let answer = get(at, "/a").await;
        assert_eq!((answer.status, answer.whole, answer.text()), (200, false, "half".to_owned()));
        settled(&node).await;
    }
}

#[tokio::test]
async fn second_origin_is_asked_when_the_first_fails() {
    let dead = nodes::reserve(1)[0];
    let origin = Origin::start().await;
    let node = start(single(&[dead, origin.address])).await;
    let at = node.addresses.clients[0];
    assert_eq!(get(at, "/a").await.text(), "/a");
    let ranged = get_with(at, "/b", &[("Range", "bytes=0-")]).await;
    assert_eq!(ranged.text(), "/b");
    settled(&node).await;
}

#[tokio::test]
async fn retries_stay_within_their_budget() {
    let (bad, good) = (Origin::start().await, Origin::start().await);
    bad.on("/a", Reply::hang_up());
    good.on("/a", Reply::ok("good"));
    let mut settings = single(&[bad.address, good.address]);
    settings.limits.retry_budget = 0.0;
    settings.sites[0].handling.cache = false;
    let node = start(settings).await;
    let mut refused = 0;
    let began = Instant::now();
    let mut wire = Wire::to(node.addresses.clients[0]).await;
    for _ in 0..400 {
        wire.send(head_of("GET", "/a", &[])).await;
        refused += usize::from(wire.answer().await.status == 502);
    }
    // The retry budget holds a hundred, and grows by ten a second.
    let allowed = 101 + (began.elapsed().as_secs_f64() * 10.0) as usize;
    assert!(good.total() <= allowed, "{} retries", good.total());
    assert_eq!((good.total() + refused, bad.total()), (400, 400));
    settled(&node).await;
}

#[tokio::test]
async fn post_is_never_sent_twice() {
    let (bad, good) = (Origin::start().await, Origin::start().await);
    bad.on("/a", Reply::hang_up());
    let node = start(single(&[bad.address, good.address])).await;
    for body in ["", "hello"] {
        let length = body.len().to_string();
        let post = head_of("POST", "/a", &[("Content-Length", &length)]) + body;
        let answer = Wire::saying(node.addresses.clients[0], post).await.answer().await;
        assert_eq!(answer.status, 502);
    }
    assert_eq!((bad.hits("/a"), good.total()), (2, 0));
    settled(&node).await;
}

#[tokio::test]
async fn connection_that_the_origin_closed_costs_no_request() {
    let (origin, node, at) = alone(|s| s.sites[0].handling.cache = false).await;
    origin.on("/closes", Reply::ok("bye").closing());
    let mut wire = Wire::to(at).await;
    for n in 0..50 {
        wire.send(head_of("GET", "/closes", &[])).await;
        assert_eq!(wire.answer().await.text(), "bye", "{n}");
    }
    settled(&node).await;
    assert_eq!(metric(&node, "levada_upstream_failures_total").await, 0.0);
}

#[tokio::test]
async fn connection_closed_while_a_request_is_on_its_way_is_made_anew() {
    let (origin, node, at) = alone(|s| s.sites[0].handling.cache = false).await;
    // Closes when the second request on a connection has been read: a keep-alive race, every time.
    let odd = std::sync::atomic::AtomicUsize::new(0);
    origin.script("/a", move |_| {
        match odd.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 3 {
            1 => Reply::hang_up(),
            _ => Reply::ok("good"),
        }
    });
    let mut wire = Wire::to(at).await;
    for _ in 0..20 {
        wire.send(head_of("GET", "/a", &[])).await;
        assert_eq!(wire.answer().await.text(), "good");
    }
    settled(&node).await;
}

#[tokio::test]
async fn connections_to_the_origin_are_used_again() {
    let (origin, node, at) = alone(|_| {}).await;
    let mut wire = Wire::to(at).await;
    for n in 0..30 {
        wire.send(head_of("GET", &format!("/{n}"), &[])).await;
        assert_eq!(wire.answer().await.status, 200);
        settled(&node).await;
    }
    assert!(origin.connections() <= 2, "{}", origin.connections());
}

#[tokio::test]
async fn requests_queue_for_the_connections_of_a_server() {
    let (origin, node, at) = alone(|s| {
        s.limits.server_connections = 1;
        s.limits.queue = 1;
    })
    .await;
    let gate = Gate::new();
    for path in ["/1", "/2", "/3"] {
        origin.on(path, Reply::cached(path).after(&gate));
    }
    let mut first = Wire::saying(at, head_of("GET", "/1", &[])).await;
    eventually("the first is asked", || origin.hits("/1") == 1).await;
    let mut second = Wire::saying(at, head_of("GET", "/2", &[])).await;
    eventually("the second waits", || node.counts().waiting == 1).await;
    let third = get(at, "/3").await;
    assert_eq!((third.status, third.field("retry-after")), (503, "1".to_owned()));
    assert!(third.field("proxy-status").contains("error=connection_limit_reached"));
    gate.open();
    assert_eq!(first.answer().await.text(), "/1");
    assert_eq!(second.answer().await.text(), "/2");
    settled(&node).await;
}

#[tokio::test]
async fn queue_is_left_when_it_takes_too_long() {
    let (origin, node, at) = alone(|s| {
        s.limits.server_connections = 1;
        s.limits.queue_timeout = Duration::from_millis(200);
    })
    .await;
    let gate = Gate::new();
    origin.on("/1", Reply::cached("1").after(&gate));
    let mut first = Wire::saying(at, head_of("GET", "/1", &[])).await;
    eventually("the first is asked", || origin.hits("/1") == 1).await;
    let second = get(at, "/2").await;
    assert_eq!((second.status, second.field("retry-after")), (503, "1".to_owned()));
    gate.open();
    assert_eq!(first.answer().await.text(), "1");
    settled(&node).await;
}

#[tokio::test]
async fn answers_that_are_not_http_are_a_bad_gateway() {
    let (origin, node, at) = alone(|_| {}).await;
    let many: String = (0..400).map(|n| format!("x-{n}: v\r\n")).collect();
    let long = "v".repeat(1 << 20);
    for (what, raw) in [
        ("garbage", "garbage\r\n\r\n".to_owned()),
        ("status", "HTTP/1.1 99 No\r\ncontent-length: 0\r\n\r\n".to_owned()),
        ("status", "HTTP/1.1 abc No\r\ncontent-length: 0\r\n\r\n".to_owned()),
        ("version", "HTTP/3.7 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned()),
        (
            "both",
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
                .to_owned(),
        ),
        ("coding", "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n".to_owned()),
        ("lengths", "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 5\r\n\r\nhello".to_owned()),
        ("length", "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n".to_owned()),
        ("name", "HTTP/1.1 200 OK\r\nbad name: x\r\ncontent-length: 0\r\n\r\n".to_owned()),
        ("many", format!("HTTP/1.1 200 OK\r\n{many}content-length: 0\r\n\r\n")),
        ("long", format!("HTTP/1.1 200 OK\r\nx: {long}\r\ncontent-length: 0\r\n\r\n")),
        ("switch", "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n".to_owned()),
        ("nothing", String::new()),
        ("half", "HTTP/1.1 200 OK\r\ncontent-le".to_owned()),
    ] {
        origin.on("/a", Reply::raw(raw));
        for fields in [&[][..], &[("Range", "bytes=0-9")]] {
            let answer = get_with(at, "/a", fields).await;
            assert_eq!(answer.status, 502, "{what}: {answer:?}");
            assert!(answer.field("proxy-status").contains("error="), "{what}");
        }
        settled(&node).await;
    }
}

#[tokio::test]
async fn lengths_that_agree_become_one() {
    let (origin, node, at) = alone(|_| {}).await;
    for (path, lines) in [
        ("/twice", "content-length: 5\r\ncontent-length: 5\r\n"),
        ("/list", "content-length: 5, 5\r\n"),
    ] {
        let raw = format!("HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\n{lines}\r\nhello");
        origin.on(path, Reply::raw(raw));
        for _ in 0..2 {
            let answer = get(at, path).await;
            // Refused or parsed, but never passed on unchanged.
            if answer.status == 200 {
                assert_eq!(
                    (answer.field("content-length").as_str(), answer.text().as_str()),
                    ("5", "hello")
                );
            } else {
                assert_eq!(answer.status, 502);
            }
            settled(&node).await;
        }
    }
}

#[tokio::test]
async fn interim_responses_are_not_the_answer() {
    let (origin, node, at) = alone(|_| {}).await;
    let raw = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n\
               HTTP/1.1 100 Continue\r\n\r\n\
               HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ncontent-length: 2\r\n\r\nok";
    origin.on("/a", Reply::raw(raw));
    assert_eq!(get(at, "/a").await.text(), "ok");
    settled(&node).await;
    assert!(get(at, "/a").await.is_hit());
}

#[tokio::test]
async fn bytes_after_an_answer_are_nobodys() {
    let (origin, node, at) = alone(|s| s.sites[0].handling.cache = false).await;
    let raw = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";
    let reply = Reply::raw(raw).pieces(vec![Piece::Bytes(raw.into()), Piece::Gate(Gate::new())]);
    origin.on("/a", reply);
    let mut wire = Wire::to(at).await;
    for _ in 0..3 {
        wire.send(head_of("GET", "/a", &[])).await;
        assert_eq!(wire.answer().await.text(), "ok");
        wire.send(head_of("GET", "/b", &[])).await;
        assert_eq!(wire.answer().await.text(), "/b");
    }
    settled(&node).await;
}

#[tokio::test]
async fn hop_by_hop_fields_end_at_the_node() {
    let all = FetchFields::All;
    let (origin, node, at) = alone(|s| s.sites[0].handling.fetch_fields = all).await;
    let reply = Reply::cached("x")
        .with("connection", "x-hop")
        .with("x-hop", "1")
        .with("keep-alive", "timeout=5")
        .with("proxy-authenticate", "Basic")
        .with("x-end", "1");
    origin.on("/a", reply);
    let fields = [
        ("Connection", "keep-alive, X-Mine"),
        ("X-Mine", "1"),
        ("Keep-Alive", "1"),
        ("TE", "trailers"),
        ("Proxy-Authorization", "x"),
        ("Upgrade", "h2c"),
        ("X-Stays", "1"),
    ];
    for _ in 0..2 {
        let answer = get_with(at, "/a", &fields).await;
        assert_eq!(answer.field("x-end"), "1");
        for name in ["x-hop", "keep-alive", "proxy-authenticate"] {
            assert_eq!(answer.header(name), None, "{name}");
        }
        settled(&node).await;
    }
    let asked = &origin.asked("/a")[0];
    assert_eq!(asked.header("x-stays").unwrap(), "1");
    for name in ["x-mine", "keep-alive", "te", "proxy-authorization", "upgrade", "connection"] {
        assert_eq!(asked.header(name), None, "{name}");
    }
}
