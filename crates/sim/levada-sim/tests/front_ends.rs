//! Front-ends that hold documents: against the eviction by itself, a closed form, and sums that must hold.

use std::{collections::HashMap, ops::ControlFlow};

use levada_cache::eviction::{EVICTIONS, Handle};
use levada_sim::{Library, Metric, Outcome, Scenario, run};
use levada_trace::{Trace, TraceObject, generate::RICE};
use levada_types::{Key, Rng};

/// Front-ends before two servers play the trace once.
fn simulated(trace: &Trace, changes: &[(&str, &str)]) -> Outcome {
    let mut library = Library::without_files();
    library.keep("small", trace.clone());
    let requests = trace.requests().len().to_string();
    let base = [
        ("workload.trace", "small"),
        ("workload.arrivals", "constant"),
        ("workload.rate", "2"),
        ("workload.clients", "10"),
        ("measure.requests", requests.as_str()),
        ("topology.name", "lan_cluster"),
        ("servers.count", "2"),
        ("servers.cpu", "1000"),
    ];
    let scenario =
        Scenario::default().with(base).and_then(|scenario| scenario.with(changes.iter().copied()));
    let prepared = scenario.and_then(|scenario| scenario.prepare(&mut library)).unwrap();
    run(&prepared, &mut |_| ControlFlow::Continue(()))
}

fn of(outcome: &Outcome, metric: Metric) -> f64 {
    outcome.reading(metric).unwrap_or_else(|| panic!("there is no {metric:?}"))
}

/// Documents of 1,000 bytes whose popularity falls with their rank, and independent requests for them.
fn zipf(documents: usize, requests: usize) -> (Trace, Vec<f64>) {
    let weights: Vec<f64> = (1..=documents).map(|rank| (rank as f64).powf(-0.8)).collect();
    let all: f64 = weights.iter().sum();
    let mut sums = Vec::new();
    weights.iter().fold(0.0, |sum, weight| {
        sums.push(sum + weight);
        sum + weight
    });
    let mut rng = Rng::new(3);
    let mut drawn = || {
        let point = rng.unit() * all;
        (sums.partition_point(|sum| *sum <= point)).min(documents - 1) as u32
    };
    let requests = (0..requests).map(|_| drawn()).collect();
    let object = |n| TraceObject { name: format!("/{n}").into(), size: 1_000 };
    let probabilities = weights.iter().map(|weight| weight / all).collect();
    (Trace::new((0..documents).map(object).collect(), requests), probabilities)
}

/// The hit ratio of an LRU cache of `room` documents of one size (Che, Tung and Wang, JSAC 2002).
fn che(probabilities: &[f64], room: f64) -> f64 {
    let there = |time: f64| probabilities.iter().map(move |p| 1.0 - (-p * time).exp());
    let (mut low, mut high) = (0.0, 1e9);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if there(middle).sum::<f64>() < room { low = middle } else { high = middle }
    }
    there(low).zip(probabilities).map(|(there, p)| there * p).sum()
}

#[test]
fn front_end_has_the_hits_of_its_eviction_over_the_same_requests() {
    let trace = RICE.scaled(400, 3_000).generate(1);
    let memory = 300_000;
    for entry in EVICTIONS {
        let mut eviction = (entry.build)(memory);
        let (mut known, mut victims, mut hits) = (HashMap::new(), Vec::new(), 0);
        for (handle, document) in (0..).map(Handle).zip(trace.requests()) {
            if let Some(held) = known.get(document) {
                eviction.touch(*held);
                hits += 1;
                continue;
            }
            let object = &trace.objects()[*document as usize];
            if object.size > memory {
                continue;
            }
            let key = Key::of(object.name.as_bytes());
            let _ = eviction.insert(handle, key, object.size, &mut victims);
            known.insert(*document, handle);
            victims.drain(..).for_each(|victim| known.retain(|_, handle| *handle != victim));
        }
        let memory = memory.to_string();
        let front_end = [
            ("front_ends.memory", &*memory),
            ("front_ends.eviction", entry.name),
            // So slowly that no request comes while another is on its way.
            ("workload.rate", "0.05"),
        ];
        let outcome = simulated(&trace, &front_end);
        let simulated = of(&outcome, Metric::FrontHits) * of(&outcome, Metric::Requests);
        assert_eq!(simulated.round() as usize, hits, "{}", entry.name);
        assert!(hits > 500, "{}: {hits}", entry.name);
    }
}

