//! The printed report: the cluster and the load, a line for each fault, and whether its limits hold.

use levada_client::command::CommandStatus;
use levada_testbed::{
    cluster::{milliseconds, problems::Problem},
    emulation::report::{Claim, LabReport},
};
use serde_json::json;

use super::{FaultOutcome, network::NODES, register::Fault};
use crate::args::faults::FaultsArgs;

/// Prints the setup.
pub(super) fn begin(args: &FaultsArgs) -> anyhow::Result<LabReport> {
    let emulated = vec![
        format!(
            "nodes: {NODES} real nodes, peers of each other, with 8 MiB of memory and 128 MiB of disk"
        ),
        format!("load: {} requests/s, every byte verified, and a purge every 400 ms", args.rate),
    ];
    Ok(LabReport::begin(args.json, emulated, HEAD)?)
}

/// The headings of the table.
const HEAD: &str = "fault           requests  failed   cut  wrong  stale    p99 ms   hit p99   slowest   memory   cpu s  recovery  at origin";

/// One fault.
pub(super) fn row(
    report: &mut LabReport,
    fault: &Fault,
    outcome: &FaultOutcome,
) -> anyhow::Result<()> {
    let FaultOutcome { tally, memory, purges, confirmed, noticed, lost, .. } = outcome;
    let [failed, cut, wrong, stale] =
        [Problem::Failed, Problem::Cut, Problem::Wrong, Problem::Stale]
            .map(|problem| tally.problems.of(problem));
    let hit_p99 = tally.hit_p99().map(milliseconds);
    let recovery = outcome.recovery.map(milliseconds);
    let line = format!(
        "{:<14} {:>9} {failed:>7} {cut:>5} {wrong:>6} {stale:>6} {:>9.0} {:>9} {:>9.0} {:>4} MiB {:>7.1} {:>9} {:>10}",
        fault.name,
        tally.requests,
        milliseconds(tally.p99()),
        hit_p99.map_or_else(|| "-".to_owned(), |time| format!("{time:.1}")),
        milliseconds(tally.slowest()),
        memory >> 20,
        outcome.cpu.as_secs_f64(),
        recovery.map_or_else(|| "-".to_owned(), |time| format!("{time:.0}")),
        outcome.at_origin,
    );
    let json = json!({
        "fault": fault.name,
        "requests": tally.requests,
        "requests_at_struck_nodes": tally.struck,
        "failed": failed,
        "cut": cut,
        "wrong": wrong,
        "stale": stale,
        "p99_ms": milliseconds(tally.p99()),
        "small_hits": tally.small_hits(),
        "hit_p99_ms": hit_p99,
        "slowest_ms": milliseconds(tally.slowest()),
        "memory_bytes": memory,
        "cpu_s": outcome.cpu.as_secs_f64(),
        "recovery_ms": recovery,
        "most_at_origin": outcome.at_origin,
        "purges": purges,
        "purges_confirmed": confirmed,
        "noticed": noticed,
        "nodes_lost": lost,
        "reasons": tally.problems.reasons(),
        "exceeded": outcome.exceeded(fault),
    });
    Ok(report.row(&line, json)?)
}

/// Whether all limits hold.
pub(super) fn end(
    report: LabReport,
    rows: &[(&Fault, FaultOutcome)],
    mut notes: Vec<String>,
) -> anyhow::Result<CommandStatus> {
    let claim = |(fault, outcome): &(&Fault, FaultOutcome)| {
        let exceeded = outcome.exceeded(fault);
        let text = match exceeded.is_empty() {
            true => format!("{}: the limits", fault.name),
            false => format!("{}: the limits ({})", fault.name, exceeded.join(", ")),
        };
        Claim { text, holds: exceeded.is_empty() }
    };
    let claims: Vec<_> = rows.iter().map(claim).collect();
    for (fault, outcome) in rows {
        let mut reasons: Vec<_> = outcome.tally.problems.reasons().into_iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let named = reasons.iter().take(REASONS);
        notes.extend(named.map(|(reason, count)| format!("{}: {count} x {reason}", fault.name)));
    }
    Ok(report.end(&claims, &notes)?)
}

/// Reasons of a row that are printed.
const REASONS: usize = 5;
