//! Rates and catalogues that grow within a run.

use std::ops::ControlFlow;

use levada_sim::{Library, Metric, Outcome, Scenario, run};
use levada_trace::generate::RICE;

fn simulated(changes: &[(&str, &str)]) -> Outcome {
    let mut library = Library::without_files();
    library.keep("small", RICE.scaled(1_000, 20_000).generate(1));
    let base = [
        ("workload.trace", "small"),
        ("workload.repeat", "true"),
        ("workload.arrivals", "constant"),
        ("workload.rate", "100"),
        ("workload.clients", "50"),
        ("measure.duration", "100s"),
        ("topology.name", "lan_cluster"),
        ("servers.count", "4"),
        ("policy.name", "hrw"),
        ("cache.memory", "1GiB"),
    ];
    let scenario =
        Scenario::default().with(base).and_then(|scenario| scenario.with(changes.iter().copied()));
    let prepared = scenario.and_then(|scenario| scenario.prepare(&mut library)).unwrap();
    run(&prepared, &mut |_| ControlFlow::Continue(()))
}

/// Requests that missed: where memories hold everything, the distinct documents that were requested.
fn misses(outcome: &Outcome) -> f64 {
    let of = |metric| outcome.reading(metric).unwrap();
    (of(Metric::MissRatio) * of(Metric::Requests)).round()
}

#[test]
fn distinct_documents_are_those_of_the_catalogue() {
    // More requests than passes over the trace need, and so slowly that no two wait for one read.
    let play = |changes: &[(&str, &str)]| {
        let slow =
            [("workload.rate", "2"), ("measure.duration", "30000s"), ("servers.disk", "1000")];
        let outcome = simulated(&[&slow[..], changes].concat());
        misses(&outcome)
    };
    let all = play(&[]);
    assert!((950.0..=1_000.0).contains(&all), "{all}");
    let still = [("workload.catalogue.start", "300"), ("workload.catalogue.end", "300")];
    let still = play(&still);
    assert!((299.0..=302.0).contains(&still), "{still}");
    let grown = [("workload.catalogue.start", "300"), ("workload.catalogue.end", "700")];
    let grown = play(&[&grown[..], &[("workload.catalogue.over", "10000s")]].concat());
    assert!((690.0..=702.0).contains(&grown), "{grown}");
}

#[test]
fn growth_follows_the_seed_and_new_popular_documents_cost_misses() {
    let grown = |enter, seed| {
        simulated(&[
            ("workload.catalogue.start", "300"),
            ("workload.catalogue.enter", enter),
            ("seed", seed),
        ])
    };
    let text = |outcome: &Outcome| serde_json::to_string(outcome).unwrap();
    assert_eq!(text(&grown("anywhere", "1")), text(&grown("anywhere", "1")));
    assert_ne!(text(&grown("anywhere", "1")), text(&grown("anywhere", "2")));
    let [anywhere, first] = ["anywhere", "first"].map(|enter| misses(&grown(enter, "1")));
    assert!(first > 1.05 * anywhere, "the newest is always requested: {first} {anywhere}");
}

#[test]
fn rate_at_the_end_is_reached_evenly() {
    let outcome = simulated(&[("workload.rate_at_end", "500")]);
    let requests = outcome.reading(Metric::Requests).unwrap();
    // The mean of 100 and 500, within four standard deviations.
    assert!((requests - 30_000.0).abs() < 700.0, "{requests}");
    let offered = outcome.series.iter().find(|series| series.name == "offered").unwrap();
    let at_last = offered.points.last().unwrap();
    assert!((at_last.1 - (100.0 + 4.0 * at_last.0)).abs() < 1.0, "{at_last:?}");
}

#[test]
fn growth_that_cannot_be_is_refused_with_what_to_set() {
    let wrong = |changes: &[(&str, &str)]| {
        let mut library = Library::without_files();
        library.keep("small", RICE.scaled(1_000, 20_000).generate(1));
        let small = [("workload.trace", "small")];
        let scenario = Scenario::default().with(small).unwrap().with(changes.iter().copied());
        scenario.unwrap().prepare(&mut library).unwrap_err().to_string()
    };
    let errors = wrong(&[
        ("workload.rate_at_end", "0"),
        ("workload.catalogue.start", "0"),
        ("workload.catalogue.end", "1001"),
    ]);
    for what in [
        "workload.rate_at_end: it must be a number of requests per second above 0",
        "workload.rate_at_end: it is where a constant rate goes to",
        "workload.rate_at_end: the end is that of `measure.duration`",
        "workload.catalogue.end: the trace has",
        "workload.catalogue.start: there must be a document",
        "workload.catalogue.over: give a time above 0",
    ] {
        assert!(errors.contains(what), "{what} in {errors}");
    }
}