#[test]
fn each_front_end_has_the_hits_of_the_closed_form_and_servers_get_the_rest() {
    let (trace, probabilities) = zipf(2_000, 60_000);
    for front_ends in ["1", "3"] {
        let outcome = simulated(
            &trace,
            &[
                ("topology.front_ends", front_ends),
                ("front_ends.memory", "200000"),
                ("front_ends.eviction", "lru"),
                ("cache.warm_requests", "10000"),
                ("workload.repeat", "true"),
            ],
        );
        let (hits, expected) = (of(&outcome, Metric::FrontHits), che(&probabilities, 200.0));
        assert!((hits - expected).abs() < 0.01, "{front_ends}: {hits}, {expected} by Che");
        let bytes = of(&outcome, Metric::FrontBytes);
        assert!((bytes - hits).abs() < 1e-9, "all documents have one size");
        let (all, rest) = (of(&outcome, Metric::Requests), of(&outcome, Metric::ServerRequests));
        assert_eq!((all, (all * (1.0 - hits)).round()), (60_000.0, rest));
        let served: u64 = outcome.servers.iter().map(|server| server.requests).sum();
        assert_eq!(served as f64, rest);
        // Every request is answered, by one or the other.
        let finished = of(&outcome, Metric::Throughput) * of(&outcome, Metric::Duration);
        assert_eq!(finished.round(), all);
    }
}

#[test]
fn requests_for_a_document_on_its_way_wait_for_it_at_each_front_end() {
    let object = TraceObject { name: "/a".into(), size: 100_000 };
    let trace = Trace::new(vec![object], vec![0; 500]);
    let play = |changes: &[(&str, &str)]| {
        let all = [
            ("workload.rate", "100000"),
            ("topology.front_ends", "2"),
            ("workload.clients", "100"),
        ];
        simulated(&trace, &[&all[..], changes].concat())
    };
    let outcome = play(&[("front_ends.memory", "1MiB")]);
    assert_eq!(of(&outcome, Metric::ServerRequests), 2.0);
    assert_eq!(of(&outcome, Metric::FrontHits), 498.0 / 500.0);
    let longer = play(&[("front_ends.memory", "1MiB"), ("front_ends.max_object", "99999")]);
    assert_eq!(of(&longer, Metric::ServerRequests), 500.0);
    let none = play(&[]);
    assert_eq!((none.reading(Metric::FrontHits), of(&none, Metric::Requests)), (None, 500.0));
    let closed = play(&[
        ("front_ends.memory", "1MiB"),
        ("workload.arrivals", "closed"),
        ("workload.outstanding", "50"),
    ]);
    assert_eq!((of(&closed, Metric::Requests), of(&closed, Metric::ServerRequests)), (500.0, 2.0));
}

#[test]
fn front_ends_that_cannot_be_are_refused_with_what_to_set() {
    let wrong = |changes: &[(&str, &str)]| {
        let scenario = Scenario::default().with(changes.iter().copied()).unwrap();
        scenario.prepare(&mut Library::without_files()).unwrap_err().to_string()
    };
    let errors = wrong(&[("front_ends.eviction", "lrux"), ("front_ends.memory", "0")]);
    for what in
        ["front_ends.eviction: there is no `lrux`; there are", "front_ends.memory: without memory"]
    {
        assert!(errors.contains(what), "{errors}");
    }
    let expiring = r#"[{ at = "1s" }]"#;
    let errors = wrong(&[
        ("front_ends.memory", "1MiB"),
        ("freshness.purge", expiring),
        ("origin.latency", "40ms"),
    ]);
    assert!(errors.contains("leave it out, or `freshness`"), "{errors}");
}
