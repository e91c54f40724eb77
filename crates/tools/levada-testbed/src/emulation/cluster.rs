//! A front-end and its back-ends, each a process of this same executable: on loopback, or on an emulated network, where
//! connections can be handed over (docs/operate/handoff.md).

use std::{
    fs::File,
    net::SocketAddr,
    path::PathBuf,
    process::{self, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use futures_util::future::try_join_all;
use levada_client::command::{
    admin_client,
    node::{Addresses, Node, configuration_head, free_addresses},
};
use levada_net::lab::{self, Host, LabCluster};
use levada_sim::prototype::server_name;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, ChildStdin, Command},
    time::timeout,
};

use super::{
    backend::{USAGE, UsageReport},
    client::Client,
    processor,
};
use crate::cluster::{
    START_TIMEOUT,
    nodes::{Nodes, with_free_ports},
    spawn_on, until_handed_off,
};

/// The cluster to start.
pub struct Spec {
    /// The number of back-ends.
    pub backends: usize,
    /// The options of each back-end.
    pub options: Vec<String>,
    /// The inline table of the policy.
    pub policy: String,
    /// Concurrent requests at the back-ends; further requests wait in the front-end.
    pub at_once: usize,
    /// Further keys of the site.
    pub site: String,
    /// The seed of the front-end.
    pub seed: u64,
}

/// The processes. They end when this is dropped, and also when this process is killed.
pub struct Cluster {
    front: Nodes,
    backends: Vec<BackendProcess>,
    /// On an emulated network, the processes that take connections over for the back-ends.
    takers: Vec<lab::Child>,
}

/// A back-end. It ends with its standard input, a pipe that the system closes when this process ends.
pub struct BackendProcess {
    address: SocketAddr,
    child: Child,
    _leash: Option<ChildStdin>,
}

/// Processor times so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// Time of the front-end.
    pub front: Duration,
    /// Time of all back-ends, with the processes that take connections over.
    pub backends: Duration,
    /// Time of this process: the clients.
    pub clients: Duration,
}

impl Cluster {
    /// Starts all on loopback and waits until each is ready.
    ///
    /// # Errors
    /// If one does not start, with its log.
    pub async fn on_loopback(spec: &Spec) -> anyhow::Result<Self> {
        let start = |_| BackendProcess::start(None, &spec.options);
        let backends = try_join_all((0..spec.backends).map(start)).await?;
        let listed = |backend: &BackendProcess| Listed { address: backend.address, handoff: None };
        let servers: Vec<_> = backends.iter().map(listed).collect();
        let (front, _) = with_free_ports(async || {
            let mut front = Nodes::new(PREFIX)?;
            let addresses = free_addresses(1).context("no free ports on 127.0.0.1")?[0];
            let text = configuration(spec, addresses, "", &servers);
            front.all.push(front.node("front", addresses, &text)?);
            front.start(|_, node| node.spawn()).await?;
            Ok(front)
        })
        .await?;
        Ok(Self { front, backends, takers: Vec::new() })
    }

    /// Starts all on hosts and waits until connections are handed over, with this `after`. The caller runs on the
    /// clients' host.
    ///
    /// # Errors
    /// If a program does not start, or no connection is handed over.
    pub async fn on_hosts(spec: &Spec, hosts: &LabCluster, after: &str) -> anyhow::Result<Self> {
        let mut front = Nodes::new(PREFIX)?;
        let [secret, log] = ["secret", "front.log"].map(|name| front.directory().join(name));
        let token = u64::from(process::id()) << 32 | spec.seed;
        std::fs::write(&secret, format!("{token:032x}\n"))?;
        let service = SocketAddr::from((LabCluster::SERVICE, 80));
        let (mut backends, mut takers, mut servers) = (Vec::new(), Vec::new(), Vec::new());
        for (at, back) in (0..).zip(&hosts.backs) {
            let [address, taker] =
                [8080, 7072].map(|port| SocketAddr::from((LabCluster::back(at), port)));
            let options = [&spec.options[..], &[format!("--listen={address}")]].concat();
            backends.push(BackendProcess::start(Some(back), &options).await?);
            let mut command = process::Command::new(executable()?);
            command.args(["--log-level", "warn", "handoff-backend"]);
            command.args([format!("--interface={DEVICE}"), format!("--listen={taker}")]);
            command.args([format!("--service={service}"), format!("--to=http://{address}")]);
            command.arg(format!("--name=back{at}")).arg("--secret-file").arg(&secret);
            let log = File::options().create(true).append(true).open(&log)?;
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            takers.push(back.start(command)?);
            servers.push(Listed { address, handoff: Some(taker) });
        }
        let admin = SocketAddr::from((LabCluster::FRONT, 9180));
        let addresses = Addresses { clients: service, peers: service, admin };
        let besides = format!(
            "[handoff]\ninterfaces = \"{DEVICE}\"\nsecret_file = \"{}\"\nafter = \"{after}\"",
            secret.display()
        );
        let text = configuration(spec, addresses, &besides, &servers);
        front.all.push(front.node("front", addresses, &text)?);
        front.start(|_, node| spawn_on(Some(&hosts.front), || node.spawn())).await?;
        let cluster = Self { front, backends, takers };
        let client = Client::of(service, true);
        let ask = async |file| {
            let _ = client.get(&format!("/file/first-{file}/1"), 1).await;
            cluster.handed().await
        };
        let ready = until_handed_off(hosts.backs.len(), "`--transport proxy` does without", ask);
        ready.await.with_context(|| std::fs::read_to_string(&log).unwrap_or_default())?;
        Ok(cluster)
    }

