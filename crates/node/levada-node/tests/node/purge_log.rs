//! Purges that survive: nodes that are away, that are killed, that restart, and that lose their log.

use std::{net::SocketAddr, path::Path, time::Duration};

use levada_config::{DiskCache, Settings};
use serde_json::{Value as Json, json};
use tokio::{net::TcpStream, time::Instant};

use crate::{
    purge::{is_stored_at, order, purge, results, stored_everywhere, url},
    support::{nodes::*, *},
};

/// Nodes that keep responses on disk.
async fn on_disk(count: usize, origin: &Origin, dir: &Path) -> Cluster {
    Cluster::start(count, origin.address, |settings| {
        let path = dir.join(&settings.name);
        settings.cache.disk = Some(DiskCache { path, size: 64 << 20 });
        settings.admin.as_mut().unwrap().listen = reserve(1)[0].into();
    })
    .await
}

fn admin_of(settings: &Settings) -> SocketAddr {
    settings.admin.as_ref().unwrap().listen.tcp().unwrap()
}

/// Waits until something holds that is asked over the network.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn report(answer: &Answer) -> Json {
    serde_json::from_slice(&answer.body).unwrap()
}

#[tokio::test]
async fn purge_reaches_a_peer_that_was_away_though_the_node_that_was_told_is_gone() {
    let (origin, dir) = (Origin::start().await, tempfile::tempdir().unwrap());
    let mut cluster = on_disk(3, &origin, dir.path()).await;
    for target in ["/a", "/b"] {
        stored_everywhere(&cluster, target).await;
    }
    cluster.stop(2).await;
    let answer = order(cluster.node(0), &json!({"url": url("/a")})).await;
    let all = [("n0", "confirmed"), ("n1", "confirmed"), ("n2", "unreachable")];
    assert_eq!(results(&report(&answer)), all);
    cluster.kill(0);
    cluster.revive(2).await;
    assert!(!is_stored_at(&cluster, 2, "/a").await, "from the first answer on");
    assert!(is_stored_at(&cluster, 2, "/b").await);
    cluster.settled().await;
}

#[tokio::test]
async fn purge_is_passed_on_by_a_node_that_was_restarted_meanwhile() {
    let (origin, dir) = (Origin::start().await, tempfile::tempdir().unwrap());
    let mut cluster = on_disk(3, &origin, dir.path()).await;
    stored_everywhere(&cluster, "/a").await;
    cluster.stop(2).await;
    assert_eq!(order(cluster.node(0), &json!({"url": url("/a")})).await.status, 202);
    for index in 0..2 {
        cluster.kill(index);
        let peer = cluster.peer(index);
        until("it is gone", async || TcpStream::connect(peer).await.is_err()).await;
    }
    // It has nothing but its journal.
    let [one, two] = [1, 2].map(|index| start(cluster.settings[index].clone()));
    let (one, two) = tokio::join!(one, two);
    (cluster.nodes[1], cluster.nodes[2]) = (Some(one), Some(two));
    assert!(!is_stored_at(&cluster, 2, "/a").await);
    cluster.settled().await;
}

#[tokio::test]
async fn node_that_returns_has_its_door_closed_until_it_has_caught_up() {
    let (origin, dir) = (Origin::start().await, tempfile::tempdir().unwrap());
    let mut cluster = on_disk(2, &origin, dir.path()).await;
    for target in ["/a", "/b"] {
        stored_everywhere(&cluster, target).await;
    }
    cluster.stop(1).await;
    assert_eq!(order(cluster.node(0), &json!({"url": url("/a")})).await.status, 202);
    cluster.stop(0).await;
    // In place of the peer: a socket that never answers.
    let silent = tokio::net::TcpListener::bind(cluster.peer(0)).await.unwrap();
    let returning = tokio::spawn(start(cluster.settings[1].clone()));
    let admin = admin_of(&cluster.settings[1]);
    until("the node starts", async || TcpStream::connect(admin).await.is_ok()).await;
    assert_eq!(get(admin, "/readyz").await.status, 503);
    assert!(TcpStream::connect(cluster.client(1)).await.is_err());
    for target in ["/a", "/b", "/.levada/health"] {
        let refused = cluster.get_as_peer(1, target, &[]).await;
        assert_eq!(refused.status, 503, "{target}");
        assert_eq!(refused.field("levada-refused"), "starting");
    }
    drop(silent);
    cluster.revive(0).await;
    cluster.nodes[1] = Some(returning.await.unwrap());
    assert!(!is_stored_at(&cluster, 1, "/a").await, "from the first answer on");
    assert!(is_stored_at(&cluster, 1, "/b").await);
    assert_eq!(get(admin, "/readyz").await.status, 200);
    cluster.settled().await;
}

