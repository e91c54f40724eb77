//! Upgrades and restarts of a front-end or a back-end while connections are handed off.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// A process that ends with the test, even if another process has started it.
struct Orphan(u32);

impl Orphan {
    /// Whether it has ended.
    fn is_gone(&self) -> bool {
        is_gone(self.0)
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        let _ =
            Command::new("kill").args(["-9", &self.0.to_string()]).stderr(Stdio::null()).status();
    }
}

fn is_gone(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Its parent may not have waited for it yet.
    status.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with('Z'))
}

/// Asks a process to end.
fn end(pid: u32) {
    assert!(Command::new("kill").args(["-TERM", &pid.to_string()]).status().unwrap().success());
}

/// Waits until it is so.
pub(super) fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TEST_TIMEOUT, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A long response that has started, of which the client takes no more until it has to end.
struct Download {
    stream: TcpStream,
    /// The body so far.
    body: Vec<u8>,
}

const LONG: usize = 20_000_000;

impl Download {
    fn rest(mut self) {
        let mut some = vec![0; 64 << 10];
        while self.body.len() < LONG {
            let count = self.stream.read(&mut some).unwrap();
            assert!(count > 0, "cut at {}", self.body.len());
            self.body.extend_from_slice(&some[..count]);
        }
        assert!(self.body == content(LONG), "the body is as it was sent");
    }
}

/// A connection that is kept, and that has carried a response.
fn kept(cluster: &Cluster, host: &str) -> BufReader<TcpStream> {
    let mut reader = BufReader::new(cluster.connect());
    ask(&mut reader, host);
    reader
}

/// Asks on it, and returns the head of the right response.
fn ask(reader: &mut BufReader<TcpStream>, host: &str) -> String {
    let get = format!("GET /100 HTTP/1.1\r\nHost: {host}\r\n\r\n");
    reader.get_mut().write_all(get.as_bytes()).unwrap();
    let (head, body) = response(reader);
    assert_eq!(body, content(100));
    head
}

fn says_goodbye(head: &str) -> bool {
    head.to_lowercase().contains("\r\nconnection: close\r\n")
}

