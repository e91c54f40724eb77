//! Every kind of path with every kind of exchange, over both versions of IP, each handed off.

use levada_net::tcp::TcpInfo;

use super::{paths::OUTER, *};

/// A path between the client and the router, and what the client's TCP does without.
struct PathKind {
    name: &'static str,
    client: &'static [(&'static str, &'static str)],
    mtu: u16,
}

const PLAIN: PathKind = PathKind { name: "plain", client: &[], mtu: 1500 };
const SCALING: (&str, &str) = ("net.ipv4.tcp_window_scaling", "0");
const TIMESTAMPS: (&str, &str) = ("net.ipv4.tcp_timestamps", "0");
const SACK: (&str, &str) = ("net.ipv4.tcp_sack", "0");

const KINDS: [PathKind; 8] = [
    PLAIN,
    PathKind { name: "MTU 1280", mtu: 1280, ..PLAIN },
    PathKind { name: "MTU 1400", mtu: 1400, ..PLAIN },
    PathKind { name: "no scaling", client: &[SCALING], ..PLAIN },
    PathKind { name: "no timestamps", client: &[TIMESTAMPS], ..PLAIN },
    PathKind { name: "no SACK", client: &[SACK], ..PLAIN },
    PathKind { name: "no options", client: &[SCALING, TIMESTAMPS, SACK], ..PLAIN },
    PathKind { name: "no options, MTU 1280", client: &[SCALING, TIMESTAMPS, SACK], mtu: 1280 },
];

#[test]
fn every_exchange_is_handed_off_on_every_path() {
    let Some(mut cluster) = Cluster::of_both("stay") else { return };
    for PathKind { name, client, mtu } in KINDS {
        for (setting, _) in [SCALING, TIMESTAMPS, SACK] {
            cluster.client.set(setting, "1").unwrap();
        }
        client.iter().for_each(|(setting, value)| cluster.client.set(setting, value).unwrap());
        cluster.router.ip(&[&format!("link set {OUTER} mtu {mtu}")]).unwrap();
        // The client sends as the link permits, and promises to receive more, as from behind a tunnel.
        for (router, largest) in [("10.0.1.1", 1460), ("fd00:0:0:1::1", 1440)] {
            let route = format!("route change default via {router} mtu {mtu} advmss {largest}");
            cluster.client.ip(&[&route]).unwrap();
        }
        cluster.exchanges(name);
    }
}

#[test]
fn every_exchange_is_handed_off_over_links_that_lose_reorder_or_repeat_packets() {
    let reordering = Shape { reordering: 0.05, queue: 1000, ..Shape::default() };
    let losing = Shape { loss: 0.01, queue: 1000, ..Shape::default() };
    let both = Shape { loss: 0.01, ..reordering };
    let copies = Shape { duplicates: 0.1, queue: 1000, ..Shape::default() };
    let delay = Duration::from_millis(5);
    let shapes = [
        ("reordering 5 %", reordering),
        ("loss 1 %", losing),
        ("both", both),
        ("late copies 10 %", copies),
    ];
    for (name, shape) in shapes {
        let Some(cluster) = Cluster::bare_behind(Some(Shape { delay, ..shape })) else { return };
        let Some(mut cluster) = cluster.with_both("stay") else { return };
        cluster.exchanges(name);
    }
}

impl Cluster {
    fn exchanges(&mut self, name: &str) {
        for service in [SocketAddr::new(SERVICE.into(), 80), ipv6::SERVICE6] {
            self.service = service;
            let before = self.handed();
            let version = if service.is_ipv4() { "IPv4" } else { "IPv6" };
            self.downloads();
            assert!(self.echoes(200_000), "{name}, {version}: POST");
            self.keeps_alive();
            self.closes_its_window();
            self.aborts();
            let start = Instant::now();
            while self.handed() < before + 5 {
                assert!(
                    start.elapsed() < TEST_TIMEOUT,
                    "{name}, {version}: not all were handed off"
                );
                thread::sleep(Duration::from_millis(10));
            }
            println!("{name:20} {version}: GET, POST, kept alive, closed window, abort");
        }
    }

    fn downloads(&self) {
        let file = self.path("body");
        assert!(self.curl(&["-sS", "-o", &file, "http://back0.test/300000"]).0);
        assert!(is_same(&file, 300_000));
    }

    fn keeps_alive(&self) {
        let requests = [("back0.test", 100_000), ("back0.test", 0), ("back0.test", 50_000)];
        assert_eq!(answered(self, &requests), ["back0"; 3]);
    }

    /// The client takes nothing until its window is closed, and then all.
    fn closes_its_window(&self) {
        const SIZE: usize = 8_000_000;
        let mut stream = self.connect();
        write!(stream, "GET /{SIZE} HTTP/1.1\r\nHost: back0.test\r\nConnection: close\r\n\r\n")
            .unwrap();
        let (start, mut last) = (Instant::now(), None);
        // Nothing more arrives when the window is closed.
        loop {
            let came = rustix::io::ioctl_fionread(&stream).unwrap();
            if came > 0 && last == Some(came) {
                break;
            }
            assert!(start.elapsed() < TEST_TIMEOUT);
            last = Some(came);
            thread::sleep(Duration::from_millis(400));
        }
        assert!(TcpInfo::of(&stream).is_ok_and(|info| !info.closed));
        assert!(response(&mut BufReader::new(stream)).1 == content(SIZE));
    }

    fn aborts(&self) {
        let mut stream = self.connect();
        stream.write_all(b"GET /20000000 HTTP/1.1\r\nHost: back0.test\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 1000]).unwrap();
        drop(stream);
        let start = Instant::now();
        while self.metric("levada_handed_over") > 0 {
            assert!(start.elapsed() < TEST_TIMEOUT, "it is still counted");
            thread::sleep(Duration::from_millis(20));
        }
    }
}
