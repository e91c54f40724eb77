use std::ops::ControlFlow;

use super::*;
use crate::{Library, Metric, Outcome, Reading};

const EXAMPLE: &str = include_str!("../../scenarios/regions.toml");

fn example(changes: &[(&str, &str)]) -> Scenario {
    let scenario = Scenario::from_toml(EXAMPLE).expect("it is right");
    scenario.with(changes.iter().copied()).expect("they fit")
}

fn outcome(changes: &[(&str, &str)]) -> Outcome {
    let prepared = example(changes).prepare(&mut Library::without_files()).expect("it is right");
    crate::run(&prepared, &mut |_| ControlFlow::Continue(()))
}

/// The milliseconds of a metric in each region: eu, us, ap.
fn milliseconds(outcome: &Outcome, metric: Metric) -> Vec<f64> {
    let of = |region: &crate::RegionUse| {
        let seconds = region.readings.get(&Reading::from(metric)).copied();
        (seconds.unwrap_or(f64::NAN) * 1e4).round() / 10.0
    };
    outcome.regions.iter().map(of).collect()
}

const SPLIT: &[(&str, &str)] = &[("regions.shield", "")];
const ONE: &[(&str, &str)] = &[("regions.shield", ""), ("regions.one_cluster", "true")];
const NEAR: &[(&str, &str)] = &[
    ("regions.shield", ""),
    ("regions.one_cluster", "true"),
    ("policy.name", "np-fdr"),
    ("policy.busy", "capacity"),
];

/// The figures of docs/lab/regions.md.
#[test]
fn simulator_gives_the_figures_of_the_page() {
    let figures = |changes: &[(&str, &str)]| {
        // The lab counts at the origin before it sends warm requests.
        let filled = outcome(&[changes, &[("measure.duration", "600ms")]].concat());
        let origin = filled.reading(Metric::OriginRequests).unwrap_or_default();
        let outcome = outcome(changes);
        let [warm, first] =
            [Metric::LatencyP50, Metric::FirstP50].map(|metric| milliseconds(&outcome, metric));
        (warm, first, (origin * 100.0).round() / 100.0)
    };
    let far = || vec![162.5, 204.5, 304.1];
    assert_eq!(figures(&[]), (vec![2.8, 2.8, 2.8], vec![162.5, 4.2, 154.1], 1.0));
    assert_eq!(figures(ONE), (vec![162.5, 152.0, 202.4], far(), 1.0));
    assert_eq!(figures(NEAR), (vec![162.5, 152.0, 152.0], far(), 1.0));
    assert_eq!(figures(SPLIT), (vec![2.8, 2.8, 2.8], vec![84.4, 4.2, 154.1], 3.0));
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    assert_eq!(outcome(ONE), outcome(ONE));
    assert_ne!(outcome(ONE), outcome(&[ONE, &[("seed", "2")]].concat()));
}

#[test]
fn origin_is_asked_once_by_way_of_the_shield_however_many_ask_at_once() {
    // A response takes longer than the interval: every object is on its way to all regions at the same time.
    let changes = [("regions.fill", "1ms"), ("regions.origin_time", "5s"), ("policy.name", "fdr")];
    let shield = outcome(&changes);
    assert_eq!(shield.reading(Metric::OriginRequests), Some(1.0));
    let split = outcome(&[&changes, SPLIT].concat());
    assert_eq!(split.reading(Metric::OriginRequests), Some(3.0));
}

#[test]
fn every_policy_of_a_shield_has_the_origin_asked_once_by_each_of_its_nodes_at_most() {
    let entries = levada_policy::POLICIES.iter().flat_map(|file| file.iter());
    for entry in entries.filter(|entry| entry.runs_on_an_edge()) {
        let changes = [
            ("regions.shield_policy.name", entry.name),
            // All ask at once, and nodes of the shield choose each other.
            ("regions.fill", "1ms"),
            ("policy.name", "round_robin"),
        ];
        let outcome = outcome(&changes);
        let asked = outcome.reading(Metric::OriginRequests).unwrap_or(f64::NAN);
        assert!((1.0..=4.0).contains(&asked), "{}: {asked}", entry.name);
        let is_hash = ["hrw", "ring_hash", "maglev", "modulo"].contains(&entry.name);
        assert!(!is_hash || asked == 1.0, "{}: {asked}", entry.name);
    }
}

