//! Nodes on loopback, alone and as clusters.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use levada_config::{
    Admin, CacheSettings, ClassSettings, Delivery, DiscoverySettings, Handling, HealthCheck,
    Limits, Listener, MissLimits, Origin as OriginSetting, Peer, PeerTrust, Peering, PolicyChoice,
    PurgeSettings, RedactedArguments, Runtime, ServerProtocols, Settings, SettingsReader,
    ShieldSettings, SiteLog, SiteRoutes, SiteServers, SiteSettings, SiteTls, TicketSettings,
};
use levada_node::Running;

use levada_upstream::PeerProof;
use tokio::net::{TcpListener, TcpStream};

use super::{Answer, HOST, Origin, Wire, get, head_of, settled, within};

pub(crate) const SECRET: &str = "sixteen bytes or more";
const ANY: &str = "127.0.0.1:0";

/// A node without peers in front of these origins.
pub(crate) fn single(origins: &[SocketAddr]) -> Settings {
    Settings {
        name: "n0".to_owned(),
        runtime: Runtime::Shared(1),
        run_as: None,
        splice: true,
        listeners: vec![Listener::plain(ANY.parse().unwrap())],
        tickets: TicketSettings::default(),
        acme: None,
        trusted: Vec::new(),
        discovery: DiscoverySettings::default(),
        peering: None,
        dns: None,
        admin: Some(Admin {
            hosts: [HOST, "admin"].map(str::to_owned).to_vec(),
            ..Admin::at(ANY.parse::<SocketAddr>().unwrap())
        }),
        metrics: None,
        cache: CacheSettings::default(),
        purge: PurgeSettings::default(),
        handoff: None,
        sites: vec![site(HOST, origins)],
        limits: Limits::default(),
        access_log: None,
        redact: RedactedArguments::default(),
        telemetry: None,
        route: None,
        seed: Some(7),
    }
}

pub(crate) fn site(host: &str, origins: &[SocketAddr]) -> SiteSettings {
    SiteSettings {
        hosts: vec![host.to_owned()],
        classes: ClassSettings::default(),
        tls: SiteTls::default(),
        delivery: Delivery::Proxy,
        servers: servers(origins),
        handling: Handling { debug: true, ..Handling::default() },
        large: None,
        routes: SiteRoutes::default(),
        encoded_controls: false,
        log: SiteLog::OfNode,
        forms: Default::default(),
    }
}

pub(crate) fn servers(origins: &[SocketAddr]) -> SiteServers {
    SiteServers {
        origins: origins.iter().map(at).collect(),
        switch: None,
        files: None,
        origin_host: None,
        protocols: ServerProtocols::default(),
        tls: None,
        policy: policy("fdr"),
        health: unwatched(),
        misses: MissLimits::default(),
        shield: None,
    }
}

/// A server at an address, without TLS.
pub(crate) fn at(address: &SocketAddr) -> OriginSetting {
    OriginSetting::Tcp { tls: false, host: address.ip().to_string(), port: address.port() }
}

pub(crate) fn policy(name: &str) -> PolicyChoice {
    PolicyChoice { name: name.to_owned(), ..PolicyChoice::default() }
}

/// A shield with a policy.
pub(crate) fn shielded(region: &str, by: &str) -> ShieldSettings {
    ShieldSettings { region: region.into(), policy: policy(by) }
}

/// No probes, no ejections: for tests of something else.
pub(crate) fn unwatched() -> HealthCheck {
    HealthCheck { interval: Duration::ZERO, eject_after: 0, ..HealthCheck::default() }
}

/// Frequent probes.
pub(crate) fn watched() -> HealthCheck {
    HealthCheck {
        interval: Duration::from_millis(50),
        timeout: Duration::from_secs(2),
        rise: 2,
        fall: 2,
        path: None,
        eject_after: 3,
        eject_for: Duration::from_millis(300),
    }
}

pub(crate) async fn start(settings: Settings) -> Running {
    Running::start(whole(settings)).await.unwrap()
}

/// The content of a node's file, for the next reload.
pub(crate) type File = Arc<Mutex<Result<Settings, String>>>;

