//! A cluster on an emulated network, where connections can be handed over: clients behind a router, a
//! front-end, and back-ends that answer them directly (docs/operate/handoff.md).

use std::{
    fs::File,
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, bail, ensure};
use levada_net::lab::{self, Child, Host};

use super::{
    client::Client,
    cluster::{ANSWER_TIMEOUT, Cluster, Listed, Spec, configuration, directory},
};
use crate::cluster::{READY_INTERVAL, START_TIMEOUT};
use levada_client::command::admin_client;

/// The hosts, without programs.
pub(crate) struct Hosts(lab::LabCluster);

impl Hosts {
    /// Creates hosts for `backs` back-ends.
    ///
    /// # Errors
    /// If the network cannot be created, for example without root.
    pub(crate) fn new(backs: usize) -> anyhow::Result<Self> {
        let backs =
            u8::try_from(backs).context("the network has no addresses for this many back-ends")?;
        Ok(Self(lab::LabCluster::new(backs)?))
    }

    /// The host of the clients.
    pub(crate) fn clients(&self) -> &Host {
        &self.0.client
    }

    /// Starts all and waits until connections are handed over. The caller runs on the clients'
    /// host.
    ///
    /// # Errors
    /// If a program does not start, or no connection is handed over.
    pub(crate) async fn start(&self, spec: &Spec) -> anyhow::Result<Cluster> {
        let directory = directory()?;
        let secret = directory.path().join("secret");
        std::fs::write(
            &secret,
            format!("{:032x}\n", u64::from(std::process::id()) << 32 | spec.seed),
        )?;
        let log = directory.path().join("log");
        let mut children: Vec<Child> = Vec::new();
        let (mut backends, mut servers) = (Vec::new(), Vec::new());
        for (at, back) in (0..).zip(&self.0.backs) {
            let [server, taker] =
                [8080, 7072].map(|port| SocketAddr::from((lab::LabCluster::back(at), port)));
            let mut command = levada(&log)?;
            command.args(["lab", "backend", &format!("--listen={server}")]).args(&spec.options);
            children.push(back.start(command)?);
            let mut command = levada(&log)?;
            command.args(["handoff-backend", "--interface", DEVICE]);
            command.args([format!("--listen={taker}"), format!("--service={}", service())]);
            command.args([format!("--to=http://{server}"), format!("--name=back{at}")]);
            command.arg("--secret-file").arg(&secret);
            children.push(back.start(command)?);
            backends.push(server);
            servers.push(Listed { address: server, handoff: Some(taker) });
        }
        let admin = SocketAddr::from((lab::LabCluster::FRONT, 9180));
        let besides = format!(
            "[handoff]\ninterfaces = \"{DEVICE}\"\nsecret_file = \"{}\"\nafter = \"stay\"",
            secret.display()
        );
        let text = configuration(spec, service(), admin, &besides, &servers);
        let config = directory.path().join("front.toml");
        std::fs::write(&config, text)?;
        let mut command = levada(&log)?;
        command.arg("run").arg("-c").arg(config);
        let front = self.0.front.start(command)?;
        let cluster = Cluster {
            address: service(),
            admin,
            front: front.process.id(),
            backends,
            behind: children.iter().map(|child| child.process.id()).collect(),
            _processes: Box::new((front, children, directory)),
        };
        if let Err(error) = self.ready(&cluster).await {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            bail!("{error:#}; {}", said.trim_end());
        }
        Ok(cluster)
    }

    /// Requests small files, one after the other, until as many connections were handed over as there
    /// are back-ends: the front-end tries each back-end that is not ready once a second.
    async fn ready(&self, cluster: &Cluster) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut client = Client::of(cluster.address).asking_once();
        while admin_client::get(cluster.admin, "/readyz", ANSWER_TIMEOUT).await.is_err() {
            ensure!(begun.elapsed() < START_TIMEOUT, "the front-end did not start in time");
            tokio::time::sleep(READY_INTERVAL).await;
        }
        for file in 0.. {
            let _ = client.get(&format!("/file/first-{file}/1"), 1).await;
            if cluster.handed().await? >= 2 * self.0.backs.len() as u64 {
                return Ok(());
            }
            if begun.elapsed() > START_TIMEOUT {
                bail!("nothing is handed over: `--transport proxy` does without");
            }
            tokio::time::sleep(READY_INTERVAL).await;
        }
        Ok(())
    }
}

/// This executable, with its log in a file.
pub(crate) fn levada(log: &Path) -> anyhow::Result<Command> {
    let log = File::options().create(true).append(true).open(log)?;
    let mut command = Command::new(std::env::current_exe().context("cannot find this executable")?);
    command.args(["--log-level", "warn"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Ok(command)
}

/// The service address.
fn service() -> SocketAddr {
    SocketAddr::from((lab::LabCluster::SERVICE, 80))
}

const DEVICE: &str = lab::LabCluster::DEVICE;