#[test]
fn bytes_cross_the_long_links_once_for_each_region() {
    let shield = outcome(&[]);
    let links: Vec<_> = shield.links.iter().map(|link| (&*link.from, &*link.to)).collect();
    assert_eq!(links, [("us", "eu"), ("us", "ap")]);
    let objects: f64 = (0..300).map(|n| f64::from(1_000 + n * 7_919 % 31_000)).sum();
    for link in &shield.links {
        assert!((1.0..1.1).contains(&(link.bytes / objects)), "{} of {objects}", link.bytes);
    }
    let one = outcome(ONE);
    let all = |outcome: &Outcome| outcome.reading(Metric::LongBytes).unwrap_or_default();
    assert!(all(&one) > 3.0 * all(&shield), "{} {}", all(&one), all(&shield));
}

#[test]
fn stale_objects_are_revalidated_and_their_bodies_stay_where_they_are() {
    let (fresh, stale) = (outcome(&[]), outcome(&[("regions.fresh", "2s")]));
    let reading = |outcome: &Outcome, metric| outcome.reading(metric).unwrap_or_default();
    assert!(reading(&stale, Metric::OriginRequests) > 3.0);
    assert!(reading(&stale, Metric::HitRatio) < reading(&fresh, Metric::HitRatio));
    // One segment each.
    let more = reading(&stale, Metric::LongBytes) / reading(&fresh, Metric::LongBytes);
    assert!((1.01..1.5).contains(&more), "{more}");
}

#[test]
fn parts_of_clients_and_rates_are_kept() {
    let changes = [
        ("workload.arrivals", "constant"),
        ("workload.rate", "50.0"),
        ("measure.requests", "3000"),
        ("measure.warm_up", "0s"),
    ];
    let mut scenario = example(&changes);
    let regions = scenario.regions.as_mut().expect("it has regions");
    regions.fill = None;
    regions.region[2].clients = 0.5;
    let prepared = scenario.prepare(&mut Library::without_files()).expect("it is right");
    let outcome = crate::run(&prepared, &mut |_| ControlFlow::Continue(()));
    let requests: Vec<_> =
        outcome.regions.iter().map(|region| region.readings[&Metric::Requests.into()]).collect();
    assert_eq!(requests, [1200.0, 1200.0, 600.0]);
    let rate = outcome.reading(Metric::Throughput).unwrap_or_default();
    assert!((47.0..53.0).contains(&rate), "{rate}");
}

#[test]
fn everything_wrong_is_said_at_once() {
    let text = "\
[regions]
origin = \"home\"
shield = \"sa\"
one_cluster = true
[[regions.region]]
name = \"eu\"
nodes = 4
round_trips = { us = \"80ms\", af = \"1s\" }
[[regions.region]]
name = \"us\"
clients = -1
round_trips = { eu = \"90ms\" }
[[regions.region]]
name = \"ap\"
nodes = 1
round_trips = { us = \"150ms\" }
[regions.shield_policy]
name = \"hwr\"
busy = 3
[policy]
name = \"fdr-global\"
";
    let scenario = Scenario::from_toml(text).expect("it can be read");
    let wrong = scenario.prepare(&mut Library::without_files()).expect_err("much is wrong");
    let wrong = wrong.to_string();
    for part in [
        "regions.region.1: `us`: a region has a node at least",
        "regions.region.1: `us`: `clients` is a part, from 0 on",
        "regions.origin: there is no region `home`; there are eu, us, ap",
        "regions.shield: there is no region `sa`",
        "regions.shield: one cluster without regions has no shield",
        "workload.arrivals: regions are simulated at \"constant\" or \"recorded\" times",
        "regions.shield_policy.name: there is no policy `hwr`; `levada policies` lists them",
        "policy.name: nodes that decide by themselves cannot run it",
        "regions.region.0: there is no region `af`",
        "regions.region.1: the round trip between `eu` and `us` is 80ms at one end and 90ms",
        "regions.region.2: the round trip between `eu` and `ap` is missing",
    ] {
        assert!(wrong.contains(part), "{part}\n{wrong}");
    }
    let negative = Scenario::from_toml("[[regions.region]]\nround_trips = { us = \"-80ms\" }\n");
    let negative = negative.expect_err("no time is negative").to_string();
    assert!(negative.starts_with("regions.region: ") && negative.contains("-80ms"), "{negative}");
}
