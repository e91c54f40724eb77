//! The printed report: the cluster and the load, a line for each change, and whether any request suffered.

use levada_client::command::CommandStatus;
use levada_testbed::{
    cluster::{milliseconds, problems::Problem},
    emulation::report::{Claim, LabReport},
};
use serde_json::json;

use super::{ChangeOutcome, handed::BACKS, nodes::NODES, register::Change};
use crate::args::changes::ChangesArgs;

/// Prints the setup. `left_out` is the reason why no connection is handed off.
pub(super) fn begin(args: &ChangesArgs, left_out: Option<&str>) -> anyhow::Result<LabReport> {
    let emulated = vec![
        format!(
            "nodes: {NODES} real nodes, peers of each other, with a cache in memory and on disk"
        ),
        match left_out {
            None => format!(
                "handoff: a real front-end and {BACKS} real back-ends with caches, each on a host of its own"
            ),
            Some(why) => format!("handoff: left out, {why}"),
        },
        format!(
            "load: {} requests/s over HTTP/1, HTTP/2 and TLS, on kept and new connections, every byte verified",
            args.rate
        ),
    ];
    Ok(LabReport::begin(args.json, emulated, HEAD)?)
}

/// The headings of the table.
const HEAD: &str = "change          made  requests  handed  refused  failed   cut  wrong  resent  p99 before  during, ms  ratio";

/// One change.
pub(super) fn row(
    report: &mut LabReport,
    change: &Change,
    outcome: &ChangeOutcome,
) -> anyhow::Result<()> {
    let ChangeOutcome { counts, made, handed, failed } = outcome;
    let ((before, during), problems) = (counts.p99(), counts.problems.borrow());
    let ratio = during.as_secs_f64() / before.as_secs_f64().max(1e-6);
    let [refused, unanswered, cut, wrong] =
        [Problem::Refused, Problem::Failed, Problem::Cut, Problem::Wrong]
            .map(|one| problems.of(one));
    let (requests, resent) = (counts.requests.get(), counts.resent.get());
    let handed_text = handed.map_or_else(|| "-".to_owned(), |handed| handed.to_string());
    let line = format!(
        "{:<14} {made:>5} {requests:>9} {handed_text:>7} {refused:>8} {unanswered:>7} {cut:>5} {wrong:>6} {resent:>7} {:>11.1} {:>11.1} {ratio:>6.2}",
        change.name,
        milliseconds(before),
        milliseconds(during),
    );
    let json = json!({
        "change": change.name,
        "made": made,
        "requests": requests,
        "handed_off": handed,
        "refused": refused,
        "failed": unanswered,
        "cut": cut,
        "wrong": wrong,
        "resent": resent,
        "p99_before_ms": milliseconds(before),
        "p99_during_ms": milliseconds(during),
        "p99_ratio": ratio,
        "reasons": problems.reasons(),
        "not_made": failed,
    });
    Ok(report.row(&line, json)?)
}

/// Whether any request suffered.
pub(super) fn end(
    report: LabReport,
    rows: &[(&Change, ChangeOutcome)],
) -> anyhow::Result<CommandStatus> {
    let claim = |(change, outcome): &(&Change, ChangeOutcome)| {
        let suffered = outcome.counts.problems.borrow().reasons().values().sum::<u64>();
        let text = match (&outcome.failed, suffered) {
            (Some(why), _) => format!("{}: the change takes effect ({why})", change.name),
            (None, 0) => format!("{}: no request suffers", change.name),
            (None, count) => format!("{}: no request suffers ({count} did)", change.name),
        };
        Claim { text, holds: outcome.failed.is_none() && outcome.made > 0 && suffered == 0 }
    };
    let claims: Vec<_> = rows.iter().map(claim).collect();
    let reasons = rows.iter().flat_map(|(change, outcome)| {
        let reasons = outcome.counts.problems.borrow().reasons().into_iter();
        reasons.map(|(reason, count)| format!("{}: {count} x {reason}", change.name))
    });
    Ok(report.end(&claims, &reasons.collect::<Vec<_>>())?)
}
