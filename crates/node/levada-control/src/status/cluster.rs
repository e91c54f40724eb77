//! The states of all nodes of a cluster, which one node asks its peers for, over the connections that peers trust.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use levada_cluster::nodes::{Member, Membership};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::status::NodeStatus;

/// The path of the question at the listener for peers.
pub const STATUS_PATH: &str = "/.levada/status";

/// How long a peer may take. It answers from memory; a slow one delays no other, but the page.
const PEER_TIMEOUT: Duration = Duration::from_secs(1);
/// The largest answer.
const LARGEST: usize = 4 << 20;

/// A node of a cluster as another one sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterNode {
    /// Its name.
    pub name: String,
    /// Its address for peers.
    pub address: String,
    /// Whether the node that was asked sends requests to it.
    pub up: bool,
    /// The round trip to it from the node that was asked, stated or measured, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<f64>,
    /// Why there is no state of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its state.
    pub status: Option<NodeStatus>,
}

/// The states of all nodes in the order of the cluster; `own` is that of the node that asks. Asks all peers at the same
/// time.
pub async fn ask_cluster(own: NodeStatus, members: &Membership) -> Vec<ClusterNode> {
    let mut asking = JoinSet::new();
    for (node, member) in members.all().filter(|(node, _)| *node != members.me()) {
        let member = member.clone();
        asking.spawn(async move { (node, ask(&member).await) });
    }
    let described = members.all().map(|(node, member)| ClusterNode {
        name: member.server.name.to_string(),
        address: member.server.address.to_string(),
        up: member.server.health.is_up(),
        round_trip: members.round_trip(node).map(|time| time.as_secs_f64()),
        ..ClusterNode::default()
    });
    let mut nodes: Vec<_> = described.collect();
    let me = &mut nodes[members.me().get()];
    (me.up, me.status) = (true, Some(own));
    while let Some(asked) = asking.join_next().await {
        let Ok((node, answer)) = asked else { continue };
        match answer {
            Ok(status) => nodes[node.get()].status = Some(status),
            Err(error) => nodes[node.get()].error = Some(error),
        }
    }
    nodes
}

async fn ask(member: &Member) -> Result<NodeStatus, String> {
    let asked = member.ask(Method::GET, STATUS_PATH, Bytes::new(), LARGEST);
    match tokio::time::timeout(PEER_TIMEOUT, asked).await {
        Err(_) => Err("it does not answer in time".to_owned()),
        Ok(Err(failure)) => Err(failure.as_str().to_owned()),
        Ok(Ok((StatusCode::OK, text))) => {
            serde_json::from_slice(&text).map_err(|error| format!("it answers wrongly: {error}"))
        }
        Ok(Ok((status, _))) => Err(format!("it answers {status}: its version may be another")),
    }
}
