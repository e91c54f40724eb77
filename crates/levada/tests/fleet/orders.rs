//! The orders of a person: apply, roll back, drain, remove, tokens.

use std::{thread, time::Duration};

use crate::{
    wait,
    world::{Fleet, Machine, origin, stderr, stdout},
};

/// One revision after the other, and back.
fn goes_through_revisions(fleet: &Fleet) {
    let (one, two) = (origin("200 OK", "one"), origin("200 OK", "two"));
    let waits =
        || stdout(&fleet.order(&["status"])).matches("waits for the first revision").count();
    wait("nodes without a revision", || waits() == 3);
    fleet.serve(one);
    fleet.applied();
    fleet.wait_for(&["one", "one", "one"]);

    // An error changes nothing, and is shown where it was written.
    fleet.write("sites/www.toml", "[[site]]\nhosts = \"*\"\n\norigins = \"http://127.0.0.1:9\"\n");
    let refused = fleet.apply(&[]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let text = stdout(&refused);
    assert!(text.contains("sites/www.toml:4:"), "{text}");
    assert!(text.contains("nodes: eu-1, eu-2, us-1\n"), "{text}");
    assert!(text.contains("nothing has changed"), "{text}");

    fleet.serve(two);
    let directory = fleet.directory().to_string_lossy().into_owned();
    let diff = stdout(&fleet.order(&["diff", &directory]));
    assert!(diff.contains("changed  sites/www.toml"), "{diff}");
    assert!(diff.contains("eu-1, eu-2, us-1: site *"), "{diff}");
    let applied = fleet.apply(&["--hold", "1s", "--note", "from one to two"]);
    let text = stdout(&applied);
    assert!(applied.status.success(), "{applied:?}\n{}", fleet.logs());
    assert!(text.contains("tried by eu-1\n"), "{text}");
    assert!(text.contains("tried by eu-1, us-1\n"), "{text}");
    assert!(text.contains("revision 2 is active on all 3 nodes"), "{text}");
    assert_eq!(fleet.answers(), ["two", "two", "two"]);

    let again = stdout(&fleet.apply(&[]));
    assert!(again.contains("nothing changes"), "{again}");
    let back = fleet.order(&["rollback"]);
    assert!(back.status.success(), "{back:?}");
    assert!(stdout(&back).contains("revision 3 is active on all 3 nodes"), "{back:?}");
    assert_eq!(fleet.answers(), ["one", "one", "one"]);
    let history = stdout(&fleet.order(&["history"]));
    assert!(history.contains("from one to two"), "{history}");
    assert!(history.contains("applied revision 3"), "{history}");
    let status = fleet.order(&["status"]);
    assert!(status.status.success(), "{status:?}");

    // Old revisions go, and what they have in common with others stays.
    fleet.serve(two);
    let kept = stdout(&fleet.apply(&["--at-once", "--keep", "2"]));
    assert!(kept.contains("2 old revisions have left the state"), "{kept}");
    let history = stdout(&fleet.order(&["history"]));
    assert!(history.contains("\n* 4 ") && !history.contains("from one to two\n"), "{history}");
    let gone = fleet.order(&["rollback", "2"]);
    assert!(stderr(&gone).contains("there is no such revision"), "{gone:?}");
    let back = fleet.order(&["rollback"]);
    assert!(back.status.success(), "{back:?}");
    assert_eq!(fleet.answers(), ["one", "one", "one"]);
}

#[test]
fn revisions_reach_nodes_by_the_one_that_keeps_the_state() {
    goes_through_revisions(&Fleet::kept(&["eu-1", "eu-2", "us-1"]));
}

#[test]
fn revisions_reach_nodes_by_etcd() {
    let Some(fleet) = Fleet::in_etcd(&["eu-1", "eu-2", "us-1"]) else { return };
    goes_through_revisions(&fleet);
    // Neither the files nor the secret can be read in etcd.
    let stored = fleet.etcd.as_ref().unwrap().all();
    assert!(stored.contains("f/members/eu-1") && stored.contains("chunks/"), "{stored}");
    assert!(!stored.contains("hosts ="), "{stored}");
}

#[test]
fn name_servers_answer_with_the_nodes_that_have_joined() {
    if levada_skip::lacks("kdig", "knot-dnsutils") {
        return;
    }
    let fleet = Fleet::kept(&["eu-1", "eu-2", "us-1"]);
    let [eu, _, us] = &fleet.machines[..] else { unreachable!() };
    let directory = "[fleet]\nname = \"web\"\n[[region]]\nname = \"eu\"\nfall_back = [\"us\"]\n";
    fleet.write("fleet.toml", &format!("{directory}[[region]]\nname = \"us\"\n"));
    fleet.serve(origin("200 OK", "one"));
    fleet.write(
        "dns.toml",
        "[dns]\nlisten = \"${FLEET_IP}:5353\"\ndefault_region = \"eu\"\n[[dns.zone]]\n\
         name = \"cdn.test\"\nfile = \"files/cdn.zone\"\nnames = [\"www\"]\nmax_answers = 8\n",
    );
    fleet.write("files/cdn.zone", "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\n");
    fleet.applied();
    let of = |machines: &[Machine]| {
        let mut all: Vec<_> = machines.iter().map(Machine::ip).collect();
        all.sort();
        all
    };
    let two = of(&fleet.machines[..2]);
    wait("the nodes of eu", || us.named("www.cdn.test") == two && eu.named("www.cdn.test") == two);
    // The region that stands in is stated in one place.
    for node in ["eu-1", "eu-2"] {
        assert!(fleet.order(&["drain", node]).status.success());
    }
    let one = of(&fleet.machines[2..]);
    wait("the nodes of us", || us.named("www.cdn.test") == one && eu.named("www.cdn.test") == one);
}

#[test]
fn drained_node_stays_so_and_removed_node_is_asked_no_more() {
    let mut fleet = Fleet::kept(&["eu-1", "eu-2"]);
    fleet.serve(origin("200 OK", "one"));
    fleet.applied();
    let ready = |fleet: &Fleet| fleet.machines[1].admin("/readyz").map(|(status, _)| status);
    wait("a ready node", || ready(&fleet) == Some(200));
    assert!(fleet.order(&["drain", "eu-2"]).status.success());
    wait("the drain", || ready(&fleet) == Some(503));
    fleet.machines[1].restart();
    wait("the drain after a restart", || ready(&fleet) == Some(503));
    assert!(fleet.order(&["drain", "eu-2", "--undo"]).status.success());
    wait("service", || ready(&fleet) == Some(200));

    let removed = fleet.order(&["remove", "eu-2"]);
    assert!(removed.status.success(), "{removed:?}");
    let peers = || fleet.machines[0].admin("/status").unwrap().1;
    wait("a cluster without it", || !peers().contains("eu-2"));
    assert!(fleet.machines[1].log().contains("the node was removed"), "{}", fleet.logs());
    let unknown = fleet.order(&["remove", "eu-2"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("there is no node eu-2: the fleet has eu-1"), "{unknown:?}");

    // Another machine takes its place.
    fleet.machines[1].kill();
    std::fs::remove_dir_all(&fleet.machines[1].home).unwrap();
    fleet.start(&["eu-2"]);
    fleet.wait_for(&["one", "one"]);
}

#[test]
fn secret_of_the_cluster_changes_on_all_nodes() {
    let mut fleet = Fleet::kept(&["eu-1", "eu-2"]);
    fleet.serve(origin("200 OK", "one"));
    fleet.applied();
    let secret = |machine: usize| {
        let file = fleet.machines[machine].home.join("current/peering");
        std::fs::read_to_string(file).unwrap()
    };
    let old = secret(0);
    let changed = fleet.order(&["rotate", "--timeout", "60s"]);
    assert!(changed.status.success(), "{changed:?}\n{}", fleet.logs());
    assert_eq!(secret(0), secret(1));
    assert!(secret(0) != old && !secret(0).contains('\n'), "{}", secret(0));
    fleet.wait_for(&["one", "one"]);

    // A node that is away keeps the change in its first round.
    fleet.machines[1].kill();
    let away = || fleet.status("eu-2")["alive"].is_null();
    wait("the end of its lease", away);
    let stuck = fleet.order(&["rotate", "--timeout", "1s"]);
    assert_eq!(stuck.status.code(), Some(1), "{stuck:?}");
    assert!(stdout(&stuck).contains("have not taken the secrets yet: eu-2"), "{stuck:?}");
    fleet.machines[1].restart();
    let changed = fleet.order(&["rotate", "--timeout", "60s"]);
    assert!(changed.status.success(), "{changed:?}");
}

#[test]
fn token_does_what_its_role_says_until_it_ends() {
    let fleet = Fleet::kept(&["eu-1"]);
    fleet.serve(origin("200 OK", "one"));
    fleet.applied();
    let make = |arguments: &[&str]| {
        let made = fleet.order(&[&["token"], arguments].concat());
        assert!(made.status.success(), "{made:?}");
        stdout(&made).trim().to_owned()
    };
    let by =
        |token: &str, arguments: &[&str]| fleet.order(&[arguments, &["--token", token]].concat());
    let directory = fleet.directory().to_string_lossy().into_owned();
    let (read, apply) = (make(&["--role", "read"]), make(&["--role", "apply"]));
    assert!(by(&read, &["status"]).status.success());
    fleet.serve(origin("200 OK", "two"));
    let refused = by(&read, &["apply", &directory]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(stderr(&refused).contains("a token with the role read may not do this"), "{refused:?}");
    assert!(by(&apply, &["apply", &directory]).status.success());
    let refused = by(&apply, &["token", "--role", "admin"]);
    assert!(stderr(&refused).contains("use one with the role admin"), "{refused:?}");

    let list = stdout(&fleet.order(&["token"]));
    let id = list.split_whitespace().find(|word| word.starts_with("apply-")).unwrap().to_owned();
    assert!(fleet.order(&["token", "--revoke", &id]).status.success());
    let revoked = by(&apply, &["status"]);
    assert_eq!(revoked.status.code(), Some(2));
    assert!(stderr(&revoked).contains(&format!("the token {id} was revoked")), "{revoked:?}");
    let short = make(&["--role", "read", "--expires", "1s"]);
    thread::sleep(Duration::from_secs(2));
    assert!(stderr(&by(&short, &["status"])).contains("expired"), "{short}");
    let garbage = by("levada1.x", &["status"]);
    assert!(stderr(&garbage).contains("this is no token of a fleet"), "{garbage:?}");
}

#[test]
fn second_machine_of_a_name_or_address_is_refused() {
    let fleet = Fleet::kept(&["eu-1"]);
    let join = |name: &str, address: &str| {
        let home = fleet.root.path().join("other");
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_levada"));
        command.args(["join", &fleet.join, "--no-run", "--region", "eu", "--name", name]);
        let output = command.args(["--address", address, "--directory"]).arg(home).output();
        stderr(&output.unwrap())
    };
    let error = join("eu-1", "127.0.0.1:7071");
    assert!(error.contains("the fleet has a node eu-1 already"), "{error}");
    let taken = format!("{}:7070", fleet.machines[0].clients().ip());
    let error = join("eu-2", &taken);
    assert!(error.contains(&format!("eu-1 has the address {taken} already")), "{error}");
    let error = join("eu 2", "127.0.0.1:7071");
    assert!(error.contains("\"eu 2\" is no name of a node"), "{error}");
}

/// Each change ends the wait of a node, and none of them may keep it from renewing its lease of 15 s.
#[test]
fn nodes_stay_alive_while_the_state_changes_often() {
    let fleet = Fleet::kept(&["eu-1"]);
    wait("the node", || !fleet.status("eu-1")["alive"].is_null());
    for change in 0..10 {
        let token = fleet.order(&["token", "--role", "purge"]);
        assert!(token.status.success(), "{token:?}");
        thread::sleep(Duration::from_secs(2));
        let status = fleet.status("eu-1");
        assert!(!status["alive"].is_null(), "after {change}: {status}");
    }
}

#[test]
fn directory_is_checked_without_a_state() {
    let fleet = Fleet::empty(&["eu-1"], None);
    let directory = fleet.directory().to_string_lossy().into_owned();
    let check = |nodes: &[&str]| {
        let nodes: Vec<&str> = nodes.iter().flat_map(|node| ["--node", node]).collect();
        fleet.order(&[&["check", &directory], &nodes[..]].concat())
    };
    fleet.write(
        "sites/a.toml",
        "[[site]]\nhosts = \"a.test\"\norigin = \"http://127.0.0.1:9\"\nshield = \"us\"\n",
    );
    let good = check(&["eu-1=eu=127.0.0.1:7070", "us-1=us=127.0.0.2:7070"]);
    assert!(good.status.success(), "{good:?}");
    let alone = check(&["eu-1=eu=127.0.0.1:7070"]);
    assert!(alone.status.success(), "{alone:?}");
    assert!(stdout(&alone).contains("note: region us has no nodes: sites with"), "{alone:?}");
    let unknown = stdout(&check(&["ap-1=ap=127.0.0.3:7070"]));
    assert!(unknown.contains("node ap-1 is of region \"ap\", which is none"), "{unknown}");
    let twice = stdout(&check(&["eu-1=eu=127.0.0.1:7070", "eu-1=eu=127.0.0.2:7070"]));
    assert!(twice.contains("\"eu-1\" is the name of peer[0] already"), "{twice}");

    // A region's file has the last word, and errors in it are found there.
    fleet.write("regions/us.toml", "[limits]\n\ncapacity = \"many\"\n");
    let wrong = check(&["eu-1=eu=127.0.0.1:7070", "us-1=us=127.0.0.2:7070"]);
    assert_eq!(wrong.status.code(), Some(1));
    let text = stdout(&wrong);
    assert!(text.contains("regions/us.toml:3:12: error: limits.capacity"), "{text}");
    assert!(text.contains("nodes: us-1\n"), "{text}");
    fleet.write("regions/us.toml", "name = \"x\"\n");
    let text = stdout(&check(&[]));
    assert!(text.contains("regions/us.toml:1:1: error: name: each node gets it"), "{text}");
    fleet.write("regions/us.toml", "");
    fleet.write("sites/a.toml", "[[site]\n");
    let text = stdout(&check(&[]));
    assert!(text.contains("sites/a.toml:1:"), "{text}");
}
