//! Connections that move between hosts while their client uses them. As root on Linux; skipped
//! elsewhere.
#![cfg(target_os = "linux")]

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream},
    time::Duration,
};

use levada_net::{
    bpf::{Guard, Hop, Steering, undeafen},
    handoff::{self, Connection},
    lab::{self, Ethernet, Host, LabError, Network},
};

const SERVICE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 9, 9, 9), 80);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
const FRONT: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 1);
const BACKS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 2, 11), Ipv4Addr::new(10, 0, 2, 12)];
/// Longer than any wait here.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client behind a router; a front-end and two back-ends, which all have the service's address.
struct Cluster {
    client: Host,
    front: Host,
    backs: [Host; 2],
    _router: Host,
    _wires: [Ethernet; 2],
    _network: Network,
}

impl Cluster {
    /// `None` where there can be none, which is said.
    fn new() -> Option<Self> {
        match lab::possible() {
            Ok(()) => {}
            Err(why @ (LabError::NotRoot | LabError::Tun(_) | LabError::Ip(_))) => {
                eprintln!("skipped: {why}");
                return None;
            }
            Err(other) => panic!("{other}"),
        }
        let network = Network::new(1);
        let [client, router, front, back1, back2] =
            ["client", "router", "front", "back1", "back2"].map(|name| network.host(name).unwrap());
        let backs = [back1, back2];
        let (near, far) = (Ipv4Addr::new(10, 0, 1, 1), Ipv4Addr::new(10, 0, 2, 254));
        let outer = network.ethernet(&[(&client, "eth0", CLIENT), (&router, "eth0", near)]);
        let inner = network.ethernet(&[
            (&router, "eth1", far),
            (&front, "eth0", FRONT),
            (&backs[0], "eth0", BACKS[0]),
            (&backs[1], "eth0", BACKS[1]),
        ]);
        client.ip(&[&format!("route add default via {near}")]).unwrap();
        router.forward().unwrap();
        router.ip(&[&format!("route add {} via {FRONT}", SERVICE.ip())]).unwrap();
        for host in backs.iter().chain([&front]) {
            let own = format!("addr add {}/32 dev lo", SERVICE.ip());
            host.ip(&[&own, &format!("route add default via {far}")]).unwrap();
        }
        let wires = [outer.unwrap(), inner.unwrap()];
        Some(Self { client, front, backs, _router: router, _wires: wires, _network: network })
    }

    /// A connection, as the client and the front-end have it.
    fn connect(&self, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = on(&self.client, || TcpStream::connect(SERVICE).unwrap());
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        (client, listener.accept().unwrap().0)
    }
}

fn on<T: Send>(host: &Host, work: impl FnOnce() -> T + Send) -> T {
    host.namespace().run(work).unwrap()
}

fn listen(host: &Host) -> TcpListener {
    on(host, || TcpListener::bind(SERVICE).unwrap())
}

fn steering(front: &Host) -> Steering {
    on(front, || Steering::start(&["eth0".to_owned()], 1000).unwrap())
}

fn guard(back: &Host) -> Guard {
    on(back, || Guard::start("eth0", &[SERVICE]).unwrap())
}

fn hop(front: &Host, to: Ipv4Addr) -> Hop {
    on(front, || Steering::hop(to).unwrap())
}

/// Takes a connection from its socket, as a front-end does once its packets are steered.
fn take(steering: &Steering, stream: TcpStream) -> Connection {
    steering.deafen(&stream).unwrap();
    let connection = handoff::extract(&stream).unwrap();
    drop(stream);
    Connection::from_bytes(&connection.to_bytes()).unwrap()
}

fn restore(host: &Host, connection: &Connection) -> TcpStream {
    let stream = on(host, || handoff::restore(connection).unwrap());
    stream.set_nonblocking(false).unwrap();
    handoff::speak(&stream).unwrap();
    stream
}

#[test]
fn a_connection_goes_on_at_a_back_end_and_at_another() {
    let Some(cluster) = Cluster::new() else { return };
    let (steering, guards) = (steering(&cluster.front), cluster.backs.each_ref().map(guard));
    let listener = listen(&cluster.front);
    let (mut client, mut front) = cluster.connect(&listener);
    client.write_all(b"first").unwrap();
    front.read_exact(&mut [0; 5]).unwrap();

    let [first, second] = BACKS.map(|back| hop(&cluster.front, back));
    let from = address_of(&client);
    let steered = steering.steer(SERVICE, from, first).unwrap();
    let connection = take(&steering, front);
    assert_eq!((connection.service, connection.client), (SERVICE, from));
    assert!(steering.steers(&connection).unwrap());
    let mut back = restore(&cluster.backs[0], &connection);

    // More than any window, so that acknowledgements must find their way.
    let body: Vec<u8> = (0..5_000_000u32).map(|n| (n % 251) as u8).collect();
    let mut received = vec![0; body.len()];
    std::thread::scope(|scope| {
        scope.spawn(|| back.write_all(&body).unwrap());
        client.read_exact(&mut received).unwrap();
    });
    assert!(received == body);

    // The next word comes to where the connection is, and takes it to the other one.
    client.write_all(b"second").unwrap();
    back.read_exact(&mut [0; 6]).unwrap();
    steered.turn(second).unwrap();
    let connection = take(&steering, back);
    let mut back = restore(&cluster.backs[1], &connection);
    back.write_all(b"answer").unwrap();
    client.read_exact(&mut received[..6]).unwrap();
    assert_eq!(&received[..6], b"answer");
    drop(back);
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "the end comes from there, too");
    drop(steered);
    assert!(!steering.steers(&connection).unwrap());
    drop(guards);
}

