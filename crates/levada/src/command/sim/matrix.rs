//! `levada sim matrix`: policies over many scenarios and seeds, each relative to the best policy of
//! its scenario.
//!
//! The runs of a ramp show what a policy sustains. Latencies at growing rates cannot be compared, so
//! further runs measure them at one rate: three quarters of what the best policy sustains.

mod render;

use std::{path::Path, time::Duration};

use anyhow::{Context as _, bail};
use levada_client::command::CommandStatus;
use levada_paper::Case;
use levada_sim::scenario_file::{Changes, Files, matrix};
use levada_sim::{Arrivals, Library, Metric, Outcome, Policy, Remark, Scenario, Time};
use serde::Serialize;

use super::{
    args::MatrixArgs,
    sweep::{Swept, sweep},
};

/// A matrix with its numbers.
#[derive(Serialize)]
struct Matrix {
    policies: Vec<String>,
    seeds: u64,
    rows: Vec<MatrixRow>,
    summaries: Vec<Summary>,
}

/// One scenario.
#[derive(Serialize)]
struct MatrixRow {
    name: String,
    title: String,
    /// The compared metric.
    metric: &'static str,
    /// One cell for each policy; `None` if its runs are not finished, or if no policy carried the load.
    cells: Vec<Option<MatrixCell>>,
}

/// One policy in one scenario.
#[derive(Serialize)]
struct MatrixCell {
    /// The compared number of each seed.
    scores: Vec<f64>,
    /// Their mean, relative to that of the best policy.
    relative: f64,
    /// Half of the distance between the highest and the lowest seed, each relative to the best policy
    /// with the same seed.
    spread: f64,
    /// The 90th percentile of latency in seconds, mean over the seeds; `None` if a run was overloaded.
    p90: Option<f64>,
}

/// One policy in all scenarios.
#[derive(Serialize)]
struct Summary {
    policy: String,
    /// Scenarios in which it is within 1 % of the best, and all finished ones.
    near_best: usize,
    scenarios: usize,
    /// The geometric mean, and the least, of its relative numbers.
    mean: f64,
    least: f64,
    /// The highest of its 90th percentiles, relative to the lowest of the scenario.
    worst_p90: Option<f64>,
}

/// Runs the matrix.
///
/// # Errors
/// If a scenario or a policy is wrong, or a file cannot be read or written.
pub(super) fn run(args: &MatrixArgs) -> anyhow::Result<CommandStatus> {
    let scenarios = scenarios(args)?;
    let plan = MatrixPlan {
        seeds: if args.quick { 1 } else { args.seeds.into() },
        policies: args.policy.clone(),
    };
    let loads = plan.cases(&scenarios)?;
    let swept = sweep(&loads.iter().flatten().collect::<Vec<_>>(), FILE, &args.sweep)?;
    let levels = plan.cases(&plan.at_one_rate(&scenarios, &loads, &swept))?;
    let latencies = match swept.stopped {
        true => None,
        false => Some(sweep(&levels.iter().flatten().collect::<Vec<_>>(), FILE, &args.sweep)?),
    };
    let matrix = plan.matrix(&scenarios, &loads, &swept, &levels, latencies.as_ref());
    if let Some(path) = &args.html {
        std::fs::write(path, render::html(&matrix))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&matrix)?);
    } else {
        print!("{}", render::text(&matrix));
    }
    let last = latencies.as_ref().unwrap_or(&swept);
    last.tell_if_stopped();
    Ok(CommandStatus::of(!last.stopped))
}

/// A scenario with its name in the table.
struct Named {
    name: String,
    scenario: Scenario,
}

fn scenarios(args: &MatrixArgs) -> anyhow::Result<Vec<Named>> {
    if !args.scenarios.is_empty() {
        return args.scenarios.iter().map(|path| from_file(path)).collect();
    }
    let wanted = |name: &str| {
        args.only.is_empty() || args.only.iter().any(|part| name.contains(part.as_str()))
    };
    let listed = matrix().filter(|example| wanted(example.name));
    let read = listed.map(|example| {
        let scenario = Scenario::from_toml(example.text)
            .with_context(|| format!("{} cannot be run", example.path))?;
        Ok(Named { name: example.name.to_owned(), scenario })
    });
    let mut scenarios = read.collect::<anyhow::Result<Vec<_>>>()?;
    scenarios.retain(|named| !args.quick || named.scenario.servers.count <= QUICK_SERVERS);
    if scenarios.is_empty() {
        bail!("no scenario of the list has such a name; examples/sim/matrix has them");
    }
    Ok(scenarios)
}

