//! Clients that stop acknowledging, and clients that only seem to, over wires with a delay. These
//! tests need root on Linux and are skipped elsewhere.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::Arc,
    time::Duration,
};

use levada_net::{
    dormant::{DormancyWatch, MonitoredStream, WatchedConnection},
    lab::{Access, Network, possible},
    tcp::TcpInfo,
    wire::{Shape, Wire},
};
use tokio::io::AsyncWriteExt as _;

/// The path drops all packets of the client until the second retransmission is sent. The answer to
/// that one would arrive a round trip later.
#[test]
fn client_whose_path_drops_a_retransmission_is_not_given_up() {
    if levada_skip::possible(possible()).is_none() {
        return;
    }
    let mut network = Network::new(1);
    let [server, client] = ["server", "client"].map(|name| network.host(name).unwrap());
    let far = Shape { delay: Duration::from_millis(150), ..Shape::default() };
    let (here, there) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let wire =
        network.join(&[(&server, Access::at(here)), (&client, Access::at(there).receiving(far))]);
    let wire = wire.unwrap();
    let listener = server.namespace().run(|| TcpListener::bind((here, 0))).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    let _reader = client.namespace().run(|| TcpStream::connect(at)).unwrap().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    wire.up(1).cut(true);
    stream.write_all(&[7; 10_000]).unwrap();
    stream.set_nonblocking(true).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let _in_it = runtime.enter();
    let (watch, connection) = (DormancyWatch::new(1), WatchedConnection::new(()));
    let stream = tokio::net::TcpStream::from_std(stream).unwrap();
    let watched = MonitoredStream::new(stream, Some(watch.clone()), connection);
    watched.wrote();
    loop {
        let info = TcpInfo::of(watched.stream()).unwrap();
        if info.retransmits >= 2 {
            wire.up(1).cut(false);
        }
        if info.unacked == 0 {
            break;
        }
        watch.sweep(|_, info| panic!("given up: {info:?}"));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Downloads of two hosts that share a link which drops much of what it is sent.
struct FullLink {
    watch: Arc<DormancyWatch<()>>,
    /// Every fifth is of the second host.
    connections: Vec<Arc<WatchedConnection<()>>>,
    wire: Wire,
    _network: Network,
}

const DOWNLOADS: usize = 40;
const OF_SECOND: usize = DOWNLOADS / 5;

/// Runs `test` with downloads of so many bytes, which have started, behind a queue of so many packets, with
/// losses before it.
fn behind_a_full_link(
    bytes: usize,
    (queue, loss): (usize, f64),
    test: impl AsyncFnOnce(&FullLink),
) {
    if levada_skip::possible(possible()).is_none() {
        return;
    }
    let mut network = Network::new(1);
    let [server, first, second] =
        ["server", "first", "second"].map(|name| network.host(name).unwrap());
    let delay = Duration::from_millis(10);
    let narrow = Shape { rate: Some(4_000_000), delay, queue, loss, ..Shape::default() };
    let at = |last| Access::at(Ipv4Addr::new(10, 0, 0, last));
    let wire = network
        .join(&[(&server, at(1).sending(narrow)), (&first, at(2)), (&second, at(3))])
        .unwrap();
    let here = Ipv4Addr::new(10, 0, 0, 1);
    let listener = server.namespace().run(|| TcpListener::bind((here, 0))).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let watch = DormancyWatch::new(1);
        let mut connections = Vec::new();
        for nth in 0..DOWNLOADS {
            let client = if nth % 5 == 0 { &second } else { &first };
            let mut reader = client.namespace().run(|| TcpStream::connect(at)).unwrap().unwrap();
            std::thread::spawn(move || while let Ok(1..) = reader.read(&mut [0; 4096]) {});
            let (stream, _) = listener.accept().unwrap();
            stream.set_nonblocking(true).unwrap();
            let stream = tokio::net::TcpStream::from_std(stream).unwrap();
            let connection = WatchedConnection::new(());
            let mut stream = MonitoredStream::new(stream, Some(watch.clone()), connection.clone());
            connections.push(connection);
            tokio::spawn(async move {
                // Without room in the socket it waits for acknowledgements.
                let _ = stream.write_all(&vec![7; bytes]).await;
                std::future::pending::<()>().await;
            });
            // Connections that begin at the same moment would repeat what they lose at the same moments.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        test(&FullLink { watch, connections, wire, _network: network }).await;
    });
}

/// The time between two sweeps of a node.
const SWEEP: Duration = Duration::from_millis(100);

impl FullLink {
    /// Sweeps after a while, and probes.
    async fn sweep(&self, mut dormant: impl FnMut(&WatchedConnection<()>, &TcpInfo)) {
        tokio::time::sleep(SWEEP).await;
        self.watch.sweep(&mut dormant);
        self.watch.probe().await;
    }

    /// Waits until so many bytes of the downloads are acknowledged. Nobody is to be given up.
    async fn until_acknowledged(&self, bytes: u64) {
        let all = || self.connections.iter().filter_map(|one| one.acknowledged()).sum::<u64>();
        for sweeps in 0.. {
            if all() >= bytes {
                return;
            }
            assert!(sweeps < 600, "{} of {bytes} bytes after a minute", all());
            self.sweep(|_, info| panic!("given up: {info:?}")).await;
        }
    }
}

#[test]
fn live_connections_that_lose_what_others_lose_are_not_given_up() {
    const BYTES: usize = 30_000;
    behind_a_full_link(BYTES, (100, 0.15), async |link| {
        let is_over = |one: &Arc<WatchedConnection<()>>| one.acknowledged() >= Some(BYTES as u64);
        while !link.connections.iter().all(is_over) {
            link.sweep(|_, info| panic!("given up: {info:?}")).await;
        }
    });
}

#[test]
fn clients_that_vanish_beside_live_ones_behind_a_full_link_are_told_from_them() {
    behind_a_full_link(10_000_000, (170, 0.0), async |link| {
        link.until_acknowledged(3_000_000).await;
        link.wire.up(2).cut(true);
        let (mut sweeps, mut given_up) = (0, Vec::new());
        while given_up.len() < OF_SECOND {
            sweeps += 1;
            let (connections, given_up) = (&link.connections, &mut given_up);
            link.sweep(|dormant, info| {
                let is_it = |one: &Arc<_>| std::ptr::eq(&raw const **one, dormant);
                let nth = connections.iter().position(is_it).unwrap();
                assert!(nth.is_multiple_of(5), "it lives: {info:?}");
                given_up.push((sweeps, info.timeout));
            })
            .await;
            assert!(sweeps <= 300, "{given_up:?}");
        }
        // Their timeouts alone would take half a minute and more.
        let half = given_up[OF_SECOND / 2].0;
        assert!(half <= 100, "{given_up:?}");
        link.until_acknowledged(4_000_000).await;
    });
}

#[test]
fn path_that_is_cut_while_its_link_is_full_is_noticed_by_the_silence_of_all() {
    // The timeouts follow the round trips, of up to a second.
    behind_a_full_link(10_000_000, (300, 0.0), async |link| {
        link.until_acknowledged(2_000_000).await;
        link.wire.up(1).cut(true);
        link.wire.up(2).cut(true);
        let (mut sweeps, mut given_up) = (0, Vec::new());
        while given_up.len() < DOWNLOADS {
            sweeps += 1;
            link.sweep(|_, info| given_up.push((sweeps, info.timeout))).await;
        }
        // Two seconds of silence, whatever the timeouts are.
        assert!(sweeps <= 30, "{given_up:?}");
    });
}

#[test]
fn many_clients_that_vanish_at_once_are_given_up_although_the_node_goes_on_writing() {
    const CLIENTS: usize = 150;
    if levada_skip::possible(possible()).is_none() {
        return;
    }
    let mut network = Network::new(1);
    let [server, clients] = ["server", "clients"].map(|name| network.host(name).unwrap());
    let at = |last| Access::at(Ipv4Addr::new(10, 0, 0, last));
    let wire = network.join(&[(&server, at(1)), (&clients, at(2))]).unwrap();
    let here = Ipv4Addr::new(10, 0, 0, 1);
    let listener = server.namespace().run(|| TcpListener::bind((here, 0))).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (watch, mut readers) = (DormancyWatch::new(1), Vec::new());
        for _ in 0..CLIENTS {
            readers.push(clients.namespace().run(|| TcpStream::connect(at)).unwrap().unwrap());
            let (stream, _) = listener.accept().unwrap();
            stream.set_nonblocking(true).unwrap();
            let stream = tokio::net::TcpStream::from_std(stream).unwrap();
            let connection = WatchedConnection::new(());
            let mut stream = MonitoredStream::new(stream, Some(watch.clone()), connection);
            tokio::spawn(async move {
                // As of a live event: at each sweep, most connections have written since the one before.
                while stream.write_all(&[7; 20]).await.is_ok() {
                    tokio::time::sleep(SWEEP).await;
                }
            });
        }
        for _ in 0..10 {
            tokio::time::sleep(SWEEP).await;
            watch.sweep(|_, info| panic!("given up: {info:?}"));
        }
        wire.up(1).cut(true);
        let (mut sweeps, mut given_up) = (0, Vec::new());
        while given_up.len() < CLIENTS {
            sweeps += 1;
            tokio::time::sleep(SWEEP).await;
            watch.sweep(|_, info| given_up.push((sweeps, info.retransmits)));
            assert!(sweeps <= 30, "{} of {CLIENTS}: {given_up:?}", given_up.len());
        }
    });
}