#[test]
fn what_is_sent_while_a_connection_moves_is_not_answered_by_a_reset() {
    let Some(cluster) = Cluster::new() else { return };
    let (steering, _guard) = (steering(&cluster.front), guard(&cluster.backs[0]));
    let listener = listen(&cluster.front);
    // At the back-end, some other server listens on all addresses.
    let _other = on(&cluster.backs[0], || TcpListener::bind("0.0.0.0:80").unwrap());
    let (mut client, front) = cluster.connect(&listener);
    let to = hop(&cluster.front, BACKS[0]);
    let _steered = steering.steer(SERVICE, address_of(&client), to).unwrap();
    let connection = take(&steering, front);
    client.write_all(b"early").unwrap();
    // It has been sent again at least once.
    while levada_net::tcp::TcpInfo::of(&client).unwrap().retransmitted == 0 {
        std::thread::yield_now();
    }
    let mut back = restore(&cluster.backs[0], &connection);
    let mut word = [0; 5];
    back.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"early");
}

#[test]
fn a_handoff_is_undone_by_whoever_kept_the_state() {
    let Some(cluster) = Cluster::new() else { return };
    let steering = steering(&cluster.front);
    let listener = listen(&cluster.front);
    let (mut client, front) = cluster.connect(&listener);
    let to = hop(&cluster.front, BACKS[0]);
    let steered = steering.steer(SERVICE, address_of(&client), to).unwrap();
    let connection = take(&steering, front);
    // The back-end had it, did not speak, and is gone.
    drop(on(&cluster.backs[0], || handoff::restore(&connection).unwrap()));
    let mut front = restore(&cluster.front, &connection);
    drop(steered);
    front.write_all(b"here").unwrap();
    let mut word = [0; 4];
    client.read_exact(&mut word).unwrap();
    client.write_all(b"well").unwrap();
    front.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"well");
}

#[test]
fn a_connection_that_cannot_be_moved_stays() {
    let Some(cluster) = Cluster::new() else { return };
    let steering = steering(&cluster.front);
    let listener = listen(&cluster.front);
    let (mut client, mut front) = cluster.connect(&listener);
    client.write_all(b"unread").unwrap();
    front.peek(&mut [0; 6]).unwrap();
    steering.deafen(&front).unwrap();
    let error = handoff::extract(&front).unwrap_err();
    assert!(error.to_string().contains("not read"), "{error}");
    undeafen(&front).unwrap();
    front.read_exact(&mut [0; 6]).unwrap();
    front.write_all(b"answer").unwrap();
    client.read_exact(&mut [0; 6]).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(front.read(&mut [0]).unwrap(), 0);
    assert!(handoff::extract(&front).is_err(), "half of it has ended");
    front.write_all(b"more").unwrap();
    client.read_exact(&mut [0; 4]).unwrap();
}

#[test]
fn a_client_that_begins_anew_is_steered_no_more() {
    let Some(cluster) = Cluster::new() else { return };
    let steering = steering(&cluster.front);
    let listener = listen(&cluster.front);
    let from = SocketAddrV4::new(CLIENT, 40_000);
    let steered = steering.steer(SERVICE, from, hop(&cluster.front, BACKS[0])).unwrap();
    let mut client = on(&cluster.client, || {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        socket.bind(&from.into()).unwrap();
        socket.connect(&SERVICE.into()).unwrap();
        TcpStream::from(socket)
    });
    let (mut front, _) = listener.accept().unwrap();
    client.write_all(b"new").unwrap();
    front.read_exact(&mut [0; 3]).unwrap();
    drop(steered);
}

#[test]
fn the_end_of_an_old_connection_does_not_end_the_steering_of_a_new_one() {
    let Some(cluster) = Cluster::new() else { return };
    let steering = steering(&cluster.front);
    let listener = listen(&cluster.front);
    let (client, front) = cluster.connect(&listener);
    let to = hop(&cluster.front, BACKS[0]);
    let old = steering.steer(SERVICE, address_of(&client), to).unwrap();
    let new = steering.steer(SERVICE, address_of(&client), to).unwrap();
    let connection = take(&steering, front);
    assert!(old.turn(to).is_err());
    drop(old);
    assert!(steering.steers(&connection).unwrap());
    drop(new);
    assert!(!steering.steers(&connection).unwrap());
}

#[test]
fn one_front_end_steers_at_a_device() {
    let Some(cluster) = Cluster::new() else { return };
    let first = steering(&cluster.front);
    let start = || on(&cluster.front, || Steering::start(&["eth0".to_owned()], 10).map(drop));
    assert!(start().unwrap_err().to_string().contains("another Levada"));
    drop(first);
    start().unwrap();
}

#[test]
fn only_neighbours_are_hops() {
    let Some(cluster) = Cluster::new() else { return };
    let far = on(&cluster.front, || Steering::hop(CLIENT).unwrap_err());
    assert!(far.to_string().contains("behind the router 10.0.2.254"), "{far}");
}

fn address_of(client: &TcpStream) -> SocketAddrV4 {
    match client.local_addr().unwrap() {
        std::net::SocketAddr::V4(address) => address,
        other => panic!("{other}"),
    }
}
