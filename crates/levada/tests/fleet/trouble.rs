//! Faults: a canary that fails, commands that are cut, a state that is away or comes from an old copy.

use std::{
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{
    Process, wait,
    world::{Fleet, copy, get_body, origin, stderr, stdout},
};

#[test]
fn canary_that_fails_goes_back() {
    let fleet = Fleet::kept(&["eu-1", "eu-2", "us-1"]);
    fleet.serve(origin("200 OK", "one"));
    fleet.applied();
    fleet.wait_for(&["one", "one", "one"]);
    // The region of the canary asks it for its share of the objects; the other one must not notice.
    let (stop, failed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = fleet.machines.iter().map(|machine| machine.clients()).collect();
    let loads: Vec<_> = clients
        .into_iter()
        .enumerate()
        .map(|(number, at)| {
            let (stop, failed) = (stop.clone(), failed.clone());
            thread::spawn(move || {
                // Many objects: each of the two nodes of a region is responsible for some.
                for object in 0.. {
                    if stop.load(Relaxed) {
                        return;
                    }
                    let answer = get_body(at, &format!("/{object}"));
                    if number == 2 && answer != "one" {
                        failed.fetch_add(1, Relaxed);
                    }
                    thread::sleep(Duration::from_millis(20));
                }
            })
        })
        .collect();
    fleet.serve(origin("500 Internal Server Error", "broken"));
    let applied = fleet.apply(&["--hold", "60s"]);
    let text = stdout(&applied);
    assert_eq!(applied.status.code(), Some(1), "{applied:?}");
    assert!(text.contains("revision 2 went back: eu-1 answers"), "{text}");
    fleet.wait_for(&["one", "one", "one"]);
    stop.store(true, Relaxed);
    loads.into_iter().for_each(|load| load.join().unwrap());
    assert_eq!(failed.load(Relaxed), 0);
    let history = stdout(&fleet.order(&["history"]));
    assert!(history.contains("revision 2 rolled back: eu-1 answers"), "{history}");
}

#[test]
fn change_that_a_running_node_cannot_take_changes_nothing() {
    let mut fleet = Fleet::kept(&["eu-1", "us-1"]);
    fleet.serve(origin("200 OK", "one"));
    fleet.applied();
    let node = std::fs::read_to_string(fleet.directory().join("node.toml")).unwrap();
    fleet.write("node.toml", &format!("seed = 3\n{node}"));
    let applied = fleet.apply(&["--hold", "1s"]);
    assert_eq!(applied.status.code(), Some(1), "{applied:?}");
    let text = stdout(&applied);
    assert!(text.contains("went back: eu-1: a running node cannot change `seed`"), "{text}");
    let head = |name| fleet.status(name)["alive"]["revision"].clone();
    wait("the head", || head("eu-1") == 1 && fleet.status("eu-1")["alive"]["error"].is_null());
    assert_eq!(head("us-1"), 1);

    // A node that starts takes it.
    let applied = fleet.apply(&["--at-once"]);
    assert!(stdout(&applied).contains("not active on:\n  eu-1: a running node"), "{applied:?}");
    assert_eq!(fleet.answers(), ["one", "one"]);
    fleet.machines[1].restart();
    wait("the node", || fleet.status("us-1")["alive"]["revision"] == 3);
}

#[test]
fn second_apply_waits_and_a_cut_one_leaves_the_head() {
    let fleet = Fleet::kept(&["eu-1", "us-1"]);
    fleet.serve(origin("200 OK", "one"));
    fleet.applied();
    fleet.serve(origin("200 OK", "two"));
    let directory = fleet.directory().to_string_lossy().into_owned();
    let mut first = fleet.command(&["apply", &directory, "--hold", "10m"]);
    let first = Process(first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    fleet.wait_for(&["two", "one"]);
    let second = fleet.apply(&[]);
    assert_eq!(second.status.code(), Some(2), "{second:?}");
    assert!(stderr(&second).contains("applies at this moment"), "{second:?}");
    // The process is killed: its lease ends, and with it the trial.
    drop(first);
    fleet.wait_for(&["one", "one"]);
    fleet.applied();
    assert_eq!(fleet.answers(), ["two", "two"]);
}

/// A node's words about its fleet.
fn fleet_status(fleet: &Fleet, machine: usize) -> Value {
    let (status, text) = fleet.machines[machine].admin("/fleet").unwrap();
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn nodes_start_and_serve_while_etcd_is_away() {
    let Some(mut fleet) = Fleet::in_etcd(&["eu-1", "us-1"]) else { return };
    fleet.serve(origin("200 OK", "one"));
    fleet.applied();
    fleet.etcd.as_mut().unwrap().kill();
    fleet.machines.iter_mut().for_each(crate::world::Machine::restart);
    fleet.wait_for(&["one", "one"]);
    wait("a word about the state", || {
        let status = fleet_status(&fleet, 0);
        status["heard"] == 0
            && status["error"].as_str().is_some_and(|why| why.contains("cannot be reached"))
    });
    assert_eq!(fleet_status(&fleet, 0)["revision"], 1);
    fleet.etcd.as_mut().unwrap().spawn();
    fleet.serve(origin("200 OK", "two"));
    wait("both nodes", || fleet.order(&["status"]).status.success());
    fleet.applied();
    assert_eq!(fleet.answers(), ["two", "two"]);
}

#[test]
fn nodes_start_and_serve_while_the_keeper_is_away() {
    let mut fleet = Fleet::kept(&["eu-1", "eu-2"]);
    fleet.serve(origin("200 OK", "one"));
    fleet.applied();
    fleet.machines[0].kill();
    fleet.machines[1].restart();
    fleet.wait_for(&["", "one"]);
    fleet.machines[0].restart();
    wait("both nodes", || fleet.order(&["status"]).status.success());
    fleet.serve(origin("200 OK", "two"));
    fleet.applied();
}

#[test]
fn state_from_an_old_copy_is_refused_until_the_next_apply() {
    let mut fleet = Fleet::kept(&["eu-1", "eu-2"]);
    fleet.serve(origin("200 OK", "one"));
    fleet.applied();
    let state = fleet.machines[0].home.join("state/state.json");
    let backup = fleet.root.path().join("backup");
    copy(&state, &backup);
    fleet.serve(origin("200 OK", "two"));
    fleet.applied();
    fleet.machines[0].kill();
    copy(&backup, &state);
    fleet.machines[0].restart();
    let error = |name| fleet.status(name)["alive"]["error"].as_str().unwrap_or_default().to_owned();
    for name in ["eu-1", "eu-2"] {
        wait("the refusal", || error(name).contains("at revision 1, and this node has seen 2"));
    }
    assert_eq!(fleet.answers(), ["two", "two"]);
    // The same files, which the restored state does not have.
    let applied = fleet.apply(&["--at-once"]);
    let text = stdout(&applied);
    assert!(applied.status.success(), "{applied:?}");
    assert!(text.contains("restored from an old copy"), "{text}");
    assert!(text.contains("revision 3 is active on all 2 nodes"), "{text}");
    assert_eq!(error("eu-2"), "");
}