/// Derives again what follows from all settings of a site, after a test has changed some.
fn whole(mut settings: Settings) -> Settings {
    settings.sites = settings.sites.into_iter().map(SiteSettings::with_spaces).collect();
    settings
}

/// A node whose settings can be read again.
pub(crate) async fn world(settings: Settings) -> (Running, File) {
    let settings = whole(settings);
    let file: File = Arc::new(Mutex::new(Ok(settings.clone())));
    let read = file.clone();
    let reader = SettingsReader(Box::new(move || read.lock().unwrap().clone().map(whole)));
    (Running::start_with(settings, Some(reader)).await.unwrap(), file)
}

pub(crate) async fn reload(node: &Running) -> Answer {
    let fields = [("Content-Type", "application/json"), ("Content-Length", "0")];
    let to = node.addresses.admin.unwrap();
    Wire::saying(to, head_of("POST", "/reload", &fields)).await.answer().await
}

/// A node without peers in front of an origin, and its address for clients.
pub(crate) async fn alone(tweak: impl FnOnce(&mut Settings)) -> (Origin, Running, SocketAddr) {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    tweak(&mut settings);
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    (origin, node, at)
}

/// Addresses that are free: peers must know them before they start.
///
/// Outgoing connections are from 127.0.0.1, so none of them can take such an address before its node does,
/// whatever the range of ephemeral ports is.
pub(crate) fn reserve(count: usize) -> Vec<SocketAddr> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let candidate = || {
        let next = std::process::id() * 97 + NEXT.fetch_add(1, Relaxed);
        SocketAddr::from((RESERVED, 10_000 + (next % 20_000) as u16))
    };
    let free = |address: &SocketAddr| std::net::TcpListener::bind(address).is_ok();
    std::iter::repeat_with(candidate).filter(free).take(count).collect()
}

/// The IP address of nodes whose ports are known before they start.
pub(crate) const RESERVED: Ipv4Addr = Ipv4Addr::new(127, 1, 2, 3);

/// An address that checks the proofs of peers, as the node `name` does, and passes everything else to `server`.
pub(crate) async fn as_peer(name: &'static str, server: SocketAddr) -> String {
    let listener = TcpListener::bind(ANY).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut caller, _)) = listener.accept().await {
            tokio::spawn(async move {
                let proved = PeerProof::new(&SECRET.into(), name).check(&mut caller).await;
                assert!(proved.unwrap());
                let mut server = TcpStream::connect(server).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut caller, &mut server).await;
            });
        }
    });
    address
}

/// Nodes that know each other.
pub(crate) struct Cluster {
    pub(crate) settings: Vec<Settings>,
    files: Vec<File>,
    pub(crate) nodes: Vec<Option<Running>>,
}

impl Cluster {
    /// `count` nodes named `n0`, `n1`, ... in front of `origin`, each changed by `tweak` before it
    /// starts.
    pub(crate) async fn start(
        count: usize,
        origin: SocketAddr,
        tweak: impl Fn(&mut Settings),
    ) -> Self {
        let (clients, peers) = (reserve(count), reserve(count));
        let peer = |index: usize| Peer {
            name: format!("n{index}"),
            address: peers[index].to_string(),
            weight: 1.0,
            at: None,
            rtt: None,
            client_url: Some(format!("http://{}", clients[index])),
            public: Vec::new(),
            region: "".into(),
        };
        let settings = |index: usize| {
            let mut settings = single(&[origin]);
            settings.name = format!("n{index}");
            settings.listeners[0].address = clients[index];
            settings.peering = Some(Peering {
                listen: peers[index],
                trust: PeerTrust::Secret(SECRET.into()),
                h2: false,
                peers: (0..count).map(peer).collect(),
                discovery: None,
                health: unwatched(),
                slow_start: Duration::ZERO,
                catch_up: Duration::from_secs(10),
            });
            tweak(&mut settings);
            settings
        };
        let settings: Vec<Settings> = (0..count).map(settings).collect();
        let (mut nodes, mut files) = (Vec::new(), Vec::new());
        for settings in &settings {
            let (node, file) = world(settings.clone()).await;
            nodes.push(Some(node));
            files.push(file);
        }
        Self { settings, files, nodes }
    }

