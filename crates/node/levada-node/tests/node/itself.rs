//! The status of a node, its events and its last seconds.

use levada_cluster::events::EventKind;
use levada_control::status::{ClusterNode, NodeStatus};
use levada_node::Running;

use crate::support::{nodes::*, *};
use crate::switch::{server_of, switching};

async fn status(node: &Running) -> NodeStatus {
    serde_json::from_slice(&admin(node, "/status").await.body).unwrap()
}

#[tokio::test]
async fn status_counts_requests_and_names_the_hottest_object_with_its_nodes() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(3, origin.address, |_| {}).await;
    origin.on("/hot", Reply::cached("hot"));
    origin.on("/cold", Reply::cached("cold"));
    for target in ["/hot", "/cold", "/hot", "/hot"] {
        assert_eq!(get(cluster.client(0), target).await.status, 200);
    }
    cluster.settled().await;
    let said = status(cluster.node(0)).await;
    assert_eq!((said.ready, said.requests, said.refused), (true, 4, 0));
    assert_eq!(said.peers.len(), 3);
    let (hottest, asked) = (&said.hottest[0], format!("http://{HOST}/hot"));
    assert_eq!((hottest.url.as_str(), said.hottest.len()), (asked.as_str(), 2));
    let explained = admin_json(cluster.node(0), &format!("/explain?url={asked}")).await;
    assert_eq!(serde_json::json!(hottest.set), explained["set"]);
    assert_eq!(hottest.key, explained["key"]);
}

#[tokio::test]
async fn hottest_objects_of_a_switch_are_shown_with_its_servers() {
    let (one, other) = (Origin::start().await, Origin::start().await);
    let node = start(switching("lard", &[&one, &other])).await;
    let at = node.addresses.clients[0];
    let chosen = server_of(at, "/hot").await;
    settled(&node).await;
    let hottest = &status(&node).await.hottest[0];
    assert_eq!((&*hottest.policy, &hottest.set), ("lard", &vec![chosen]));
}

#[tokio::test]
async fn peer_that_dies_and_a_drain_are_events() {
    let origin = Origin::start().await;
    let mut cluster = Cluster::start(2, origin.address, |settings| {
        settings.peering.as_mut().unwrap().health = watched();
    })
    .await;
    let kinds = |cluster: &Cluster| -> Vec<_> {
        cluster.node(0).events().since(0).iter().map(|event| event.kind).collect()
    };
    cluster.kill(1);
    eventually("the peer's death is told", || kinds(&cluster).contains(&EventKind::PeerDown)).await;
    let json = ("Content-Type", "application/json");
    let at = cluster.node(0).addresses.admin.unwrap();
    for target in ["/drain", "/drain?undo"] {
        let order = head_of("POST", target, &[json, ("Content-Length", "0")]);
        assert_eq!(Wire::saying(at, order).await.answer().await.status, 200);
    }
    let told = kinds(&cluster);
    assert!(told.ends_with(&[EventKind::DrainBegun, EventKind::DrainUndone]), "{told:?}");
    let peer = &status(cluster.node(0)).await.peers[1];
    assert!(!peer.up && peer.why.is_some(), "{peer:?}");
}

#[tokio::test]
async fn every_second_has_a_sample() {
    let (_origin, node, at) = alone(|_| {}).await;
    let history = node.history();
    // The node counts from its first look at itself on.
    eventually("there is a sample", || history.last().is_some()).await;
    get(at, "/").await;
    eventually("the request is in a sample", || {
        history.since(0.0).iter().any(|sample| sample.requests > 0.0 && sample.p99.is_some())
    })
    .await;
}

#[tokio::test]
async fn node_asks_its_peers_for_their_states_and_tells_which_do_not_answer() {
    let origin = Origin::start().await;
    let mut cluster = Cluster::start(3, origin.address, |_| {}).await;
    get(cluster.client(1), "/x").await;
    cluster.kill(2);
    let said = admin(cluster.node(0), "/cluster").await;
    let nodes: Vec<ClusterNode> = serde_json::from_slice(&said.body).unwrap();
    assert_eq!(nodes.iter().map(|node| &*node.name).collect::<Vec<_>>(), ["n0", "n1", "n2"]);
    let answered = |at: usize| nodes[at].status.as_ref().map(|status| status.name.clone());
    assert_eq!((answered(0), answered(1)), (Some("n0".to_owned()), Some("n1".to_owned())));
    assert_eq!(nodes[1].status.as_ref().unwrap().requests, 1);
    assert!(nodes[0].round_trip.is_none(), "a node is not far from itself");
    assert!(answered(2).is_none() && nodes[2].error.is_some(), "{:?}", nodes[2]);
    // Only peers get it at the listener for peers, and nobody at that for clients.
    let refused = get(cluster.peer(0), "/.levada/status").await;
    assert_eq!(refused.status, 403, "{refused:?}");
    assert_eq!(get(cluster.client(0), "/.levada/status").await.text(), "/.levada/status");
}
