//! Obstacles to handing connections over. Requests are proxied then, and answered; one line of the
//! front-end's log says why.

use super::{liar::Channel, *};

/// The lines of a log in which a front-end says that it proxies, as operators see them.
fn reasons(log: &str) -> Vec<&str> {
    let told = |line: &&str| line.contains(" WARN ") && line.contains("proxying");
    log.lines().filter(told).collect()
}

/// The metrics of one back-end.
fn reasons_of(log: &str, back: Ipv4Addr) -> Vec<&str> {
    let place = format!("back_end={back}:");
    reasons(log).into_iter().filter(|line| line.contains(&place)).collect()
}

impl Cluster {
    fn gets(&self, host: &str, size: usize) {
        let (file, url) = (self.path("body"), format!("http://{host}/{size}"));
        let get = ["-o", &file, &url];
        let (good, said) = self.curl(&[&ONCE_IT_IS_THERE[..], &get].concat());
        assert!(good && is_same(&file, size), "{url}: {said}");
    }

    /// Waits until the log has so many lines with these words.
    fn wait_for_log(&self, words: &[&str], count: usize) {
        let start = Instant::now();
        let has = |line: &&str| words.iter().all(|word| line.contains(word));
        while self.log().lines().filter(has).count() < count {
            assert!(start.elapsed() < TEST_TIMEOUT, "{words:?} in\n{}", self.log());
            self.gets("back0.test", 1);
            self.gets("back1.test", 1);
        }
    }
}

/// The binary without these capabilities. `None`, with a message, if the network cannot be created.
fn without(capabilities: &[&str]) -> Option<Command> {
    if levada_skip::lacks("setpriv", "util-linux") {
        return None;
    }
    let dropped: Vec<_> = capabilities.iter().map(|name| format!("-{name}")).collect();
    let mut command = Command::new("setpriv");
    if !dropped.is_empty() {
        command.arg(format!("--bounding-set={}", dropped.join(",")));
    }
    command.arg(env!("CARGO_BIN_EXE_levada")).args(["--log-level", "debug"]);
    Some(command)
}

#[test]
fn front_end_that_may_not_or_cannot_says_so_once_and_proxies() {
    let Some(mut cluster) = Cluster::bare() else { return };
    for at in [0, 1] {
        cluster.start_back(at, 8080);
    }
    // A kernel without bpf(2) refuses like one that does not let this process.
    let bpf = ["bpf", "sys_admin", "perfmon"];
    let cases: [(&[&str], &str, &str); 3] = [
        (&["net_admin"], "eth0", "the capability NET_ADMIN"),
        (&bpf, "eth0", "the kernel cannot create a BPF table"),
        (&[], "eth7", "there is no network interface eth7"),
    ];
    for (dropped, interface, why) in cases {
        let Some(mut command) = without(dropped) else { return };
        let text = front_text("stay", "secret").replace("eth0", interface);
        command.arg("run").arg("-c").arg(cluster.front_file(&text));
        cluster.start_front_by(command);
        for size in [1, 1000, 300_000] {
            cluster.gets("back0.test", size);
            cluster.gets("back1.test", size);
        }
        let log = cluster.log();
        let reasons = reasons(&log);
        assert!(reasons.len() == 1 && reasons[0].contains(why), "{why}:\n{log}");
        assert_eq!(cluster.handed(), 0);
        cluster.running[2] = None;
    }
}

