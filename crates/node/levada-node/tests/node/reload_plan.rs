//! A reload is a plan without effects and a commit that cannot fail: a fault at any step of the plan leaves the node
//! as it was.

use std::{
    net::{SocketAddr, UdpSocket},
    path::PathBuf,
    time::Duration,
};

use levada_access::trust::TrustedProxies;
use levada_config::{
    AccessLog, FileSource, Listener, LogFormat, NamedSource, Origin as OriginSetting, Peer,
    PeerTrust, Peering, Settings, SiteLog,
};
use levada_discovery::Source;
use levada_net::listening;
use levada_node::Running;
use levada_policy::ParameterValue;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::{
    reload_all::free,
    support::{dns::Dns, nodes::*, *},
    switch::{switch, switching},
};

/// A node with a part of everything that a reload can change, and what its next settings would be made of.
struct World {
    node: Running,
    file: File,
    settings: Settings,
    dns: Dns,
    authority: secure::Authority,
    directory: tempfile::TempDir,
    /// The port of `app.test`.
    port: u16,
    /// Answers at the addresses of `app.test`, the servers that stay, and those that would come.
    origins: Vec<Origin>,
    /// A name server that never answers.
    silent: UdpSocket,
    fresh: [SocketAddr; 2],
}

const SECURE: &str = "secure.test";

impl World {
    async fn start() -> Option<Self> {
        let (mut origins, port) = (Vec::new(), reserve(1)[0].port());
        for at in [(127, 1, 3, 11), (127, 1, 3, 12)] {
            let ip = std::net::Ipv4Addr::new(at.0, at.1, at.2, at.3);
            let origin = Origin::at((ip, port).into()).await;
            origin.otherwise(move |_| Reply::ok(ip.to_string()).with("Cache-Control", "no-store"));
            origins.push(origin);
        }
        for _ in 0..4 {
            let origin = Origin::start().await;
            let address = origin.address.to_string();
            origin.otherwise(move |_| Reply::ok(&*address).with("Cache-Control", "no-store"));
            origins.push(origin);
        }
        let dns = Dns::start(&["app 0 A 127.1.3.11"]).await?;
        let (authority, directory) = (secure::Authority::new(), tempfile::tempdir().unwrap());
        let mut settings = switching("wrr", &[&origins[2], &origins[3]]);
        settings.sites.push(site("app.test", &[]));
        settings.sites[1].servers.origins =
            vec![OriginSetting::Tcp { tls: false, host: "app.test".to_owned(), port }];
        settings.sites.push(site("listed.test", &[]));
        settings.sites[2].servers.origins =
            vec![OriginSetting::Discovered { tls: false, source: "list".into() }];
        settings.sites.push(site("down.test", &[free()]));
        settings.sites[3].servers.health = watched();
        let resolver = &mut settings.discovery.resolver;
        resolver.servers = vec![dns.address];
        resolver.min_ttl = Duration::from_millis(50);
        resolver.timeout = Duration::from_millis(200);
        let listed = |name: &str, at: SocketAddr| {
            let path = directory.path().join(name);
            std::fs::write(&path, format!("[{{\"targets\": [\"{at}\"]}}]")).unwrap();
            NamedSource { name: "list".into(), source: Source::File(FileSource { path }) }
        };
        settings.discovery.sources = vec![listed("list.json", origins[4].address)];
        listed("other.json", origins[5].address);
        settings.peering = Some(Peering {
            listen: free(),
            trust: PeerTrust::Secret(SECRET.into()),
            h2: false,
            peers: vec![peer("n0")],
            discovery: None,
            health: unwatched(),
            slow_start: Duration::ZERO,
            catch_up: Duration::from_secs(10),
        });
        let mut door = Listener::plain(free());
        door.tls = vec![authority.issue(&[SECURE])];
        settings.listeners.push(door);
        let log = directory.path().join("a.log");
        settings.access_log = Some(AccessLog::to_file(log, LogFormat::combined()));
        let (node, file) = world(settings.clone()).await;
        let silent = UdpSocket::bind(free()).unwrap();
        let fresh = [free(), free()];
        Some(Self { node, file, settings, dns, authority, directory, port, origins, silent, fresh })
    }

