//! The state of a node at one moment, as `/status` and the peers' question give it.
//!
//! Times are seconds, sizes are bytes, and counts are since the start of the process unless they say otherwise. A
//! field that a node of another version does not send has its default.

use levada_store::EvictionStatus;
use levada_tls::acme::CertificateState;
use serde::{Deserialize, Serialize};

use crate::status::{PopularObject, Sample, SwitchedSite};

/// The state of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The time of this answer: Unix time in seconds, with milliseconds.
    pub time: f64,
    /// The seconds since its start.
    pub uptime_seconds: f64,
    /// Whether it serves clients, does not drain, and every site has a server that is up.
    pub ready: bool,
    /// The reasons why it is not ready, in words.
    pub missing: Vec<String>,
    /// Another node of its name that wants to register, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed: Option<String>,
    /// Requests in flight: from their heads to the ends of their responses.
    pub in_flight: i64,
    /// Requests that it serves itself now.
    pub in_service: u32,
    /// The most requests that it serves itself at a time.
    pub capacity: u32,
    /// Open connections of clients and peers.
    pub connections: i64,
    /// Requests of clients and peers that were answered.
    pub requests: u64,
    /// The requests of peers among them, without probes and messages of the cluster.
    pub peer_requests: u64,
    /// Requests that were refused because the node was full.
    pub refused: u64,
    /// Requests answered from the cache.
    pub hits: u64,
    /// Requests for which an origin was asked.
    pub misses: u64,
    /// Requests that shared another request's fetch.
    pub collapsed: u64,
    /// Requests that a peer served.
    pub relayed: u64,
    /// Bytes of bodies sent.
    pub bytes_sent: u64,
    /// Bytes of bodies from origins and servers of switches.
    pub origin_bytes: u64,
    /// Bytes stored in memory.
    pub cache_bytes: u64,
    /// Objects in memory.
    pub cache_objects: usize,
    /// The choice of `eviction = "auto"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction: Option<EvictionStatus>,
    /// Resident memory of the process; 0 if it is not known.
    pub memory_bytes: u64,
    /// The bound on it.
    pub memory_limit: u64,
    /// The last second: rates, hit ratio, latency.
    pub now: Option<Sample>,
    /// The nodes of its cluster, itself included, in the cluster's order; none if it is alone.
    pub peers: Vec<ServerStatus>,
    /// The origins of all sites.
    pub origins: Vec<ServerStatus>,
    /// The sites whose requests go to servers of their own, with these servers.
    pub switches: Vec<SwitchedSite>,
    /// Its drain.
    pub drain: DrainStatus,
    /// Its route, if it announces one.
    pub route: Option<RouteSummary>,
    /// Purges that peers have not confirmed.
    pub purges_pending: u64,
    /// Purges that are still being applied to what is stored.
    pub purge_rules: u64,
    /// The certificates that it shows to clients and peers.
    pub certificates: Vec<CertificateStatus>,
    /// Large files that are being sent in pieces, the oldest first, 20 at most.
    pub transfers: Vec<TransferStatus>,
    /// The objects that its clients request most, the hottest first.
    pub hottest: Vec<HotObject>,
}

/// A peer or an origin as the node sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerStatus {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// The first host of the site that it serves; none for a peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Whether requests may be sent to it.
    pub up: bool,
    /// Why it is down, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Requests sent and not finished, as the policies count them; none for an origin.
    pub outstanding: Option<u32>,
    /// Connections in use.
    pub connections: usize,
    /// Requests that wait for a connection.
    pub waiting: usize,
    /// The source that has named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// The progress of a drain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainStatus {
    /// Whether the node drains.
    pub draining: bool,
    /// Long downloads that still run and can be moved.
    pub downloads: u64,
    /// Downloads that were moved since the node started.
    pub moved: u64,
    /// Requests in flight.
    pub in_flight: i64,
}

