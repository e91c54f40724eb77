//! Responses that turn out not to be storable: requests do not wait for each other.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use crate::support::*;

async fn world() -> (Origin, levada_node::Running, std::net::SocketAddr) {
    let origin = Origin::start().await;
    let node = start(single(&[origin.address])).await;
    let at = node.addresses.clients[0];
    (origin, node, at)
}

/// The first answer comes at once, the others when the gate opens.
fn gated(first: Reply, others: Reply, gate: &Gate) -> impl Fn(&origin::Asked) -> Reply + use<> {
    let (gate, times) = (gate.clone(), AtomicUsize::new(0));
    move |_| match times.fetch_add(1, Relaxed) {
        0 => first.clone(),
        _ => others.clone().after(&gate),
    }
}

#[tokio::test]
async fn requests_for_what_could_not_be_stored_go_on_in_parallel() {
    let (origin, node, at) = world().await;
    let gate = Gate::new();
    let private = Reply::ok("mine").with("cache-control", "private");
    origin.script("/u", gated(private.clone(), private, &gate));
    assert_eq!(get(at, "/u").await.text(), "mine");
    settled(&node).await;
    let clients: Vec<_> = (0..50).map(|_| tokio::spawn(get(at, "/u"))).collect();
    eventually("all are at the origin at once", || origin.heads() == 51).await;
    gate.open();
    for client in clients {
        let answer = within(client).await.unwrap();
        assert_eq!((answer.status, answer.text()), (200, "mine".to_owned()));
        let status = answer.field("cache-status");
        assert_eq!(status, "n0; fwd=uri-miss; fwd-status=200; detail=private");
    }
    settled(&node).await;
}

#[tokio::test]
async fn what_has_become_storable_is_shared_again() {
    let (origin, node, at) = world().await;
    let turned = Arc::new(AtomicUsize::new(0));
    let turn = turned.clone();
    origin.script("/u", move |_| match turn.fetch_add(1, Relaxed) {
        0 => Reply::ok("mine").with("cache-control", "no-store"),
        _ => Reply::cached("ours"),
    });
    assert_eq!(get(at, "/u").await.text(), "mine");
    settled(&node).await;
    assert!(get(at, "/u").await.field("cache-status").ends_with("; stored"));
    settled(&node).await;
    assert!(get(at, "/u").await.is_hit());
    settled(&node).await;
}

#[tokio::test]
async fn one_requests_wish_not_to_be_stored_does_not_part_the_others() {
    for fields in [("Cache-Control", "no-store"), ("Authorization", "Basic YTpi")] {
        let (origin, node, at) = world().await;
        let gate = Gate::new();
        origin.script("/u", gated(Reply::cached("x"), Reply::cached("x"), &gate));
        assert!(!get_with(at, "/u", &[fields]).await.field("cache-status").contains("stored"));
        settled(&node).await;
        let clients: Vec<_> = (0..10).map(|_| tokio::spawn(get(at, "/u"))).collect();
        eventually("all wait", || node.counts().in_service == 10).await;
        gate.open();
        for client in clients {
            assert_eq!(within(client).await.unwrap().text(), "x");
        }
        assert_eq!(origin.hits("/u"), 2, "{fields:?}");
        settled(&node).await;
    }
}

#[tokio::test]
async fn request_that_is_not_to_be_stored_holds_up_nobody() {
    let (origin, node, at) = world().await;
    let gate = Gate::new();
    let held = gate.clone();
    origin.script("/u", move |asked| match asked.header("cache-control") {
        Some(_) => Reply::cached("x").after(&held),
        None => Reply::cached("x"),
    });
    let slow =
        tokio::spawn(
            async move { get_with(at, "/u", &[("Cache-Control", "no-store")]).await.status },
        );
    eventually("it waits at the origin", || origin.heads() == 1).await;
    assert!(get(at, "/u").await.field("cache-status").ends_with("; stored"));
    gate.open();
    assert_eq!(within(slow).await.unwrap(), 200);
    settled(&node).await;
}
