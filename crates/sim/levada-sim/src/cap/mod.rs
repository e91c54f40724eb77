//! WWW10's system (Casalicchio and Colajanni): a Web switch before a cluster of servers that offer
//! static, dynamic and secure pages, and clients in sessions.
//!
//! A scenario with a `[cap]` table is run here instead of in OSDI'02's world. The model has a
//! server's parts (CPU, memory, disk, database, network card) and the latency of whole pages, but no
//! network in between.
//!
//! [`Settings`] has all parameters of a run, with the paper's values as defaults; `world` is the life
//! of a request; the other modules are its stations.

mod distribution;
mod documents;
mod report;
pub(crate) mod resource;
mod server;
mod session;
mod settings;
mod world;

use std::ops::ControlFlow;

use levada_cache::eviction::{DEFAULT_EVICTION, find_eviction};
use levada_policy::{BuildError, Deployment, Policy, build};

pub use distribution::{InverseGaussian, Lognormal, Pareto};
pub use settings::{
    Database, Dispatch, Documents, LoadMeasure, MeasurementWindow, Mix, Sessions, Settings, Ssl,
    Switch, WebServerHardware,
};

use crate::scenario::Problems;
use crate::{Outcome, Progress, Scenario};

/// Plays a prepared `scenario` with `settings`.
pub(crate) fn run(
    scenario: &Scenario,
    settings: &Settings,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Outcome {
    let policy = policy(scenario).expect("the scenario has been prepared");
    let eviction = find_eviction(&scenario.cache.eviction).unwrap_or(DEFAULT_EVICTION);
    let servers = scenario.servers.count;
    world::SessionWorld::new(settings, servers, policy, eviction, scenario.seed).run(watch)
}

/// Builds the policy of one switch over servers that never refuse.
fn policy(scenario: &Scenario) -> Result<Box<dyn Policy>, BuildError> {
    build(&scenario.policy.name, &scenario.policy.parameters, &Deployment::default())
}

/// Adds the problems of the `[cap]` table to `problems`.
pub(crate) fn check(settings: &Settings, problems: &mut Problems) {
    let positive = |x: f64| x.is_finite() && x > 0.0;
    let Settings { sessions, documents, hardware, ssl, switch, window, mix, .. } = settings;
    for (key, value) in [
        ("cap.clients_per_second", settings.clients_per_second),
        ("cap.sessions.pages.mu", sessions.pages.mu),
        ("cap.sessions.pages.lambda", sessions.pages.lambda),
        ("cap.sessions.think.alpha", sessions.think.alpha),
        ("cap.sessions.think.k", sessions.think.k),
        ("cap.sessions.objects.alpha", sessions.objects.alpha),
        ("cap.sessions.objects.k", sessions.objects.k),
        ("cap.documents.body.sigma", documents.body.sigma),
        ("cap.documents.tail.alpha", documents.tail.alpha),
        ("cap.documents.tail.k", documents.tail.k),
    ] {
        problems.add_if(!positive(value), key, "it must be a number above 0");
    }
    for (key, value) in
        [("cap.documents.body.mu", documents.body.mu), ("cap.documents.zipf", documents.zipf)]
    {
        problems.add_if(!value.is_finite(), key, "it must be a finite number");
    }
    for (key, value) in [
        ("cap.sessions.most_objects", u64::from(sessions.most_objects)),
        ("cap.documents.count", u64::from(documents.count)),
        ("cap.documents.largest", u64::from(documents.largest)),
        ("cap.hardware.memory_rate", hardware.memory_rate),
        ("cap.hardware.disk_rate", hardware.disk_rate),
        ("cap.hardware.nic_rate", hardware.nic_rate),
        ("cap.ssl.rsa_rate", ssl.rsa_rate),
        ("cap.ssl.cipher_rate", ssl.cipher_rate),
        ("cap.ssl.hash_rate", ssl.hash_rate),
        ("cap.ssl.record", ssl.record),
    ] {
        problems.add_if(value == 0, key, "it must be at least 1");
    }
    for (key, time) in [
        ("cap.hardware.cpu_slice", hardware.cpu_slice),
        ("cap.hardware.nic_slice", hardware.nic_slice),
        ("cap.switch.gather", switch.gather),
        ("cap.window.measure", window.measure),
    ] {
        problems.add_if(time.0.is_zero(), key, "it must be a time above 0, such as \"1s\"");
    }
    let shares = mix.shares();
    let usable = shares.iter().all(|(_, share)| share.is_finite() && *share >= 0.0)
        && shares.iter().any(|(_, share)| *share > 0.0);
    problems.add_if(!usable, "cap.mix", "shares are numbers from 0, and one must be above 0");
    let length = (window.warm_up.0 + window.measure.0 + window.drain.0).as_secs_f64();
    problems.add_if(
        settings.clients_per_second * length > MOST_SESSIONS,
        "cap.window.measure",
        "in this time more than 50 million clients would come: shorten it or lower \
         `cap.clients_per_second`",
    );
}

/// Limits an overloaded run, in which no client leaves, so that it ends by its window and not for
/// lack of memory.
const MOST_SESSIONS: f64 = 5e7;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Library, Metric};

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
        crate::run(&prepared, &mut |_| ControlFlow::Continue(()))
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
        // 256 bits at 38.5 kbit/s; 80 kbit at 46.886 and 331.034 Mbit/s; 2048 + 73 + 29 bytes more.
        let expected = 6.649_351 + 1.706_266 + 0.241_667 + 0.172;
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
}