fn from_file(path: &Path) -> anyhow::Result<Named> {
    let source = levada_types::document::read_source(path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let directory = path.parent().unwrap_or(Path::new(""));
    let mut library = Library::new(Box::new(Files));
    let changes = Changes::default();
    let checked = levada_sim::scenario_file::check(&source, directory, &changes, &mut library);
    let name = path.file_stem().map_or_else(String::new, |stem| stem.display().to_string());
    match checked.scenario {
        Some(scenario) => Ok(Named { name, scenario }),
        None => bail!("{} cannot be run\n{}", path.display(), checked.errors.concat()),
    }
}

/// The policies and the number of seeds.
struct MatrixPlan {
    seeds: u64,
    policies: Vec<String>,
}

impl MatrixPlan {
    /// The cases of each scenario: policy by policy, and seed by seed.
    fn cases(&self, scenarios: &[Named]) -> anyhow::Result<Vec<Vec<Case>>> {
        scenarios.iter().map(|named| self.cases_of(named)).collect()
    }

    fn cases_of(&self, Named { name, scenario }: &Named) -> anyhow::Result<Vec<Case>> {
        let mut cases = Vec::new();
        for policy in &self.policies {
            let scenario = with_policy(scenario, policy)?;
            for seed in 1..=self.seeds {
                let id = format!("{name} {policy} seed {seed}");
                cases.push(Case { id, scenario: Scenario { seed, ..scenario.clone() } });
            }
        }
        Ok(cases)
    }

    /// The scenarios with growing load at three quarters of what the best policy sustains.
    fn at_one_rate(&self, scenarios: &[Named], loads: &[Vec<Case>], swept: &Swept) -> Vec<Named> {
        let ramps = scenarios.iter().zip(loads).filter(|(named, _)| is_ramp(&named.scenario));
        let level = |(named, cases): (&Named, &Vec<Case>)| {
            let scores = self.scores(cases, swept);
            let best = scores.iter().flatten().map(|scores| mean(scores)).fold(0.0, f64::max);
            let mut scenario = named.scenario.clone();
            scenario.workload.arrivals = Arrivals::Constant;
            scenario.workload.rate = (0.75 * best).max(1.0).round();
            scenario.cache.warm_requests = scenario.cache.warm_requests.max(WARM);
            scenario.measure.warm_up = Time(Duration::from_secs(30));
            scenario.measure.duration = Some(Time(Duration::from_secs(90)));
            Named { name: format!("{} at 3/4", named.name), scenario }
        };
        ramps.map(level).collect()
    }

    /// The scores of each policy, by seed; `None` if runs are left.
    fn scores(&self, cases: &[Case], swept: &Swept) -> Vec<Option<Vec<f64>>> {
        let scores = |cases: &[Case]| {
            let score = |case: &Case| Some(score(&case.scenario, swept.outcome(case)?));
            cases.iter().map(score).collect()
        };
        cases.chunks(self.seeds as usize).map(scores).collect()
    }

    fn p90(&self, cases: &[Case], swept: &Swept) -> Vec<Option<f64>> {
        let p90 = |case: &Case| {
            let outcome = swept.outcome(case)?;
            let over = outcome.remarks.iter().any(|r| matches!(r, Remark::Overloaded { .. }));
            outcome.reading(Metric::LatencyP90).filter(|_| !over)
        };
        let of_policy = |cases: &[Case]| {
            let all: Option<Vec<f64>> = cases.iter().map(p90).collect();
            all.map(|values| mean(&values))
        };
        cases.chunks(self.seeds as usize).map(of_policy).collect()
    }

    fn matrix(
        &self,
        scenarios: &[Named],
        loads: &[Vec<Case>],
        swept: &Swept,
        levels: &[Vec<Case>],
        latencies: Option<&Swept>,
    ) -> Matrix {
        let mut levels = levels.iter();
        let mut rows = Vec::new();
        for (named, cases) in scenarios.iter().zip(loads) {
            let level = if is_ramp(&named.scenario) { levels.next() } else { None };
            let p90 = match (level, latencies) {
                (Some(level), Some(latencies)) => self.p90(level, latencies),
                (Some(_), None) => vec![None; self.policies.len()],
                (None, _) => self.p90(cases, swept),
            };
            let cells = cells(self.scores(cases, swept), &p90);
            let metric = metric(&named.scenario).as_str();
            let title = named.scenario.title.clone();
            rows.push(MatrixRow { name: named.name.clone(), title, metric, cells });
        }
        let policies = self.policies.clone();
        let summaries = (0..policies.len()).map(|n| summary(&policies[n], n, &rows)).collect();
        Matrix { policies, seeds: self.seeds, rows, summaries }
    }
}

/// The scenario with `policy`, written as `name:key=value;key=value`.
fn with_policy(scenario: &Scenario, policy: &str) -> anyhow::Result<Scenario> {
    let (name, parameters) = policy.split_once(':').unwrap_or((policy, ""));
    let mut scenario = scenario.clone();
    scenario.policy = Policy { name: name.to_owned(), ..Policy::default() };
    for pair in parameters.split(';').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair
            .split_once('=')
            .with_context(|| format!("--policy {policy}: write NAME:KEY=VALUE;KEY=VALUE"))?;
        scenario = scenario.with([(format!("policy.{key}"), value)])?;
    }
    Ok(scenario)
}

