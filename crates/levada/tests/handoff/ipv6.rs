//! The same over IPv6, and over both versions of IP at once.

use super::*;

pub(super) const SERVICE6: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V6(lab::LabCluster::SERVICE6), 80);

impl Cluster {
    /// A front-end that listens at all addresses of both versions, and back-ends whose channels are
    /// over IPv6. Clients come over IPv6.
    pub(super) fn of_both(after: &str) -> Option<Self> {
        Self::bare()?.with_both(after)
    }

    pub(super) fn with_both(mut self, after: &str) -> Option<Self> {
        let cluster = &mut self;
        cluster.service = SERVICE6;
        for at in [0, 1] {
            cluster.start_back_of_both(at);
        }
        cluster.start_front_of_both(after);
        for at in [0, 1] {
            cluster.wait_until_handed_to(at);
        }
        Some(self)
    }

    fn start_back_of_both(&mut self, at: usize) {
        let mut command = levada();
        let listen = format!("[{}]:7072", lab::LabCluster::back6(at as u8));
        let arguments = self.back_arguments(at, &format!("http://{}:8080", BACKS[at]));
        let own = format!("{}:7072", BACKS[at]);
        command.args(arguments.into_iter().map(|word| word.replace(&own, &listen)));
        command.args(["--service", &SERVICE6.to_string()]);
        self.running[at] = Some(self.backs[at].start(command).unwrap());
    }

    fn start_front_of_both(&mut self, after: &str) {
        let mut text = front_text(after, "secret").replace(&format!("{SERVICE}:80"), "[::]:80");
        for (at, back) in (0..).zip(BACKS) {
            let both = format!("['[{}]:7072', '{back}:7072']", lab::LabCluster::back6(at));
            text = text.replace(&format!("'{back}:7072'"), &both);
        }
        let mut command = levada();
        command.arg("run").arg("-c").arg(self.front_file(&text));
        self.start_front_by(command);
    }
}

#[test]
fn clients_of_either_version_get_the_right_bytes_of_a_back_end_itself() {
    let Some(mut cluster) = Cluster::of_both("stay") else { return };
    cluster.gets_a_long_body_past_the_front_end();
    cluster.service = SocketAddr::new(SERVICE.into(), 80);
    cluster.gets_a_long_body_past_the_front_end();
}

#[test]
fn a_connection_over_ipv6_goes_on_to_the_back_end_of_each_request() {
    for (after, moves) in [("stay", 0), ("on", 2), ("back", 4)] {
        let Some(cluster) = Cluster::of_both(after) else { return };
        let given_back = || cluster.metric("levada_handoffs_total{result=\"given-back\"}");
        let before = given_back();
        let expected = match after {
            "stay" => ["back0"; 5],
            _ => ["back0", "back0", "back1", "back1", "back0"],
        };
        assert_eq!(answered(&cluster, &REQUESTS), expected, "{after}");
        assert_eq!(given_back() - before, moves, "{after}");
    }
}

#[test]
fn what_a_back_end_does_not_answer_over_ipv6_is_answered_all_the_same() {
    let Some(mut cluster) = Cluster::of_both("stay") else { return };
    let file = cluster.path("body");
    let asked = thread::scope(|scope| {
        let slow = ["-sS", "-o", &file, "http://back0.test/slow/1000"];
        let before = cluster.servers[0].requests.load(Relaxed);
        let (asked, cluster) = (&cluster, &cluster);
        let waiting = scope.spawn(move || asked.curl(&slow));
        cluster.wait_until_asked(0, before);
        kill(cluster.running[0].as_ref().unwrap());
        waiting.join().unwrap()
    });
    assert!(asked.0 && is_same(&file, 1000), "{}", asked.1);
    // Within an answer, it is cut, and nothing is left of it.
    let mut writer = cluster.connect();
    writer.write_all(b"GET /200000000 HTTP/1.1\r\nHost: back1.test\r\n\r\n").unwrap();
    let mut reader = BufReader::new(writer);
    reader.fill_buf().unwrap();
    cluster.running[1] = None;
    let mut rest = Vec::new();
    let end = reader.read_to_end(&mut rest);
    assert!(end.is_err() || rest.len() < 200_000_000, "it is not complete");
    let start = Instant::now();
    while cluster.metric("levada_handed_over") > 0 {
        assert!(start.elapsed() < TEST_TIMEOUT, "it is still counted");
        thread::sleep(Duration::from_millis(50));
    }
    cluster.start_back_of_both(0);
    cluster.wait_until_handed_to(0);
}

#[test]
fn connections_of_a_version_that_a_back_end_has_no_address_of_are_proxied() {
    let Some(mut cluster) = Cluster::bare() else { return };
    for at in [0, 1] {
        cluster.start_back(at, 8080);
    }
    let text = front_text("stay", "secret").replace(&format!("{SERVICE}:80"), "[::]:80");
    let mut command = levada();
    command.arg("run").arg("-c").arg(cluster.front_file(&text));
    cluster.start_front_by(command);
    cluster.wait_until_handed_to(0);
    let before = cluster.handed();
    cluster.service = SERVICE6;
    for size in [0, 1000, 300_000] {
        let (file, url) = (cluster.path("body"), format!("http://back0.test/{size}"));
        let (good, _) = cluster.curl(&["-sS", "-o", &file, &url]);
        assert!(good && is_same(&file, size));
    }
    assert_eq!(cluster.handed(), before);
    assert!(cluster.metric("levada_handoffs_total{result=\"unfit\"}") >= 3);
    let log = cluster.log();
    let told = log.lines().filter(|line| line.contains("warning") && line.contains("over IPv6"));
    assert_eq!(told.count(), 3, "each site, at the start: {log}");
}
