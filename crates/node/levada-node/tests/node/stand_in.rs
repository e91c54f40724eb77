//! Answers while the servers behind a node are silent: its own stale response, or what a node of its region has.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use levada_config::{HealthCheck, Settings};

use super::large::{PIECE, body, in_pieces, ranged};
use crate::support::{nodes::*, *};

/// An origin whose objects are stale from the start where their path begins with `/stale`. It answers nothing more from
/// [`falls_silent`](Silent::falls_silent) until its gate opens.
struct Silent {
    origin: Origin,
    is_silent: Arc<AtomicBool>,
    gate: Gate,
}

impl Silent {
    async fn start() -> Self {
        let (origin, is_silent, gate) = (Origin::start().await, Arc::default(), Gate::new());
        let silent = Self { origin, is_silent, gate };
        let (is_silent, gate) = (silent.is_silent.clone(), silent.gate.clone());
        silent.origin.otherwise(move |asked| {
            let is_stale = asked.target.starts_with("/stale");
            let reply = Reply::ok(asked.target.clone()).with("etag", "\"1\"");
            let reply = reply.with("cache-control", "max-age=60, stale-if-error=600");
            let reply = if is_stale { reply.with("age", "100") } else { reply };
            if is_silent.load(Relaxed) { reply.after(&gate) } else { reply }
        });
        silent
    }

    fn address(&self) -> SocketAddr {
        self.origin.address
    }

    fn falls_silent(&self) {
        self.is_silent.store(true, Relaxed);
    }

    fn answers_again(&self) {
        self.is_silent.store(false, Relaxed);
        self.gate.open();
    }
}

fn waits(settings: &mut Settings, wait: Duration) {
    settings.sites[0].handling.rules.revalidation_wait = wait;
}

/// Longer than any test waits.
const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn stale_response_stands_in_for_a_silent_origin() {
    let origin = Silent::start().await;
    let node = start(single(&[origin.address()])).await;
    let at = node.addresses.clients[0];
    assert_eq!(get(at, "/stale").await.text(), "/stale");
    origin.falls_silent();
    let answer = get(at, "/stale").await;
    assert_eq!((answer.status, answer.text()), (200, "/stale".to_owned()));
    let status = answer.field("cache-status");
    assert!(status.starts_with("n0; fwd=stale; ttl=-4"), "{status}");
    assert!(status.ends_with("; detail=unreachable"), "{status}");
    assert_eq!(origin.origin.heads(), 2, "the origin was asked");
    origin.answers_again();
    settled(&node).await;
}

#[tokio::test]
async fn client_that_wants_a_revalidation_waits_for_it() {
    let origin = Silent::start().await;
    let mut settings = single(&[origin.address()]);
    waits(&mut settings, Duration::ZERO);
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    assert_eq!(get(at, "/fresh").await.text(), "/fresh");
    origin.falls_silent();
    let asked = tokio::spawn(async move {
        get_with(at, "/fresh", &[("Cache-Control", "no-cache")]).await.field("cache-status")
    });
    eventually("the origin is asked", || origin.origin.heads() == 2).await;
    origin.answers_again();
    let status = within(asked).await.unwrap();
    assert!(status.starts_with("n0; fwd=request; fwd-status=200"), "{status}");
    settled(&node).await;
}

