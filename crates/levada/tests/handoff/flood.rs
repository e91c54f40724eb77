//! A flood of SYNs from addresses that never answer: the front-end's kernel sends cookies to everybody.

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::*;

/// The network from which the flood seems to come; nothing reaches it.
const NOBODY: [u8; 2] = [10, 66];

/// Sends SYNs until it is over.
fn flood(cluster: &Cluster, is_over: &AtomicBool) {
    let raw = || {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::TCP))?;
        socket.set_header_included_v4(true)?;
        io::Result::Ok(socket)
    };
    let socket = cluster.client.namespace().run(raw).unwrap().unwrap();
    let to = SockAddr::from(SocketAddr::new(SERVICE.into(), 80));
    let mut number = 0u32;
    while !is_over.load(Relaxed) {
        for _ in 0..20 {
            number = number.wrapping_add(0x9e37_79b9);
            let [high, low, port @ ..] = number.to_be_bytes();
            let from = Ipv4Addr::new(NOBODY[0], NOBODY[1], high, low);
            let _ = socket.send_to(&syn(from, u16::from_be_bytes(port) | 1024, number), &to);
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// An IPv4 packet with a SYN; the kernel adds the sum of its outer header.
fn syn(from: Ipv4Addr, port: u16, sequence: u32) -> [u8; 40] {
    let mut packet = [0; 40];
    packet[..10].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6]);
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&SERVICE.octets());
    packet[20..22].copy_from_slice(&port.to_be_bytes());
    packet[22..24].copy_from_slice(&80u16.to_be_bytes());
    packet[24..28].copy_from_slice(&sequence.to_be_bytes());
    // Five words, SYN, and a window.
    packet[32..36].copy_from_slice(&[0x50, 0x02, 0xff, 0xff]);
    let pseudo: u32 = 6 + 20;
    let words = packet[12..].chunks_exact(2);
    let sum = words.fold(pseudo, |sum, word| sum + u32::from(word[0]) * 256 + u32::from(word[1]));
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[36..38].copy_from_slice(&sum.to_be_bytes());
    packet
}

#[test]
fn clients_are_handed_off_within_a_flood_of_syns() {
    let Some(mut cluster) = Cluster::bare() else { return };
    // So that a small flood fills the queue.
    cluster.front.set("net.core.somaxconn", "64").unwrap();
    let [high, low] = NOBODY;
    cluster.router.ip(&[&format!("route add blackhole {high}.{low}.0.0/16")]).unwrap();
    cluster.start_back(0, 8080);
    cluster.wait_until_it_listens(0);
    cluster.start_front("stay");
    cluster.wait_until_handed_to(0);
    let file = cluster.path("body");
    let cookies = || Cluster::counted(&cluster.front, "TcpExt", "SyncookiesRecv");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = load::Ends(&is_over);
        scope.spawn(|| flood(&cluster, &is_over));
        let start = Instant::now();
        while Cluster::counted(&cluster.front, "TcpExt", "SyncookiesSent") == 0 {
            assert!(start.elapsed() < TEST_TIMEOUT, "the flood fills no queue");
            thread::sleep(Duration::from_millis(10));
        }
        for timestamps in ["1", "0"] {
            cluster.client.set("net.ipv4.tcp_timestamps", timestamps).unwrap();
            let (before, proven) = (cluster.handed(), cookies());
            for _ in 0..10 {
                let (good, _) = cluster.curl(&["-sS", "-o", &file, "http://back0.test/300000"]);
                assert!(good && is_same(&file, 300_000));
                assert!(cluster.echoes(100_000));
                let requests = [("back0.test", 100_000), ("back0.test", 0), ("back0.test", 5000)];
                assert_eq!(answered(&cluster, &requests), ["back0"; 3]);
            }
            assert!(cookies() > proven, "no client came by a cookie");
            let start = Instant::now();
            while cluster.handed() < before + 30 {
                assert!(start.elapsed() < TEST_TIMEOUT, "not all were handed off");
                thread::sleep(Duration::from_millis(10));
            }
        }
    });
}
