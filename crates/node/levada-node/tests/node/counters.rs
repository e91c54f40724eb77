//! The counters of a node compared with an independent count of the same requests, at their clients and at the servers.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use levada_node::Running;

use crate::{
    support::{nodes::*, *},
    switch::switching,
};

const CLIENTS: u64 = 10;
/// Requests of each client.
const REQUESTS: u64 = 500;

/// The requests and bytes that clients, or servers, have counted themselves.
#[derive(Default)]
struct Counted {
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Counted {
    fn count(&self, bytes: usize) {
        self.requests.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn all(&self) -> (f64, f64) {
        (self.requests.load(Relaxed) as f64, self.bytes.load(Relaxed) as f64)
    }
}

/// Lets the origin reply by the first part of the path, and counts the bodies that it sends.
fn mixed(origin: &Origin, sent: &Arc<Counted>) {
    let sent = sent.clone();
    origin.otherwise(move |asked| {
        let body = vec![b'x'; 1 + asked.target.len() * 97];
        let length = if asked.method == "HEAD" { 0 } else { body.len() };
        sent.count(length);
        let kind = asked.target.split('/').nth(1).unwrap_or_default();
        let reply = match kind {
            "stored" | "post" => Reply::cached(body),
            "chunked" | "bypassed" => {
                let (first, second) = body.split_at(body.len() / 2);
                Reply::chunked([first, second].map(|half| Piece::Bytes(half.to_vec())).to_vec())
            }
            "missing" => Reply::ok(body).status("404 Not Found"),
            _ => Reply::ok(body),
        };
        if kind == "private" { reply.with("cache-control", "no-store") } else { reply }
    });
}

/// Sends requests of all kinds on one connection, and counts the bodies that come.
async fn ask(at: SocketAddr, client: u64, received: Arc<Counted>) {
    let kinds = ["stored", "private", "chunked", "bypassed", "missing", "post", "head"];
    let mut wire = Wire::to(at).await;
    for number in 0..REQUESTS {
        // Some objects are asked for again, by this and by other clients.
        let object = (number * 7 + client) % 180;
        let kind = kinds[(number % kinds.len() as u64) as usize];
        let method = match kind {
            "post" => "POST",
            "head" => "HEAD",
            _ => "GET",
        };
        let authorized: &[(&str, &str)] =
            if kind == "bypassed" { &[("Authorization", "Basic YTpi")] } else { &[] };
        let fields = [authorized, &[("Content-Length", "0")]].concat();
        wire.send(head_of(method, &format!("/{kind}/{object}"), &fields)).await;
        let answer = wire.answer_to(method).await;
        assert!(answer.whole, "{kind}");
        received.count(answer.body.len());
    }
}

async fn hold_against(node: &Running, received: &Counted, sent: &Counted, upstream: &str) {
    settled(node).await;
    let (requests, bytes) = received.all();
    assert_eq!(requests, (CLIENTS * REQUESTS) as f64);
    assert_eq!(metric(node, "levada_http_requests_total").await, requests);
    assert_eq!(metric(node, "levada_http_request_duration_seconds_count").await, requests);
    assert_eq!(metric(node, "levada_http_response_bytes_total").await, bytes);
    let (requests, bytes) = sent.all();
    let page = admin(node, "/metrics").await.text();
    let of = format!("levada_upstream_requests_total{{upstream=\"{upstream}\"");
    let answered = page.lines().filter(|line| line.starts_with(&of));
    let answered = answered.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    assert_eq!(answered.sum::<f64>(), requests);
    assert_eq!(metric(node, "levada_origin_response_bytes_total").await, bytes);
    assert_eq!(metric(node, "levada_http_responses_aborted_total").await, 0.0);
}

async fn load(node: &Running, received: &Arc<Counted>) {
    let at = node.addresses.clients[0];
    let clients = (0..CLIENTS).map(|client| tokio::spawn(ask(at, client, received.clone())));
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
}

#[tokio::test]
async fn counters_equal_what_clients_and_the_origin_have_counted() {
    let (origin, node, _) = alone(|_| {}).await;
    let (sent, received) = (Arc::<Counted>::default(), Arc::<Counted>::default());
    mixed(&origin, &sent);
    load(&node, &received).await;
    hold_against(&node, &received, &sent, "origin").await;
    assert!(sent.all().0 < received.all().0, "some were hits");
}

#[tokio::test]
async fn counters_equal_what_clients_and_the_servers_of_a_switch_have_counted() {
    let servers = [Origin::start().await, Origin::start().await];
    let node = start(switching("lard", &servers.each_ref())).await;
    let (sent, received) = (Arc::<Counted>::default(), Arc::<Counted>::default());
    servers.iter().for_each(|server| mixed(server, &sent));
    load(&node, &received).await;
    hold_against(&node, &received, &sent, "server").await;
}