#[test]
fn back_end_that_may_not_does_not_start() {
    let Some(cluster) = Cluster::bare() else { return };
    for (dropped, why) in [(["net_admin"], "capability NET_ADMIN"), (["bpf"], "NET_ADMIN and BPF")]
    {
        let Some(mut command) = without(&[&dropped[..], &["sys_admin"]].concat()) else { return };
        command.args(cluster.back_arguments(0, "http://127.0.0.1:8080"));
        let output = cluster.backs[0].namespace().run(|| command.output().unwrap()).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn firewall_before_the_channel_is_told_once_and_proxied_past() {
    let Some(mut cluster) = Cluster::bare() else { return };
    for at in [0, 1] {
        cluster.start_back(at, 8080);
    }
    // One refuses aloud, the other lets packets vanish.
    let (aloud, silent) = ("ipproto tcp dport 7072", "ipproto tcp sport 7072");
    let to = format!("to {}", BACKS[0]);
    cluster.front.ip(&[&format!("rule add {to} {aloud} unreachable")]).unwrap();
    cluster.backs[1].ip(&[&format!("rule add {silent} blackhole")]).unwrap();
    cluster.start_front("stay");
    let attempt = "proxying: connections cannot be handed";
    for (back, attempts) in BACKS.iter().zip([3, 2]) {
        cluster.wait_for_log(&[attempt, &format!("back_end={back}:")], attempts);
    }
    let log = cluster.log();
    for (back, why) in BACKS.iter().zip(["unreachable", "timed out"]) {
        let told = reasons_of(&log, *back);
        assert!(told.len() == 1 && told[0].contains(why), "{told:?}");
    }
    assert_eq!(cluster.handed(), 0);
    cluster.front.ip(&[&format!("rule del {to} {aloud} unreachable")]).unwrap();
    cluster.wait_until_handed_to(0);
}

#[test]
fn firewall_before_the_answers_is_told_once_and_proxied_past() {
    let Some(cluster) = Cluster::new("stay") else { return };
    // The packets from the service's address go to a neighbour that does not exist.
    let nobody = "10.0.2.99";
    for order in [
        format!("neigh add {nobody} lladdr 02:00:00:00:00:99 dev eth0 nud permanent"),
        format!("route add default via {nobody} dev eth0 table 77"),
        format!("rule add from {SERVICE} lookup 77 pref 77"),
    ] {
        cluster.backs[0].ip(&[&order]).unwrap();
    }
    let proxying = || !reasons_of(&cluster.log(), BACKS[0]).is_empty();
    let start = Instant::now();
    while !proxying() {
        assert!(start.elapsed() < TEST_TIMEOUT, "{}", cluster.log());
        // This request cannot be repaired.
        let _ = cluster.curl(&["-s", "-m", "1", "-o", "/dev/null", "http://back0.test/1000"]);
        cluster.gets("back1.test", 1000);
    }
    for size in [1, 1000, 300_000] {
        cluster.gets("back0.test", size);
    }
    let log = cluster.log();
    let told = reasons_of(&log, BACKS[0]);
    assert!(told.len() == 1 && told[0].contains("firewall"), "{told:?}");
    assert!(reasons_of(&log, BACKS[1]).is_empty(), "{log}");
}

#[test]
fn back_end_that_lies_is_told_once_and_proxied_past() {
    let Some(mut cluster) = Cluster::bare() else { return };
    let control = cluster.backs[0].namespace();
    let listener = control.run(|| TcpListener::bind((BACKS[0], 7072)).unwrap()).unwrap();
    // It says of the first connection that it has ended, before it has said a word to the client.
    let liar = thread::spawn(move || {
        let mut channel = Channel::of_back(listener.accept().unwrap().0, SECRET);
        let Frame::Take { id, .. } = channel.hear().unwrap() else { panic!() };
        channel.say(&Frame::Ended(id));
        // Until the front-end has closed it.
        assert!(channel.hear().is_none());
        listener.set_nonblocking(true).unwrap();
        listener
    });
    cluster.start_front("stay");
    cluster.wait_for_log(&["the back-end is gone"], 1);
    let listener = liar.join().unwrap();
    for size in 0..20 {
        cluster.gets("back0.test", size);
    }
    let log = cluster.log();
    let told = reasons_of(&log, BACKS[0]);
    assert!(told.len() == 1 && told[0].contains("what cannot be"), "{log}");
    assert_eq!(cluster.metric("levada_handed_over"), 0);
    assert!(listener.accept().is_err(), "it is not asked again soon");
}

#[test]
fn front_end_that_lies_gets_nothing_and_others_go_on() {
    let Some(cluster) = Cluster::new("stay") else { return };
    let connect = || {
        let stream = cluster.front.namespace().run(|| TcpStream::connect((BACKS[0], 7072)));
        let stream = stream.unwrap().unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        Channel::of_front(stream, SECRET)
    };
    let connection = |service: Ipv4Addr| Connection {
        service: SocketAddr::new(service.into(), 80),
        client: SocketAddr::new(lab::LabCluster::CLIENT.into(), 40_000),
        send_next: 1,
        receive_next: 2,
        segment: 1460,
        scale: None,
        sack: true,
        timestamp: None,
        window: Window::default(),
    };
    let bytes = b"GET /1 HTTP/1.1\r\nHost: back0.test\r\n\r\n".to_vec();
    let take = |id, connection, bytes: &[u8]| Frame::Take {
        id,
        after: AfterHandoff::Stay,
        connection,
        bytes: bytes.to_vec(),
    };
    let mut channel = connect();
    // Of an address that is not the service's: the machine's own, another's.
    for (id, service) in [(1, BACKS[0]), (2, lab::LabCluster::ROUTER)] {
        channel.say(&take(id, connection(service), &bytes));
        assert_eq!(channel.hear(), Some(Frame::Refused(id)));
    }
    // Frames that only back-ends send, and bytes that are no frame.
    channel.say(&Frame::Answers(1));
    assert_eq!(channel.hear(), None);
    let mut channel = connect();
    channel.say_bytes(&[99; 40]);
    assert_eq!(channel.hear(), None);
    // A sender without the secret is rejected.
    let stranger = cluster.front.namespace().run(|| TcpStream::connect((BACKS[0], 7072)));
    let mut stranger = Channel::of_front(stranger.unwrap().unwrap(), "some other secret");
    stranger.say(&take(1, connection(SERVICE), &bytes));
    assert_eq!(stranger.hear(), None);
    cluster.wait_until_handed_to(0);
}

#[test]
fn third_front_end_at_an_interface_says_so_and_proxies_until_another_ends() {
    let Some(mut cluster) = Cluster::new("stay") else { return };
    let first = cluster.running[2].take();
    let start = |cluster: &mut Cluster, port: u16| {
        let text = front_text("stay", "secret");
        let text = text.replace(":80'\n[admin]", &format!(":{port}'\n[admin]"));
        let text = text.replace("127.0.0.1:9180", &format!("127.0.0.1:{}", 9000 + port));
        let file = cluster.path(&format!("front{port}.toml"));
        fs::write(&file, text).unwrap();
        let mut command = levada();
        command.arg("run").arg("-c").arg(file);
        cluster.start_front_by(command);
        cluster.running[2].take()
    };
    let second = start(&mut cluster, 181);
    // The back-ends do not know its service, and refuse.
    let tried = "levada_handoffs_total{result=\"refused\"}";
    let get = |cluster: &Cluster, port: u16| {
        let (file, to) = (cluster.path("body"), format!("::{SERVICE}:{port}"));
        let asked = ["--connect-to", &to, "-o", &file, "http://back0.test/1000"];
        let mut command = Command::new("curl");
        command.args(ONCE_IT_IS_THERE).args(asked);
        let asked = cluster.client.namespace().run(|| command.status().unwrap()).unwrap();
        assert!(asked.success() && is_same(&file, 1000));
    };
    let until_it_tries = |cluster: &Cluster, port: u16| {
        let start = Instant::now();
        while metric_at(&cluster.front, 9000 + port, tried) == 0 {
            assert!(start.elapsed() < TEST_TIMEOUT, "nothing is handed over at {port}");
            get(cluster, port);
        }
    };
    until_it_tries(&cluster, 181);
    let third = start(&mut cluster, 182);
    get(&cluster, 182);
    let log = cluster.log();
    let reasons = reasons(&log);
    assert!(reasons.len() == 1 && reasons[0].contains("two other Levada"), "{log}");
    assert_eq!(metric_at(&cluster.front, 9182, tried), 0);
    // Killed, the second one leaves its filter behind, which must not be in the way.
    drop(second);
    until_it_tries(&cluster, 182);
    // The first does not mind.
    cluster.wait_until_handed_to(0);
    drop((first, third));
}

#[test]
fn two_front_ends_may_have_one_address_where_each_client_keeps_to_one() {
    let Some(mut cluster) = Cluster::new("stay") else { return };
    // The second is on the second back-end's machine, and hands to the first one.
    cluster.running[1] = None;
    let mut kept = cluster.connect();
    let mut reader = BufReader::new(kept.try_clone().unwrap());
    let get = |size| format!("GET /{size} HTTP/1.1\r\nHost: back0.test\r\n\r\n");
    kept.write_all(get(100).as_bytes()).unwrap();
    assert_eq!(response(&mut reader).1, content(100));

    let mut command = levada();
    command.arg("run").arg("-c").arg(cluster.front_file(&front_text("stay", "secret")));
    let _second = cluster.backs[1].start(command).unwrap();
    let route = |to: Ipv4Addr| format!("route replace {SERVICE} via {to}");
    cluster.router.ip(&[&route(BACKS[1])]).unwrap();
    let start = Instant::now();
    let handed = || metric(&cluster.backs[1], "levada_handoffs_total{result=\"ended\"}");
    while handed() == 0 {
        assert!(start.elapsed() < TEST_TIMEOUT, "nothing is handed over by the second");
        cluster.gets("back0.test", 3000);
    }
    // The first one's connection is nobody's at the second: it ends, and is not mixed up with another.
    let _ = kept.write_all(get(101).as_bytes());
    assert!(reader.read(&mut [0]).map_or(true, |read| read == 0));
    cluster.router.ip(&[&route(lab::LabCluster::FRONT)]).unwrap();
    cluster.wait_until_handed_to(0);
}
