//! Connections that move between hosts while their client uses them. These tests need root on Linux
//! and are skipped elsewhere.
#![cfg(target_os = "linux")]

mod support;

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use levada_net::{
    bpf::{Guard, Hop, Steering, unblock_input},
    handoff,
    lab::{Host, LabCluster, possible},
    tcp::TcpInfo,
};

use support::{TEST_TIMEOUT, on, restore, restore_silently, take};

const SERVICE: SocketAddr = SocketAddr::new(IpAddr::V4(LabCluster::SERVICE), 80);
const BACKS: [Ipv4Addr; 2] = [LabCluster::back(0), LabCluster::back(1)];
/// `None` if networks are not possible here.
fn cluster() -> Option<LabCluster> {
    levada_skip::possible(possible())?;
    Some(LabCluster::new(2).unwrap())
}

/// A connection, as the client and the front-end see it.
fn connect(cluster: &LabCluster, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = on(&cluster.client, || TcpStream::connect(SERVICE).unwrap());
    client.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    (client, listener.accept().unwrap().0)
}

/// A client's connection from this address.
fn connect_from(cluster: &LabCluster, from: SocketAddr) -> TcpStream {
    on(&cluster.client, || {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        socket.bind(&from.into()).unwrap();
        socket.connect(&SERVICE.into()).unwrap();
        TcpStream::from(socket)
    })
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
    on(front, || Steering::hop([to.into()]).unwrap())
}

#[test]
fn a_connection_goes_on_at_a_back_end_and_at_another() {
    let Some(cluster) = cluster() else { return };
    let steering = steering(&cluster.front);
    let guards: Vec<Guard> = cluster.backs.iter().map(guard).collect();
    let listener = listen(&cluster.front);
    let (mut client, mut front) = connect(&cluster, &listener);
    client.write_all(b"first").unwrap();
    front.read_exact(&mut [0; 5]).unwrap();

    let [first, second] = BACKS.map(|back| hop(&cluster.front, back));
    let from = address_of(&client);
    let steered = steering.steer(SERVICE, from, first).unwrap();
    let segment = TcpInfo::of(&front).unwrap().segment;
    let connection = take(&steering, front);
    assert_eq!((connection.service, connection.client), (SERVICE, from));
    assert!(steering.steers(&connection).unwrap());
    let mut back = restore(&cluster.backs[0], &connection);
    assert_eq!(TcpInfo::of(&back).unwrap().segment, segment);

    // More than any window, so that acknowledgements must reach the back-end.
    let body: Vec<u8> = (0..5_000_000u32).map(|n| (n % 251) as u8).collect();
    let mut received = vec![0; body.len()];
    std::thread::scope(|scope| {
        scope.spawn(|| back.write_all(&body).unwrap());
        client.read_exact(&mut received).unwrap();
    });
    assert!(received == body);
    // The steering front-end learns from the client's acknowledgements how much was answered.
    let answered =
        || steered.acknowledged().unwrap().map(|to| to.wrapping_sub(connection.send_next));
    let begun = Instant::now();
    while answered() != Some(body.len() as u32) {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{:?}", answered());
    }

    // The next data arrives at the back-end that has the connection; then it moves to the other
    // one.
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

/// Waits until data was retransmitted at least once.
fn wait_for_retransmission(client: &TcpStream) {
    let begun = Instant::now();
    while TcpInfo::of(client).unwrap().retransmitted == 0 {
        assert!(begun.elapsed() < TEST_TIMEOUT, "the data is acknowledged");
        std::thread::yield_now();
    }
}

#[test]
fn what_is_sent_while_a_connection_moves_is_not_answered_by_a_reset() {
    let Some(cluster) = cluster() else { return };
    let (steering, _guard) = (steering(&cluster.front), guard(&cluster.backs[0]));
    let listener = listen(&cluster.front);
    // Another server on the back-end listens on all addresses.
    let _other = on(&cluster.backs[0], || TcpListener::bind("0.0.0.0:80").unwrap());
    let (mut client, front) = connect(&cluster, &listener);
    let to = hop(&cluster.front, BACKS[0]);
    let _steered = steering.steer(SERVICE, address_of(&client), to).unwrap();
    let connection = take(&steering, front);
    client.write_all(b"early").unwrap();
    wait_for_retransmission(&client);
    let mut back = restore(&cluster.backs[0], &connection);
    let mut word = [0; 5];
    back.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"early");
}

#[test]
fn a_handoff_is_undone_with_the_kept_state() {
    let Some(cluster) = cluster() else { return };
    // Without a guard, the back-end's system answers a segment that arrives after the drop below by a reset.
    let (steering, _guard) = (steering(&cluster.front), guard(&cluster.backs[0]));
    let listener = listen(&cluster.front);
    let (mut client, front) = connect(&cluster, &listener);
    let to = hop(&cluster.front, BACKS[0]);
    let steered = steering.steer(SERVICE, address_of(&client), to).unwrap();
    let connection = take(&steering, front);
    // The back-end restores it, sends nothing, and goes. What comes meanwhile is not acknowledged.
    let back = restore_silently(&cluster.backs[0], &connection);
    client.write_all(b"early").unwrap();
    wait_for_retransmission(&client);
    drop(back);
    let mut front = restore(&cluster.front, &connection);
    drop(steered);
    front.read_exact(&mut [0; 5]).unwrap();
    front.write_all(b"here").unwrap();
    let mut word = [0; 4];
    client.read_exact(&mut word).unwrap();
    client.write_all(b"well").unwrap();
    front.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"well");
}

