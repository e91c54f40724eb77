//! A front-end and its back-ends, each a process of this same executable.

use std::{any::Any, net::SocketAddr, process::Stdio, time::Duration};

use anyhow::{Context as _, bail};
use futures_util::future::try_join_all;
use levada_sim::prototype::server_name;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, ChildStdin, Command},
};

use super::{
    backend::{USAGE, UsageReport},
    processor,
};
use crate::cluster::START_TIMEOUT;
use levada_client::command::{
    admin_client,
    node::{Node, PORT_TRIES, configuration_head, free_addresses, port_was_taken},
};

/// The cluster to start.
pub(crate) struct Spec {
    pub(crate) backends: usize,
    /// The options of each back-end.
    pub(crate) options: Vec<String>,
    /// The inline table of the policy.
    pub(crate) policy: String,
    /// Concurrent requests at the back-ends; further requests wait in the front-end.
    pub(crate) at_once: usize,
    /// Further keys of the site.
    pub(crate) site: String,
    pub(crate) seed: u64,
}

/// The processes. They end when this is dropped, and also when this process is killed.
pub(crate) struct Cluster {
    /// The address for clients.
    pub(crate) address: SocketAddr,
    /// The admin address of the front-end.
    pub(super) admin: SocketAddr,
    /// Process number of the front-end.
    pub(super) front: u32,
    /// Addresses of the back-ends.
    pub(super) backends: Vec<SocketAddr>,
    /// Process numbers of the back-ends, and of other processes next to them.
    pub(super) behind: Vec<u32>,
    /// Everything that ends with this value.
    pub(super) _processes: Box<dyn Any>,
}

/// A back-end on loopback. It ends with its standard input, a pipe that the system closes when this
/// process ends.
struct BackendProcess {
    address: SocketAddr,
    child: Child,
    _leash: Option<ChildStdin>,
}

/// Processor times so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub(crate) front: Duration,
    pub(crate) backends: Duration,
    /// Time of this process: the clients.
    pub(crate) clients: Duration,
}

