//! The printed report: the setup, a line for each figure of each cluster, and whether all are within their bounds.

use levada_client::command::CommandStatus;
use levada_plan::{Backtest, Range, words};
use levada_testbed::emulation::report::{Claim, LabReport};
use levada_types::{ByteSize, format_duration};
use serde_json::json;

use crate::{
    args::PlanLabArgs,
    compare::{ComparedFigure, Comparison, FIGURES},
    lab::{Outcome, PlanSetup},
};

/// Prints the setup.
pub(crate) fn begin(args: &PlanLabArgs, setup: &PlanSetup) -> anyhow::Result<LabReport> {
    let setup = vec![
        format!("logged: {}", words(&setup.logged)),
        format!(
            "origin: {} for each request, and a link of {} Mbit/s",
            format_duration(args.origin_latency),
            args.origin_rate as f64 * 8e-6
        ),
        format!(
            "documents: generated like Rice University's, seed {}, {} in {} files",
            args.seed,
            ByteSize(setup.documents.bytes()),
            args.documents
        ),
        format!(
            "load: {} requests/s, {} for each phase",
            args.rate,
            format_duration(args.duration)
        ),
    ];
    Ok(LabReport::begin(args.json, setup, HEAD)?)
}

const HEAD: &str = "cluster  figure         predicted (range of runs)          informed  measured           difference     bound";

impl Outcome {
    fn compare(&self, figure: &ComparedFigure) -> Comparison {
        figure.compare(&self.predicted, &self.informed, &self.measured)
    }
}

/// The figures of a cluster.
pub(crate) fn cluster(report: &mut LabReport, outcome: &Outcome) -> anyhow::Result<()> {
    for figure in &FIGURES {
        let compared = outcome.compare(figure);
        report.row(&line(outcome, figure, &compared), row(outcome, figure, &compared))?;
    }
    Ok(())
}

fn line(outcome: &Outcome, figure: &ComparedFigure, compared: &Comparison) -> String {
    let Range { mean, least, most } = compared.predicted;
    let (bound, unit) = figure.bound.parts();
    let verdict = match compared.is_within {
        Some(true) => "",
        Some(false) => "  MISSED",
        None => "  not judged: the CPU is saturated",
    };
    format!(
        "{:<8} {:<14} {:>7.2} {:<6} {:<19} {:>8.2} {:>9.2} {:<6} {:>+9.2} {unit:<7} {bound:>3.0} {unit}{verdict}",
        outcome.name,
        figure.name,
        mean,
        figure.unit,
        format!("({least:.2}..{most:.2})"),
        compared.informed,
        compared.measured,
        figure.unit,
        compared.difference,
    )
}

fn row(outcome: &Outcome, figure: &ComparedFigure, compared: &Comparison) -> serde_json::Value {
    let (bound, unit) = figure.bound.parts();
    json!({
        "cluster": outcome.name,
        "candidate": outcome.candidate,
        "requests": outcome.measured.requests,
        "failed": outcome.measured.failed,
        "figure": figure.name,
        "unit": figure.unit,
        "predicted": compared.predicted,
        "informed": compared.informed,
        "measured": compared.measured,
        "difference": compared.difference,
        "bound": bound,
        "bound_unit": unit,
        "within": compared.is_within,
    })
}

/// Whether all figures are within their bounds.
pub(crate) fn end(
    report: LabReport,
    outcomes: &[Outcome],
    backtest: Option<&Backtest>,
) -> anyhow::Result<CommandStatus> {
    let failed: usize = outcomes.iter().map(|outcome| outcome.measured.failed).sum();
    let mut claims = vec![
        backtested(backtest),
        Claim {
            text: format!("every fresh request is answered in full ({failed} were not)"),
            holds: failed == 0,
        },
    ];
    claims.extend(outcomes.iter().map(within));
    let planned = outcomes.last().map(|outcome| format!("planned: {}", words(&outcome.candidate)));
    Ok(report.end(&claims, &planned.into_iter().collect::<Vec<_>>())?)
}

fn within(outcome: &Outcome) -> Claim {
    let is_missed = |figure: &&ComparedFigure| {
        let compared = outcome.compare(figure);
        compared.is_within == Some(false)
    };
    let missed: Vec<_> = FIGURES.iter().filter(is_missed).map(|figure| figure.name).collect();
    let found = if missed.is_empty() { "none" } else { &missed.join(", ") };
    Claim {
        text: format!(
            "all figures of the {} cluster are within their bounds (missed: {found})",
            outcome.name
        ),
        holds: missed.is_empty(),
    }
}

fn backtested(backtest: Option<&Backtest>) -> Claim {
    let Some(test) = backtest else {
        return Claim {
            text: "the log has results of a cache for a backtest".to_owned(),
            holds: false,
        };
    };
    let points = |predicted: f64, logged: f64| (predicted - logged) * 100.0;
    let (hit, bytes) = (
        points(test.predicted_hit, test.logged_hit),
        points(test.predicted_byte_hit, test.logged_byte_hit),
    );
    Claim {
        text: format!(
            "the backtest is within 2 points of the log (hits {hit:+.2}, bytes {bytes:+.2})"
        ),
        holds: hit.abs() <= 2.0 && bytes.abs() <= 2.0,
    }
}
