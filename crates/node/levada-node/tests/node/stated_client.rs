//! The PROXY protocol towards origins and servers: a connection begins with its client's address.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, atomic::AtomicUsize, atomic::Ordering::SeqCst},
};

use levada_config::{HealthCheck, ProxyVersion, Settings, TrustedProxies};
use levada_node::Running;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::{
    support::{nodes::watched, *},
    switch::{server, switch, switching},
};

/// A node that believes the PROXY protocol, in front of an origin that keeps nothing.
async fn receiver() -> (Origin, Running, SocketAddr) {
    let (origin, node, at) = alone(|settings| {
        let addresses = "127.0.0.1".parse().unwrap();
        settings.trusted = vec![TrustedProxies { addresses, proxy_protocol: true }];
    })
    .await;
    origin.otherwise(|_| Reply::ok("fresh").with("cache-control", "no-store"));
    (origin, node, at)
}

/// A node whose server learns its clients.
async fn stating(mut settings: Settings, version: ProxyVersion) -> (Running, SocketAddr) {
    settings.sites[0].servers.protocols.states_client = Some(version);
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    (node, at)
}

async fn wire_of(client: u8, at: SocketAddr) -> Wire {
    Wire::over(connect_from(client, at).await)
}

async fn ask(wire: &mut Wire, target: &str) {
    wire.send(head_of("GET", target, &[])).await;
    assert_eq!(wire.answer().await.status, 200);
}

#[tokio::test]
async fn origin_learns_each_client_in_both_versions() {
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let (origin, receiver, address) = receiver().await;
        let mut settings = single(&[address]);
        let path = Some("/health".to_owned());
        settings.sites[0].servers.health = HealthCheck { path, ..watched() };
        let (node, at) = stating(settings, version).await;
        let (mut seven, mut eight) = (wire_of(7, at).await, wire_of(8, at).await);
        for round in 0..3 {
            ask(&mut seven, &format!("/seven?{round}")).await;
            ask(&mut eight, &format!("/eight?{round}")).await;
        }
        for (path, client) in [("/seven", "127.0.0.7"), ("/eight", "127.0.0.8")] {
            let asked = origin.asked(path);
            assert_eq!(asked.len(), 3);
            for one in asked {
                assert_eq!(one.header("x-forwarded-for").unwrap(), client, "{version:?}");
            }
        }
        let healthy = || origin.asked("/health").len() > 1;
        eventually("probes state no client, and are answered", healthy).await;
        settled(&node).await;
        node.stop().await;
        settled(&receiver).await;
    }
}

#[tokio::test]
async fn servers_of_a_switch_learn_the_client() {
    let (origin, _receiver, address) = receiver().await;
    let mut settings = switching("hrw", &[]);
    switch(&mut settings).servers = vec![server("a", address)];
    let (node, at) = stating(settings, ProxyVersion::V2).await;
    ask(&mut wire_of(9, at).await, "/nine").await;
    assert_eq!(origin.asked("/nine")[0].header("x-forwarded-for").unwrap(), "127.0.0.9");
    settled(&node).await;
}

#[tokio::test]
async fn client_of_another_node_is_stated_at_the_origin() {
    let (origin, _receiver, address) = receiver().await;
    let cluster = nodes::Cluster::start(2, address, |settings| {
        settings.sites[0].servers.protocols.states_client = Some(ProxyVersion::V1);
    })
    .await;
    let mut wire = wire_of(7, cluster.client(0)).await;
    // Some of them are served by the other node.
    for number in 0..10 {
        ask(&mut wire, &format!("/{number}")).await;
        let asked = &origin.asked(&format!("/{number}"))[0];
        assert_eq!(asked.header("x-forwarded-for").unwrap(), "127.0.0.7");
    }
    cluster.settled().await;
}

/// An address that takes headers of version 1 from connections, and passes everything else to `origin`.
struct Front {
    address: SocketAddr,
    headers: Arc<Mutex<Vec<String>>>,
    open: Arc<AtomicUsize>,
}

impl Front {
    async fn of(origin: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (headers, open) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicUsize>::default());
        let front = Self { address, headers: headers.clone(), open: open.clone() };
        tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                let (headers, open) = (headers.clone(), open.clone());
                open.fetch_add(1, SeqCst);
                tokio::spawn(async move {
                    let (mut caller, mut line) = (BufReader::new(caller), String::new());
                    caller.read_line(&mut line).await.unwrap();
                    headers.lock().unwrap().push(line);
                    let mut server = TcpStream::connect(origin).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut caller, &mut server).await;
                    open.fetch_sub(1, SeqCst);
                });
            }
        });
        front
    }

    /// The clients of the connections, by their last numbers.
    fn clients(&self) -> Vec<String> {
        let headers = self.headers.lock().unwrap();
        let client = |line: &String| line.split(' ').nth(2).unwrap().to_owned();
        headers.iter().map(client).collect()
    }
}

#[tokio::test]
async fn connection_that_states_a_client_takes_requests_of_that_client_only() {
    let origin = Origin::start().await;
    origin.otherwise(|_| Reply::ok("fresh").with("cache-control", "no-store"));
    let front = Front::of(origin.address).await;
    let (node, at) = stating(single(&[front.address]), ProxyVersion::V1).await;
    let (mut seven, mut eight) = (wire_of(7, at).await, wire_of(8, at).await);
    for round in 0..3 {
        ask(&mut seven, &format!("/seven?{round}")).await;
        ask(&mut eight, &format!("/eight?{round}")).await;
    }
    ask(&mut wire_of(7, at).await, "/seven?again").await;
    assert_eq!(front.clients(), ["127.0.0.7", "127.0.0.8"], "connections are kept per client");
    assert!(front.headers.lock().unwrap()[0].starts_with("PROXY TCP4 127.0.0.7 127.0.0.1 0 "));
    settled(&node).await;
}

#[tokio::test]
async fn idle_connections_of_other_clients_take_no_place_from_a_client() {
    let origin = Origin::start().await;
    origin.otherwise(|_| Reply::ok("fresh").with("cache-control", "no-store"));
    let front = Front::of(origin.address).await;
    let mut settings = single(&[front.address]);
    settings.limits.server_connections = 2;
    let (node, at) = stating(settings, ProxyVersion::V1).await;
    for client in 2..12 {
        ask(&mut wire_of(client, at).await, "/").await;
        eventually("no more than two are open", || front.open.load(SeqCst) <= 2).await;
    }
    settled(&node).await;
}