impl Cluster {
    /// Starts all on loopback and waits until each is ready.
    ///
    /// # Errors
    /// If one does not start, with its log.
    pub(crate) async fn start(spec: &Spec) -> anyhow::Result<Self> {
        let backends =
            try_join_all((0..spec.backends).map(|_| BackendProcess::start(&spec.options))).await?;
        let directory = directory()?;
        let mut tries = 1;
        loop {
            match front(spec, &backends, &directory).await {
                Ok(front) => {
                    return Ok(Self {
                        address: front.addresses.clients,
                        admin: front.addresses.admin,
                        front: front.pid().context("the front-end has ended")?,
                        backends: backends.iter().map(|backend| backend.address).collect(),
                        behind: backends.iter().filter_map(|backend| backend.child.id()).collect(),
                        _processes: Box::new((front, backends, directory)),
                    });
                }
                // Another process took one of the ports between its release and its use.
                Err(error) if tries < PORT_TRIES && port_was_taken(&error) => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// The totals of each back-end.
    ///
    /// # Errors
    /// When one does not answer.
    pub(crate) async fn reports(&self) -> anyhow::Result<Vec<UsageReport>> {
        let each = self.backends.iter().map(|backend| async {
            let body = admin_client::get(*backend, USAGE, ANSWER_TIMEOUT).await?;
            anyhow::Ok(serde_json::from_slice(&body)?)
        });
        try_join_all(each).await
    }

    /// Connections that the front-end handed over and that ended at a back-end.
    ///
    /// # Errors
    /// If it does not answer.
    pub(crate) async fn handed(&self) -> anyhow::Result<u64> {
        let metrics = admin_client::get(self.admin, "/metrics", ANSWER_TIMEOUT).await?;
        let metrics = String::from_utf8_lossy(&metrics);
        let of = |name: &str| {
            metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        };
        Ok(of("levada_handoffs_total{result=\"ended\"}").unwrap_or(0))
    }

    /// Processor times of all processes.
    ///
    /// # Errors
    /// When one is gone.
    pub(crate) fn times(&self) -> anyhow::Result<Times> {
        let mut backends = Duration::ZERO;
        for process in &self.behind {
            backends += processor::time_of(*process)?;
        }
        Ok(Times {
            front: processor::time_of(self.front)?,
            backends,
            clients: processor::time_of(std::process::id())?,
        })
    }
}

/// The directory of the front-end's configuration and log.
pub(crate) fn directory() -> anyhow::Result<TempDir> {
    tempfile::Builder::new()
        .prefix("levada-lab-")
        .tempdir()
        .context("cannot make a temporary directory (TMPDIR chooses where)")
}

/// A server in the front-end's configuration.
pub(super) struct Listed {
    pub(super) address: SocketAddr,
    /// Its address for connections that are handed over.
    pub(super) handoff: Option<SocketAddr>,
}

/// The front-end's configuration, as an operator would write it.
pub(super) fn configuration(
    spec: &Spec,
    clients: SocketAddr,
    admin: SocketAddr,
    besides: &str,
    servers: &[Listed],
) -> String {
    let mut text = format!(
        r#"seed = {seed}
{head}
[limits]
# A failure is counted, not hidden.
tries = 1
response_timeout = "1h"
response_body_timeout = "1h"
{besides}

[[site]]
hosts = "*"
policy = {policy}
cache = false
health_check = {{ interval = "0s" }}
admission = {{ at_once = {at_once}, queue = 100000, wait = "1h" }}
{site}
"#,
        seed = spec.seed,
        head = configuration_head("front", clients, admin),
        policy = spec.policy,
        at_once = spec.at_once,
        site = spec.site,
    );
    for (number, Listed { address, handoff }) in servers.iter().enumerate() {
        let name = server_name(number);
        text += &format!(
            "[[site.server]]\nname = \"{name}\"\nurl = \"http://{address}\"\nmax_conns = {MOST}\n"
        );
        if let Some(handoff) = handoff {
            text += &format!("handoff = \"{handoff}\"\n");
        }
    }
    text
}

async fn front(
    spec: &Spec,
    backends: &[BackendProcess],
    directory: &TempDir,
) -> anyhow::Result<Node> {
    let addresses = free_addresses(1).context("no free ports on 127.0.0.1")?[0];
    let servers = backends.iter().map(|b| Listed { address: b.address, handoff: None });
    let servers: Vec<_> = servers.collect();
    let text = configuration(spec, addresses.clients, addresses.admin, "", &servers);
    let config = directory.path().join("front.toml");
    std::fs::write(&config, text)?;
    let mut front = Node::new("front".to_owned(), addresses, config, directory.path().join("log"));
    front.spawn()?;
    front.ready().await?;
    Ok(front)
}

impl BackendProcess {
    async fn start(options: &[String]) -> anyhow::Result<Self> {
        let executable = std::env::current_exe().context("cannot find this executable")?;
        let mut child = Command::new(executable)
            .args(["--log-level", "warn", "lab", "backend", "--stop-with-stdin"])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // The lab handles ctrl-c and then ends its processes.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a back-end")?;
        let leash = child.stdin.take();
        let stdout = child.stdout.take().context("a back-end has no standard output")?;
        let mut line = String::new();
        let read =
            tokio::time::timeout(START_TIMEOUT, BufReader::new(stdout).read_line(&mut line)).await;
        read.context("a back-end did not start in time")??;
        match line.trim().parse() {
            Ok(address) => Ok(Self { address, child, _leash: leash }),
            Err(_) => bail!("a back-end did not start"),
        }
    }
}

/// Most connections to a back-end: more than there are clients.
const MOST: usize = 10_000;
/// The timeout for a page of a process, all of which share the machine with the load.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