#[test]
fn a_connection_that_cannot_be_moved_stays() {
    let Some(cluster) = cluster() else { return };
    let steering = steering(&cluster.front);
    let listener = listen(&cluster.front);
    let (mut client, mut front) = connect(&cluster, &listener);
    client.write_all(b"unread").unwrap();
    front.peek(&mut [0; 6]).unwrap();
    steering.input_blocker().block_input(&front).unwrap();
    let error = handoff::extract(&front, handoff::ends(&front).unwrap(), None).unwrap_err();
    assert!(error.to_string().contains("not read"), "{error}");
    unblock_input(&front).unwrap();
    front.read_exact(&mut [0; 6]).unwrap();
    front.write_all(b"answer").unwrap();
    client.read_exact(&mut [0; 6]).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(front.read(&mut [0]).unwrap(), 0);
    assert!(
        handoff::extract(&front, handoff::ends(&front).unwrap(), None).is_err(),
        "half of it has ended"
    );
    front.write_all(b"more").unwrap();
    client.read_exact(&mut [0; 4]).unwrap();
}

#[test]
fn a_client_that_begins_anew_is_steered_no_more() {
    let Some(cluster) = cluster() else { return };
    let steering = steering(&cluster.front);
    let listener = listen(&cluster.front);
    let from = SocketAddr::new(LabCluster::CLIENT.into(), 40_000);
    let steered = steering.steer(SERVICE, from, hop(&cluster.front, BACKS[0])).unwrap();
    let mut client = connect_from(&cluster, from);
    let (mut front, _) = listener.accept().unwrap();
    client.write_all(b"new").unwrap();
    front.read_exact(&mut [0; 3]).unwrap();
    drop(steered);
}

#[test]
fn the_end_of_an_old_connection_does_not_end_the_steering_of_a_new_one() {
    let Some(cluster) = cluster() else { return };
    let steering = steering(&cluster.front);
    let listener = listen(&cluster.front);
    let (client, front) = connect(&cluster, &listener);
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
fn two_front_ends_steer_at_a_device_each_its_own_connections() {
    let Some(cluster) = cluster() else { return };
    let start = || on(&cluster.front, || Steering::start(&["eth0".to_owned()], 10));
    let front_ends = [start().unwrap(), start().unwrap()];
    assert!(start().err().unwrap().to_string().contains("two other Levada"));
    let _guards: Vec<Guard> = cluster.backs.iter().map(guard).collect();
    let listener = listen(&cluster.front);
    let mut steered = Vec::new();
    for (at, steering) in front_ends.iter().enumerate() {
        let (client, front) = connect(&cluster, &listener);
        let to = hop(&cluster.front, BACKS[at]);
        let steering_of = steering.steer(SERVICE, address_of(&client), to).unwrap();
        let connection = take(steering, front);
        assert!(!front_ends[1 - at].steers(&connection).unwrap());
        steered.push((client, restore(&cluster.backs[at], &connection), steering_of));
    }
    let mut word = [0; 4];
    for (client, back, _) in &mut steered {
        client.write_all(b"well").unwrap();
        back.read_exact(&mut word).unwrap();
    }
    // A new connection is steered by neither.
    let from = SocketAddr::new(LabCluster::CLIENT.into(), 40_000);
    let to = hop(&cluster.front, BACKS[0]);
    let _both = front_ends.each_ref().map(|one| one.steer(SERVICE, from, to).unwrap());
    let mut client = connect_from(&cluster, from);
    let (mut front, _) = listener.accept().unwrap();
    client.write_all(b"new").unwrap();
    front.read_exact(&mut word[..3]).unwrap();
    // When one has ended, the other goes on, and a third one begins.
    let [first, _second] = front_ends;
    let (client, back, _steered) = steered.pop().unwrap();
    drop((first, steered));
    // A program that another test starts at this moment has copies of this one's sockets for an instant.
    let begun = Instant::now();
    while let Err(error) = start() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{error}");
        std::thread::sleep(Duration::from_millis(10));
    }
    let (mut client, mut back) = (client, back);
    back.write_all(b"here").unwrap();
    client.read_exact(&mut word).unwrap();
    client.write_all(b"well").unwrap();
    back.read_exact(&mut word).unwrap();
}

#[test]
fn only_neighbours_are_hops() {
    let Some(cluster) = cluster() else { return };
    let far = on(&cluster.front, || Steering::hop([LabCluster::CLIENT.into()]).unwrap_err());
    assert!(far.to_string().contains("behind the router 10.0.2.254"), "{far}");
}

fn address_of(client: &TcpStream) -> SocketAddr {
    client.local_addr().unwrap()
}
