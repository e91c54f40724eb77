use levada_policy::POLICIES;
use levada_trace::RICE;

use super::*;
use crate::{Library, Scenario};

/// A scenario on eight servers, and a small trace called `small`.
fn prepare(changes: &[(&str, &str)]) -> Prepared {
    let mut library = Library::without_files();
    library.keep("small", RICE.scaled(2_000, 40_000).generate(1));
    let small = [("workload.trace", "small"), ("servers.count", "8"), ("workload.clients", "60")];
    let scenario =
        Scenario::default().with(small).and_then(|scenario| scenario.with(changes.iter().copied()));
    scenario.and_then(|scenario| scenario.prepare(&mut library)).unwrap()
}

fn play(prepared: &Prepared) -> Outcome {
    World::new(prepared).run(&mut |_| ControlFlow::Continue(()))
}

#[test]
fn what_is_sent_is_finished_and_counted_under_every_policy() {
    for entry in POLICIES.iter().flat_map(|file| file.iter()) {
        let prepared = prepare(&[
            ("policy.name", entry.name),
            ("workload.arrivals", "constant"),
            ("workload.rate", "1500"),
            ("measure.requests", "3000"),
        ]);
        let mut world = World::new(&prepared);
        world.begin();
        while world.demand.played() < 3000 {
            world.next();
            let in_flight = world.requests.len() as u64;
            assert!(world.redirectors.outstanding() <= in_flight, "{}", entry.name);
        }
        world.next_send = None;
        while world.requests.len() > 0 {
            world.next();
        }
        assert_eq!(world.redirectors.outstanding(), 0, "{}", entry.name);
        let finished: u64 = world.servers.iter().map(|server| server.finished).sum();
        assert_eq!(finished, 3000, "{}", entry.name);
        assert!(world.servers.iter().all(|server| server.active == 0), "{}", entry.name);
        assert_eq!(world.reads.len(), 0, "{}", entry.name);
    }
}

#[test]
fn a_ramp_ends_when_a_server_fails() {
    let outcome = play(&prepare(&[("policy.name", "random"), ("workload.growth", "0.1")]));
    assert_eq!(outcome.end, End::Overload);
    let capacity = outcome.reading(crate::Metric::Capacity).unwrap();
    assert!((1_000.0..8.0 * 1075.0).contains(&capacity), "{capacity}");
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let bytes = |seed| {
        let changes = [("seed", seed), ("measure.requests", "4000"), ("policy.name", "p2c")];
        serde_json::to_string(&play(&prepare(&changes))).unwrap()
    };
    assert_eq!(bytes("1"), bytes("1"));
    assert_ne!(bytes("1"), bytes("2"));
}

#[test]
fn a_closed_loop_keeps_as_many_in_flight_as_it_may() {
    let prepared = prepare(&[
        ("workload.arrivals", "closed"),
        ("topology.name", "lan_cluster"),
        ("policy.name", "lard/r"),
        ("measure.requests", "20000"),
    ]);
    let mut world = World::new(&prepared);
    world.begin();
    // S of eight nodes: 7 x 65 + 25 - 1.
    for _ in 0..10_000 {
        assert_eq!(world.redirectors.outstanding(), 479);
        world.next();
    }
}