fn is_ramp(scenario: &Scenario) -> bool {
    scenario.workload.arrivals == Arrivals::Ramp && scenario.cap.is_none()
}

/// The metric by which policies are compared.
fn metric(scenario: &Scenario) -> Metric {
    match scenario.cap {
        Some(_) => Metric::Within2s5,
        None if is_ramp(scenario) => Metric::Sustained,
        None => Metric::Throughput,
    }
}

/// The number by which policies are compared. Requests that an overloaded run did not come to count
/// as not finished; a policy that cannot even carry the first rate of a ramp gets 0.
fn score(scenario: &Scenario, outcome: &Outcome) -> f64 {
    let score = outcome.reading(metric(scenario)).unwrap_or(0.0);
    let (Some(wanted), Some(came)) = (scenario.measure.duration, outcome.reading(Metric::Duration))
    else {
        return score;
    };
    let warm_up = scenario.measure.warm_up.0.as_secs_f64();
    match metric(scenario) {
        Metric::Throughput => {
            score * (came - warm_up).max(0.0) / (wanted.0.as_secs_f64() - warm_up)
        }
        _ => score,
    }
}

/// The cells of a row from the scores of each policy.
fn cells(scores: Vec<Option<Vec<f64>>>, p90: &[Option<f64>]) -> Vec<Option<MatrixCell>> {
    let finished = scores.iter().flatten();
    let best = finished.max_by(|a, b| mean(a).total_cmp(&mean(b))).cloned().unwrap_or_default();
    let cell = |(scores, p90): (Option<Vec<f64>>, &Option<f64>)| {
        let scores = scores.filter(|_| mean(&best) > 0.0)?;
        let by_seed = || scores.iter().zip(&best).map(|(own, best)| part(*own, *best));
        let (low, high) = by_seed().fold((f64::MAX, 0.0f64), |(l, h), x| (l.min(x), h.max(x)));
        let relative = part(mean(&scores), mean(&best));
        Some(MatrixCell { scores, relative, spread: (high - low) / 2.0, p90: *p90 })
    };
    scores.into_iter().zip(p90).map(cell).collect()
}

fn summary(policy: &str, number: usize, rows: &[MatrixRow]) -> Summary {
    let own = || rows.iter().filter_map(|row| row.cells[number].as_ref());
    let logarithms: Vec<f64> = own().map(|cell| cell.relative.max(1e-9).ln()).collect();
    let p90 = rows.iter().filter_map(|row| {
        let all = row.cells.iter().flatten().filter_map(|cell| cell.p90);
        let least = all.fold(f64::MAX, f64::min);
        row.cells[number].as_ref().and_then(|cell| cell.p90).map(|own| part(own, least))
    });
    Summary {
        policy: policy.to_owned(),
        near_best: own().filter(|cell| cell.relative >= 0.99).count(),
        scenarios: own().count(),
        mean: mean(&logarithms).exp(),
        least: own().map(|cell| cell.relative).fold(1.0, f64::min),
        worst_p90: p90.max_by(f64::total_cmp),
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn part(own: f64, best: f64) -> f64 {
    if best > 0.0 { own / best } else { 1.0 }
}

/// The file of finished runs.
const FILE: &str = "matrix.jsonl";

/// `--quick` leaves out scenarios of the list with more servers.
const QUICK_SERVERS: usize = 16;

/// Requests that fill the memories before latencies are measured.
const WARM: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_relative_to_the_best_policy_over_all_seeds() {
        let scores = vec![Some(vec![90.0, 110.0]), Some(vec![100.0, 80.0]), None];
        let cells = cells(scores, &[Some(1.0), None, None]);
        let (best, other) = (cells[0].as_ref().unwrap(), cells[1].as_ref().unwrap());
        assert_eq!((best.relative, best.spread, best.p90), (1.0, 0.0, Some(1.0)));
        assert!((other.relative - 0.9).abs() < 1e-9);
        assert!((other.spread - (100.0 / 90.0 - 80.0 / 110.0) / 2.0).abs() < 1e-9);
        assert!(cells[2].is_none());
        assert!(
            super::cells(vec![Some(vec![0.0])], &[None])[0].is_none(),
            "nobody carried the load"
        );
    }

    #[test]
    fn a_policy_is_written_with_its_parameters() {
        let with = |text| with_policy(&Scenario::default(), text).map(|scenario| scenario.policy);
        let policy = with("bounded_hash:order=ring;points=100").unwrap();
        assert_eq!((policy.name.as_str(), policy.parameters.len()), ("bounded_hash", 2));
        assert!(with("fdr").unwrap().parameters.is_empty());
        assert!(with("fdr:busy").is_err());
    }

    #[test]
    fn every_scenario_of_the_list_can_be_read() {
        for example in matrix() {
            let scenario = Scenario::from_toml(example.text).expect(example.name);
            assert!(!scenario.title.is_empty(), "{}", example.name);
        }
    }
}
