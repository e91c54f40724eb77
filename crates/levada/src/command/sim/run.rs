//! `levada sim run`: one scenario, or several that differ in policy, servers or seed.

use std::{collections::BTreeSet, path::Path};

use anyhow::{Context as _, bail};
use levada_client::command::CommandStatus;
use levada_paper::{Case, Column, OF_ALL_REGIONS, Plot, Row, Table, means};
use levada_sim::scenario_file::{Changes, Files, read};
use levada_sim::{Arrivals, Library, Metric, Reading, Scenario};

use super::{
    args::SimRunArgs,
    cases, report,
    sweep::{Swept, sweep},
};

/// Runs the scenario in all requested variants.
///
/// # Errors
/// If the scenario has errors, or a file cannot be read or written.
pub(super) fn run(args: &SimRunArgs) -> anyhow::Result<CommandStatus> {
    let scenarios = scenarios(args)?;
    let name = args.scenario.file_stem().map_or_else(String::new, |s| s.display().to_string());
    let mut tables = vec![overview(&name, &args.scenario, &scenarios)];
    let swept = sweep(&cases(&tables), "run.jsonl", &args.sweep)?;
    tables.extend(latencies(&name, &args.scenario, &scenarios, &swept));
    let title = match scenarios.first() {
        Some(Variant { scenario, .. }) if !scenario.title.is_empty() => scenario.title.clone(),
        _ => name,
    };
    let means = args.seeds.map(|_| means(&tables[0], &|case| swept.outcome(case)));
    report(&title, &tables, means, &swept, &args.output)
}

/// A scenario, and how it differs from the others.
struct Variant {
    scenario: Scenario,
    /// Number of servers, if several are run.
    servers: Option<usize>,
    /// Seed, if several are run.
    seed: Option<u64>,
}

/// Every combination of the options. All errors of all combinations are reported at once.
fn scenarios(args: &SimRunArgs) -> anyhow::Result<Vec<Variant>> {
    let source = read(&args.scenario)?;
    let directory = args.scenario.parent().unwrap_or(Path::new(""));
    let sets = args.set.iter().map(|set| split(set)).collect::<anyhow::Result<Vec<_>>>()?;
    let first = Scenario::read_toml(&source.text).0.seed;
    let seeds = match args.seeds {
        Some(count) => (first..).take(count.into()).collect(),
        None => args.seed.clone(),
    };
    let mut library = Library::new(Box::new(Files));
    let mut variants = Vec::new();
    let mut wrong = Vec::new();
    for policy in options(&args.policy) {
        for servers in options(&args.servers) {
            for seed in options(&seeds) {
                let changes = Changes {
                    policy: policy.cloned(),
                    servers: servers.copied(),
                    seed: seed.copied(),
                    sets: sets.clone(),
                    ..Changes::default()
                };
                let checked =
                    levada_sim::scenario_file::check(&source, directory, &changes, &mut library);
                match checked.scenario {
                    Some(scenario) => variants.push(Variant {
                        scenario,
                        servers: servers.copied().filter(|_| args.servers.len() > 1),
                        seed: seed.copied().filter(|_| seeds.len() > 1),
                    }),
                    None => wrong.extend(checked.errors),
                }
            }
        }
    }
    if !wrong.is_empty() {
        // Each policy reports the same mistake of the file.
        let mut seen = BTreeSet::new();
        wrong.retain(|error| seen.insert(error.clone()));
        bail!("{} cannot be run\n{}", args.scenario.display(), wrong.concat());
    }
    Ok(variants)
}

/// Each value of the option, or the file's.
fn options<T>(given: &[T]) -> Vec<Option<&T>> {
    if given.is_empty() { vec![None] } else { given.iter().map(Some).collect() }
}

