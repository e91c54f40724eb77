//! How fast the simulator is: capacity runs, each with the time and the memory that it took.
//!
//! `cargo run --release -p levada-bench --bin sim -- [POLICY ...] [KEY=VALUE ...]`: one run for each
//! policy, those of OSDI'02 when none is named and every one for `all`, with keys of the scenario
//! changed as given.

use std::{env, fs, ops::ControlFlow, process::ExitCode};

use levada_policy::POLICIES;
use levada_sim::{BYTES_PER_REQUEST, Library, Metric, Scenario, run};

const OSDI02: &[&str] =
    &["random", "r-chash", "r-hrw", "lr-chash", "lr-hrw", "cdr", "fdr", "fdr-global"];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (changes, named): (Vec<_>, Vec<_>) = arguments.iter().partition(|a| a.contains('='));
    let named: Vec<&str> = named.iter().map(|policy| policy.as_str()).collect();
    let all: Vec<&str> = POLICIES.iter().flat_map(|file| file.iter().map(|e| e.name)).collect();
    let policies = match named[..] {
        [] => OSDI02,
        ["all"] => &all,
        _ => &named,
    };
    let mut library = Library::without_files();
    println!(
        "{:20} {:>8} {:>9} {:>10} {:>6} {:>6} {:>7} {:>8} {:>7} {:>8} {:>8} {:>7}",
        "policy",
        "capacity",
        "sustained",
        "requests",
        "cpu",
        "disk",
        "p50",
        "mean",
        "seconds",
        "Mreq/min",
        "Mevent/s",
        "peak MB"
    );
    for policy in policies {
        let changes = changes.iter().filter_map(|change| change.split_once('='));
        let scenario = Scenario::default()
            .with([("policy.name", *policy)])
            .and_then(|scenario| scenario.with(changes))
            .and_then(|scenario| scenario.prepare(&mut library));
        let prepared = match scenario {
            Ok(prepared) => prepared,
            Err(problems) => {
                eprintln!("{problems}");
                return ExitCode::FAILURE;
            }
        };
        let before = cpu_seconds();
        let outcome = run(&prepared, &mut |_| ControlFlow::Continue(()));
        let took = cpu_seconds() - before;
        let value = |metric: Metric| outcome.reading(metric).unwrap_or(f64::NAN);
        let requests = value(Metric::Requests);
        println!(
            "{policy:20} {:>8.0} {:>9.0} {requests:>10.0} {:>6.3} {:>6.3} {:>7.3} {:>8.3} {took:>7.1} {:>8.2} {:>8.2} {:>7.0}",
            value(Metric::Capacity),
            value(Metric::Sustained),
            value(Metric::CpuUtilisation),
            value(Metric::DiskUtilisation),
            value(Metric::LatencyP50),
            value(Metric::LatencyMean),
            requests / took * 60.0 / 1e6,
            value(Metric::Events) / took / 1e6,
            peak_megabytes(),
        );
    }
    println!("{BYTES_PER_REQUEST} bytes per request in flight");
    ExitCode::SUCCESS
}

/// CPU time of this process so far.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds: f64 = stat.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(f64::NAN);
    nanoseconds / 1e9
}

/// The most memory that this process has had at a time, over all runs so far.
fn peak_megabytes() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kilobytes.map_or(f64::NAN, |kilobytes| kilobytes / 1024.0)
}
