//! Interim responses reach the clients they are for.

use crate::support::*;

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\nx-hint: 1\r\n\
    connection: x-hop\r\nx-hop: 1\r\n\r\n";
const FINAL: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncache-control: max-age=60\r\n\r\nhi";

async fn world() -> (Origin, levada_node::Running, std::net::SocketAddr) {
    let origin = Origin::start().await;
    let node = start(single(&[origin.address])).await;
    let at = node.addresses.clients[0];
    (origin, node, at)
}

fn hinted(gate: &Gate) -> Reply {
    Reply::raw("").pieces(vec![
        Piece::Bytes(HINTS.into()),
        Piece::Gate(gate.clone()),
        Piece::Bytes(FINAL.into()),
    ])
}

#[tokio::test]
async fn hints_reach_the_client_before_the_final_response() {
    let (origin, node, at) = world().await;
    let gate = Gate::new();
    origin.on("/a", hinted(&gate));
    let mut wire = Wire::saying(at, head_of("GET", "/a", &[])).await;
    let hints = wire.head().await;
    assert_eq!((hints.status, hints.field("x-hint")), (103, "1".to_owned()));
    assert_eq!(hints.header("x-hop"), None, "it ends at this node");
    gate.open();
    let answer = wire.answer().await;
    assert_eq!((answer.status, answer.text()), (200, "hi".to_owned()));
    assert_eq!(answer.header("x-hint"), None);
    settled(&node).await;
    // Only the final response is stored.
    wire.send(head_of("GET", "/a", &[])).await;
    let hit = wire.head().await;
    assert_eq!((hit.status, hit.is_hit(), hit.header("x-hint")), (200, true, None));
    assert_eq!(wire.take(2).await, b"hi");
    settled(&node).await;
}

#[tokio::test]
async fn hints_pass_in_one_piece_with_the_final_response_and_for_any_method() {
    let (origin, node, at) = world().await;
    let progress = "HTTP/1.1 102 Processing\r\n\r\n";
    origin.on("/a", Reply::raw(format!("{progress}{HINTS}{FINAL}")));
    for method in ["GET", "POST"] {
        let request = head_of(method, "/a", &[("Content-Length", "0")]);
        let mut wire = Wire::saying(at, request).await;
        let statuses = [wire.head().await.status, wire.head().await.status];
        assert_eq!(statuses, [102, 103], "{method}");
        assert_eq!(wire.answer().await.text(), "hi", "{method}");
        settled(&node).await;
    }
}

#[tokio::test]
async fn client_of_http_1_0_gets_the_final_response_only() {
    let (origin, node, at) = world().await;
    origin.on("/a", Reply::raw(format!("{HINTS}{FINAL}")));
    let request = format!("GET /a HTTP/1.0\r\nHost: {HOST}\r\n\r\n");
    let mut wire = Wire::saying(at, request).await;
    assert_eq!(wire.head().await.status, 200);
    settled(&node).await;
}

#[tokio::test]
async fn flood_of_hints_is_let_go() {
    let (origin, node, at) = world().await;
    origin.on("/a", Reply::raw(format!("{}{FINAL}", HINTS.repeat(2000))));
    let mut wire = Wire::saying(at, head_of("GET", "/a", &[])).await;
    assert_eq!(wire.answer().await.text(), "hi");
    settled(&node).await;
}
