//! The printed report: the emulated machines, a line for each measurement, and the paper's
//! statements.

use levada_client::command::CommandStatus;
use levada_sim::prototype::Measured;
use levada_testbed::emulation::report::{
    Claim, LabReport, QUALITY_1, QUALITY_2, misprediction, notes, nothing_failed, percent, quality,
};
use levada_types::ByteSize;
use serde_json::json;

use super::{LardRow, LardSetup};
use crate::args::lard::LardArgs;

/// Prints the setup.
pub(super) fn begin(args: &LardArgs, setup: &LardSetup) -> anyhow::Result<LabReport> {
    let replay = &setup.replay;
    let outstanding = setup.nodes.iter().map(|nodes| setup.outstanding(*nodes).to_string());
    let emulated = vec![
        format!(
            "trace: {}: {} files, {}, {} requests",
            replay.source,
            replay.trace.objects().len(),
            ByteSize(replay.bytes()),
            replay.trace.requests().len()
        ),
        format!("back-ends: {}", args.prototype.hardware(setup.memory)),
        format!(
            "clients: {} on {} back-ends, each with one request at a time",
            outstanding.collect::<Vec<_>>().join(" and "),
            setup.nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
        ),
        args.prototype.transport().to_owned(),
        setup.window.sentence(args.prototype.time_scale),
    ];
    let head = format!("{HEAD_1}{QUALITY_1}\n{HEAD_2}{QUALITY_2}");
    Ok(LabReport::begin(args.prototype.json, emulated, &head)?)
}

/// The headings of the other columns, in two lines.
const HEAD_1: &str =
    "                            requests/s            hit ratio          idle       ";
const HEAD_2: &str =
    "nodes  policy        measured simulated          meas.    sim.    meas.    sim. ";

/// One measurement.
pub(super) fn row(report: &mut LabReport, row: &LardRow) -> anyhow::Result<()> {
    let (measured, predicted) = (&row.run.measured, &row.predicted);
    let line = format!(
        "{:>5}  {:<13} {:>8.0} {:>9.0} {:>5.2}  {:>7} {:>7}  {:>7} {:>7} {}",
        row.nodes,
        row.policy,
        measured.throughput,
        predicted.throughput,
        measured.throughput / predicted.throughput,
        percent(measured.hit_ratio),
        percent(predicted.hit_ratio),
        percent(measured.idle),
        percent(predicted.idle),
        quality(&row.run)
    );
    let of = |measured: &Measured| {
        json!({
            "throughput": measured.throughput,
            "hit_ratio": measured.hit_ratio,
            "idle": measured.idle,
        })
    };
    let row = json!({
        "nodes": row.nodes,
        "policy": row.policy,
        "measured": of(measured),
        "simulated": of(predicted),
        "quality": row.run.quality(),
    });
    Ok(report.row(&line, row)?)
}

/// The paper's statements, and whether they hold.
pub(super) fn end(
    args: &LardArgs,
    report: LabReport,
    rows: &[LardRow],
) -> anyhow::Result<CommandStatus> {
    let runs = || rows.iter().map(|row| &row.run);
    let mut claims = vec![nothing_failed(runs())];
    let of = |nodes, policy| rows.iter().find(|row| row.nodes == nodes && row.policy == policy);
    let mut sizes: Vec<_> = rows.iter().map(|row| row.nodes).filter(|nodes| *nodes > 1).collect();
    sizes.dedup();
    for nodes in sizes {
        let (Some(lard), Some(wrr)) = (of(nodes, "lard/r"), of(nodes, "wrr")) else { continue };
        let measured = lard.run.measured.throughput / wrr.run.measured.throughput;
        let simulated = lard.predicted.throughput / wrr.predicted.throughput;
        let text = format!(
            "LARD/R serves at least twice what WRR does on {nodes} back-ends (paper: 2 to 4 times; \
             measured {measured:.2}, simulated {simulated:.2})"
        );
        claims.push(Claim { text, holds: measured >= 2.0 });
    }
    for row in rows {
        let what = format!("{} on {} back-ends", row.policy, row.nodes);
        claims.extend(misprediction(&what, &row.run, row.predicted.throughput));
    }
    Ok(report.end(&claims, &notes(args.prototype.transport, runs()))?)
}
