//! `levada sim large`: large files in pieces, for given settings and links.

use std::{
    io::{self, Write},
    time::Duration,
};

use anyhow::ensure;
use levada_client::command::{CommandStatus, output};
use levada_fetch::{Mode, Plan};
use levada_large::{Case, Fetched, Line, Settings, compare};
use serde_json::{Value as Json, json};

use super::args::{LargeArgs, Retry};

/// Plays all cases for each seed and prints a line for each case.
///
/// # Errors
/// When a size or a time makes no sense, or the output cannot be written.
pub(super) fn run(args: &LargeArgs) -> anyhow::Result<CommandStatus> {
    let settings = settings(args)?;
    let files: Vec<[Fetched; 6]> = (1..=u64::from(args.seeds))
        .map(|seed| compare(Settings { seed, ..settings }, args.slower))
        .collect();
    output::print(args.json, &to_json(&files), |out| print(out, args, &files))?;
    Ok(CommandStatus::Success)
}

fn settings(args: &LargeArgs) -> anyhow::Result<Settings> {
    ensure!(args.size.0 > 0 && args.piece.0 > 0, "--size and --piece: at least one byte");
    ensure!(args.node_rate.0 > 0 && args.origin_rate.0 > 0, "rates: at least one byte per second");
    // A round trip crosses the links of both ends in both directions.
    let node = args.round_trip.0 / 4;
    let beyond = (args.origin_round_trip.0 / 2).checked_sub(node);
    ensure!(beyond.is_some(), "--origin-round-trip: at least half of --round-trip");
    let mode = match args.retry {
        Retry::Timeout => Mode::Timeout,
        Retry::Hedge => Mode::Hedge,
        Retry::Deadline => Mode::Deadline,
    };
    let window = usize::from(args.window);
    Ok(Settings {
        nodes: usize::from(args.nodes),
        clients: usize::from(args.clients),
        file: args.size.0,
        plan: Plan { chunk: args.piece.0, window, mode, ..Plan::default() },
        node: Line { rate: args.node_rate.0.saturating_mul(8), delay: node },
        origin: Line {
            rate: args.origin_rate.0.saturating_mul(8),
            delay: beyond.unwrap_or(Duration::ZERO),
        },
        client_delay: node,
        seed: 0,
    })
}

/// A line for each case: medians over the files for rates, means for counts.
fn print(out: &mut impl Write, args: &LargeArgs, files: &[[Fetched; 6]]) -> io::Result<()> {
    writeln!(
        out,
        "{:20} {:>8} {:>8} {:>11} {:>12} {:>7} {:>6} {:>7} {:>7}",
        "", "Mbit/s", "slowest", "undisturbed", "origin/file", "stalls", "late", "failed", "hedges",
    )?;
    let number = |case: Case| Case::ALL.iter().position(|other| *other == case).unwrap_or(0);
    for case in Case::ALL {
        let fetched = |file: &[Fetched; 6]| file[number(case)].clone();
        let all: Vec<Fetched> = files.iter().map(fetched).collect();
        let ratios = files
            .iter()
            .map(|file| file[number(case)].rate() / file[number(case.undisturbed())].rate());
        let slowest = all.iter().flat_map(|fetched| &fetched.rates).copied();
        let mean =
            |of: &dyn Fn(&Fetched) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
        writeln!(
            out,
            "{:20} {:8.1} {:8.1} {:11.2} {:12.3} {:7.1} {:6.1} {:7.1} {:7.1}",
            case.as_str(),
            median(all.iter().map(Fetched::rate).collect()),
            slowest.fold(f64::INFINITY, f64::min),
            median(ratios.collect()),
            mean(&|fetched| fetched.origin_bytes as f64 / args.size.0 as f64),
            mean(&|fetched| fetched.counts.stalls as f64),
            mean(&|fetched| fetched.counts.late as f64),
            mean(&|fetched| fetched.counts.retries.saturating_sub(fetched.counts.late) as f64),
            mean(&|fetched| fetched.counts.hedges as f64),
        )?;
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn to_json(files: &[[Fetched; 6]]) -> Json {
    let fetched = |seed: usize, case: Case, fetched: &Fetched| {
        let counts = fetched.counts;
        json!({
            "seed": seed,
            "case": case.as_str(),
            "mbit_per_second": fetched.rates,
            "origin_bytes": fetched.origin_bytes,
            "stalls": counts.stalls,
            "late": counts.late,
            "failed": counts.retries.saturating_sub(counts.late),
            "hedges": counts.hedges,
        })
    };
    let rows = files.iter().enumerate().flat_map(|(file, cases)| {
        Case::ALL.iter().zip(cases).map(move |(case, got)| fetched(file + 1, *case, got))
    });
    rows.collect()
}