    /// Changes the settings of a node and reloads them.
    pub(crate) async fn reload(
        &mut self,
        index: usize,
        edit: impl FnOnce(&mut Settings),
    ) -> Answer {
        edit(&mut self.settings[index]);
        *self.files[index].lock().unwrap() = Ok(self.settings[index].clone());
        reload(self.node(index)).await
    }

    pub(crate) fn node(&self, index: usize) -> &Running {
        self.nodes[index].as_ref().expect("the node runs")
    }

    /// A node's address for clients.
    pub(crate) fn client(&self, index: usize) -> SocketAddr {
        self.settings[index].listeners[0].address
    }

    /// A node's address for peers.
    pub(crate) fn peer(&self, index: usize) -> SocketAddr {
        self.settings[index].peering.as_ref().unwrap().listen
    }

    /// A connection to a node's address for peers, from a peer.
    pub(crate) async fn peer_wire(&self, index: usize) -> Wire {
        let stream = within(TcpStream::connect(self.peer(index))).await.unwrap();
        stream.set_nodelay(true).unwrap();
        self.prove(index, stream).await
    }

    /// A connection to a node's address for peers that proves that it comes from a peer.
    pub(crate) async fn prove(&self, index: usize, mut stream: TcpStream) -> Wire {
        let proof = PeerProof::new(&SECRET.into(), &self.settings[index].name);
        within(proof.give(&mut stream)).await.unwrap();
        Wire::over(stream)
    }

    /// A GET from a peer.
    pub(crate) async fn get_as_peer(
        &self,
        index: usize,
        target: &str,
        fields: &[(&str, &str)],
    ) -> Answer {
        let mut wire = self.peer_wire(index).await;
        wire.send(head_of("GET", target, fields)).await;
        wire.answer().await
    }

    /// Kills the node.
    pub(crate) fn kill(&mut self, index: usize) {
        self.nodes[index] = None;
    }

    /// Stops the node in order: its disk tier has everything that was stored.
    pub(crate) async fn stop(&mut self, index: usize) {
        self.nodes[index].take().expect("the node runs").stop().await;
    }

    /// Starts the node again, with an empty memory tier.
    pub(crate) async fn revive(&mut self, index: usize) {
        let (node, file) = world(self.settings[index].clone()).await;
        (self.nodes[index], self.files[index]) = (Some(node), file);
    }

    pub(crate) async fn settled(&self) {
        for node in self.nodes.iter().flatten() {
            settled(node).await;
        }
    }
}

/// A page of a node's admin listener.
pub(crate) async fn admin(node: &Running, target: &str) -> super::Answer {
    get(node.addresses.admin.unwrap(), target).await
}

/// A page of a node's admin listener, as JSON.
pub(crate) async fn admin_json(node: &Running, target: &str) -> serde_json::Value {
    let answer = admin(node, target).await;
    assert_eq!(answer.status, 200, "{target}: {}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

/// The value of a metric, all its labels summed up.
pub(crate) async fn metric(node: &Running, name: &str) -> f64 {
    let page = admin(node, "/metrics").await.text();
    let of = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        let named = series.split('{').next() == Some(name);
        named.then(|| value.parse::<f64>().ok()).flatten()
    };
    page.lines().filter_map(of).sum()
}

/// The sites of a configuration as a user writes it.
pub(crate) fn sites(text: &str) -> Vec<SiteSettings> {
    let text = format!("name = 'n0'\n[[listen]]\naddress = '127.0.0.1:8080'\n{text}");
    let source = levada_config::Source { name: "levada.toml".to_owned(), text };
    let surroundings = levada_config::Surroundings {
        directory: std::path::Path::new("/nonexistent"),
        variable: &|_| None,
        start_error: &|_| None,
    };
    let checked = levada_config::check(&source, &surroundings);
    checked.settings.unwrap_or_else(|| panic!("{}", checked.report)).sites
}
