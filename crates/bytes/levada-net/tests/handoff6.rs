//! Connections over IPv6 that move between hosts while their client uses them. These tests need
//! root on Linux and are skipped elsewhere.
#![cfg(target_os = "linux")]

mod support;

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    time::Instant,
};

use levada_net::{
    bpf::{Guard, Hop, Steering},
    handoff::Connection,
    lab::{LabCluster, possible},
    tcp::TcpInfo,
};

use support::{TEST_TIMEOUT, on, restore, take};

const SERVICE: SocketAddr = SocketAddr::new(IpAddr::V6(LabCluster::SERVICE6), 80);
const BACKS: [Ipv6Addr; 2] = [LabCluster::back6(0), LabCluster::back6(1)];
/// The steering front-end and the guards of the back-ends of a cluster, and a connection to the
/// front-end.
struct World {
    steering: Steering,
    guards: Vec<Guard>,
    listener: TcpListener,
    client: TcpStream,
    front: Option<TcpStream>,
    cluster: LabCluster,
}

impl World {
    /// `None` if networks are not possible here.
    fn new() -> Option<Self> {
        levada_skip::possible(possible())?;
        let cluster = LabCluster::new(2).unwrap();
        let devices = [LabCluster::DEVICE.to_owned()];
        let steering = on(&cluster.front, || Steering::start(&devices, 1000).unwrap());
        let guard = |back| on(back, || Guard::start(LabCluster::DEVICE, &[SERVICE]).unwrap());
        let guards = cluster.backs.iter().map(guard).collect();
        let listener = on(&cluster.front, || TcpListener::bind(SERVICE).unwrap());
        let client = on(&cluster.client, || TcpStream::connect(SERVICE).unwrap());
        client.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let front = Some(listener.accept().unwrap().0);
        Some(Self { steering, guards, listener, client, front, cluster })
    }

    fn from(&self) -> SocketAddr {
        self.client.local_addr().unwrap()
    }

    fn hop(&self, to: usize) -> Hop {
        on(&self.cluster.front, || Steering::hop([BACKS[to].into()]).unwrap())
    }

    fn take(&self, stream: TcpStream) -> Connection {
        take(&self.steering, stream)
    }

    fn restore(&self, at: usize, connection: &Connection) -> TcpStream {
        restore(&self.cluster.backs[at], connection)
    }
}

#[test]
fn a_connection_over_ipv6_goes_on_at_a_back_end_and_at_another() {
    let Some(mut world) = World::new() else { return };
    let mut front = world.front.take().unwrap();
    world.client.write_all(b"first").unwrap();
    front.read_exact(&mut [0; 5]).unwrap();
    let [first, second] = [world.hop(0), world.hop(1)];
    let steered = world.steering.steer(SERVICE, world.from(), first).unwrap();
    let segment = TcpInfo::of(&front).unwrap().segment;
    let connection = world.take(front);
    assert_eq!((connection.service, connection.client), (SERVICE, world.from()));
    assert!(world.steering.steers(&connection).unwrap());
    let mut back = world.restore(0, &connection);
    assert_eq!(TcpInfo::of(&back).unwrap().segment, segment);

    // More than any window, so that acknowledgements must reach the back-end.
    let body: Vec<u8> = (0..5_000_000u32).map(|n| (n % 251) as u8).collect();
    let mut received = vec![0; body.len()];
    std::thread::scope(|scope| {
        scope.spawn(|| back.write_all(&body).unwrap());
        world.client.read_exact(&mut received).unwrap();
    });
    assert!(received == body);
    let answered =
        || steered.acknowledged().unwrap().map(|to| to.wrapping_sub(connection.send_next));
    let begun = Instant::now();
    while answered() != Some(body.len() as u32) {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{:?}", answered());
    }

    world.client.write_all(b"second").unwrap();
    back.read_exact(&mut [0; 6]).unwrap();
    steered.turn(second).unwrap();
    let connection = world.take(back);
    let mut back = world.restore(1, &connection);
    back.write_all(b"answer").unwrap();
    world.client.read_exact(&mut received[..6]).unwrap();
    assert_eq!(&received[..6], b"answer");
    drop(back);
    assert_eq!(world.client.read(&mut [0]).unwrap(), 0, "the end comes from there, too");
    drop(steered);
    assert!(!world.steering.steers(&connection).unwrap());
    world.guards.clear();
}

#[test]
fn what_is_sent_over_ipv6_while_a_connection_moves_is_not_answered_by_a_reset() {
    let Some(mut world) = World::new() else { return };
    // Another server on the back-end listens on all addresses.
    let _other = on(&world.cluster.backs[0], || TcpListener::bind("[::]:80").unwrap());
    let front = world.front.take().unwrap();
    let _steered = world.steering.steer(SERVICE, world.from(), world.hop(0)).unwrap();
    let connection = world.take(front);
    world.client.write_all(b"early").unwrap();
    // The data was retransmitted at least once.
    while TcpInfo::of(&world.client).unwrap().retransmitted == 0 {
        std::thread::yield_now();
    }
    let mut word = [0; 5];
    world.restore(0, &connection).read_exact(&mut word).unwrap();
    assert_eq!(&word, b"early");
}

#[test]
fn a_client_that_begins_anew_over_ipv6_is_steered_no_more() {
    let Some(world) = World::new() else { return };
    let from = SocketAddr::new(LabCluster::CLIENT6.into(), 40_000);
    let old = world.steering.steer(SERVICE, from, world.hop(0)).unwrap();
    let mut client = on(&world.cluster.client, || {
        let socket = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        socket.bind(&from.into()).unwrap();
        socket.connect(&SERVICE.into()).unwrap();
        TcpStream::from(socket)
    });
    let (mut front, _) = world.listener.accept().unwrap();
    client.write_all(b"new").unwrap();
    front.read_exact(&mut [0; 3]).unwrap();
    // The end of the old connection does not end the steering of the new one.
    let new = world.steering.steer(SERVICE, from, world.hop(1)).unwrap();
    assert!(old.turn(world.hop(1)).is_err());
    drop(old);
    let connection = world.take(front);
    assert!(world.steering.steers(&connection).unwrap());
    drop(new);
    assert!(!world.steering.steers(&connection).unwrap());
}

#[test]
fn a_hop_has_an_address_of_the_version_that_it_is_sent() {
    let Some(world) = World::new() else { return };
    let four = on(&world.cluster.front, || Steering::hop([LabCluster::back(0).into()]).unwrap());
    let error = world.steering.steer(SERVICE, world.from(), four).err().unwrap();
    assert!(error.to_string().contains("no address of IPv6"), "{error}");
    let far = on(&world.cluster.front, || Steering::hop([LabCluster::CLIENT6.into()]).unwrap_err());
    assert!(far.to_string().contains("behind the router fd00:0:0:2::254"), "{far}");
}