#[tokio::test]
async fn silent_origin_is_tried_now_and_then_and_noticed_when_it_answers_again() {
    let origin = Silent::start().await;
    let mut settings = single(&[origin.address()]);
    waits(&mut settings, Duration::from_millis(50));
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    let targets: Vec<_> = (0..20).map(|n| format!("/stale/{n}")).collect();
    for target in &targets {
        assert_eq!(get(at, target).await.status, 200);
    }
    origin.falls_silent();
    let (before, begun) = (origin.origin.heads(), std::time::Instant::now());
    for target in &targets {
        assert_eq!((get(at, target).await.status, &get(at, target).await.text()), (200, target));
    }
    let (tried, seconds) = (origin.origin.heads() - before, begun.elapsed().as_secs() as usize);
    assert!((1..=2 + 2 * seconds).contains(&tried), "{tried} requests in {seconds} s");
    origin.answers_again();
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let status = get(at, "/stale/0").await.field("cache-status");
        if status.contains("fwd-status=200") {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    settled(&node).await;
}

#[tokio::test]
async fn stale_response_of_an_origin_that_is_down_waits_for_nothing() {
    let origin = Silent::start().await;
    let mut settings = single(&[origin.address()]);
    waits(&mut settings, HOUR);
    let health = HealthCheck { path: Some("/healthz".to_owned()), ..watched() };
    settings.sites[0].servers.health =
        HealthCheck { timeout: Duration::from_millis(200), ..health };
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    assert_eq!(get(at, "/stale").await.text(), "/stale");
    origin.falls_silent();
    let deadline = std::time::Instant::now() + PATIENCE;
    while metric(&node, "levada_upstream_healthy").await > 0.0 {
        assert!(std::time::Instant::now() < deadline, "never down");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(get(at, "/stale").await.text(), "/stale");
    origin.answers_again();
    settled(&node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_without_the_object_gets_it_from_one_that_has_it() {
    let origin = Silent::start().await;
    let cluster = Cluster::start(3, origin.address(), |_| ()).await;
    // A node answers a peer by itself.
    for target in ["/fresh/0", "/stale/0"] {
        assert_eq!(cluster.get_as_peer(1, target, &[]).await.text(), target);
    }
    cluster.settled().await;
    origin.falls_silent();
    for target in ["/fresh/0", "/stale/0", "/fresh/0"] {
        let answer = cluster.get_as_peer(0, target, &[]).await;
        assert_eq!((answer.status, answer.text()), (200, target.to_owned()), "{answer:?}");
        assert!(answer.field("proxy-status").contains("next-hop=\"n1\""), "{answer:?}");
        let ranged = &[("Range", "bytes=1-3")];
        let answer = cluster.get_as_peer(0, target, ranged).await;
        assert_eq!((answer.status, answer.text()), (206, target[1..4].to_owned()));
    }
    origin.answers_again();
    cluster.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peer_with_a_stale_response_is_waited_for() {
    let origin = Silent::start().await;
    let cluster = Cluster::start(3, origin.address(), |_| ()).await;
    let targets: Vec<_> = (0..12).map(|n| format!("/stale/{n}")).collect();
    for target in &targets {
        assert_eq!(get(cluster.client(0), target).await.status, 200);
    }
    cluster.settled().await;
    origin.falls_silent();
    let answers = targets.iter().flat_map(|target| (0..3).map(move |node| (node, target)));
    let answers = answers.map(|(node, target)| {
        let (at, target) = (cluster.client(node), target.clone());
        tokio::spawn(async move { (get(at, &target).await.text(), target) })
    });
    for answer in answers.collect::<Vec<_>>() {
        let (text, target) = within(answer).await.unwrap();
        assert_eq!(text, target);
    }
    origin.answers_again();
    cluster.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_stored_responses_may_answer_is_not_asked_for_elsewhere() {
    let origin = Silent::start().await;
    let cluster = Cluster::start(2, origin.address(), |_| ()).await;
    let only = &[("Cache-Control", "only-if-cached")];
    assert_eq!(cluster.get_as_peer(0, "/fresh", only).await.status, 504);
    assert_eq!(get(cluster.client(0), "/stale").await.status, 200);
    let owner = if cluster.get_as_peer(0, "/stale", only).await.status == 200 { 0 } else { 1 };
    // A client does not get a stale response by it.
    assert_eq!(get_with(cluster.client(owner), "/stale", only).await.status, 504);
    assert_eq!(origin.origin.heads(), 1);
}

#[tokio::test]
async fn pieces_of_a_large_file_are_served_while_its_origin_is_silent() {
    let origin = Silent::start().await;
    let mut settings = single(&[origin.address()]);
    settings.sites[0].large = Some(in_pieces());
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    let whole = body(6 * PIECE + 77, 0);
    let (content, is_silent, gate) = (whole.clone(), origin.is_silent.clone(), origin.gate.clone());
    origin.origin.script("/a", move |asked| {
        let reply = ranged(asked, &content, "\"v1\"").with("age", "100");
        if is_silent.load(Relaxed) { reply.after(&gate) } else { reply }
    });
    assert!(get(at, "/a").await.body == whole);
    settled(&node).await;
    origin.falls_silent();
    let answer = get(at, "/a").await;
    assert!(answer.body == whole && answer.whole, "{answer:?}");
    origin.answers_again();
    settled(&node).await;
}
