//! The series of origins, peers and servers: there from the start, and gone with their server.

use std::net::SocketAddr;

use levada_node::Running;

use crate::support::{nodes::*, *};

/// The series of the health of a node's servers.
async fn healthy(node: &Running) -> Vec<String> {
    named(node, "levada_upstream_healthy").await
}

/// The series of this name.
async fn named(node: &Running, name: &str) -> Vec<String> {
    let page = admin(node, "/metrics").await.text();
    let of = |line: &str| line.strip_prefix(name).map(str::to_owned);
    let mut series: Vec<_> = page.lines().filter_map(of).collect();
    series.sort();
    series
}

#[tokio::test]
async fn origins_and_peers_are_shown_before_anything_has_happened() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(2, origin.address, |_| {}).await;
    let expected = [
        format!("{{kind=\"origin\",server=\"{}\"}} 1", origin.address),
        "{kind=\"peer\",server=\"n1\"} 1".to_owned(),
    ];
    assert_eq!(healthy(cluster.node(0)).await, expected);
}

#[tokio::test]
async fn origin_that_leaves_by_a_reload_has_no_series_any_more() {
    let origin = Origin::start().await;
    let dead: SocketAddr = reserve(1)[0];
    let mut before = single(&[dead, origin.address]);
    before.sites[0].servers.health = watched();
    let (node, file) = world(before.clone()).await;
    let down = format!("{{kind=\"origin\",server=\"{dead}\"}} 0");
    within(async { while !healthy(&node).await.contains(&down) {} }).await;
    let mut after = before;
    after.sites[0].servers.origins.remove(0);
    *file.lock().unwrap() = Ok(after);
    assert_eq!(reload(&node).await.status, 200);
    let left = format!("{{kind=\"origin\",server=\"{}\"}} 1", origin.address);
    assert_eq!(healthy(&node).await, [left]);
}

#[tokio::test]
async fn server_of_two_sites_is_down_if_it_is_down_for_one_of_them() {
    let dead: SocketAddr = reserve(1)[0];
    let mut settings = single(&[dead]);
    settings.sites[0].servers.health = watched();
    settings.sites.push(site("other.test", &[dead]));
    let node = start(settings).await;
    let down = format!("{{kind=\"origin\",server=\"{dead}\"}} 0");
    within(async { while healthy(&node).await != [down.clone()] {} }).await;
}

#[tokio::test]
async fn times_of_response_heads_are_counted_by_server_and_end_with_it() {
    let (origin, other) = (Origin::start().await, Origin::start().await);
    origin.otherwise(|_| Reply::ok("not stored"));
    let before = single(&[origin.address]);
    let (node, file) = world(before.clone()).await;
    let heads = async || named(&node, "levada_upstream_head_duration_seconds_count").await;
    let of = |origin: &Origin, times| {
        format!("{{kind=\"origin\",server=\"{}\"}} {times}", origin.address)
    };
    assert_eq!(heads().await, [of(&origin, 0)]);
    for number in 0..3 {
        get(node.addresses.clients[0], &format!("/{number}")).await;
    }
    assert_eq!(heads().await, [of(&origin, 3)]);
    let mut after = before;
    after.sites[0].servers.origins = vec![at(&other.address)];
    *file.lock().unwrap() = Ok(after);
    assert_eq!(reload(&node).await.status, 200);
    assert_eq!(heads().await, [of(&other, 0)]);
}

#[tokio::test]
async fn cpu_time_is_counted_by_kind_of_work() {
    let authority = secure::Authority::new();
    let certificate = authority.issue(&[HOST]);
    let (origin, node, at) = alone(|settings| settings.listeners[0].tls = vec![certificate]).await;
    origin.on("/stored", Reply::cached("stored"));
    let seconds = async |work: &str| {
        let label = format!("{{work=\"{work}\"}} ");
        let series = named(&node, "levada_cpu_seconds_total").await;
        let value = series.iter().find_map(|line| line.strip_prefix(&label));
        value.unwrap().parse::<f64>().unwrap()
    };
    assert_eq!(seconds("tls_handshake").await, 0.0);
    let stream = secure::connect(at, HOST, &authority.path(), &["http/1.1"], None).await.unwrap();
    assert!(seconds("tls_handshake").await > 0.0);
    let mut wire = Wire::over(stream);
    let enough = async {
        while seconds("hit").await == 0.0 {
            for _ in 0..100 {
                wire.send(head_of("GET", "/stored", &[])).await;
                assert_eq!(wire.answer().await.text(), "stored");
            }
        }
    };
    within(enough).await;
}
