//! The nodes: processes of this same executable, each on a host of its own.

use std::{
    path::PathBuf,
    process::{self, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use levada_client::command::node::configuration_head;
use levada_sim::prototype;
use levada_testbed::{
    cluster::{nodes::Nodes, spawn_on},
    emulation::cluster::PREFIX,
};
use serde_json::Value;
use tokio::{process::Command, time::timeout};

use super::{
    arrangements::Arrangement,
    network::{NODES, RegionHosts, addresses, name, origin},
};

/// The running nodes. They end when this is dropped, and also when this process is killed.
pub(super) struct RegionNodes<'a> {
    hosts: &'a RegionHosts,
    nodes: Nodes,
}

/// The report of `levada purge`.
pub(super) struct PurgeReport {
    pub(super) confirmed: Vec<String>,
    /// The nodes that have not confirmed.
    pub(super) missing: Vec<String>,
    pub(super) took: Duration,
}

impl<'a> RegionNodes<'a> {
    /// Starts all nodes and waits until each is ready.
    ///
    /// # Errors
    /// If a node does not start, with its log.
    pub(super) async fn start(
        hosts: &'a RegionHosts,
        arrangement: &Arrangement,
        seed: u32,
    ) -> anyhow::Result<Self> {
        let mut nodes = Nodes::new(PREFIX)?;
        let secret = nodes.directory().join("secret");
        let token = u64::from(process::id()) << 32 | u64::from(seed);
        std::fs::write(&secret, format!("{token:032x}\n"))?;
        for at in 0..NODES {
            let (name, own) = (name(at), addresses(at));
            let text = configuration(arrangement, at, &secret.display().to_string());
            nodes.all.push(nodes.node(&name, own, &text)?);
        }
        nodes.start(|at, node| spawn_on(Some(&hosts.nodes[at]), || node.spawn())).await?;
        Ok(Self { hosts, nodes })
    }

    /// Kills a node.
    pub(super) async fn kill(&mut self, node: usize) {
        self.nodes.all[node].kill().await;
    }

    /// Runs `levada purge` at a node, as its operator would.
    ///
    /// # Errors
    /// If nothing was purged.
    pub(super) async fn purge(&self, node: usize, path: &str) -> anyhow::Result<PurgeReport> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["purge", "--json", "-c"]).arg(self.file(node));
        command.arg(format!("http://{}{path}", prototype::HOST));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        let begun = Instant::now();
        let host = Some(&self.hosts.nodes[node]);
        let purge = spawn_on(host, || command.spawn().context("cannot start `levada purge`"))?;
        let output = timeout(PURGE_TIMEOUT, purge.wait_with_output()).await;
        let output = output.context("`levada purge` does not end")??;
        let took = begun.elapsed();
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(matches!(output.status.code(), Some(0 | 1)), "`levada purge`: {error}");
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let nodes = report["nodes"].as_array().map_or(&[][..], Vec::as_slice);
        let (confirmed, missing): (Vec<_>, Vec<_>) =
            nodes.iter().partition(|node| node["result"] == "confirmed");
        let names = |nodes: Vec<&Value>| {
            let names = nodes.into_iter().filter_map(|node| node["node"].as_str());
            names.map(str::to_owned).collect()
        };
        Ok(PurgeReport { confirmed: names(confirmed), missing: names(missing), took })
    }

    fn file(&self, node: usize) -> PathBuf {
        self.nodes.directory().join(format!("{}.toml", name(node)))
    }
}

/// A node's configuration, as an operator would write it. All that is not stated is as nodes have it by default.
fn configuration(arrangement: &Arrangement, node: usize, secret: &str) -> String {
    let own = addresses(node);
    let head = configuration_head(&name(node), own.clients, own.admin);
    format!(
        r#"{head}
[peering]
listen = "{}"
secret_file = "{secret}"

[purge]
token_file = "{secret}"

[cache]
memory = "64MiB"

[[site]]
hosts = "{}"
origin = "http://{}"
{}{}"#,
        own.peers,
        prototype::HOST,
        origin(),
        arrangement.site(),
        arrangement.peers(node),
    )
}

/// Longer than a purge waits for nodes.
const PURGE_TIMEOUT: Duration = Duration::from_secs(30);
