//! `levada upgrade`: a node replaces its process while clients use it. docs/operate/upgrade.md.

mod load;
mod node;
mod origin;
mod signals;
mod systemd;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::Command,
    thread,
};

use levada_node::Predecessor;
use load::{Client, Load, body_of};
use node::{Node, Plan, eventually};
use origin::Origin;

/// Every kind of client, while a node is upgraded twice: once to more workers, once to fewer.
#[test]
fn upgrade_under_load_refuses_fails_and_cuts_nothing() {
    let origin = Origin::start();
    let mut plan = Plan::new(&origin).with_disk().with_tls();
    let mut node = Node::start(&plan);
    let load = Load::start(&node);
    let (mut large, mut tail) = load::begin_large(node.clients());
    load.runs_on();
    for threads in [3, 1] {
        plan.set_threads(threads);
        let upgraded = node.upgrade(&[]);
        assert!(upgraded.status.success(), "{upgraded:?}");
        load.runs_on();
    }
    let (one, other) = (load::rest(&mut large), load::rest(&mut tail));
    assert!(one == other && one == load::LARGE, "bodies were cut at {one} and {other}");
    let report = load.end();
    println!("{report:?}");
    assert_eq!((report.refused, report.failed), (0, 0), "{report:?}");
    for (kind, answered) in &report.answered {
        assert!(*answered > 20, "{kind}: {report:?}");
    }
    assert!(report.goodbyes >= 2, "clients are told to leave: {report:?}");
}

fn stored_objects_are_hits(with_disk: bool) {
    let origin = Origin::start();
    let plan = Plan::new(&origin);
    let plan = if with_disk { plan.with_disk() } else { plan };
    let mut node = Node::start(&plan);
    let paths: Vec<String> =
        (0..200).map(|n| format!("/object/{n}")).chain(["/long/1".to_owned()]).collect();
    let mut client = Client::new(node.clients());
    for path in &paths {
        assert_eq!(client.get(path).unwrap().body, body_of(path));
    }
    eventually("everything is written", || {
        !with_disk || node.metric("levada_cache_disk_queue_bytes") == 0.0
    });
    let before = origin.requests();
    let stored = node.metric("levada_cache_objects");
    let upgraded = node.upgrade(&["--json"]);
    assert!(upgraded.status.success(), "{upgraded:?}");
    let answer: serde_json::Value = serde_json::from_slice(&upgraded.stdout).unwrap();
    assert_eq!(answer["objects"].as_f64(), Some(stored), "{answer}");
    assert_eq!(node.metric("levada_takeover_objects"), stored);
    let mut client = Client::new(node.clients());
    for path in &paths {
        let response = client.get(path).unwrap();
        assert!(response.is_hit(), "{path}: {}", response.head);
        assert_eq!(response.body, body_of(path));
    }
    assert_eq!(origin.requests(), before);
}

#[test]
fn stored_objects_are_hits_after_an_upgrade_without_a_disk() {
    stored_objects_are_hits(false);
}

#[test]
fn stored_objects_are_hits_after_an_upgrade_with_a_disk() {
    stored_objects_are_hits(true);
}

