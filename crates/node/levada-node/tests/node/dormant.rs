//! Clients that stop acknowledging, over links that are cut. Needs root on Linux; skipped elsewhere.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::atomic::Ordering::Relaxed,
    time::Duration,
};

use levada_config::Listener;
use levada_net::{
    lab::{Access, Host, Network, possible},
    wire::{Shape, Wire},
};

use crate::support::*;

const NODE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const BODY: usize = 8 << 20;

/// A node with an origin on one host, two clients on two others.
struct World {
    clients: [Host; 2],
    wire: Wire,
    /// Held so that the network exists as long as the world.
    _network: Network,
    origin: Origin,
    node: levada_node::Running,
}

/// Runs `test` in a world whose node gives up after `retries`.
fn in_world(retries: Option<u8>, test: impl AsyncFnOnce(&World)) {
    if levada_skip::possible(possible()).is_none() {
        return;
    }
    let mut network = Network::new(1);
    let server = network.host("server").unwrap();
    let clients = ["a", "b"].map(|name| network.host(name).unwrap());
    // Fast enough for a test, slow enough that a download does not end before the test disturbs it.
    let shape = Shape { rate: Some(100_000_000), queue: 100, ..Shape::default() };
    let wire = network.join(&[
        (&server, Access::at(NODE).sending(shape)),
        (&clients[0], Access::at(Ipv4Addr::new(10, 0, 0, 2))),
        (&clients[1], Access::at(Ipv4Addr::new(10, 0, 0, 3))),
    ]);
    let wire = wire.unwrap();
    // The test and its runtime run on this thread: sockets that it opens are on the server.
    server.namespace().enter().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let origin = Origin::start().await;
        origin.on("/body", Reply::cached(vec![7; BODY]).with("etag", "\"v1\""));
        let mut settings = single(&[origin.address]);
        let listener = Listener::plain(SocketAddr::from((NODE, 0)));
        settings.listeners = vec![Listener { dormant_retries: retries, ..listener }];
        let node = start(settings).await;
        let world = World { clients, wire, _network: network, origin, node };
        test(&world).await;
    });
}

impl World {
    /// A connection of the `index`-th client that has sent `head`. Blocking, for threads of its own.
    fn ask(&self, index: usize, head: String) -> TcpStream {
        let at = self.node.addresses.clients[0];
        let connect = || TcpStream::connect(at).unwrap();
        let mut stream = self.clients[index].namespace().run(connect).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    fn cut(&self, index: usize, cut: bool) {
        self.wire.up(index + 1).cut(cut);
    }

    /// The number of connections given up as dormant.
    async fn dormant(&self) -> usize {
        let page = nodes::admin(&self.node, "/metrics").await.text();
        let series = "levada_connections_ended_total{reason=\"dormant\"} ";
        page.lines().find_map(|line| line.strip_prefix(series)?.parse().ok()).unwrap_or(0)
    }

    async fn until_dormant(&self, count: usize) {
        while self.dormant().await < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Reads `length` bytes, or to the end, on a thread of its own. Returns how it ended.
async fn read(mut stream: TcpStream, length: usize) -> (TcpStream, usize, Option<ErrorKind>) {
    let reading = move || {
        let (mut buffer, mut read) = (vec![0; 64 << 10], 0);
        while read < length {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(error) => return (stream, read, Some(error.kind())),
            }
        }
        (stream, read, None)
    };
    within(tokio::task::spawn_blocking(reading)).await.unwrap()
}

/// A client in the middle of a download that it goes on reading.
async fn download(world: &World, index: usize) -> Download {
    let stream = world.ask(index, head_of("GET", "/body", &[("Connection", "close")]));
    let (stream, ..) = read(stream, 1000).await;
    Box::pin(read(stream, usize::MAX))
}

type Download = std::pin::Pin<Box<dyn Future<Output = (TcpStream, usize, Option<ErrorKind>)>>>;

#[test]
fn a_client_that_stops_to_acknowledge_is_given_up_and_told() {
    for retries in [0, 1] {
        in_world(Some(retries), async |world| {
            let download = download(world, 0).await;
            world.cut(0, true);
            let ((_, read, end), ()) = tokio::join!(download, within(world.until_dormant(1)));
            settled(&world.node).await;
            assert!(read < BODY, "{read}");
            assert_eq!(end, Some(ErrorKind::ConnectionReset), "{retries} retries");
        });
    }
}

#[test]
fn a_client_that_vanishes_with_its_window_closed_is_given_up_as_well() {
    in_world(Some(0), async |world| {
        // The client does not read.
        let _stream = world.ask(0, head_of("GET", "/body", &[]));
        let sent = &world.wire.down(1).bytes;
        let mut before = u64::MAX;
        while before != sent.load(Relaxed) || before == 0 {
            before = sent.load(Relaxed);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        world.cut(0, true);
        within(world.until_dormant(1)).await;
        settled(&world.node).await;
    });
}

#[test]
fn slow_readers_and_idle_connections_are_left_alone() {
    in_world(Some(0), async |world| {
        let slow = world.ask(1, head_of("GET", "/body", &[]));
        let idle = world.ask(1, head_of("GET", "/small", &[]));
        let (mut idle, ..) = read(idle, 1).await;
        // Twice the time after which a lost client is given up, by its own clock.
        for gone in 1..=2 {
            let download = download(world, 0).await;
            world.cut(0, true);
            tokio::join!(download, within(world.until_dormant(gone)));
            world.cut(0, false);
        }
        let (_, count, end) = read(slow, BODY).await;
        assert!(count >= BODY, "{count} {end:?}");
        idle.write_all(head_of("GET", "/small", &[]).as_bytes()).unwrap();
        let (.., end) = read(idle, 1).await;
        assert_eq!(end, None);
        assert_eq!(world.dormant().await, 2);
    });
}

#[test]
fn who_comes_back_for_the_rest_was_given_up_too_early() {
    in_world(Some(0), async |world| {
        let download = download(world, 0).await;
        world.cut(0, true);
        tokio::join!(download, within(world.until_dormant(1)));
        world.cut(0, false);
        let again = world.ask(0, head_of("GET", "/body", &[("Range", "bytes=1000-")]));
        let (_again, ..) = read(again, 1000).await;
        assert_eq!(nodes::metric(&world.node, "levada_dormant_returned_total").await, 1.0);
        assert_eq!(world.origin.hits("/body"), 1);
    });
}

#[test]
fn switched_off_it_waits_for_the_client() {
    in_world(None, async |world| {
        let download = download(world, 0).await;
        world.cut(0, true);
        let mend = async {
            // Longer than any retransmission timeout.
            tokio::time::sleep(Duration::from_secs(1)).await;
            world.cut(0, false);
        };
        let ((_, rest, end), ()) = tokio::join!(download, mend);
        assert_eq!((end, world.dormant().await), (None, 0), "{rest}");
    });
}
