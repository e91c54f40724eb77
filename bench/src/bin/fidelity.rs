//! The network in bulk compared with the network packet by packet: whether the results are the same,
//! and what each costs.
//!
//! `cargo run --release -p levada-bench --bin fidelity -- [POLICY ...] [KEY=VALUE ...]`: for each policy
//! a ramp to the first failure, and a run at a third of that rate, in both networks. By default 16
//! servers of OSDI'02 under `fdr` and `r-chash`. Capacity is to agree within 3 %, the median latency
//! within 10 %; `MISSED` says where it does not.

use std::{env, ops::ControlFlow, process::ExitCode};

use levada_sim::{Library, Metric, Outcome, Problems, Scenario, run};

#[path = "../processor.rs"]
mod processor;

const POLICIES: &[&str] = &["fdr", "r-chash"];
const CAPACITY: f64 = 0.03;
const LATENCY: f64 = 0.1;

/// One outcome and what it took.
struct Run {
    outcome: Outcome,
    seconds: f64,
}

impl Run {
    fn value(&self, metric: Metric) -> f64 {
        self.outcome.reading(metric).unwrap_or(f64::NAN)
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (changes, named): (Vec<_>, Vec<_>) = arguments.iter().partition(|a| a.contains('='));
    let named: Vec<&str> = named.iter().map(|policy| policy.as_str()).collect();
    let policies = if named.is_empty() { POLICIES } else { &named };
    let changes: Vec<_> = changes.iter().filter_map(|change| change.split_once('=')).collect();
    let mut library = Library::without_files();
    println!(
        "{:10} {:10} {:>9} {:>8} {:>8} {:>8} {:>8} {:>9} {:>12} {:>12}",
        "policy",
        "network",
        "capacity",
        "p50",
        "mean",
        "p90",
        "dropped",
        "CPU s",
        "requests/s",
        "events/s"
    );
    let mut good = true;
    for policy in policies {
        match compare(policy, &changes, &mut library) {
            Ok(agree) => good &= agree,
            Err(problems) => {
                eprintln!("{problems}");
                return ExitCode::FAILURE;
            }
        }
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn compare(
    policy: &str,
    changes: &[(&str, &str)],
    library: &mut Library,
) -> Result<bool, Problems> {
    let base = Scenario::default()
        .with([("servers.count", "16"), ("policy.name", policy)])?
        .with(changes.iter().copied())?;
    let bulk = play(&base, "flow", library)?;
    show(policy, "bulk", &bulk);
    let packets = play(&base, "packet", library)?;
    show(policy, "packets", &packets);
    let agree = agree(&bulk, &packets, Metric::Capacity, CAPACITY);
    let rate = (bulk.value(Metric::Capacity) / 3.0).round();
    let calm = base.with([
        ("workload.arrivals", "constant"),
        ("workload.rate", &rate.to_string()),
        ("measure.duration", "150s"),
        ("measure.warm_up", "60s"),
    ])?;
    let label = format!("at {rate:.0}/s");
    let bulk = play(&calm, "flow", library)?;
    show(&label, "bulk", &bulk);
    let packets = play(&calm, "packet", library)?;
    show(&label, "packets", &packets);
    Ok(agree & self::agree(&bulk, &packets, Metric::LatencyP50, LATENCY))
}

fn play(scenario: &Scenario, fidelity: &str, library: &mut Library) -> Result<Run, Problems> {
    let prepared = scenario.with([("network.fidelity", fidelity)])?.prepare(library)?;
    let begun = processor::seconds();
    let outcome = run(&prepared, &mut |_| ControlFlow::Continue(()));
    Ok(Run { outcome, seconds: processor::seconds() - begun })
}

fn show(policy: &str, network: &str, run: &Run) {
    println!(
        "{policy:10} {network:10} {:>9.0} {:>8.3} {:>8.3} {:>8.3} {:>8.0} {:>9.1} {:>12.0} {:>12.0}",
        run.value(Metric::Capacity),
        run.value(Metric::LatencyP50),
        run.value(Metric::LatencyMean),
        run.value(Metric::LatencyP90),
        run.value(Metric::Dropped),
        run.seconds,
        run.value(Metric::Requests) / run.seconds,
        run.value(Metric::Events) / run.seconds,
    );
}

fn agree(bulk: &Run, packets: &Run, metric: Metric, within: f64) -> bool {
    let off = bulk.value(metric) / packets.value(metric) - 1.0;
    let agree = off.abs() <= within;
    let verdict = if agree { "" } else { "  MISSED" };
    println!(
        "{:10} {}: bulk is off by {:+.2} %, allowed are {:.0} %{verdict}",
        "",
        metric.title(),
        off * 100.0,
        within * 100.0
    );
    agree
}