fn split(set: &str) -> anyhow::Result<(String, String)> {
    let (key, value) =
        set.split_once('=').with_context(|| format!("--set {set}: write KEY=VALUE"))?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

/// A table of all runs.
fn overview(name: &str, path: &Path, variants: &[Variant]) -> Table {
    let several = variants.iter().any(|variant| variant.servers.is_some());
    let mut plots = vec![match several {
        true => Plot::Lines { x: "servers".to_owned(), log: false },
        false => Plot::Bars,
    }];
    if variants.iter().all(|variant| variant.scenario.measure.latency_at.is_empty()) {
        plots.push(Plot::Latencies);
    }
    let ramp = variants.iter().any(|v| v.scenario.workload.arrivals == Arrivals::Ramp);
    Table {
        id: name.to_owned(),
        also: Vec::new(),
        title: "Overview".to_owned(),
        source: path.display().to_string(),
        note: if ramp { RAMP.to_owned() } else { String::new() },
        columns: columns(match variants.iter().any(|v| v.scenario.regions.is_some()) {
            true => OF_ALL_REGIONS,
            false if ramp => OF_A_RAMP,
            false => OVERVIEW,
        }),
        rows: variants.iter().map(|variant| row(name, variant, None)).collect(),
        claims: Vec::new(),
        plots,
    }
}

/// Latencies at the rates that a scenario names, if some run reached them.
fn latencies(name: &str, path: &Path, variants: &[Variant], swept: &Swept) -> Option<Table> {
    let mut rows = Vec::new();
    for variant in variants {
        for rate in &variant.scenario.measure.latency_at {
            let row = row(name, variant, Some(*rate));
            let reading = Reading::at(Metric::LatencyP50, *rate);
            if swept.outcome(&row.case).is_some_and(|outcome| outcome.reading(reading).is_some()) {
                rows.push(row);
            }
        }
    }
    (!rows.is_empty()).then(|| Table {
        id: format!("{name}-latency"),
        also: Vec::new(),
        title: "Latency".to_owned(),
        source: path.display().to_string(),
        note: "Around the offered rates that the runs have come to.".to_owned(),
        columns: columns(LATENCIES),
        rows,
        claims: Vec::new(),
        plots: vec![Plot::Latencies],
    })
}

fn row(name: &str, variant: &Variant, at: Option<u32>) -> Row {
    let seed = variant.seed.map_or_else(String::new, |seed| format!(" seed {seed}"));
    // Each seed is a series of its own, or a line over the servers would go to and fro.
    let policy = format!("{}{seed}", variant.scenario.policy.name);
    let label = variant.servers.map_or_else(String::new, |servers| format!("{servers} servers"));
    let joined = |parts: &[&str]| {
        let parts: Vec<_> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
        parts.join(" ")
    };
    let rate = at.map_or_else(String::new, |rate| format!("@{rate}"));
    Row {
        key: joined(&[&policy, &label, &rate]),
        series: policy.clone(),
        x: variant.servers.map(|servers| servers as f64),
        label: label.clone(),
        at,
        beyond: false,
        case: Case { id: joined(&[name, &policy, &label]), scenario: variant.scenario.clone() },
        paper: Vec::new(),
    }
}

fn columns(metrics: &[Metric]) -> Vec<Column> {
    metrics.iter().map(|metric| Column { metric: *metric, tolerance: None }).collect()
}

const RAMP: &str = "Capacity is the offered rate 30 s before the first server failed, as OSDI'02 \
    defines it; while queues fill up, it is above the sustained rate, the highest at which requests \
    finished over half a minute.";

const OF_A_RAMP: &[Metric] = &[
    Metric::Capacity,
    Metric::Sustained,
    Metric::HitRatio,
    Metric::CpuUtilisation,
    Metric::DiskUtilisation,
    Metric::Imbalance,
    Metric::Replicas,
];

const OVERVIEW: &[Metric] = &[
    Metric::Throughput,
    Metric::LatencyMean,
    Metric::LatencyP50,
    Metric::LatencyP90,
    Metric::LatencyP99,
    Metric::HitRatio,
    Metric::CpuUtilisation,
    Metric::DiskUtilisation,
    Metric::Idle,
    Metric::Imbalance,
];

const LATENCIES: &[Metric] = &[
    Metric::LatencyMean,
    Metric::LatencyP50,
    Metric::LatencyP90,
    Metric::LatencyP99,
    Metric::LatencySd,
];