#[tokio::test]
async fn node_that_reaches_no_peer_starts_and_validates_what_it_has() {
    let (origin, dir) = (Origin::start().await, tempfile::tempdir().unwrap());
    origin.script("/a", |asked| match asked.header("if-none-match") {
        Some(_) => Reply::cached("").status("304 Not Modified").with("etag", "\"1\""),
        None => Reply::cached("body").with("etag", "\"1\""),
    });
    let mut cluster = on_disk(2, &origin, dir.path()).await;
    stored_everywhere(&cluster, "/a").await;
    cluster.stop(1).await;
    cluster.stop(0).await;
    cluster.settings[1].peering.as_mut().unwrap().catch_up = Duration::from_millis(300);
    cluster.revive(1).await;
    assert!(!is_stored_at(&cluster, 1, "/a").await);
    let answer = cluster.get_as_peer(1, "/a", &[]).await;
    assert_eq!((answer.status, answer.text()), (200, "body".to_owned()));
    assert!(answer.field("cache-status").contains("fwd-status=304"), "{answer:?}");
    cluster.settled().await;
}

#[tokio::test]
async fn longer_absence_than_the_log_reaches_back_empties_the_tier() {
    let (origin, dir) = (Origin::start().await, tempfile::tempdir().unwrap());
    let mut cluster = on_disk(2, &origin, dir.path()).await;
    for target in ["/a", "/b"] {
        stored_everywhere(&cluster, target).await;
    }
    cluster.stop(1).await;
    order(cluster.node(0), &json!({"url": url("/a")})).await;
    // The log has room for 8 MiB.
    for round in 0..50 {
        let urls = (0..900).map(|n| url(&format!("/{round}/{n}/{}", "x".repeat(200))));
        let answer = order(cluster.node(0), &json!({"url": urls.collect::<Vec<_>>()})).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
    }
    cluster.revive(1).await;
    for target in ["/a", "/b"] {
        assert!(!is_stored_at(&cluster, 1, target).await, "{target}");
    }
    until("the peer has it all", async || {
        metric(cluster.node(0), "levada_purges_pending").await == 0.0
    })
    .await;
    // From here on it is in step, also after a restart.
    for target in ["/a", "/b"] {
        stored_everywhere(&cluster, target).await;
    }
    cluster.stop(1).await;
    cluster.revive(1).await;
    purge(cluster.node(0), json!({"url": url("/a")})).await;
    assert!(!is_stored_at(&cluster, 1, "/a").await && is_stored_at(&cluster, 1, "/b").await);
    cluster.settled().await;
}

#[tokio::test]
async fn damaged_log_counts_as_a_long_absence() {
    let (origin, dir) = (Origin::start().await, tempfile::tempdir().unwrap());
    let mut cluster = on_disk(2, &origin, dir.path()).await;
    purge(cluster.node(0), json!({"url": url("/other")})).await;
    stored_everywhere(&cluster, "/a").await;
    cluster.stop(1).await;
    let journal = dir.path().join("n1/purge.journal");
    let mut bytes = std::fs::read(&journal).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&journal, bytes).unwrap();
    cluster.revive(1).await;
    assert!(!is_stored_at(&cluster, 1, "/a").await);
    // It has the log of its peers again.
    let known = std::fs::read_to_string(&journal).unwrap();
    until("the log is there", async || {
        std::fs::read_to_string(&journal).unwrap().contains("http://a.test/other")
    })
    .await;
    assert!(known.contains("start"));
    // A response that is stored now stays over a restart.
    stored_everywhere(&cluster, "/a").await;
    cluster.stop(1).await;
    cluster.revive(1).await;
    assert!(is_stored_at(&cluster, 1, "/a").await);
    cluster.settled().await;
}

