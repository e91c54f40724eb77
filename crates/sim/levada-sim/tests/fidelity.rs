//! The two networks against each other: in bulk, a transfer takes a few events; packet by packet, it
//! takes hundreds. Where no link is saturated, both must give the same readings.

use std::ops::ControlFlow;

use levada_sim::{Library, Metric, Outcome, Scenario, run};
use levada_trace::generate::RICE;

/// Servers that fail early, so that the ramp is short.
const SMALL: &[(&str, &str)] = &[
    ("workload.trace", "small"),
    ("workload.repeat", "true"),
    ("workload.clients", "100"),
    ("servers.count", "8"),
    ("servers.active", "128"),
    ("servers.queue", "256"),
    ("policy.name", "lr-chash"),
    ("policy.replicas", "3"),
];

fn play(fidelity: &str, changes: &[(&str, &str)]) -> Outcome {
    let mut library = Library::without_files();
    library.keep("small", RICE.scaled(2_000, 60_000).generate(1));
    let scenario = Scenario::default()
        .with(SMALL.iter().copied())
        .and_then(|scenario| scenario.with(changes.iter().copied()))
        .and_then(|scenario| scenario.with([("network.fidelity", fidelity)]))
        .and_then(|scenario| scenario.prepare(&mut library))
        .unwrap();
    run(&scenario, &mut |_| ControlFlow::Continue(()))
}

/// The reading of the first network divided by that of the second.
fn ratio(bulk: &Outcome, packets: &Outcome, metric: Metric) -> f64 {
    bulk.reading(metric).unwrap() / packets.reading(metric).unwrap()
}

#[test]
fn capacities_agree() {
    let ramp = [("workload.rate", "500"), ("workload.growth", "0.02"), ("workload.step", "1s")];
    let (bulk, packets) = (play("flow", &ramp), play("packet", &ramp));
    let capacity = ratio(&bulk, &packets, Metric::Capacity);
    assert!((0.97..1.03).contains(&capacity), "{capacity}");
    assert!(packets.reading(Metric::Events) > Some(20.0 * bulk.reading(Metric::Events).unwrap()));
}

#[test]
fn latencies_agree_while_nothing_is_saturated() {
    let rate = [
        ("workload.arrivals", "constant"),
        ("workload.rate", "800"),
        ("measure.requests", "20000"),
        ("measure.warm_up", "5s"),
    ];
    let (bulk, packets) = (play("flow", &rate), play("packet", &rate));
    for metric in [Metric::LatencyP50, Metric::LatencyMean, Metric::LatencyP90] {
        let latency = ratio(&bulk, &packets, metric);
        assert!((0.9..1.1).contains(&latency), "{metric:?}: {latency}");
    }
    assert_eq!(packets.reading(Metric::Dropped), Some(0.0));
    assert_eq!(bulk.reading(Metric::Dropped), None);
}

#[test]
fn same_seed_same_outcome_packet_by_packet() {
    let rate = [
        ("workload.arrivals", "constant"),
        ("workload.rate", "2000"),
        ("measure.requests", "4000"),
    ];
    assert_eq!(play("packet", &rate), play("packet", &rate));
}