/// Every purge that is confirmed holds, for any process at which it and the next request arrive.
fn purges_hold(with_disk: bool) {
    let origin = Origin::start();
    let plan = Plan::new(&origin);
    let plan = if with_disk { plan.with_disk() } else { plan };
    let mut node = Node::start(&plan);
    let address = node.clients();
    let over = std::sync::atomic::AtomicBool::new(false);
    let purged: u64 = thread::scope(|scope| {
        let over = &over;
        let purgers: Vec<_> = (0..4)
            .map(|number| {
                scope.spawn(move || {
                    // One connection purges and asks, so that some of it reaches the former process.
                    let (mut client, mut other) = (Client::new(address), Client::new(address));
                    let (mut count, mut last) = (0, 0);
                    while !over.load(std::sync::atomic::Ordering::Relaxed) {
                        let path = format!("/version/{number}");
                        let version = |client: &mut Client| -> u64 {
                            let body = client.get(&path).unwrap().body;
                            String::from_utf8(body).unwrap().parse().unwrap()
                        };
                        let seen = version(&mut client).max(version(&mut other));
                        assert!(seen > last, "{path}: {seen} after a purge of {last}");
                        let purged = client.purge(&path).unwrap();
                        assert_eq!(purged.status, 200, "{}", purged.head);
                        (count, last) = (count + 1, seen);
                    }
                    count
                })
            })
            .collect();
        for _ in 0..3 {
            let upgraded = node.upgrade(&[]);
            assert!(upgraded.status.success(), "{upgraded:?}");
            thread::sleep(std::time::Duration::from_millis(100));
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        purgers.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert!(purged > 20, "{purged}");
}

#[test]
fn purges_during_upgrades_are_kept_without_a_disk() {
    purges_hold(false);
}

#[test]
fn purges_during_upgrades_are_kept_with_a_disk() {
    purges_hold(true);
}

#[test]
fn node_goes_on_when_the_new_program_or_its_file_is_wrong() {
    let origin = Origin::start();
    let plan = Plan::new(&origin).with_disk();
    let mut node = Node::start(&plan);
    let former = node.pid();
    let mut client = Client::new(node.clients());
    assert!(!client.get("/object/1").unwrap().is_hit());
    let script = |name: &str, text: &str| plan.write_program(name, text);
    let ends = script("ends", "#!/bin/sh\necho it is broken >&2\nexit 3\n");
    let crashes = script("crashes", "#!/bin/sh\nkill -SEGV $$\n");
    let talks = script("talks", "#!/bin/sh\nprintf 'no such protocol, of course' >&0\nsleep 5\n");
    let no_program = script("no-program", "\x7fELF but not really");
    let open = script("open", "#!/bin/sh\n");
    Command::new("chmod").args(["0777", &open]).status().unwrap();
    for (binary, reason) in [
        (ends.as_str(), "it is broken"),
        (&crashes, "signal: 11"),
        (&talks, "cannot be understood"),
        (&no_program, "cannot be started"),
        (&open, "other users may write to"),
        ("/nowhere/levada", "No such file"),
    ] {
        let upgraded = node.upgrade(&["--binary", binary]);
        let said = String::from_utf8_lossy(&upgraded.stdout);
        assert_eq!(upgraded.status.code(), Some(1), "{binary}: {upgraded:?}");
        assert!(said.contains(reason), "{binary}: {said}");
    }
    let good = fs::read_to_string(plan.file()).unwrap();
    for (line, reason) in [
        ("ttl = \"1 fortnight\"", "fortnight"),
        ("[[listen]]\naddress = \"192.0.2.1:80\"", "cannot listen on 192.0.2.1:80"),
        ("[log]\naccess = \"/nowhere/log\"", "there is no directory /nowhere"),
    ] {
        fs::write(plan.file(), format!("{good}\n{line}\n")).unwrap();
        let upgraded = node.upgrade(&["--admin", &node.admin().to_string()]);
        let said = String::from_utf8_lossy(&upgraded.stdout);
        assert_eq!(upgraded.status.code(), Some(1), "{line}: {upgraded:?}");
        assert!(said.contains(reason), "{line}: {said}");
    }
    fs::write(plan.file(), &good).unwrap();
    assert_eq!(node.pid(), former);
    assert!(client.get("/object/1").unwrap().is_hit(), "on the same connection");
    assert_eq!(client.purge("/object/1").unwrap().status, 200);
    assert!(!client.get("/object/1").unwrap().is_hit());
    assert!(node.upgrade(&[]).status.success(), "a right one works then");
}

#[test]
fn second_upgrade_at_once_is_refused() {
    let origin = Origin::start();
    let plan = Plan::new(&origin);
    let mut node = Node::start(&plan);
    let slow = plan.write_program("slow", "#!/bin/sh\nread line < \"$0.go\"\nexit 1\n");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        format!("{slow}.go"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    thread::scope(|scope| {
        let first = node.upgrading(&["--binary", &slow]);
        let first = scope.spawn(|| first.wait_with_output().unwrap());
        eventually("the first one runs", || !node.children().is_empty());
        let second = node.upgrade(&[]);
        fs::write(format!("{slow}.go"), "\n").unwrap();
        assert_eq!(second.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&second.stdout).contains("try again"), "{second:?}");
        assert_eq!(first.join().unwrap().status.code(), Some(1));
    });
    assert!(node.upgrade(&[]).status.success());
}

fn fifo_at(path: &Path) {
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, rustix::fs::Mode::RWXU, 0).unwrap();
}

/// The new process stands still after the old one has let go: it reads the purge journal from a pipe.
#[test]
fn node_takes_everything_back_when_the_new_process_is_killed_in_the_middle() {
    let origin = Origin::start();
    let plan = Plan::new(&origin).with_disk();
    let mut node = Node::start(&plan);
    let former = node.pid();
    let mut client = Client::new(node.clients());
    assert!(!client.get("/object/1").unwrap().is_hit());
    eventually("it is written", || node.metric("levada_cache_disk_entries") == 1.0);
    let journal = plan.cache().join("purge.journal");
    let saved = plan.cache().join("saved");
    fs::rename(&journal, &saved).unwrap();
    fifo_at(&journal);
    let upgrading = node.upgrading(&[]);
    eventually("the new process has the disk cache", || {
        let holder = node::lock_holder(&plan.cache().join("lock"));
        holder.is_some_and(|pid| pid != former)
    });
    let new = node::lock_holder(&plan.cache().join("lock")).unwrap();
    // A purge that arrives now waits for the outcome.
    let mut purging = Client::new(node.clients());
    purging.begin_purge("/object/1").unwrap();
    fs::remove_file(&journal).unwrap();
    fs::rename(&saved, &journal).unwrap();
    node::kill(new);
    let upgraded = upgrading.wait_with_output().unwrap();
    assert_eq!(upgraded.status.code(), Some(1), "{upgraded:?}");
    let purged = purging.receive().unwrap();
    assert_eq!(purged.status, 200, "{}", purged.head);
    assert_eq!(node.pid(), former);
    assert!(!client.get("/object/1").unwrap().is_hit(), "it was purged");
    assert!(client.get("/object/1").unwrap().is_hit());
    eventually("it is written again", || node.metric("levada_cache_disk_entries") == 1.0);
    assert!(node.upgrade(&[]).status.success());
    assert!(Client::new(node.clients()).get("/object/1").unwrap().is_hit());
}

/// The new process is this test itself.
#[test]
fn node_takes_orders_again_when_the_new_process_ends_before_it_serves() {
    if let Some(mut former) = Predecessor::meet().unwrap() {
        former.prepared(false).unwrap();
        former.ready();
        std::process::exit(1);
    }
    let origin = Origin::start();
    let plan = Plan::new(&origin);
    let mut node = Node::start(&plan);
    let test = std::env::current_exe().unwrap();
    let name = "node_takes_orders_again_when_the_new_process_ends_before_it_serves";
    let program = format!("#!/bin/sh\nexec {} --exact {name}\n", test.display());
    let program = plan.write_program("ends", &program);
    let upgraded = node.upgrade(&["--binary", &program]);
    assert_eq!(upgraded.status.code(), Some(1), "{upgraded:?}");
    assert!(Client::new(node.clients()).get("/object/1").is_ok());
    assert!(node.levada(&["reload"]).status.success());
    assert!(node.upgrade(&[]).status.success());
}

/// The new process stands still before the old one has let go: it reads its file from a pipe.
#[test]
fn new_process_serves_when_the_old_one_is_killed_in_the_middle() {
    let origin = Origin::start();
    let plan = Plan::new(&origin).with_disk();
    let mut node = Node::start(&plan);
    let former = node.pid();
    let mut client = Client::new(node.clients());
    assert!(!client.get("/object/1").unwrap().is_hit());
    eventually("it is written", || node.metric("levada_cache_disk_entries") == 1.0);
    let text = fs::read_to_string(plan.file()).unwrap();
    fs::remove_file(plan.file()).unwrap();
    fifo_at(plan.file());
    let admin = node.admin().to_string();
    let upgrading = node.upgrading(&["--admin", &admin]);
    // It takes the sockets before it reads its file, and a pipe opens for a writer when a reader is there.
    let mut file = None;
    eventually("the new process has the sockets", || {
        let at_once = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
        file = rustix::fs::open(plan.file(), at_once, rustix::fs::Mode::empty()).ok();
        file.is_some()
    });
    node.kill_process();
    assert_eq!(upgrading.wait_with_output().unwrap().status.code(), Some(2));
    // It waits in the queue of a socket that nobody accepts at.
    let mut waiting = Client::new(node.clients());
    waiting.begin("/object/1").unwrap();
    fs::File::from(file.unwrap()).write_all(text.as_bytes()).unwrap();
    assert!(waiting.receive().unwrap().is_hit(), "the disk cache is there");
    node.follow();
    assert_ne!(node.pid(), former);
}

/// The old process ends before the new one has looked at what it got.
#[test]
fn new_process_serves_when_the_old_one_is_killed_at_the_beginning() {
    let origin = Origin::start();
    let plan = Plan::new(&origin).with_disk();
    let mut node = Node::start(&plan);
    let turn = plan.path("turn");
    fifo_at(&turn);
    let (fifo, levada) = (turn.display(), env!("CARGO_BIN_EXE_levada"));
    let waits = format!("#!/bin/sh\nread -r line < {fifo}\nexec {levada} \"$@\"\n");
    let program = plan.write_program("waits", &waits);
    let upgrading = node.upgrading(&["--binary", &program]);
    // It opens when the program reads.
    let mut turn = fs::File::options().write(true).open(&turn).unwrap();
    node.kill_process();
    assert_eq!(upgrading.wait_with_output().unwrap().status.code(), Some(2));
    let mut waiting = Client::new(node.clients());
    waiting.begin("/object/1").unwrap();
    turn.write_all(b"go\n").unwrap();
    assert_eq!(waiting.receive().unwrap().body, body_of("/object/1"));
    node.follow();
}

#[test]
fn process_that_leaves_cannot_be_reloaded() {
    let origin = Origin::start();
    let plan = Plan::new(&origin);
    let mut node = Node::start(&plan);
    let former = node.pid();
    let _downloads = load::begin_large(node.clients());
    assert!(node.upgrade(&[]).status.success());
    node::hang_up(former);
    eventually("it refuses", || plan.log().contains("another process has taken over: reload"));
}

#[test]
fn listener_that_the_new_file_lacks_is_closed_and_a_new_one_opened() {
    let origin = Origin::start();
    let mut plan = Plan::new(&origin);
    let mut node = Node::start(&plan);
    let (first, second) = (node.clients(), node::free_address());
    plan.listen_at(second);
    assert!(node.upgrade(&[]).status.success());
    assert_eq!(Client::new(second).get("/object/1").unwrap().status, 200);
    eventually("the first one is closed", || TcpStream::connect(first).is_err());
}

#[test]
fn sockets_pass_to_a_user_who_could_not_open_them() {
    if !node::can_become_nobody() {
        return;
    }
    let origin = Origin::start();
    let mut plan = Plan::new(&origin).with_disk().run_by_nobody();
    // A port that only root may bind.
    let low = std::net::SocketAddr::from(([127, 88, 77, 66], 81));
    plan.listen_at(low);
    let mut node = Node::start(&plan);
    let mut client = Client::new(low);
    assert_eq!(client.get("/object/1").unwrap().status, 200);
    for _ in 0..2 {
        let upgraded = node.upgrade(&[]);
        assert!(upgraded.status.success(), "{upgraded:?}");
        assert_eq!(node::user_of(node.pid()), 65534);
        assert!(Client::new(low).get("/object/1").unwrap().is_hit());
    }
}

#[test]
fn start_waits_for_the_disk_cache_of_a_process_that_drains() {
    let origin = Origin::start();
    let plan = Plan::new(&origin).with_disk();
    let former = Node::start(&plan);
    let mut client = Client::new(former.clients());
    assert!(!client.get("/object/1").unwrap().is_hit());
    eventually("it is written", || former.metric("levada_cache_disk_entries") == 1.0);
    let (mut large, _tail) = load::begin_large(former.clients());
    former.terminate();
    eventually("it accepts no more", || TcpStream::connect(former.clients()).is_err());
    let starting = thread::spawn({
        let plan = plan.clone();
        move || Node::start(&plan)
    });
    eventually("the new one waits", || {
        plan.log().contains("waiting for the node that still uses the disk cache")
    });
    drop((large.read(&mut [0; 100]), large, _tail));
    let node = starting.join().unwrap();
    assert!(Client::new(node.clients()).get("/object/1").unwrap().is_hit());
}

#[test]
fn drain_and_stop_lose_nothing() {
    let origin = Origin::start();
    let plan = Plan::new(&origin);
    let node = Node::start(&plan);
    let mut waiting = Client::new(node.clients());
    let (mut large, mut tail) = load::begin_large(node.clients());
    let mut client = Client::new(node.clients());
    client.begin("/slow/1").unwrap();
    eventually("it is under way", || origin.is_slow());
    let drained = node.levada(&["drain"]);
    assert!(drained.status.success(), "{drained:?}");
    assert_eq!(waiting.get("/object/1").unwrap().status, 200);
    node.terminate();
    origin.go_on();
    assert_eq!(client.receive().unwrap().body, body_of("/slow/1"));
    let whole = (load::rest(&mut large), load::rest(&mut tail));
    assert_eq!(whole, (load::LARGE, load::LARGE));
    assert!(node.has_ended_well());
}

#[test]
fn readiness_names_what_is_missing() {
    let origin = Origin::start();
    let plan = Plan::new(&origin).with_disk();
    // Its cache has a past, which a peer may have purged.
    drop(Node::start(&plan));
    let plan = plan.with_absent_peers();
    let node = Node::spawn(&plan);
    let missing = r#""purges: compared with none of 2 peers""#;
    let mut said = String::new();
    eventually("it says what is missing", || {
        said = node.admin_get("/readyz").unwrap_or_default();
        said.contains(missing)
    });
    assert!(said.starts_with("HTTP/1.1 503"), "{said}");
    assert!(TcpStream::connect(node.clients()).is_err());
    eventually("it goes on alone", || {
        node.admin_get("/readyz").is_some_and(|said| said.starts_with("HTTP/1.1 200"))
    });
}

#[test]
fn connection_that_has_not_asked_yet_is_answered_by_the_old_process() {
    let origin = Origin::start();
    let plan = Plan::new(&origin);
    let mut node = Node::start(&plan);
    let mut silent = TcpStream::connect(node.clients()).unwrap();
    // Answered on one connection, so that the other one is accepted by now.
    assert_eq!(Client::new(node.clients()).get("/object/1").unwrap().status, 200);
    assert!(node.upgrade(&[]).status.success());
    silent.write_all(b"GET /object/1 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    silent.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
}
