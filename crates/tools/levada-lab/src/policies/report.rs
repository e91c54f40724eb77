//! The printed report: the emulated machines, a line for each policy in each scenario, and whether the
//! first policy is among the best.

use levada_client::command::CommandStatus;
use levada_testbed::emulation::report::{Claim, LabReport, percent};
use levada_types::{ByteSize, format_duration};
use serde_json::{Value, json};

use super::{
    DOCUMENTS, Figures, PoliciesSetup, PolicyRow, cluster::FRONTS, period::Period,
    scenario::ScenarioOutcome,
};
use crate::args::policies::{PoliciesArgs, PoliciesScenario};

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
            DOCUMENTS
        ),
        format!(
            "times: a warm-up of {}, and steps of {}",
            format_duration(args.warm_up),
            format_duration(args.step)
        ),
    ];
    Ok(LabReport::begin(args.json, emulated, HEAD)?)
}

/// The headings of the table. In brackets are the simulator's figures.
const HEAD: &str =
    "scenario     policy        capacity (sim.) p95, ms  (sim.)  hits   (sim.)  busiest  settled";

/// One policy in one scenario.
pub(super) fn row(report: &mut LabReport, row: &PolicyRow) -> anyhow::Result<()> {
    let settled = match &row.outcome {
        ScenarioOutcome::Crowd { settled: Some(after), .. } => {
            format!("{}", format_duration(*after))
        }
        ScenarioOutcome::Crowd { settled: None, .. } => "never".to_owned(),
        _ => "-".to_owned(),
    };
    let busiest = row.period().map_or_else(|| "-".to_owned(), |period| percent(period.busiest));
    let (real, simulated) = (row.figures().texts(row), row.predicted.texts(row));
    let line = format!(
        "{:<12} {:<13} {:>8} {:>7} {:>7} {:>7} {:>6} {:>7} {busiest:>8} {settled:>8}",
        row.scenario.name(),
        row.policy,
        real[0],
        simulated[0],
        real[2],
        simulated[2],
        real[1],
        simulated[1],
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
        claims.extend(misjudged(row));
        if let Some(other) = rows.iter().find(|other| row.is_misordered_with(other)) {
            let text = format!(
                "{}: the simulator does not put {} before {}",
                row.scenario.name(),
                other.policy,
                row.policy
            );
            claims.push(Claim { text, holds: false });
        }
    }
    Ok(report.end(&claims, &[])?)
}

/// The claim that the simulated capacity is right, if it is not: beyond all of its plays.
fn misjudged(row: &PolicyRow) -> Option<Claim> {
    let (real, range) = (row.figures().capacity, row.predicted.range?);
    if is_within(real, range) {
        return None;
    }
    let what = match (real, row.predicted.capacity) {
        (Some(real), Some(simulated)) => {
            format!("measured {:.2} of what it says", real / simulated)
        }
        (Some(_), None) => "it says that not even the first rate is carried".to_owned(),
        (None, _) => "not even the first rate was carried".to_owned(),
    };
    let text = format!(
        "{}: the simulator is right within 10 % of {} ({what})",
        row.scenario.name(),
        row.policy
    );
    Some(Claim { text, holds: false })
}

/// Whether a capacity is at most a tenth below or above a range. One without a first rate that was carried is 0.
fn is_within(real: Option<f64>, (lowest, highest): (f64, f64)) -> bool {
    (lowest * 0.9..=highest * 1.1).contains(&real.unwrap_or(0.0))
}

impl Figures {
    /// The figure by which policies are compared; more is better.
    fn merit(&self, scenario: PoliciesScenario) -> f64 {
        match scenario {
            PoliciesScenario::Cold | PoliciesScenario::Killed => self.hit_ratio,
            PoliciesScenario::Crowd => 1.0 / self.p95.max(f64::MIN_POSITIVE),
            _ => self.capacity.unwrap_or(0.0),
        }
    }

    /// Capacity, hit ratio and 95th percentile as tables show them.
    pub(super) fn texts(&self, row: &PolicyRow) -> [String; 3] {
        let dash = || "-".to_owned();
        if row.is_ramp() && self.capacity.is_none() {
            return ["none".to_owned(), dash(), dash()];
        }
        let late = self.p95 >= 3600.0;
        let p95 = if late { dash() } else { format!("{:.0}", self.p95 * 1e3) };
        let capacity = self.capacity.map_or_else(dash, |rate| format!("{rate:.0}"));
        [capacity, percent(self.hit_ratio), p95]
    }
}

impl PolicyRow {
    fn is_ramp(&self) -> bool {
        matches!(self.outcome, ScenarioOutcome::Capacity(_))
    }

    /// Whether `other` is better by more than a twentieth, and the simulator says that it is worse.
    pub(super) fn is_misordered_with(&self, other: &Self) -> bool {
        let simulated = |row: &Self| row.predicted.merit(row.scenario);
        other.scenario == self.scenario
            && other.merit() > self.merit() * 1.05
            && simulated(other) < simulated(self)
    }

    /// The measured figures.
    pub(super) fn figures(&self) -> Figures {
        let period = self.period();
        Figures {
            capacity: match &self.outcome {
                ScenarioOutcome::Capacity(carried) => carried.as_ref().map(|(rate, _)| *rate),
                _ => None,
            },
            hit_ratio: period.map_or(0.0, |period| period.hit_ratio),
            p95: period.map_or(0.0, |period| period.p95.as_secs_f64()),
            range: None,
        }
    }

    /// The period that the figures are of.
    fn period(&self) -> Option<&Period> {
        match &self.outcome {
            ScenarioOutcome::Capacity(carried) => carried.as_ref().map(|(_, period)| period),
            ScenarioOutcome::Cold(period) | ScenarioOutcome::Killed(period) => Some(period),
            ScenarioOutcome::Crowd { onset, .. } => Some(onset),
        }
    }

    fn merit(&self) -> f64 {
        self.figures().merit(self.scenario)
    }

    fn measure(&self) -> &'static str {
        match &self.outcome {
            ScenarioOutcome::Capacity(_) => "capacity",
            ScenarioOutcome::Cold(_) => "the hit ratio of the last third",
            ScenarioOutcome::Killed(_) => "the hit ratio",
            ScenarioOutcome::Crowd { .. } => "the 95th percentile of the first ten seconds",
        }
    }

    fn to_json(&self) -> Value {
        let mut value = json!({
            "scenario": self.scenario.name(),
            "policy": self.policy,
            "simulated_capacity": self.predicted.capacity,
            "simulated_range": self.predicted.range,
            "simulated_hit_ratio": self.predicted.hit_ratio,
            "simulated_p95_ms": self.predicted.p95 * 1e3,
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
            ScenarioOutcome::Killed(all) => value["all"] = period(all),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_right_within_a_tenth_of_any_play() {
        let range = (100.0, 140.0);
        for (real, is_right) in
            [(89.0, false), (91.0, true), (120.0, true), (153.0, true), (155.0, false)]
        {
            assert_eq!(is_within(Some(real), range), is_right, "{real}");
        }
        assert!(!is_within(None, range));
        assert!(is_within(None, (0.0, 140.0)), "a play did not carry the first rate either");
    }
}
