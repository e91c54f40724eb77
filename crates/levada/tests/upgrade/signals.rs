//! Every signal that an operator may send has the effect that docs/operate/upgrade.md states.

use std::fs;

use rustix::process::Signal;

use crate::{
    load::Client,
    node::{Node, Plan, eventually},
    origin::Origin,
};

#[test]
fn signals_without_effect_leave_the_node_as_it_is() {
    let plan = Plan::new(&Origin::start());
    let node = Node::start(&plan);
    let mut client = Client::new(node.clients());
    for signal in [Signal::PIPE, Signal::WINCH, Signal::CHILD, Signal::URG, Signal::CONT] {
        node.signal(signal);
        assert_eq!(client.get("/object/1").unwrap().status, 200, "{signal:?}");
    }
    node.terminate();
    assert!(node.has_ended_well());
}

#[test]
fn hup_reloads_and_usr1_opens_the_access_log_again() {
    let mut plan = Plan::new(&Origin::start());
    plan.log_to("access.log");
    let log = plan.path("access.log");
    let node = Node::start(&plan);
    let mut client = Client::new(node.clients());
    // A file is opened when there is a line for it.
    let mut is_written = || client.get("/object/1").is_ok() && log.exists();
    for signal in [Signal::USR1, Signal::HUP] {
        eventually("the log is there", &mut is_written);
        fs::rename(&log, plan.path("old.log")).unwrap();
        node.signal(signal);
        eventually("the log is opened again", &mut is_written);
    }
    let has_reloaded = || node.admin_get("/events").is_some_and(|page| page.contains("reloaded"));
    eventually("the node reloads", has_reloaded);
    node.terminate();
    assert!(node.has_ended_well());
}

#[test]
fn usr2_upgrades() {
    let plan = Plan::new(&Origin::start());
    let mut node = Node::start(&plan);
    node.signal(Signal::USR2);
    eventually("another process has taken over", || {
        plan.log().contains("another process has taken over")
    });
    node.follow();
    assert_eq!(Client::new(node.clients()).get("/object/1").unwrap().status, 200);
    node.terminate();
    assert!(node.has_ended_well(), "the old process has ended by itself");
}

#[test]
fn term_int_and_quit_stop_the_node_in_an_orderly_way() {
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
        let plan = Plan::new(&Origin::start());
        let node = Node::start(&plan);
        node.signal(signal);
        assert!(node.has_ended_well(), "{signal:?}");
    }
}
