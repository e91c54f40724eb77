//! A cluster on an emulated network, where connections can be handed over: clients behind a router, a
//! front-end, and back-ends that answer them directly (docs/operate/handoff.md).

use std::{
    fs::File,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use levada_net::lab::{Child, Ethernet, Host, Network};

use super::{
    client::Client,
    cluster::{ANSWER, Cluster, Listed, Spec, configuration, directory},
};
use crate::command::ask;

/// The hosts, without programs.
pub(crate) struct Hosts {
    pub(crate) clients: Host,
    front: Host,
    backs: Vec<Host>,
    _router: Host,
    _wires: [Ethernet; 2],
    _network: Network,
}

impl Hosts {
    /// So many back-ends.
    ///
    /// # Errors
    /// When there can be no network: not as root.
    pub(crate) fn new(backs: usize) -> anyhow::Result<Self> {
        let network = Network::new(0);
        let clients = network.host("clients")?;
        let (router, front) = (network.host("router")?, network.host("front")?);
        let backs = (0..backs).map(|back| network.host(&format!("back{back}")));
        let backs = backs.collect::<Result<Vec<_>, _>>()?;
        let outer = network.ethernet(&[(&clients, DEVICE, CLIENTS), (&router, DEVICE, NEAR)])?;
        let mut ends = vec![(&router, "eth1", FAR), (&front, DEVICE, FRONT)];
        ends.extend((0..).zip(&backs).map(|(at, back)| (back, DEVICE, address(at))));
        let inner = network.ethernet(&ends)?;
        clients.ip(&[&format!("route add default via {NEAR}")])?;
        // A connection for each request needs as many ports as there can be.
        clients.set("net.ipv4.ip_local_port_range", "1024 65535")?;
        router.forward()?;
        router.ip(&[&format!("route add {SERVICE} via {FRONT}")])?;
        for host in backs.iter().chain([&front]) {
            let own = format!("addr add {SERVICE}/32 dev lo");
            host.ip(&[&own, &format!("route add default via {FAR}")])?;
            host.set("net.ipv4.tcp_max_tw_buckets", "0")?;
        }
        Ok(Self {
            clients,
            front,
            backs,
            _router: router,
            _wires: [outer, inner],
            _network: network,
        })
    }

    /// Starts all and waits until connections are handed over. To be called on the clients' host.
    ///
    /// # Errors
    /// When a program does not start, or nothing is handed over.
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
        for (at, back) in (0..).zip(&self.backs) {
            let [server, taker] = [8080, 7072].map(|port| SocketAddr::from((address(at), port)));
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
        let admin = SocketAddr::from((FRONT, 9180));
        let besides = format!(
            "[handoff]\ninterfaces = \"{DEVICE}\"\nsecret_file = \"{}\"\nafter = \"stay\"",
            secret.display()
        );
        let text = configuration(spec, service(), admin, &besides, &servers);
        let config = directory.path().join("front.toml");
        std::fs::write(&config, text)?;
        let mut command = levada(&log)?;
        command.arg("run").arg("-c").arg(config);
        let front = self.front.start(command)?;
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

    /// Asks for small files until as many connections have been handed over as there are back-ends, one
    /// after the other: the front-end tries each that is not there yet once a second.
    async fn ready(&self, cluster: &Cluster) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut client = Client::of(cluster.address).asking_once();
        while ask::get(cluster.admin, "/readyz", ANSWER).await.is_err() {
            ensure!(begun.elapsed() < START, "the front-end did not start in time");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for file in 0.. {
            let _ = client.get(&format!("/file/first-{file}/1"), 1).await;
            if cluster.handed().await? >= 2 * self.backs.len() as u64 {
                return Ok(());
            }
            if begun.elapsed() > START {
                bail!("nothing is handed over: `levada lab lard --transport proxy` does without");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

/// This executable, which says to a file what it has to say.
fn levada(log: &Path) -> anyhow::Result<Command> {
    let log = File::options().create(true).append(true).open(log)?;
    let mut command = Command::new(std::env::current_exe().context("cannot find this executable")?);
    command.args(["--log-level", "warn"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Ok(command)
}

/// What clients connect to.
fn service() -> SocketAddr {
    SocketAddr::from((SERVICE, 80))
}

fn address(back: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 2, 11 + back)
}

const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 254);
const FRONT: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 1);
const DEVICE: &str = "eth0";
const START: Duration = Duration::from_secs(30);
