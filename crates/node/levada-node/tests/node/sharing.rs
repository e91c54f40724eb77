//! Single flight: fetches that are shared while they run, requests that never share, and fetches that
//! break off.

use std::{net::SocketAddr, time::Duration};

use levada_node::Running;
use tokio::task::JoinSet;

use crate::support::*;

async fn world() -> (Origin, Running, SocketAddr) {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.cache.max_object = 1 << 20;
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    (origin, node, at)
}

/// Starts a request and waits until the node counts it, so that the next request comes later.
async fn begin(node: &Running, at: SocketAddr, fields: &[(&str, &str)]) -> Wire {
    let before = node.counts().in_flight;
    let wire = Wire::saying(at, head_of("GET", "/a", fields)).await;
    eventually("request arrives", || node.counts().in_flight > before).await;
    wire
}

#[tokio::test]
async fn many_clients_cost_one_fetch_and_stream_before_its_end() {
    let (origin, node, at) = world().await;
    let (head, tail) = (Gate::new(), Gate::new());
    let pieces = vec![
        Piece::Bytes(b"first".to_vec()),
        Piece::Gate(tail.clone()),
        Piece::Bytes(b"second".to_vec()),
    ];
    let reply = Reply::chunked(pieces).with("cache-control", "max-age=60").after(&head);
    origin.on("/a", reply);
    let mut clients = Vec::new();
    for _ in 0..16 {
        clients.push(begin(&node, at, &[]).await);
    }
    head.open();
    let mut leaders = 0;
    for client in &mut clients {
        let answer = client.head().await;
        assert_eq!(answer.status, 200);
        leaders += usize::from(!answer.field("cache-status").contains("collapsed"));
        assert_eq!(client.take(10).await, b"5\r\nfirst\r\n");
    }
    // A request that arrives now shares the fetch as well, and gets the bytes that have arrived.
    let mut late = begin(&node, at, &[]).await;
    late.head().await;
    assert_eq!(late.take(10).await, b"5\r\nfirst\r\n");
    clients.push(late);
    tail.open();
    for client in &mut clients {
        assert_eq!(client.take(11 + 5).await, b"6\r\nsecond\r\n0\r\n\r\n"[..16]);
    }
    assert_eq!((origin.hits("/a"), leaders), (1, 1));
    settled(&node).await;
    assert!(get(at, "/a").await.is_hit());
}

#[tokio::test]
async fn fetch_goes_on_without_the_client_that_began_it() {
    let (origin, node, at) = world().await;
    let tail = Gate::new();
    let pieces =
        vec![Piece::Bytes(b"ab".to_vec()), Piece::Gate(tail.clone()), Piece::Bytes(b"cd".to_vec())];
    origin.on("/a", Reply::cached("").with("content-length", "4").pieces(pieces));
    let mut leader = begin(&node, at, &[]).await;
    leader.head().await;
    let mut follower = begin(&node, at, &[]).await;
    drop(leader);
    tail.open();
    assert_eq!(follower.answer().await.text(), "abcd");
    settled(&node).await;
    assert!(get(at, "/a").await.is_hit());
    assert_eq!(origin.hits("/a"), 1);
}

#[tokio::test]
async fn fetch_that_everybody_left_is_stored_all_the_same() {
    let (origin, node, at) = world().await;
    let head = Gate::new();
    origin.on("/a", Reply::cached("abcd").after(&head));
    drop(begin(&node, at, &[]).await);
    eventually("fetch begins", || origin.hits("/a") == 1).await;
    head.open();
    settled(&node).await;
    assert!(get(at, "/a").await.is_hit());
}

#[tokio::test]
async fn body_that_breaks_off_cuts_every_reader_and_is_not_stored() {
    let (origin, node, at) = world().await;
    for chunked in [true, false] {
        let tail = Gate::new();
        let pieces = vec![Piece::Bytes(b"half".to_vec()), Piece::Gate(tail.clone()), Piece::Cut];
        let reply = match chunked {
            true => Reply::chunked(pieces).with("cache-control", "max-age=60"),
            false => Reply::cached("").with("content-length", "8").pieces(pieces),
        };
        origin.on("/a", reply);
        let before = origin.hits("/a");
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(begin(&node, at, &[]).await);
        }
        eventually("fetch begins", || origin.hits("/a") == before + 1).await;
        tail.open();
        for client in &mut clients {
            let answer = client.answer().await;
            assert_eq!((answer.status, answer.whole), (200, false), "never a clean end");
        }
        settled(&node).await;
        assert_eq!(origin.hits("/a"), before + 1);
    }
    origin.on("/a", Reply::cached("whole"));
    let answer = get(at, "/a").await;
    assert_eq!((answer.text(), answer.is_hit()), ("whole".to_owned(), false));
    settled(&node).await;
}