    /// Settings that differ in everything that a running node can change.
    fn next(&self) -> Settings {
        let mut next = self.settings.clone();
        let [plain, secure] = self.fresh;
        next.listeners.push(Listener::plain(plain));
        let mut door = Listener::plain(secure);
        (door.tls, door.http3) = (vec![self.authority.issue(&["new.test"])], true);
        next.listeners.push(door);
        next.listeners[1].http3 = true;
        next.tickets.of_cluster = false;
        next.trusted.push(TrustedProxies {
            addresses: "127.0.0.1".parse().unwrap(),
            proxy_protocol: false,
        });
        next.limits.capacity = 7;
        next.limits.connections = 77;
        next.cache.memory = 16 << 20;
        next.purge.access.token = Some("another token".to_owned());
        next.discovery.resolver.servers = vec![self.silent.local_addr().unwrap()];
        let path = self.directory.path().join("other.json");
        next.discovery.sources[0].source = Source::File(FileSource { path });
        let mut members = vec![peer("n0"), peer("n1")];
        next.peering.as_mut().unwrap().peers.append(&mut members);
        next.peering.as_mut().unwrap().peers.remove(0);
        next.access_log =
            Some(AccessLog::to_file(self.directory.path().join("b.log"), LogFormat::combined()));
        let servers = &mut switch(&mut next).servers;
        servers[1] = servers[0].clone();
        servers[1].name = "s9".to_owned();
        servers.swap(0, 1);
        for site in &mut next.sites {
            site.servers.health.fall += 1;
            site.handling.debug = false;
        }
        next.sites[3].servers.origins = vec![at(&self.origins[5].address)];
        next.sites.push(site("new.test", &[self.origins[5].address]));
        next.sites[4].servers.origins.push(OriginSetting::Tcp {
            tls: false,
            host: "new-name.test".to_owned(),
            port: self.port,
        });
        next
    }

    /// All that can be seen of the node.
    async fn seen(&self) -> Vec<(String, String)> {
        let mut seen = Vec::new();
        let mut status = admin_json(&self.node, "/status").await;
        still(&mut status);
        seen.push(("status".to_owned(), format!("{status:#}")));
        let page = admin(&self.node, "/metrics").await.text();
        let mut lines: Vec<_> = page.lines().filter(|line| is_still(line)).collect();
        lines.sort_unstable();
        seen.push(("metrics".to_owned(), lines.join("\n")));
        let plain = self.node.addresses.clients[0];
        for host in [HOST, "app.test", "listed.test", "down.test", "new.test"] {
            let answer =
                get_with(plain, "/", &[("Host", host), ("X-Forwarded-For", "9.9.9.9")]).await;
            let fields = answer.header("via").is_some();
            let debug = answer.header("cache-status");
            // The two servers of the switch take turns.
            let text = if host == HOST { String::new() } else { answer.text() };
            seen.push((host.to_owned(), format!("{} {text} {fields} {debug:?}", answer.status)));
        }
        let door = self.settings.listeners[1].address;
        let stream =
            secure::connect(door, SECURE, &self.authority.path(), &["http/1.1"], None).await;
        let shown = stream.unwrap().get_ref().1.peer_certificates().unwrap()[0].clone();
        seen.push(("certificate".to_owned(), format!("{shown:?}")));
        for address in self.fresh {
            let is_open = TcpStream::connect(address).await.is_ok();
            seen.push((address.to_string(), is_open.to_string()));
        }
        for address in [door, self.fresh[1]] {
            let is_free = UdpSocket::bind(address).is_ok();
            seen.push((format!("udp {address}"), is_free.to_string()));
        }
        seen
    }

    /// Reloads settings that cannot be used, and returns why.
    async fn refused(&self, next: Result<Settings, String>) -> String {
        *self.file.lock().unwrap() = next;
        let answer = reload(&self.node).await;
        assert_eq!(answer.status, 422, "{answer:?}");
        answer.text()
    }
}

fn peer(name: &str) -> Peer {
    let address = "127.0.0.1:9".to_owned();
    Peer {
        name: name.to_owned(),
        address,
        weight: 1.0,
        at: None,
        rtt: None,
        client_url: None,
        region: "".into(),
        public: Vec::new(),
    }
}

/// Removes what changes by itself.
fn still(status: &mut Value) {
    const MOVING: [&str; 16] = [
        "time",
        "uptime_seconds",
        "now",
        "requests",
        "memory_bytes",
        "connections",
        "in_flight",
        "in_service",
        "bytes_sent",
        "origin_bytes",
        "misses",
        "hottest",
        "latency_ms",
        "probes",
        "days",
        "why",
    ];
    match status {
        Value::Object(fields) => {
            fields.retain(|name, _| !MOVING.contains(&name.as_str()));
            fields.values_mut().for_each(still);
        }
        Value::Array(all) => all.iter_mut().for_each(still),
        _ => {}
    }
}

/// Whether a line of the metrics says what changes by a reload only.
fn is_still(line: &str) -> bool {
    const STILL: [&str; 8] = [
        "levada_upstream_healthy",
        "levada_discovery_members",
        "levada_memory_limit",
        "levada_certificate",
        "levada_tls_ocsp",
        "levada_site_requests",
        "levada_cluster",
        "levada_ring_moved",
    ];
    STILL.iter().any(|name| line.starts_with(name)) && !line.contains("requests_total")
}

/// A fault at a step of the plan: its name, a word of the refusal, and how settings come to have it.
type Fault = (&'static str, &'static str, fn(&World, &mut Settings));