/// The route to a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteSummary {
    /// `announced`, `backup` or `withdrawn`.
    pub level: String,
    /// Why it is at this level.
    pub reason: String,
    /// The seconds since it is.
    pub seconds: f64,
    /// Why the daemon does not have it, if it does not.
    pub error: Option<String>,
}

/// A certificate that a node shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CertificateStatus {
    /// The file, or `acme` for one that the node orders.
    pub file: String,
    /// The names that it is for.
    pub names: Vec<String>,
    /// The end of its validity: Unix time in seconds; 0 if there is none yet.
    pub ends: i64,
    /// The days until then, negative afterwards; 0 if there is none yet.
    pub days: f64,
    /// When the node renews it: Unix time in seconds; none for files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renews: Option<i64>,
    /// Whether it ends so soon that an alarm was raised, or is not there.
    pub alarm: bool,
    /// Why it is not there, or not renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl CertificateStatus {
    /// The certificate at a Unix time.
    pub fn of(state: CertificateState, now: f64) -> Self {
        let alarm = state.is_alarming(now as i64);
        let days = if state.ends > 0 { (state.ends as f64 - now) / 86_400.0 } else { 0.0 };
        let CertificateState { source: file, names, ends, renews, problem, .. } = state;
        Self { file, names, ends, days, renews, alarm, problem }
    }
}

/// A large file that is being sent to a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TransferStatus {
    /// The URL.
    pub url: String,
    /// Bytes that the client gets.
    pub bytes: u64,
    /// Bytes of them that are on their way to the client, in order.
    pub done: u64,
    /// The seconds since its begin.
    pub seconds: f64,
    /// Pieces that have arrived, by the node that they came from.
    pub sources: Vec<PieceSource>,
}

/// The pieces of a transfer from one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PieceSource {
    /// The node.
    pub node: String,
    /// Pieces that have arrived from there.
    pub pieces: u64,
}

/// An object that is requested often.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HotObject {
    /// Its URL.
    pub url: String,
    /// The hash that policies know it by, in hexadecimal.
    pub key: String,
    /// Requests of clients of this node per second, over about the last ten seconds.
    pub rate: f64,
    /// The policy of its site.
    pub policy: String,
    /// The nodes that are responsible for it now, in the policy's order of preference, as this node sees it; for a
    /// site with servers of its own, these servers, unless their policy takes its key from elsewhere than the URL.
    pub set: Vec<String>,
    /// Its part of the requests that this node has seen lately, from 0 to 1, if the policy counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

impl HotObject {
    /// The object with the nodes of its set.
    pub fn of<'a>(
        object: PopularObject,
        policy: &str,
        set: impl Iterator<Item = &'a str>,
        share: Option<f64>,
    ) -> Self {
        let PopularObject { key, url, rate, .. } = object;
        let set = set.map(str::to_owned).collect();
        Self { url, key: format!("{:016x}", key.0), rate, policy: policy.to_owned(), set, share }
    }
}

impl NodeStatus {
    /// Hits per hit and miss since the start, from 0 to 1; `None` without either.
    pub fn hit_ratio(&self) -> Option<f64> {
        let all = self.hits + self.misses;
        (all > 0).then(|| self.hits as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_of_another_version_can_be_read() {
        let text = r#"{"name": "a", "hits": 3, "misses": 1, "colour": "green",
            "peers": [{"name": "b", "up": true, "outstanding": 2}]}"#;
        let status: NodeStatus = serde_json::from_str(text).unwrap();
        assert_eq!((&*status.name, status.hit_ratio()), ("a", Some(0.75)));
        assert_eq!(status.peers[0].outstanding, Some(2));
    }

    #[test]
    fn status_is_the_same_after_its_way_to_a_peer() {
        let status = NodeStatus {
            name: "a".to_owned(),
            now: Some(Sample { requests: 2.5, p99: Some(0.001), ..Sample::default() }),
            route: Some(RouteSummary::default()),
            hottest: vec![HotObject { share: Some(0.5), ..HotObject::default() }],
            ..NodeStatus::default()
        };
        let text = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<NodeStatus>(&text).unwrap(), status);
    }
}
