//! Paths between clients and back-ends that differ from the lab's plain one: TCP options that the client does
//! without, links with a small MTU, slow links, and clients that vanish.

use super::*;

/// The router's device towards clients.
pub(super) const OUTER: &str = "eth0";

impl Cluster {
    /// Runs `tc` at the router.
    fn shape(&self, words: &str) {
        let run = || Command::new("tc").args(words.split(' ')).status().unwrap().success();
        assert!(self.router.namespace().run(run).unwrap(), "tc {words}");
    }

    /// Whether an upload comes back as it was sent. It takes far longer than allowed if the window is tiny.
    pub(super) fn echoes(&self, size: usize) -> bool {
        let (sent, file) = (self.path("sent"), self.path("body"));
        fs::write(&sent, content(size)).unwrap();
        let sent = format!("@{sent}");
        let url = "http://back0.test/echo";
        let shown =
            "%{http_code}, %{size_upload} bytes there, %{size_download} back, %{time_total} s";
        let post = ["-sS", "-H", "Expect:", "--data-binary", &sent, "-o", &file, "-w", shown, url];
        let (done, shown) = self.curl(&post);
        let is_right = done && is_same(&file, size);
        if !is_right {
            let log = self.log();
            let lines = log.lines().collect::<Vec<_>>();
            println!("{shown}\n{}", lines[lines.len().saturating_sub(30)..].join("\n"));
        }
        is_right
    }
}

#[test]
fn client_without_window_scaling_keeps_its_window() {
    let Some(cluster) = Cluster::new("stay") else { return };
    cluster.client.set("net.ipv4.tcp_window_scaling", "0").unwrap();
    assert!(cluster.echoes(300_000));
}

#[test]
fn client_behind_a_syn_cookie_keeps_its_window() {
    let Some(cluster) = Cluster::new("stay") else { return };
    cluster.front.set("net.ipv4.tcp_syncookies", "2").unwrap();
    assert!(cluster.echoes(300_000), "the cookie is in the timestamp");
    cluster.client.set("net.ipv4.tcp_timestamps", "0").unwrap();
    assert!(cluster.echoes(300_000), "there is no room for options");
}

#[test]
fn link_with_a_small_mtu_carries_answers_of_either_version_of_ip() {
    let Some(mut cluster) = Cluster::of_both("stay") else { return };
    let file = cluster.path("body");
    // The client does not know of it, as behind a tunnel.
    cluster.router.ip(&[&format!("link set {OUTER} mtu 1280")]).unwrap();
    for service in [ipv6::SERVICE6, SocketAddr::new(SERVICE.into(), 80)] {
        cluster.service = service;
        let before = cluster.handed();
        let (good, _) = cluster.curl(&["-sS", "-o", &file, "http://back0.test/300000"]);
        assert!(good && is_same(&file, 300_000), "{service}");
        let start = Instant::now();
        while cluster.handed() == before {
            assert!(start.elapsed() < TEST_TIMEOUT, "{service}: it was not handed over");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn segments_that_are_bounded_pass_a_link_whose_icmp_errors_are_lost() {
    let Some(mut cluster) = Cluster::bare() else { return };
    cluster.start_back(0, 8080);
    let bounded =
        front_text("stay", "secret").replace("[handoff]", "[handoff]\nmax_segment = 1220");
    let mut command = levada();
    command.arg("run").arg("-c").arg(cluster.front_file(&bounded));
    cluster.start_front_by(command);
    cluster.wait_until_handed_to(0);
    cluster.router.ip(&[&format!("link set {OUTER} mtu 1280")]).unwrap();
    cluster.router.ip(&[&format!("rule add iif lo to {SERVICE} blackhole")]).unwrap();
    let file = cluster.path("body");
    let (good, _) = cluster.curl(&["-sS", "-o", &file, "http://back0.test/300000"]);
    assert!(good && is_same(&file, 300_000));
}

#[test]
fn front_end_that_stops_lets_slow_clients_have_the_rest_of_their_answers() {
    let Some(cluster) = Cluster::new("stay") else { return };
    cluster.shape(&format!("qdisc add dev {OUTER} root tbf rate 60mbit burst 64kb limit 4mb"));
    const SIZE: usize = 20_000_000;
    let readers = ["", "Connection: close\r\n"].map(|end| {
        let mut reader = BufReader::new(cluster.connect());
        write!(reader.get_mut(), "GET /{SIZE} HTTP/1.1\r\nHost: back0.test\r\n{end}\r\n").unwrap();
        reader.fill_buf().unwrap();
        reader
    });
    let front = cluster.running[2].as_ref().unwrap().process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &front]).status().unwrap().success());
    thread::scope(|scope| {
        for mut reader in readers {
            scope.spawn(move || assert!(response(&mut reader).1 == content(SIZE)));
        }
    });
}