/// In the order of the steps.
const FAULTS: [Fault; 10] = [
    ("a key that needs a restart", "`name`", |_, next| next.name = "other".to_owned()),
    ("a certificate without its file", "gone.pem", |world, next| {
        next.listeners[3].tls[0].certificate = world.path("gone.pem");
    }),
    ("a file of ticket keys that is missing", "gone.key", |world, next| {
        next.tickets.files = vec![world.path("gone.key")];
    }),
    ("a port that is taken", "cannot listen on", |world, next| {
        next.listeners.push(Listener::plain(world.dns.address));
    }),
    ("a UDP port that is taken", "cannot receive UDP", |world, next| {
        next.listeners[3].address = world.silent.local_addr().unwrap();
    }),
    ("a log that cannot be opened", "access log", |world, next| {
        let log = AccessLog::to_file(world.path("none/a.log"), LogFormat::combined());
        next.access_log = Some(log);
    }),
    ("a cluster without this node", "is not among the nodes", |_, next| {
        next.peering.as_mut().unwrap().peers.remove(0);
    }),
    ("a policy that does not exist", "nonesuch", |_, next| {
        next.sites[4].servers.policy = policy("nonesuch");
    }),
    ("a policy with a wrong parameter", "order_cache", |_, next| {
        let mut wrong = policy("hrw");
        wrong.parameters.insert("order_cache".to_owned(), ParameterValue::Integer(-1));
        next.sites[4].servers.policy = wrong;
    }),
    ("a log of a site that cannot be opened", "access log", |world, next| {
        let log = AccessLog::to_file(world.path("none/b.log"), LogFormat::combined());
        next.sites[4].log = SiteLog::Own(Some(Box::new(log)));
    }),
];

impl World {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Compares what is seen now with what was seen before a fault.
    async fn unchanged(&self, before: &[(String, String)], fault: &str) {
        for ((what, before), (_, after)) in before.iter().zip(self.seen().await) {
            let (before, after): (Vec<_>, Vec<_>) =
                (before.lines().collect(), after.lines().collect());
            let differs = before.iter().zip(&after).find(|(before, after)| before != after);
            assert!(before == after, "{fault}: {what} differs: {differs:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_at_any_step_of_a_plan_changes_nothing() {
    let Some(world) = World::start().await else { return };
    let (plain, down) = (world.node.addresses.clients[0], ("Host", "down.test"));
    within(async { while get_with(plain, "/", &[down]).await.status != 502 {} }).await;
    let unready = async || admin(&world.node, "/readyz").await.status == 503;
    within(async { while !unready().await {} }).await;
    let before = world.seen().await;
    world.unchanged(&before, "nothing").await;
    let refusal = world.refused(Err("the file has an error".to_owned())).await;
    assert!(refusal.contains("the file has an error"), "{refusal}");
    world.unchanged(&before, "a file with an error").await;
    for (fault, word, inject) in FAULTS {
        let mut next = world.next();
        inject(&world, &mut next);
        let refusal = world.refused(Ok(next)).await;
        assert!(refusal.contains(word), "{fault}: {refusal}");
        world.unchanged(&before, fault).await;
    }
    // Another program begins to listen while the plan waits for the first answers of sources.
    let rival = listening::bind(world.fresh[0], false).unwrap();
    let listening = std::thread::spawn({
        let silent = world.silent.try_clone().unwrap();
        silent.set_read_timeout(Some(PATIENCE)).unwrap();
        while silent.set_nonblocking(true).is_ok() && silent.recv(&mut [0; 512]).is_ok() {}
        silent.set_nonblocking(false).unwrap();
        move || {
            silent.recv(&mut [0; 512]).unwrap();
            listening::listen(&rival).unwrap();
            rival
        }
    });
    let refusal = world.refused(Ok(world.next())).await;
    assert!(refusal.contains("cannot listen on"), "{refusal}");
    drop(listening.join().unwrap());
    world.unchanged(&before, "a port that another program takes meanwhile").await;
    // Names are resolved by the servers of the former settings.
    world.dns.change(&["app 0 A 127.1.3.12"]);
    let app = async || get_with(plain, "/", &[("Host", "app.test")]).await.text();
    within(async { while app().await != "127.1.3.12" {} }).await;
    // The same settings without a fault count at once.
    *world.file.lock().unwrap() = Ok(world.next());
    let answer = reload(&world.node).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(get_with(world.fresh[0], "/", &[("Host", "new.test")]).await.status, 200);
    let listed = get_with(plain, "/", &[("Host", "listed.test")]).await;
    assert_eq!(listed.text(), world.origins[5].address.to_string());
    assert_eq!(metric(&world.node, "levada_discovery_members").await, 1.0 + 1.0);
    settled(&world.node).await;
}
