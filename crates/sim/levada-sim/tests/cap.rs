//! WWW10's cluster by way of scenarios: clients, costs and the measurement.

use std::ops::ControlFlow;

use levada_sim::{Library, Metric, Outcome, Problems, Scenario};

/// A quarter of the paper's cluster and clients, for a minute.
const SMALL: &[(&str, &str)] = &[
    ("servers.count", "8"),
    ("cache.eviction", "lru"),
    ("cap.clients_per_second", "75.0"),
    ("cap.window.warm_up", "20s"),
    ("cap.window.measure", "40s"),
    ("cap.window.drain", "20s"),
];

fn outcome(changes: &[(&str, &str)]) -> Outcome {
    let all = SMALL.iter().chain(changes).copied();
    let scenario = Scenario::default().with(all).unwrap();
    let prepared = scenario.prepare(&mut Library::without_files()).unwrap();
    levada_sim::run(&prepared, &mut |_| ControlFlow::Continue(()))
}

fn reading(outcome: &Outcome, metric: Metric) -> f64 {
    outcome.reading(metric).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    let run = || outcome(&[("policy.name", "cap"), ("cap.mix.disk_bound", "0.5")]);
    let first = run();
    assert!(reading(&first, Metric::Pages) > 5_000.0);
    assert_eq!(first, run());
    assert_ne!(first, outcome(&[("policy.name", "cap"), ("seed", "1")]));
}

#[test]
fn every_policy_meets_the_same_clients() {
    let pages = |policy| {
        let sessions = ("cap.sessions.think", "{ alpha = 1.4, k = 1000.0 }");
        reading(&outcome(&[("policy.name", policy), sessions]), Metric::Pages)
    };
    assert_eq!(pages("cap"), pages("random"));
}

/// An idle server delivers a page of one object in exactly the known cost of that object.
#[test]
fn an_idle_server_takes_the_sum_of_its_parts() {
    let alone = outcome(&[
        ("policy.name", "cap"),
        ("cap.clients_per_second", "1.0"),
        ("cap.sessions.most_objects", "1"),
        ("cap.documents.largest", "1"),
        ("cap.mix.static", "0.0"),
        ("cap.mix.disk_bound", "1.0"),
    ]);
    // 194 us switch, 290 + 40 us CPU, five times 0.05 + 9 + 4.167 ms and one byte from disk at
    // 20 MB/s, one byte to the network at 12.5 MB/s.
    let expected = 0.194 + 0.33 + 5.0 * 13.216_667 + 0.000_05 + 0.000_08;
    let median = reading(&alone, Metric::LatencyP50) * 1e3;
    assert!((median - expected).abs() < 1e-3, "{median} ms for {expected} ms");
}

#[test]
fn a_secure_page_costs_what_table_2_says() {
    let cost = |ssl: &str| {
        let alone = outcome(&[
            ("policy.name", "cap"),
            ("cap.clients_per_second", "1.0"),
            ("cap.sessions.most_objects", "1"),
            // Sessions of one page each: every page negotiates keys.
            ("cap.sessions.pages", "{ mu = 0.5, lambda = 100.0 }"),
            ("cap.mix.static", "0.0"),
            (ssl, "1.0"),
            ("cap.documents.body", "{ mu = 20.0, sigma = 0.001 }"),
            ("cap.documents.tail_share", "0.0"),
            ("cap.documents.largest", "10000"),
        ]);
        reading(&alone, Metric::LatencyP50) * 1e3
    };
    // 1,024 bits at 38.5 kbit/s; 80 kbit at 46.886 and 331.034 Mbit/s; 2048 + 73 + 29 bytes more.
    let expected = 26.597_403 + 1.706_266 + 0.241_667 + 0.172;
    let extra = cost("cap.mix.cpu_bound") - cost("cap.mix.static");
    assert!((extra - expected).abs() < 2e-3, "{extra} ms for {expected} ms");
}

#[test]
fn a_switch_of_layer_4_keeps_a_page_on_one_server() {
    let by = |dispatch| {
        let changes = [("policy.name", "round_robin"), ("cap.switch.dispatch", dispatch)];
        reading(&outcome(&changes), Metric::Imbalance)
    };
    assert!(by("object") < 1.001, "every request in turn: {}", by("object"));
    assert!(by("page") > 1.01, "every page in turn, large and small: {}", by("page"));
}

#[test]
fn a_queue_that_grows_ends_with_the_window() {
    let overloaded = outcome(&[("policy.name", "cap"), ("cap.clients_per_second", "400.0")]);
    assert!(reading(&overloaded, Metric::Unfinished) > 0.1);
    assert!(reading(&overloaded, Metric::Duration) < 81.0);
}

#[test]
fn everything_wrong_is_said_at_once() {
    let changes = [
        ("cap.clients_per_second", "-1.0"),
        ("cap.mix.static", "0.0"),
        ("cap.switch.gather", "0s"),
        ("cap.hardware.disk_rate", "0"),
    ];
    let scenario = Scenario::default().with(changes).unwrap();
    let Problems(problems) = scenario.prepare(&mut Library::without_files()).unwrap_err();
    let places: Vec<_> = problems.iter().map(|problem| problem.place.as_str()).collect();
    assert_eq!(
        places,
        ["cap.clients_per_second", "cap.hardware.disk_rate", "cap.switch.gather", "cap.mix"]
    );
}
