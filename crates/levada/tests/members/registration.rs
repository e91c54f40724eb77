//! Nodes that know each other by nothing but the keys that they write themselves.

use std::{
    fs,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::{Process, etcd::Etcd, get, order, origin, reserve, start, try_get, wait};

/// The lease of a node is ten seconds.
const LONGER_THAN_A_LEASE: Duration = Duration::from_secs(12);

/// A node of a cluster.
struct Node {
    name: &'static str,
    clients: SocketAddr,
    admin: SocketAddr,
    configuration: String,
    directory: TempDir,
    process: Option<Process>,
}

impl Node {
    fn new(name: &'static str, etcd: &Etcd, origin: SocketAddr) -> Self {
        let (clients, admin, peers) = (reserve(), reserve(), reserve());
        let configuration = format!(
            r#"
name = "{name}"
[[listen]]
address = "{clients}"
[admin]
listen = "{admin}"
[peering]
listen = "0.0.0.0:{port}"
secret = "a secret of some length"
discovery = "nodes"
[[discovery]]
name = "nodes"
etcd = {{ endpoints = "http://{etcd}", prefix = "/nodes", register = true, advertise = "{peers}" }}
[[site]]
hosts = "*"
origin = "http://{origin}"
"#,
            port = peers.port(),
            etcd = etcd.client,
        );
        let directory = tempfile::tempdir().unwrap();
        let mut node = Self { name, clients, admin, configuration, directory, process: None };
        node.start();
        node
    }

    fn start(&mut self) {
        self.process = Some(start(&self.configuration, &self.directory));
    }

    fn key(&self) -> String {
        format!("/nodes/{}", self.name)
    }

    /// The names of the nodes of its cluster.
    fn cluster(&self) -> Vec<String> {
        let status: Value = serde_json::from_str(&get(self.admin, "/status").1).unwrap();
        let peers = status["peers"].as_array().unwrap().iter();
        let mut names: Vec<_> =
            peers.map(|peer| peer["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }

    fn knows(&self, names: &[&str]) {
        wait(&format!("{} knows {names:?}", self.name), || self.cluster() == names);
    }

    fn kill(&mut self) {
        self.process = None;
    }

    /// Stops it in order.
    fn stop(&mut self) {
        let mut process = self.process.take().unwrap();
        kill_process(Pid::from_child(&process.0), Signal::TERM).unwrap();
        assert!(process.0.wait().unwrap().success());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }
}

/// Clients of some nodes, each of which gets one object after the other.
struct Clients {
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

impl Clients {
    fn start(nodes: &[&Node]) -> Self {
        let (is_over, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let client = |node: &&Node| {
            let (at, is_over, answered) = (node.clients, is_over.clone(), answered.clone());
            thread::spawn(move || {
                let mut failures = Vec::new();
                for number in 0.. {
                    if is_over.load(Relaxed) {
                        break;
                    }
                    match try_get(at, &format!("/{}", number % 500)) {
                        Ok((200, body)) if body == "an object" => {}
                        other => failures.push(format!("{other:?}")),
                    }
                    answered.fetch_add(1, Relaxed);
                }
                failures
            })
        };
        let threads = nodes.iter().chain(nodes).map(client).collect();
        Self { is_over, answered, threads }
    }

    /// Waits until clients have got some more responses.
    fn go_on(&self) {
        let before = self.answered.load(Relaxed);
        wait("responses", || self.answered.load(Relaxed) > before + 200);
    }

    /// The requests that failed.
    fn end(self) -> Vec<String> {
        self.is_over.store(true, Relaxed);
        self.threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    }
}

#[test]
fn registered_nodes_find_each_other_and_those_that_leave_are_missed_by_no_client() {
    let Some(mut etcd) = Etcd::start() else { return };
    let origin = origin("an object");
    let [a, b, mut c] = ["a", "b", "c"].map(|name| Node::new(name, &etcd, origin));
    [&a, &b, &c].iter().for_each(|node| node.knows(&["a", "b", "c"]));
    let clients = Clients::start(&[&a, &b]);
    clients.go_on();

    // A node that is killed is gone when its lease ends.
    c.kill();
    assert!(etcd.find(&c.key()).is_some());
    [&a, &b].iter().for_each(|node| node.knows(&["a", "b"]));
    assert!(etcd.find(&c.key()).is_none());
    clients.go_on();

    // It is back when it is started, and gone at once when it is stopped.
    c.start();
    [&a, &b, &c].iter().for_each(|node| node.knows(&["a", "b", "c"]));
    clients.go_on();
    c.stop();
    assert!(etcd.find(&c.key()).is_none());
    [&a, &b].iter().for_each(|node| node.knows(&["a", "b"]));
    clients.go_on();

    // Without etcd the nodes serve on, and register again when it is back without their leases.
    etcd.kill();
    thread::sleep(LONGER_THAN_A_LEASE);
    [&a, &b].iter().for_each(|node| assert_eq!(node.cluster(), ["a", "b"]));
    etcd.wipe();
    etcd.spawn();
    for node in [&a, &b] {
        wait("a key", || etcd.find(&node.key()).is_some());
        node.knows(&["a", "b"]);
    }
    clients.go_on();
    let failures = clients.end();
    assert!(failures.is_empty(), "{} failed: {:?}", failures.len(), failures.first());
}

#[test]
fn second_node_of_a_name_is_refused_and_says_so() {
    let Some(etcd) = Etcd::start() else { return };
    let origin = origin("an object");
    let mut first = Node::new("a", &etcd, origin);
    wait("the first node", || etcd.find(&first.key()).is_some());
    let second = Node::new("a", &etcd, origin);
    wait("the second node is refused", || {
        let (status, body) = get(second.admin, "/readyz");
        status == 503 && body.contains("registration: another node has the name a in etcd")
    });
    assert_eq!(second.log().matches("another node has the name a in etcd").count(), 1);
    assert_eq!(get(second.clients, "/").0, 200);
    wait("the first node says so", || {
        first.log().contains("another node wants the name a in etcd")
    });
    for (node, claimed) in [(&first, true), (&second, false)] {
        assert!(get(node.admin, "/events").1.contains("name_taken"));
        assert_eq!(get(node.admin, "/status").1.contains("\"claimed\""), claimed);
    }
    assert_eq!(get(first.admin, "/readyz").0, 200);
    let (_, lease_of_first) = etcd.find(&first.key()).unwrap();
    first.stop();
    wait("the second node", || {
        etcd.find(&second.key()).is_some_and(|(_, lease)| lease != lease_of_first)
    });
    wait("the second node is ready", || get(second.admin, "/readyz").0 == 200);
}

#[test]
fn registration_passes_to_the_process_that_takes_over() {
    let Some(etcd) = Etcd::start() else { return };
    let origin = origin("an object");
    let [mut a, b] = ["a", "b"].map(|name| Node::new(name, &etcd, origin));
    [&a, &b].iter().for_each(|node| node.knows(&["a", "b"]));
    let before = etcd.find(&a.key()).unwrap();
    let upgraded: Value = serde_json::from_str(&order(a.admin, "/upgrade")).unwrap();
    let successor = Successor::of(&upgraded);
    assert!(a.process.take().unwrap().0.wait().unwrap().success());
    wait("another lease", || etcd.find(&a.key()).unwrap().1 != before.1);
    // The key was never deleted.
    assert_eq!(etcd.find(&a.key()).unwrap().0, before.0);
    [&a, &b].iter().for_each(|node| node.knows(&["a", "b"]));
    // It goes with the new process.
    kill_process(successor.0, Signal::TERM).unwrap();
    wait("the key is gone", || etcd.find(&a.key()).is_none());
}

/// The process that has taken over, which ends with the test.
struct Successor(Pid);

impl Successor {
    fn of(upgraded: &Value) -> Self {
        let pid = upgraded["new"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        Self(pid.and_then(Pid::from_raw).unwrap())
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}
