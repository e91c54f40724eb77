//! A running server, and tools that ask it.

use std::{
    net::{SocketAddr, UdpSocket},
    path::Path,
    process::Command,
    sync::Arc,
    time::Duration,
};

use levada_dns::{
    World,
    cookies::Cookies,
    dnssec::{Signatures, ZoneKeys},
    rate::RateLimit,
    redirect::Redirects,
    route::{NodeState, Tables},
    serve::{DnsMetrics, Identity, Receiving, Server, TcpLimits, accept, receive},
    wire::Name,
    zone::{Routed, Routing, Zone, ZoneFile, Zones},
};
use levada_net::{
    datagrams,
    stop::{self, Stopper},
};
use levada_observe::metrics::Registry;

/// The zone that most tests ask for.
pub(crate) const ZONE: &str = "\
$TTL 300
@ SOA ns1 hostmaster 1 7200 3600 1209600 60
@ NS ns1
@ NS ns2
ns1 A 192.0.2.53
ns2 AAAA 2001:db8::53
@ CAA 0 issue \"ca.test\"
@ MX 10 mail
static A 192.0.2.80
alias CNAME static
outside CNAME www.elsewhere.test.
*.wild TXT \"any\"
deep.empty.tree TXT x
sub NS ns.sub
ns.sub A 192.0.2.99
signed NS ns.sub
signed DS 12345 13 2 49FD46E6C4B45C55D4AC69CBD3CD34AC1AFE51DE49FD46E6C4B45C55D4AC69CB
long TXT \"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\"
";

/// A server on loopback.
pub(crate) struct Running {
    pub(crate) server: Arc<Server>,
    pub(crate) address: SocketAddr,
    receiving: Option<Receiving>,
    stopper: Stopper,
    runtime: tokio::runtime::Runtime,
}

/// An identity without a limit.
pub(crate) fn identity() -> Identity {
    Identity {
        nsid: b"eu-1".to_vec(),
        cookies: Cookies::new([7; 16]),
        limit: RateLimit { responses: 0, slip: 0, signatures: 0 },
    }
}

/// How a zone of tests routes.
pub(crate) fn routing() -> Routing {
    Routing { ttl: 20, max_answers: 1, hot_rate: 0, alpn: b"\x02h3\x02h2".to_vec() }
}

/// A zone of a text, with routed names and keys.
pub(crate) fn zone(
    apex: &str,
    text: &str,
    routed: &[(&str, Option<u16>)],
    keys: Option<&Path>,
) -> Zone {
    let apex: Name = apex.parse().unwrap();
    let records =
        ZoneFile { path: Path::new("zone"), text: text.as_bytes() }.records(&apex).unwrap();
    let routed = routed.iter().map(|(name, federation)| {
        let name = apex.below(name).unwrap();
        Routed { name, federation: *federation, stated: true, of_node: false }
    });
    let routes = routed.collect();
    let keys =
        keys.map(|file| Arc::new(ZoneKeys::read(file, &Arc::new(Signatures::default())).unwrap()));
    Zone::new(apex, records, routes, routing(), keys).unwrap()
}

/// A world of these zones.
pub(crate) fn world(all: Vec<Zone>, tables: Tables) -> Arc<World> {
    let mut zones = Zones::default();
    all.into_iter().for_each(|zone| assert!(zones.add(zone)));
    Arc::new(World { zones, tables, redirects: Redirects::default() })
}

/// A node that is well.
pub(crate) fn node(name: &str, region: &str, v4: &str, v6: &str) -> NodeState {
    NodeState {
        name: name.into(),
        region: region.into(),
        v4: v4.parse().into_iter().collect(),
        v6: v6.parse().into_iter().collect(),
        weight: 1.0,
        ready: true,
        draining: false,
        load: 0.0,
    }
}

impl Running {
    pub(crate) fn start(world: Arc<World>, identity: Identity, connections: usize) -> Self {
        let server = Server::new(world, identity, DnsMetrics::registered(&mut Registry::default()));
        // The port may be taken for TCP.
        let (udp, listener) = std::iter::repeat_with(|| {
            let udp = datagrams::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let listener = std::net::TcpListener::bind(udp.local_addr().unwrap()).ok();
            listener.map(|listener| (udp, listener))
        })
        .flatten()
        .next()
        .unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = udp.local_addr().unwrap();
        let receiving = receive(&server, vec![udp]).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (stopper, stop) = stop::channel();
        let limits = TcpLimits { connections, idle: Duration::from_secs(2) };
        let in_it = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        runtime.spawn(accept(server.clone(), listener, limits, stop));
        drop(in_it);
        Self { server, address, receiving: Some(receiving), stopper, runtime }
    }

    /// With one zone, `a.test`.
    pub(crate) fn with_zone() -> Self {
        Self::start(world(vec![zone("a.test", ZONE, &[], None)], Tables::default()), identity(), 10)
    }

    /// The output of kdig; `None` without the tool.
    pub(crate) fn kdig(&self, line: &str) -> Option<String> {
        let server = format!("@{}", self.address.ip());
        let output = Command::new("kdig")
            .args([
                server.as_str(),
                "-p",
                &self.address.port().to_string(),
                "+norec",
                "+time=5",
                "+retry=0",
            ])
            .args(line.split(' '))
            .output();
        match output {
            Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
            Err(_) => {
                levada_skip::skipped("kdig is not installed: apt install knot-dnsutils");
                None
            }
        }
    }

    /// Sends bytes in a datagram. Returns the answer, if one comes.
    pub(crate) fn ask(&self, message: &[u8]) -> Option<Vec<u8>> {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        socket.send_to(message, self.address).unwrap();
        let mut answer = vec![0; 4096];
        let length = socket.recv(&mut answer).ok()?;
        answer.truncate(length);
        Some(answer)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.begin();
        if let Some(receiving) = self.receiving.take() {
            receiving.end();
        }
        self.runtime.block_on(async {});
    }
}

/// A query for a name and a type.
pub(crate) fn query(name: &str, kind: u16) -> Vec<u8> {
    let name: Name = name.parse().unwrap();
    let [high, low] = kind.to_be_bytes();
    [&[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0], name.wire(), &[high, low, 0, 1]].concat()
}
