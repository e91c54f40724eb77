//! Messages to systemd, and sockets from it.

use std::{
    net::TcpStream,
    os::unix::net::UnixDatagram,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::{
    load::Client,
    node::{Node, Plan, eventually},
    origin::Origin,
};

/// The socket on which systemd would listen.
struct Manager(UnixDatagram);

impl Manager {
    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        Self(socket)
    }

    /// The messages up to one that contains this.
    fn until(&self, wanted: &str) -> Vec<String> {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut all = Vec::new();
        loop {
            let mut bytes = [0; 4096];
            if let Ok(count) = self.0.recv(&mut bytes) {
                let message = String::from_utf8_lossy(&bytes[..count]).into_owned();
                all.push(message.clone());
                if message.contains(wanted) {
                    return all;
                }
            }
            assert!(Instant::now() < deadline, "{wanted}: {all:?}");
        }
    }
}

#[test]
fn systemd_is_told_of_every_step() {
    let origin = Origin::start();
    let plan = Plan::new(&origin).with_disk();
    let manager = Manager::at(&plan.path("notify"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.env("NOTIFY_SOCKET", plan.path("notify")).env("WATCHDOG_USEC", "400000");
    let mut node = Node::spawn_by(&plan, command);
    let begin = manager.until("READY=1");
    assert!(begin.iter().all(|said| !said.contains("MAINPID")), "{begin:?}");
    manager.until("WATCHDOG=1");
    assert!(node.levada(&["reload"]).status.success());
    let reload = manager.until("RELOADING=1").pop().unwrap();
    let time = reload.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
    assert!(time.is_some_and(|time| time.parse::<u64>().is_ok()), "{reload}");
    manager.until("READY=1");
    assert!(node.upgrade(&[]).status.success());
    // In this order: systemd listens to the main process only.
    let main = manager.until("MAINPID=").pop().unwrap();
    assert!(main.contains(&format!("MAINPID={}", node.pid())), "{main}");
    manager.until("READY=1");
    manager.until("WATCHDOG=1");
    node.terminate();
    manager.until("STOPPING=1");
}

#[test]
fn sockets_of_systemd_are_taken_and_passed_on() {
    const ACTIVATE: &str = "/usr/bin/systemd-socket-activate";
    if !Path::new(ACTIVATE).exists() {
        levada_skip::skipped(format_args!("{ACTIVATE} is missing (Debian: systemd)"));
        return;
    }
    let origin = Origin::start();
    let plan = Plan::new(&origin).with_disk();
    let mut command = Command::new(ACTIVATE);
    for address in [plan.clients(), plan.admin()] {
        command.args(["-l", &address.to_string()]);
    }
    command.arg("--").arg(env!("CARGO_BIN_EXE_levada"));
    let mut node = Node::spawn_by(&plan, command);
    // The first connection starts the node, and waits for it in the queue.
    eventually("systemd listens", || TcpStream::connect(plan.clients()).is_ok());
    let mut client = Client::new(plan.clients());
    assert_eq!(client.get("/object/1").unwrap().status, 200);
    assert!(!plan.log().contains("is another program using it"), "{}", plan.log());
    assert!(node.upgrade(&[]).status.success());
    assert!(Client::new(plan.clients()).get("/object/1").unwrap().is_hit());
}