/// Puts a directory in the place of a node's journal: it cannot be written.
fn block_journal(dir: &Path, node: &str) -> std::path::PathBuf {
    let journal = dir.join(node).join("purge.journal");
    std::fs::create_dir_all(journal.join("x")).unwrap();
    journal
}

#[tokio::test]
async fn node_that_cannot_write_its_journal_purges_nothing_and_says_so() {
    let (origin, dir) = (Origin::start().await, tempfile::tempdir().unwrap());
    let journal = block_journal(dir.path(), "n0");
    let cluster = on_disk(2, &origin, dir.path()).await;
    stored_everywhere(&cluster, "/a").await;
    let answer = order(cluster.node(0), &json!({"url": url("/a")})).await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.text().contains("nothing is purged"), "{}", answer.text());
    for index in 0..2 {
        assert!(is_stored_at(&cluster, index, "/a").await, "n{index}");
    }
    std::fs::remove_dir_all(journal).unwrap();
    purge(cluster.node(0), json!({"url": url("/a")})).await;
    for index in 0..2 {
        assert!(!is_stored_at(&cluster, index, "/a").await, "n{index}");
    }
    cluster.settled().await;
}

#[tokio::test]
async fn peer_that_cannot_write_its_journal_purges_and_has_not_confirmed() {
    let (origin, dir) = (Origin::start().await, tempfile::tempdir().unwrap());
    let journal = block_journal(dir.path(), "n1");
    let cluster = on_disk(2, &origin, dir.path()).await;
    stored_everywhere(&cluster, "/a").await;
    let answer = order(cluster.node(0), &json!({"url": url("/a")})).await;
    let told = report(&answer);
    assert_eq!(results(&told), [("n0", "confirmed"), ("n1", "pending")]);
    assert!(told["nodes"][1]["detail"].as_str().unwrap().contains("a restart would undo it"));
    assert!(!is_stored_at(&cluster, 1, "/a").await);
    // It gets the purge again and again; what is stored since stays.
    stored_everywhere(&cluster, "/a").await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(is_stored_at(&cluster, 1, "/a").await);
    std::fs::remove_dir_all(journal).unwrap();
    let target = format!("/purge?order={}", told["order"].as_str().unwrap());
    until("it confirms", async || {
        report(&admin(cluster.node(0), &target).await)["confirmed"] == true
    })
    .await;
    assert!(is_stored_at(&cluster, 1, "/a").await);
    cluster.settled().await;
}

#[tokio::test]
async fn nodes_tell_later_who_has_confirmed() {
    let (origin, dir) = (Origin::start().await, tempfile::tempdir().unwrap());
    let mut cluster = on_disk(3, &origin, dir.path()).await;
    cluster.stop(2).await;
    let told = report(&order(cluster.node(0), &json!({"all": true})).await);
    let target = format!("/purge?order={}", told["order"].as_str().unwrap());
    let answer = admin(cluster.node(0), &target).await;
    assert_eq!(answer.status, 202);
    let all = [("n0", "confirmed"), ("n1", "confirmed"), ("n2", "pending")];
    assert_eq!(results(&report(&answer)), all, "without probes nobody knows that it is away");
    cluster.revive(2).await;
    for index in 0..3 {
        until("all have confirmed", async || {
            report(&admin(cluster.node(index), &target).await)["confirmed"] == true
        })
        .await;
    }
    for (order, status) in [("", 400), ("x-1", 400), ("0123456789abcdef-1", 404)] {
        let answer = admin(cluster.node(0), &format!("/purge?order={order}")).await;
        assert_eq!(answer.status, status, "{order}");
    }
    cluster.settled().await;
}