#[tokio::test]
async fn old_client_of_a_body_that_breaks_off_is_cut_as_well() {
    let (origin, node, at) = world().await;
    let pieces = vec![Piece::Bytes(b"half".to_vec()), Piece::Cut];
    origin.on("/a", Reply::cached("").with("content-length", "8").pieces(pieces));
    let request = format!("GET /a HTTP/1.0\r\nHost: {HOST}\r\n\r\n");
    let answer = Wire::saying(at, request).await.answer().await;
    assert_eq!((answer.status, answer.whole), (200, false));
    settled(&node).await;
}

#[tokio::test]
async fn personal_responses_are_never_shared() {
    for (field, value) in [
        ("cache-control", "no-store"),
        ("cache-control", "private, max-age=60"),
        ("set-cookie", "id=1"),
        ("cache-control", "no-cache"),
        ("cache-control", "max-age=0"),
        ("vary", "*"),
    ] {
        let (origin, node, at) = world().await;
        let gate = Gate::new();
        let opened = gate.clone();
        origin.script("/a", move |asked| {
            let user = asked.header("cookie").unwrap_or_default();
            Reply::ok(user).with("etag", "\"1\"").with(field, value).after(&opened)
        });
        let mut clients = Vec::new();
        for user in ["ann", "bob", "eve"] {
            clients.push((user, begin(&node, at, &[("Cookie", user)]).await));
        }
        gate.open();
        for (user, mut client) in clients {
            assert_eq!(client.answer().await.text(), user, "{field}: {value}");
        }
        assert_eq!(origin.hits("/a"), 3);
        settled(&node).await;
    }
}

#[tokio::test]
async fn variants_are_not_mixed_up_while_they_are_fetched() {
    let (origin, node, at) = world().await;
    let gate = Gate::new();
    let opened = gate.clone();
    origin.script("/a", move |asked| {
        Reply::cached(asked.header("accept-encoding").unwrap_or_default())
            .with("vary", "accept-encoding")
            .after(&opened)
    });
    let mut clients = Vec::new();
    for encoding in ["gzip", "br", "gzip", "identity"] {
        clients.push((encoding, begin(&node, at, &[("Accept-Encoding", encoding)]).await));
    }
    gate.open();
    for (encoding, mut client) in clients {
        assert_eq!(client.answer().await.text(), encoding);
    }
    settled(&node).await;
}

#[tokio::test]
async fn failure_reaches_everyone_who_waits() {
    let (origin, node, at) = world().await;
    let gate = Gate::new();
    origin.on("/a", Reply::hang_up().after(&gate));
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(begin(&node, at, &[]).await);
    }
    gate.open();
    for client in &mut clients {
        let answer = client.answer().await;
        assert_eq!(answer.status, 502);
        let status = answer.field("proxy-status");
        assert!(status.starts_with("n0; error=connection_terminated; next-hop=\"127"), "{status}");
    }
    settled(&node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn object_of_unknown_size_streams_in_bounded_memory_even_to_a_slow_reader() {
    const LEN: usize = 24 << 20;
    let (origin, node, at) = world().await;
    let gate = Gate::new();
    let pieces = vec![Piece::Bytes(vec![b'x'; 64 << 10]); LEN >> 16];
    origin.on("/a", Reply::chunked(pieces).with("cache-control", "max-age=60").after(&gate));
    let mut slow = begin(&node, at, &[]).await;
    let mut quick = JoinSet::new();
    for _ in 0..3 {
        let mut wire = begin(&node, at, &[]).await;
        quick.spawn(async move { wire.answer().await });
    }
    gate.open();
    assert_eq!(slow.head().await.status, 200);
    let mut most = 0;
    let (mut read, mut tail) = (0, Vec::new());
    loop {
        most = most.max(node.counts().filling_bytes);
        let some = slow.some().await;
        read += some.len();
        // The end may arrive in pieces.
        tail.extend_from_slice(&some[some.len().saturating_sub(16)..]);
        if some.is_empty() || tail.ends_with(b"\r\n0\r\n\r\n") {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert!(read > LEN, "{read}");
    while let Some(answer) = quick.join_next().await {
        let answer = answer.unwrap();
        assert!(answer.whole && answer.body.len() == LEN);
    }
    assert!(most < 8 << 20, "{most} bytes were held at once");
    assert_eq!(origin.hits("/a"), 1);
    settled(&node).await;
    assert!(!get(at, "/a").await.is_hit(), "too large to keep");
    settled(&node).await;
}

#[tokio::test]
async fn request_waiting_for_nothing_leaves_nothing_behind() {
    let (origin, node, at) = world().await;
    let gate = Gate::new();
    origin.on("/a", Reply::cached("abc").after(&gate));
    let mut leader = begin(&node, at, &[]).await;
    for _ in 0..100 {
        let stream = within(tokio::net::TcpStream::connect(at)).await.unwrap();
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        Wire::over(stream).send(head_of("GET", "/a", &[])).await;
    }
    gate.open();
    assert_eq!(leader.answer().await.text(), "abc");
    settled(&node).await;
}