#[test]
fn answer_that_leaves_the_back_end_slowly_is_not_cut_at_its_end() {
    let Some(mut cluster) = Cluster::bare() else { return };
    cluster.start_caching_back_with(0, "[limits]\nsend_timeout = '1500ms'\n");
    cluster.start_front("stay");
    cluster.wait_until_handed_to(0);
    cluster.shape(&format!("qdisc add dev {OUTER} root tbf rate 8mbit burst 64kb limit 4mb"));
    const SIZE: usize = 6_000_000;
    for end in ["", "Connection: close\r\n"] {
        let mut reader = BufReader::new(cluster.connect());
        write!(reader.get_mut(), "GET /{SIZE} HTTP/1.1\r\nHost: back0.test\r\n{end}\r\n").unwrap();
        reader.fill_buf().unwrap();
        if end.is_empty() {
            reader.get_mut().shutdown(Shutdown::Write).unwrap();
        }
        assert!(response(&mut reader).1 == content(SIZE));
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "it ends in order");
    }
}

#[test]
fn clients_that_vanish_are_given_up_and_reset() {
    let Some(cluster) = Cluster::new("stay") else { return };
    let streams = [0; 3].map(|_| {
        let mut stream = cluster.connect();
        stream.write_all(b"GET /40000000 HTTP/1.1\r\nHost: back0.test\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 1000]).unwrap();
        stream
    });
    // Nothing that the client sends arrives any more; it still receives, so that a reset would fit.
    let ends = thread::scope(|scope| {
        let read = |mut stream: TcpStream| io::copy(&mut stream, &mut io::sink());
        let readers = streams.map(|stream| scope.spawn(move || read(stream)));
        cluster.client.ip(&[&format!("route add blackhole {SERVICE}/32")]).unwrap();
        readers.map(|reader| reader.join().unwrap().unwrap_err().kind())
    });
    assert_eq!(ends, [io::ErrorKind::ConnectionReset; 3]);
    let start = Instant::now();
    while cluster.metric("levada_handed_over") > 0 {
        assert!(start.elapsed() < TEST_TIMEOUT, "the front-end still steers for it");
        thread::sleep(Duration::from_millis(20));
    }
    let ended = "levada_connections_ended_total{reason=\"dormant\"}";
    assert_eq!(metric(&cluster.backs[0], ended), 3);
}

#[test]
fn requests_whose_responses_are_known_to_be_small_are_proxied() {
    for (least, small, large) in [("50 KB", 2000, 300_000), ("auto", 60_000, 300_000)] {
        let Some(mut cluster) = Cluster::bare() else { return };
        cluster.start_back(0, 8080);
        let least = format!("[handoff]\nmin_size = '{least}'");
        let text = front_text("stay", "secret").replace("[handoff]", &least);
        let mut command = levada();
        command.arg("run").arg("-c").arg(cluster.front_file(&text));
        cluster.start_front_by(command);
        cluster.wait_until_handed_to(0);
        let gets = |size: usize| cluster.is_proxied(size);
        assert_eq!([gets(small), gets(small), gets(small)], [false, true, true], "it is learned");
        assert_eq!([gets(large), gets(large)], [false, false]);
    }
}

impl Cluster {
    /// Whether a request for a response of this size is proxied. If it is not, waits until its connection has ended.
    fn is_proxied(&self, size: usize) -> bool {
        let before = self.handed();
        let url = format!("http://back0.test/{size}");
        let (good, head) = self.curl(&["-sS", "-D-", "-o", "/dev/null", &url]);
        assert!(good, "{head}");
        let is_proxied = head.to_lowercase().contains("via: 1.1 front");
        let start = Instant::now();
        while !is_proxied && self.handed() == before {
            assert!(start.elapsed() < TEST_TIMEOUT);
            thread::sleep(Duration::from_millis(5));
        }
        is_proxied
    }
}