impl Cluster {
    /// Runs `levada upgrade` at a host. Returns whether it succeeded, and what it printed.
    fn try_upgrade(&self, host: &Host, options: &[&str]) -> (bool, String) {
        let mut command = levada();
        command.args(["upgrade", "--json", "--admin", "127.0.0.1:9180"]).args(options);
        command.stdout(Stdio::piped());
        let output = host.namespace().run(|| command.output().unwrap()).unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Upgrades the node of a host, and returns its new process.
    fn upgrade(&self, host: &Host) -> Orphan {
        let (done, said) = self.try_upgrade(host, &[]);
        assert!(done, "{said}");
        let answer: serde_json::Value = serde_json::from_str(&said).unwrap();
        Orphan(answer["new"].as_u64().unwrap() as u32)
    }

    /// A download from a back-end, which has it.
    fn download(&self, at: usize) -> Download {
        let before = self.metric("levada_handed_over");
        let mut stream = self.connect();
        write!(stream, "GET /{LONG} HTTP/1.1\r\nHost: back{at}.test\r\n\r\n").unwrap();
        let mut begin = vec![0; 1000];
        stream.read_exact(&mut begin).unwrap();
        eventually("the download is handed over", || self.metric("levada_handed_over") > before);
        let head = begin.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        Download { stream, body: begin.split_off(head) }
    }

    fn pid(&self, at: usize) -> u32 {
        self.running[at].as_ref().unwrap().process.id()
    }

    /// The filters at a host's device by their priorities.
    fn filters(host: &Host) -> Vec<String> {
        let read =
            || Command::new("tc").args(["filter", "show", "dev", "eth0", "ingress"]).output();
        let text = String::from_utf8(host.namespace().run(read).unwrap().unwrap().stdout).unwrap();
        let one = |line: &str| {
            let priority = line.split("pref ").nth(1)?.split(' ').next()?;
            line.contains(" handle ").then(|| priority.to_owned())
        };
        text.lines().filter_map(one).collect()
    }
}

#[test]
fn new_front_end_hands_over_at_once_and_connections_of_the_old_one_go_on() {
    for after in ["stay", "back", "on"] {
        let Some(cluster) = Cluster::new(after) else { return };
        let download = cluster.download(0);
        let mut kept = kept(&cluster, "back1.test");
        let _new = cluster.upgrade(&cluster.front);
        for at in [0, 1] {
            cluster.wait_until_handed_to(at);
        }
        assert!(!is_gone(cluster.pid(2)), "the old process keeps the download");
        // An answer says that the connection ends, and it does so in order.
        if !says_goodbye(&ask(&mut kept, "back1.test")) {
            assert!(says_goodbye(&ask(&mut kept, "back1.test")), "{after}");
        }
        assert_eq!(kept.read(&mut [0]).unwrap(), 0);
        drop(kept);
        download.rest();
        eventually("the old process has ended", || is_gone(cluster.pid(2)));
        cluster.wait_until_handed_to(0);
    }
}

#[test]
fn new_front_end_hands_over_at_once_over_both_versions_of_ip() {
    let Some(mut cluster) = Cluster::of_both("stay") else { return };
    let mut new = Vec::new();
    for service in [ipv6::SERVICE6, SocketAddr::new(SERVICE.into(), 80)] {
        cluster.service = service;
        let download = cluster.download(0);
        new.push(cluster.upgrade(&cluster.front));
        cluster.wait_until_handed_to(0);
        download.rest();
        cluster.wait_until_handed_to(0);
    }
}

#[test]
fn idle_connection_at_a_back_end_is_closed_in_order_when_the_front_end_ends() {
    let Some(mut cluster) = Cluster::bare() else { return };
    for at in [0, 1] {
        cluster.start_back(at, 8080);
    }
    let text = front_text("stay", "secret").replace("'2m'", "'4s'");
    let mut command = levada();
    command.arg("run").arg("-c").arg(cluster.front_file(&text));
    cluster.start_front_by(command);
    cluster.wait_until_handed_to(0);
    let mut idle = kept(&cluster, "back0.test");
    let new = cluster.upgrade(&cluster.front);
    assert_eq!(idle.read(&mut [0]).unwrap(), 0, "it is not reset");
    drop(idle);
    eventually("the old process has ended", || is_gone(cluster.pid(2)));
    assert_eq!(Cluster::filters(&cluster.front), ["7110", "7112"]);
    // The same without a process that takes over.
    let mut idle = kept(&cluster, "back0.test");
    end(new.0);
    assert_eq!(idle.read(&mut [0]).unwrap(), 0, "it is not reset");
    drop(idle);
    eventually("it has ended", || new.is_gone());
    assert!(Cluster::filters(&cluster.front).is_empty());
}

#[test]
fn front_end_goes_on_handing_over_when_its_new_program_does_not_start() {
    let Some(cluster) = Cluster::new("stay") else { return };
    let download = cluster.download(0);
    let (done, said) = cluster.try_upgrade(&cluster.front, &["--binary", "/bin/false"]);
    assert!(!done, "{said}");
    let file = cluster.path("front.toml");
    let right = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{right}\nnonsense = 1\n")).unwrap();
    let (done, said) = cluster.try_upgrade(&cluster.front, &[]);
    assert!(!done, "{said}");
    fs::write(&file, right).unwrap();
    for at in [0, 1] {
        cluster.wait_until_handed_to(at);
    }
    download.rest();
    let _new = cluster.upgrade(&cluster.front);
    cluster.wait_until_handed_to(0);
}

#[test]
fn front_end_that_is_not_root_hands_over_after_an_upgrade() {
    let Some(mut cluster) = Cluster::bare() else { return };
    for at in [0, 1] {
        cluster.start_back(at, 8080);
    }
    let readable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(cluster.directory.path(), readable).unwrap();
    let text = front_text("stay", "secret") + "[runtime]\nuser = 'nobody'\n";
    let mut command = levada();
    command.arg("run").arg("-c").arg(cluster.front_file(&text));
    cluster.start_front_by(command);
    cluster.wait_until_handed_to(0);
    let download = cluster.download(0);
    let mut new = Vec::new();
    for _ in 0..2 {
        new.push(cluster.upgrade(&cluster.front));
    }
    // The last one has found both slots in use.
    download.rest();
    for at in [0, 1] {
        cluster.wait_until_handed_to(at);
    }
    let status = fs::read_to_string(format!("/proc/{}/status", new[1].0)).unwrap();
    assert!(status.contains("\nUid:\t65534\t"), "{status}");
}

#[test]
fn third_process_of_a_front_end_proxies_until_the_first_one_has_ended() {
    let Some(cluster) = Cluster::new("stay") else { return };
    let first = cluster.download(0);
    let second_process = cluster.upgrade(&cluster.front);
    let second = cluster.download(1);
    let _third_process = cluster.upgrade(&cluster.front);
    // Its former process passes on what it says.
    eventually("it says why", || cluster.log().contains("two other Levada processes"));
    let file = cluster.path("body");
    for size in 1000..1010 {
        let (good, _) = cluster.curl(&["-sS", "-o", &file, &format!("http://back0.test/{size}")]);
        assert!(good && is_same(&file, size));
    }
    assert!(!is_gone(cluster.pid(2)) && !second_process.is_gone());
    assert_eq!((cluster.handed(), cluster.metric("levada_handed_over")), (0, 0));
    first.rest();
    eventually("the first process has ended", || is_gone(cluster.pid(2)));
    for at in [0, 1] {
        cluster.wait_until_handed_to(at);
    }
    assert!(!second_process.is_gone());
    second.rest();
    eventually("the second process has ended", || second_process.is_gone());
    cluster.wait_until_handed_to(0);
}

#[test]
fn front_end_that_starts_while_the_old_one_drains_hands_over_at_once() {
    let Some(mut cluster) = Cluster::new("stay") else { return };
    let download = cluster.download(0);
    end(cluster.pid(2));
    let old = cluster.running[2].take().unwrap();
    cluster.start_front("stay");
    let file = cluster.path("body");
    let there = [&ONCE_IT_IS_THERE[..], &["-o", &file, "http://back0.test/1"]].concat();
    assert!(cluster.curl(&there).0);
    for at in [0, 1] {
        cluster.wait_until_handed_to(at);
    }
    assert!(!is_gone(old.process.id()), "the old process keeps the download");
    download.rest();
    eventually("the old process has ended", || is_gone(old.process.id()));
    cluster.wait_until_handed_to(0);
}

#[test]
fn new_process_of_a_back_end_gets_connections_while_the_old_one_answers() {
    let Some(cluster) = Cluster::new("stay") else { return };
    let download = cluster.download(0);
    let mut kept = kept(&cluster, "back0.test");
    let _new = cluster.upgrade(&cluster.backs[0]);
    eventually("the new process answers", || {
        let _ = cluster.curl(&["-s", "-o", "/dev/null", "http://back0.test/1"]);
        metrics_at(&cluster.backs[0], 9180).contains("\nlevada_http_requests_total{")
    });
    assert!(!is_gone(cluster.pid(0)), "the old process keeps the download");
    if !says_goodbye(&ask(&mut kept, "back0.test")) {
        assert!(says_goodbye(&ask(&mut kept, "back0.test")));
    }
    assert_eq!(kept.read(&mut [0]).unwrap(), 0);
    drop(kept);
    download.rest();
    eventually("the old process has ended", || is_gone(cluster.pid(0)));
    cluster.wait_until_handed_to(0);
    let log = cluster.log();
    assert!(!log.contains("panicked") && !log.contains("the back-end is gone"), "{log}");
}

#[test]
fn third_process_of_a_back_end_lets_front_ends_wait_until_the_first_one_has_ended() {
    let Some(cluster) = Cluster::new("stay") else { return };
    let first = cluster.download(0);
    let second_process = cluster.upgrade(&cluster.backs[0]);
    cluster.wait_until_handed_to(0);
    let second = cluster.download(0);
    let _third_process = cluster.upgrade(&cluster.backs[0]);
    let file = cluster.path("body");
    for size in 1000..1010 {
        let (good, _) = cluster.curl(&["-sS", "-o", &file, &format!("http://back0.test/{size}")]);
        assert!(good && is_same(&file, size));
    }
    assert!(!is_gone(cluster.pid(0)) && !second_process.is_gone());
    first.rest();
    eventually("the first process has ended", || is_gone(cluster.pid(0)));
    cluster.wait_until_handed_to(0);
    second.rest();
    eventually("the second process has ended", || second_process.is_gone());
    cluster.wait_until_handed_to(0);
}

#[test]
fn node_with_a_cache_is_upgraded_as_a_back_end() {
    let Some(mut cluster) = Cluster::bare() else { return };
    cluster.start_caching_back(0);
    cluster.wait_until_it_listens(0);
    cluster.start_front("stay");
    cluster.wait_until_handed_to(0);
    let _new = cluster.upgrade(&cluster.backs[0]);
    cluster.wait_until_handed_to(0);
    eventually("the old process has ended", || is_gone(cluster.pid(0)));
    cluster.wait_until_handed_to(0);
}

#[test]
fn back_end_that_stops_is_left_at_once_and_ends_when_its_connections_have() {
    let Some(cluster) = Cluster::new("stay") else { return };
    let mut idle = kept(&cluster, "back0.test");
    end(cluster.pid(0));
    assert_eq!(idle.read(&mut [0]).unwrap(), 0, "it is not reset");
    drop(idle);
    eventually("it has ended", || is_gone(cluster.pid(0)));
    let log = fs::read_to_string(cluster.path("back0.log")).unwrap();
    assert!(!log.contains("the drain timeout is over"), "{log}");
}

fn nothing_goes_wrong_under_load(after: &str) {
    let Some(cluster) = Cluster::new(after) else { return };
    let mut new = Vec::new();
    let mut handed = 0;
    let report = cluster.under_load(|| {
        let hosts = [&cluster.front, &cluster.backs[0], &cluster.front];
        for host in hosts {
            // Some connections of each process.
            let before = cluster.handed();
            eventually("connections are handed over", || cluster.handed() > before + 50);
            if std::ptr::eq(host, &cluster.front) {
                handed += cluster.handed();
            }
            new.push(cluster.upgrade(host));
        }
        let before = cluster.handed();
        eventually("connections are handed over", || cluster.handed() > before + 50);
        handed += cluster.handed();
        eventually("the old front-ends have ended", || is_gone(cluster.pid(2)) && new[0].is_gone());
        eventually("the old back-end has ended", || is_gone(cluster.pid(0)));
    });
    let log = cluster.log();
    println!(
        "{after}: {} answered ({} MB), {handed} handed over and ended, {} goodbyes, {} refused, {} cut, {} wrong",
        report.answered,
        report.bytes / 1_000_000,
        report.goodbyes,
        report.refused,
        report.cut,
        report.wrong,
    );
    assert_eq!(report.failures(), 0, "{report:?}\n{log}");
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn upgrades_under_load_refuse_cut_and_spoil_nothing() {
    for after in ["stay", "back", "on"] {
        nothing_goes_wrong_under_load(after);
    }
}
