//! Machines whose clocks are wrong.

use crate::{
    wait,
    world::{Fleet, faketime, origin, stderr, stdout},
};

fn clock_of(fleet: &Fleet, name: &str) -> i64 {
    fleet.status(name)["alive"]["clock"].as_i64().unwrap_or_default()
}

/// The second machine's clock is half an hour ahead, the third's behind.
fn wrong_clocks_are_named_and_do_no_harm(mut fleet: Fleet) {
    if !fleet.machines[1].set_clock("+1800s") || !fleet.machines[2].set_clock("-1800s") {
        return;
    }
    fleet.start(&["eu-1", "eu-2", "us-1"]);
    fleet.serve(origin("200 OK", "one"));
    fleet.applied();
    fleet.wait_for(&["one", "one", "one"]);
    wait("the clocks are known", || {
        clock_of(&fleet, "eu-2") > 1700 && clock_of(&fleet, "us-1") < -1700
    });
    assert_eq!(clock_of(&fleet, "eu-1"), 0);
    let status = fleet.order(&["status"]);
    let text = stdout(&status);
    assert_eq!(status.status.code(), Some(1), "{text}");
    for said in ["s ahead of the state's", "s behind the state's"] {
        assert!(text.contains(said), "{text}");
    }

    // Leases and roll-outs do not look at these clocks.
    fleet.serve(origin("200 OK", "two"));
    let applied = fleet.apply(&["--hold", "1s"]);
    assert!(applied.status.success(), "{applied:?}");
    assert!(stderr(&applied).contains("the clock of eu-2") || stdout(&applied).contains("eu-2"));
    fleet.wait_for(&["two", "two", "two"]);

    // Nor do tokens that a machine with a wrong clock makes and shows.
    for difference in ["+1800s", "-1800s"] {
        let made = fleet
            .command(&["token", "--role", "read", "--expires", "10m"])
            .envs(faketime(difference))
            .output()
            .unwrap();
        let token = stdout(&made).trim().to_owned();
        for clock in [faketime(difference), Vec::new()] {
            let mut shown = fleet.command(&["--token", &token, "status"]);
            let shown = shown.envs(clock).output().unwrap();
            assert!(stdout(&shown).contains("fleet web: revision 2"), "{difference} {shown:?}");
        }
    }
}

#[test]
fn wrong_clocks_are_named_and_do_no_harm_where_a_node_keeps_the_state() {
    wrong_clocks_are_named_and_do_no_harm(Fleet::kept_by(&["eu-1", "eu-2", "us-1"], &[]));
}

#[test]
fn wrong_clocks_are_named_and_do_no_harm_with_etcd() {
    if let Some(fleet) = Fleet::in_etcd_by(&["eu-1", "eu-2", "us-1"], &[]) {
        wrong_clocks_are_named_and_do_no_harm(fleet);
    }
}
