//! Request bodies: streamed, slow, broken off.

use std::time::Duration;

use crate::support::{nodes::admin, *};

#[tokio::test]
async fn body_of_a_post_is_streamed() {
    let (origin, node, at) = alone(|_| {}).await;
    let head = head_of("POST", "/a", &[("Transfer-Encoding", "chunked")]);
    let mut wire = Wire::saying(at, head).await;
    // The origin gets the head before the body is complete.
    eventually("the head arrives", || origin.heads() == 1).await;
    assert_eq!(origin.total(), 0);
    let piece = "x".repeat(1 << 16);
    for _ in 0..32 {
        wire.send(format!("{:x}\r\n{piece}\r\n", piece.len())).await;
    }
    wire.send("0\r\n\r\n").await;
    assert_eq!(wire.answer().await.status, 200);
    assert_eq!(origin.asked("/a")[0].body.len(), 32 << 16);
    settled(&node).await;
}

#[tokio::test]
async fn known_length_stays_known() {
    let (origin, node, at) = alone(|_| {}).await;
    let post = head_of("PUT", "/a", &[("Content-Length", "5")]) + "hello";
    assert_eq!(Wire::saying(at, post).await.answer().await.status, 200);
    let asked = &origin.asked("/a")[0];
    assert_eq!(asked.header("content-length").unwrap(), "5");
    assert_eq!((asked.header("transfer-encoding"), asked.body.as_slice()), (None, &b"hello"[..]));
    settled(&node).await;
}

#[tokio::test]
async fn continue_is_asked_for_by_the_node_itself() {
    let (origin, node, at) = alone(|_| {}).await;
    let fields = [("Content-Length", "2"), ("Expect", "100-continue")];
    let mut wire = Wire::saying(at, head_of("POST", "/a", &fields)).await;
    assert_eq!(wire.head().await.status, 100);
    wire.send("hi").await;
    assert_eq!(wire.answer().await.status, 200);
    assert_eq!(origin.asked("/a")[0].header("expect"), None);
    settled(&node).await;
}

#[tokio::test]
async fn long_upload_that_moves_is_not_the_origins_silence() {
    let (origin, node, at) = alone(|s| {
        s.limits.response_timeout = Duration::from_millis(400);
    })
    .await;
    let mut wire = Wire::saying(at, head_of("POST", "/a", &[("Content-Length", "12")])).await;
    // The test is about the passing of time, so it has to wait.
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        wire.send("x").await;
    }
    let answer = wire.answer().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(origin.asked("/a")[0].body.len(), 12);
    settled(&node).await;
}

#[tokio::test]
async fn slow_uploads_leave_the_capacity_to_other_requests() {
    let (_origin, node, at) = alone(|settings| settings.limits.capacity = 4).await;
    let mut slow = Vec::new();
    for client in 2..22 {
        let mut wire = Wire::over(connect_from(client, at).await);
        wire.send(head_of("POST", "/a", &[("Content-Length", "100")]) + "x").await;
        slow.push(wire);
    }
    eventually("all places of uploads are taken", || node.counts().in_service == 4).await;
    assert_eq!(get(at, "/b").await.status, 200);
    drop(slow);
    settled(&node).await;
}

#[tokio::test]
async fn client_that_stops_sending_is_to_blame_and_not_the_origin() {
    let (origin, node, at) = alone(|s| {
        s.limits.response_timeout = Duration::from_millis(200);
        s.limits.body_timeout = Duration::from_millis(600);
        s.sites[0].servers.health.eject_after = 1;
    })
    .await;
    let post = head_of("POST", "/a", &[("Content-Length", "12")]) + "half";
    let answer = Wire::saying(at, post).await.answer().await;
    assert_eq!(answer.status, 408, "{answer:?}");
    settled(&node).await;
    assert_eq!(get(at, "/b").await.status, 200);
    assert_eq!(origin.total(), 1);
    settled(&node).await;
}

#[tokio::test]
async fn client_that_vanishes_in_its_body_leaves_nothing() {
    let (origin, node, at) = alone(|_| {}).await;
    for head in [
        // A shorter one would be read before its request is sent.
        head_of("POST", "/a", &[("Content-Length", "20000")]) + "half",
        head_of("POST", "/a", &[("Transfer-Encoding", "chunked")]) + "4\r\nhalf\r\n",
    ] {
        let before = origin.heads();
        let wire = Wire::saying(at, head).await;
        eventually("the head arrives", || origin.heads() == before + 1).await;
        drop(wire);
        settled(&node).await;
    }
    assert_eq!(origin.total(), 0, "half a body is no request");
    let page = admin(&node, "/metrics").await.text();
    assert!(!page.contains("levada_upstream_failures_total{"), "it is no failure of the origin");
}

#[tokio::test]
async fn connection_with_an_upload_under_way_is_not_lent_out() {
    let (origin, node, at) = alone(|_| {}).await;
    // The origin answers after the head, and goes on reading.
    let address = early_answerer().await;
    let _ = &origin;
    drop(node);
    let node = start(single(&[address])).await;
    let at = {
        let _ = at;
        node.addresses.clients[0]
    };
    let mut upload = Wire::saying(at, head_of("POST", "/a", &[("Content-Length", "20000")])).await;
    assert_eq!(upload.head().await.status, 413);
    for n in 0..3 {
        assert_eq!(get(at, &format!("/{n}")).await.status, 413);
    }
    drop(upload);
    settled(&node).await;
}

/// An origin that answers every request as soon as it has read its head.
async fn early_answerer() -> std::net::SocketAddr {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut seen = Vec::new();
                while let Ok(1..) = stream.read_buf(&mut seen).await {
                    while let Some(at) = seen.windows(4).position(|w| w == b"\r\n\r\n") {
                        seen.drain(..at + 4);
                        let answer = "HTTP/1.1 413 No\r\ncontent-length: 2\r\n\r\nno";
                        if stream.write_all(answer.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}
