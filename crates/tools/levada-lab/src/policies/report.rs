//! The printed report: the emulated machines, a line for each policy in each scenario, and whether the
//! first policy is among the best.

use levada_client::command::CommandStatus;
use levada_testbed::emulation::report::{Claim, LabReport, percent};
use levada_types::{ByteSize, format_duration};
use serde_json::{Value, json};

use super::{PoliciesSetup, PolicyRow, cluster::FRONTS, load::Period, scenario::ScenarioOutcome};
use crate::args::policies::PoliciesArgs;

/// Prints the setup.
pub(super) fn begin(args: &PoliciesArgs, setup: &PoliciesSetup) -> anyhow::Result<LabReport> {
    let emulated = vec![
        format!(
            "nodes: {} real nodes with {} of memory, each behind a link of {} Mbit/s in both directions",
            args.nodes,
            ByteSize(setup.memory),
            args.rate as f64 * 8e-6
        ),
        format!(
            "front-ends: {FRONTS} real nodes that choose among them, each for half of the requests"
        ),
        format!(
            "documents: generated like Rice University's, seed {}, {} in {} files",
            args.seed,
            ByteSize(setup.documents.bytes()),
            setup.documents.trace().objects().len()
        ),
        format!(
            "times: a warm-up of {}, and steps of {}",
            format_duration(args.warm_up),
            format_duration(args.step)
        ),
    ];
    Ok(LabReport::begin(args.json, emulated, HEAD)?)
}

/// The headings of the table.
const HEAD: &str =
    "scenario     policy         capacity simulated  p95 (ms)      hits    busiest   settled";

/// One policy in one scenario.
pub(super) fn row(report: &mut LabReport, row: &PolicyRow) -> anyhow::Result<()> {
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let capacity = match &row.outcome {
        ScenarioOutcome::Capacity(carried) => Some(
            carried.as_ref().map_or_else(|| "none".to_owned(), |(rate, _)| format!("{rate:.0}")),
        ),
        _ => None,
    };
    let settled = match &row.outcome {
        ScenarioOutcome::Crowd { settled, .. } => Some(
            settled
                .map_or_else(|| "never".to_owned(), |after| format!("{}", format_duration(after))),
        ),
        _ => None,
    };
    let period = row.period();
    let line = format!(
        "{:<12} {:<13} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9}",
        row.scenario.name(),
        row.policy,
        or_dash(capacity),
        or_dash(row.predicted.map(|predicted| format!("{:.0}", predicted.capacity))),
        or_dash(period.map(milliseconds)),
        or_dash(period.map(|period| percent(period.hit_ratio))),
        or_dash(period.map(|period| percent(period.busiest))),
        or_dash(settled),
    );
    Ok(report.row(&line, row.to_json())?)
}

/// Whether the first policy is among the best, and the simulator right.
pub(super) fn end(report: LabReport, rows: &[PolicyRow]) -> anyhow::Result<CommandStatus> {
    let mut claims = Vec::new();
    for same in rows.chunk_by(|one, other| one.scenario == other.scenario) {
        let Some(first) = same.first() else { continue };
        let best = same.iter().map(PolicyRow::merit).fold(f64::MIN_POSITIVE, f64::max);
        let relative = first.merit() / best;
        let text = format!(
            "{}: {} is at least 0.95 of the best by {} ({relative:.2})",
            first.scenario.name(),
            first.policy,
            first.measure()
        );
        claims.push(Claim { text, holds: relative >= 0.95 });
    }
    for row in rows {
        if let (Some(predicted), ScenarioOutcome::Capacity(_)) = (row.predicted, &row.outcome) {
            let ratio = row.merit() / predicted.capacity;
            if !(0.9..=1.1).contains(&ratio) {
                let text = format!(
                    "{}: the simulator is right within 10 % of {} (measured {ratio:.2} of what it says)",
                    row.scenario.name(),
                    row.policy
                );
                claims.push(Claim { text, holds: false });
            }
        }
    }
    Ok(report.end(&claims, &[])?)
}

impl PolicyRow {
    /// The period that the figures are of.
    fn period(&self) -> Option<&Period> {
        match &self.outcome {
            ScenarioOutcome::Capacity(carried) => carried.as_ref().map(|(_, period)| period),
            ScenarioOutcome::Cold(last) => Some(last),
            ScenarioOutcome::Crowd { onset, .. } => Some(onset),
        }
    }

    /// The figure by which policies are compared; more is better.
    fn merit(&self) -> f64 {
        match &self.outcome {
            ScenarioOutcome::Capacity(carried) => carried.as_ref().map_or(0.0, |(rate, _)| *rate),
            ScenarioOutcome::Cold(last) => last.hit_ratio,
            ScenarioOutcome::Crowd { onset, .. } => {
                1.0 / onset.p95.as_secs_f64().max(f64::MIN_POSITIVE)
            }
        }
    }

    fn measure(&self) -> &'static str {
        match &self.outcome {
            ScenarioOutcome::Capacity(_) => "capacity",
            ScenarioOutcome::Cold(_) => "the hit ratio of the last third",
            ScenarioOutcome::Crowd { .. } => "the 95th percentile of the first ten seconds",
        }
    }

    fn to_json(&self) -> Value {
        let mut value = json!({
            "scenario": self.scenario.name(),
            "policy": self.policy,
            "simulated_capacity": self.predicted.map(|predicted| predicted.capacity),
            "simulated_hit_ratio": self.predicted.map(|predicted| predicted.hit_ratio),
            "simulated_p95_ms": self.predicted.map(|predicted| predicted.p95 * 1e3),
        });
        let period = |period: &Period| {
            json!({
                "requests": period.requests,
                "failed": period.failed,
                "p95_ms": milliseconds(period),
                "hit_ratio": period.hit_ratio,
                "busiest": period.busiest,
            })
        };
        match &self.outcome {
            ScenarioOutcome::Capacity(carried) => {
                value["capacity"] = json!(carried.as_ref().map(|(rate, _)| rate));
                value["at_capacity"] = json!(carried.as_ref().map(|(_, last)| period(last)));
            }
            ScenarioOutcome::Cold(last) => value["last_third"] = period(last),
            ScenarioOutcome::Crowd { onset, settled, all } => {
                value["first_ten_seconds"] = period(onset);
                value["settled_after_s"] = json!(settled.map(|after| after.as_secs_f64()));
                value["all"] = period(all);
            }
        }
        value
    }
}

/// `-` when requests were not answered in time.
fn milliseconds(period: &Period) -> String {
    match period.p95.as_secs() < 3600 {
        true => period.p95.as_millis().to_string(),
        false => "-".to_owned(),
    }
}