    fn front(&self) -> &Node {
        &self.front.all[0]
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.front().addresses.clients
    }

    /// The totals of each back-end.
    ///
    /// # Errors
    /// When one does not answer.
    pub async fn reports(&self) -> anyhow::Result<Vec<UsageReport>> {
        let each = self.backends.iter().map(|backend| async {
            let body = admin_client::get(backend.address, USAGE, ANSWER_TIMEOUT).await?;
            anyhow::Ok(serde_json::from_slice(&body)?)
        });
        try_join_all(each).await
    }

    /// Connections that the front-end handed over and that ended at a back-end, or came back from it.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn handed(&self) -> anyhow::Result<u64> {
        let mut handed = 0;
        for result in ["ended", "given-back"] {
            let name = format!("levada_handoffs_total{{result=\"{result}\"}}");
            let admin = self.front().addresses.admin;
            handed += admin_client::metric(admin, &name, ANSWER_TIMEOUT).await? as u64;
        }
        Ok(handed)
    }

    /// Processor times of all processes.
    ///
    /// # Errors
    /// When one is gone.
    pub fn times(&self) -> anyhow::Result<Times> {
        let backends = self.backends.iter().filter_map(|backend| backend.child.id());
        let takers = self.takers.iter().map(|taker| taker.process.id());
        Ok(Times {
            front: processor::time_of(self.front().pid().context("the front-end has ended")?)?,
            backends: backends.chain(takers).map(processor::time_of).sum::<anyhow::Result<_>>()?,
            clients: processor::time_of(process::id())?,
        })
    }
}

/// A server in the front-end's configuration.
struct Listed {
    address: SocketAddr,
    /// Its address for connections that are handed over.
    handoff: Option<SocketAddr>,
}

/// The front-end's configuration, as an operator would write it.
fn configuration(spec: &Spec, addresses: Addresses, besides: &str, servers: &[Listed]) -> String {
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
        head = configuration_head("front", addresses.clients, addresses.admin),
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

impl BackendProcess {
    /// Starts a back-end on a host, or where this thread is, and waits until it listens.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn start(host: Option<&Host>, options: &[String]) -> anyhow::Result<Self> {
        let mut command = Command::new(executable()?);
        command.args(["--log-level", "warn", "lab", "backend", "--stop-with-stdin"]).args(options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // The lab handles ctrl-c and then ends its processes.
        command.process_group(0).kill_on_drop(true);
        let mut child = spawn_on(host, || command.spawn().context("cannot start a back-end"))?;
        let leash = child.stdin.take();
        let stdout = child.stdout.take().context("a back-end has no standard output")?;
        let mut line = String::new();
        let read = timeout(START_TIMEOUT, BufReader::new(stdout).read_line(&mut line)).await;
        read.context("a back-end did not start in time")??;
        match line.trim().parse() {
            Ok(address) => Ok(Self { address, child, _leash: leash }),
            Err(_) => bail!("a back-end did not start"),
        }
    }
}

fn executable() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot find this executable")
}

/// The names of directories of labs begin with it.
pub const PREFIX: &str = "levada-lab-";
const DEVICE: &str = LabCluster::DEVICE;
/// Most connections to a back-end: more than there are clients.
const MOST: usize = 10_000;
/// The timeout for a page of a process, all of which share the machine with the load.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
