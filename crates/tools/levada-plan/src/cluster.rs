//! The network of a cluster as nodes form it: each of them is a front-end for its own clients, with a policy and a
//! view of the loads of its own, and a server for all (as the proxies of CoDeeN, USENIX ATC'04).
//!
//! ```text
//! clients ── front-0 ──┐      ┌── server-0
//! clients ── front-1 ──┼─ hub ┼── server-1
//! clients ── front-2 ──┘      └── server-2
//! ```

use std::time::Duration;

use levada_sim::Source;
use levada_trace::Trace;

/// The networks of clusters of all sizes, as files of the simulator.
pub(crate) struct Clusters {
    /// From a node to a client.
    pub(crate) client_latency: Duration,
}

/// Clients of a cluster; one for each node at least.
const CLIENTS: usize = 200;
const SERVER_LATENCY: Duration = Duration::from_micros(100);
const SERVER_MBPS: u32 = 10_000;
const CLIENT_MBPS: u32 = 100;
/// A front-end is at the hub: its link takes no time.
const FRONT_MBPS: u32 = 1_000_000;

/// The name of the network of so many nodes.
pub(crate) fn name(nodes: usize) -> String {
    format!("{NAME}{nodes}")
}

/// No file has this name.
const NAME: &str = "levada plan: nodes ";

impl Clusters {
    /// The network of so many nodes, as JSON.
    pub(crate) fn network(&self, nodes: usize) -> String {
        let (mut places, mut links) = (vec![r#"{"name":"hub"}"#.to_owned()], Vec::new());
        let mut place = |role: &str, number: usize| {
            let name = format!("{role}-{number}");
            places.push(format!(r#"{{"name":"{name}","role":"{role}"}}"#));
            name
        };
        let mut link = |a: &str, b: &str, latency: Duration, mbps: u32| {
            let latency = latency.as_micros();
            links.push(format!(r#"{{"a":"{a}","b":"{b}","latency":"{latency}us","mbps":{mbps}}}"#));
        };
        let fronts: Vec<_> = (0..nodes).map(|number| place("redirector", number)).collect();
        for (number, front) in fronts.iter().enumerate() {
            link(front, "hub", Duration::ZERO, FRONT_MBPS);
            link(&place("server", number), "hub", SERVER_LATENCY, SERVER_MBPS);
        }
        for number in 0..CLIENTS.max(nodes) {
            let client = place("client", number);
            link(&client, &fronts[number % nodes], self.client_latency, CLIENT_MBPS);
        }
        format!(
            "{{\"places\":[\n{}\n],\"links\":[\n{}\n]}}\n",
            places.join(",\n"),
            links.join(",\n")
        )
    }
}

impl Source for Clusters {
    fn trace(&mut self, path: &str) -> Result<Trace, String> {
        Err(format!("there is no load `{path}`"))
    }

    fn text(&mut self, path: &str) -> Result<String, String> {
        let nodes = path.strip_prefix(NAME).and_then(|nodes| nodes.parse().ok());
        nodes
            .map(|nodes| self.network(nodes))
            .ok_or_else(|| format!("there is no network `{path}`"))
    }
}
