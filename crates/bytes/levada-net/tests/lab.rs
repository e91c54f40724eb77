//! Hosts and wires in use. These tests need root on Linux and are skipped elsewhere.
#![cfg(target_os = "linux")]

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    process::{Command, Stdio},
    sync::atomic::Ordering::{Acquire, Relaxed},
    time::{Duration, Instant},
};

use levada_net::{
    lab::{self, Access, Child, Host, Network},
    wire::Shape,
};

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const C: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));

/// Whether networks are possible here.
fn possible() -> bool {
    levada_skip::possible(lab::possible()).is_some()
}

fn listen(host: &Host, address: IpAddr) -> (TcpListener, u16) {
    let listener = host.namespace().run(|| TcpListener::bind((address, 0))).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn connect(host: &Host, address: IpAddr, port: u16) -> TcpStream {
    host.namespace().run(|| TcpStream::connect((address, port))).unwrap().unwrap()
}

#[test]
fn a_cable_carries_whole_transfers_and_takes_its_time() {
    if !possible() {
        return;
    }
    let mut network = Network::new(1);
    let [a, b] = ["a", "b"].map(|name| network.host(name).unwrap());
    let delay = Duration::from_millis(10);
    let shape = Shape { delay, loss: 0.02, rate: Some(20_000_000), queue: 100, ..Shape::default() };
    let wire = network
        .join(&[(&a, Access::at(A).sending(shape)), (&b, Access::at(B).sending(shape))])
        .unwrap();
    let (listener, port) = listen(&a, A);
    let sent: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    let body = sent.clone();
    let server = std::thread::spawn(move || listener.accept().unwrap().0.write_all(&body).unwrap());
    let start = Instant::now();
    let mut client = connect(&b, A, port);
    assert!(start.elapsed() >= 2 * delay, "a handshake takes a round trip");
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    server.join().unwrap();
    assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
    assert!(wire.up(0).lost.load(Relaxed) > 0, "2 % of some 200 packets");
}

#[test]
fn a_switch_takes_packets_to_their_addresses_only() {
    if !possible() {
        return;
    }
    let mut network = Network::new(1);
    let hosts = ["a", "b", "c"].map(|name| network.host(name).unwrap());
    let ends: Vec<_> = hosts.iter().zip([A, B, C]).map(|(h, a)| (h, Access::at(a))).collect();
    let wire = network.join(&ends).unwrap();
    let (listener, port) = listen(&hosts[0], A);
    drop(connect(&hosts[1], A, port));
    drop(connect(&hosts[2], A, port));
    let from = [(); 2].map(|()| listener.accept().unwrap().1.ip());
    assert_eq!(from, [B, C]);
    let at_c = wire.down(2).packets.load(Relaxed);
    drop(connect(&hosts[1], A, port));
    assert!(listener.accept().is_ok());
    assert!(wire.down(2).packets.load(Relaxed) <= at_c + 2, "only the packets of C's own close");
}

#[test]
fn a_cut_direction_is_silent_until_it_is_mended() {
    if !possible() {
        return;
    }
    let mut network = Network::new(1);
    let [a, b] = ["a", "b"].map(|name| network.host(name).unwrap());
    let wire = network.join(&[(&a, Access::at(A)), (&b, Access::at(B))]).unwrap();
    let [at_a, at_b] = [(&a, A), (&b, B)].map(|(host, address)| {
        host.namespace().run(|| UdpSocket::bind((address, 4000))).unwrap().unwrap()
    });
    wire.up(1).cut(true);
    at_b.send_to(b"lost", (A, 4000)).unwrap();
    while wire.up(1).packets.load(Acquire) == 0 {
        std::thread::yield_now();
    }
    wire.up(1).cut(false);
    at_b.send_to(b"heard", (A, 4000)).unwrap();
    let mut word = [0; 16];
    let length = at_a.recv(&mut word).unwrap();
    assert_eq!(&word[..length], b"heard");
}

/// The process ID that a program prints first.
fn printed_pid(child: &mut Child) -> String {
    let mut line = [0; 16];
    let length = child.process.stdout.as_mut().unwrap().read(&mut line).unwrap();
    std::str::from_utf8(&line[..length]).unwrap().trim().to_owned()
}

/// Waits until a killed process has disappeared, or waits for its parent.
fn await_end(pid: &str) {
    let status = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !status().is_empty() && !status().contains(") Z ") {
        assert!(Instant::now() < deadline, "it still runs: {}", status());
        std::thread::yield_now();
    }
}

#[test]
fn programs_do_not_outlive_their_network() {
    if !possible() {
        return;
    }
    let network = Network::new(1);
    let host = network.host("a").unwrap();
    let mut shell = Command::new("sh");
    // The grandchild has its own session, so neither the child's end nor its group's ends it.
    shell.args(["-c", "setsid sh -c 'echo $$; exec sleep 1000'"]).stdout(Stdio::piped());
    let mut child = host.start(shell).unwrap();
    let pid = printed_pid(&mut child);
    drop(child);
    drop(network);
    await_end(&pid);
}

#[test]
fn a_program_that_executes_another_one_does_not_outlive_its_network() {
    if !possible() {
        return;
    }
    let network = Network::new(1);
    let host = network.host("a").unwrap();
    // The environment of each reads as empty for a part of the time, so there are many.
    let start = |_| {
        let mut shell = Command::new("setsid");
        let again = r#"[ "$1" ] || echo $$; exec sh -c "$0" "$0" again"#;
        shell.args(["--fork", "sh", "-c", again, again]).stdout(Stdio::piped());
        printed_pid(&mut host.start(shell).unwrap())
    };
    let pids: Vec<_> = (0..40).map(start).collect();
    drop(network);
    pids.iter().for_each(|pid| await_end(pid));
}

#[test]
fn what_a_host_is_told_wrongly_is_an_error_with_its_reason() {
    if !possible() {
        return;
    }
    let network = Network::new(1);
    let host = network.host("a").unwrap();
    let refused = host.ip(&["route add default via 10.1.1.1"]).unwrap_err();
    assert!(refused.to_string().starts_with("`ip` refused to set up a: "), "{refused}");
    let setting = host.set("net.ipv4.tcp_congestion_control", "magic").unwrap_err();
    assert!(setting.to_string().contains("magic"), "{setting}");
    let program = host.start(Command::new("no-such-program")).err().unwrap();
    assert!(program.to_string().contains("no-such-program"), "{program}");
}
