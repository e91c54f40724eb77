//! Crowds that want more than a link carries: a file that all nodes fetch and then have, and an origin with
//! less bandwidth than its clients want.

use crate::{
    Bench, Result,
    client::Way,
    table::{Table, Target},
    world::{Links, Outcome, World, default_site},
};

const COLUMNS: &[&str] = &[
    "mean Mbit/s",
    "min Mbit/s",
    "max / min",
    "all in s",
    "origin/size",
    "requests",
    "failed",
    "late",
    "retried",
    "left out",
    "down",
];

/// The origin's link of the narrow case, in bits per second.
const NARROW: u64 = 10_000_000;

fn row(outcome: &Outcome, size: u64, down: usize) -> Vec<Option<f64>> {
    let Outcome { took, origin_bytes, requests, failed, counts, .. } = outcome;
    let values = [
        outcome.mean(),
        outcome.min(),
        outcome.rates.iter().copied().fold(0.0, f64::max) / outcome.min(),
        took.as_secs_f64(),
        *origin_bytes as f64 / size as f64,
        *requests as f64,
        failed.len() as f64,
        counts.late,
        counts.failed,
        counts.left_out,
        down as f64,
    ];
    values.into_iter().map(Some).collect()
}

/// Many clients fetch one large file through all nodes, first and cached.
pub(crate) fn large(bench: &Bench) -> Result<Table> {
    let (size, clients) = if bench.quick { (10_000_000, 10) } else { (50_000_000, 30) };
    let title = format!("large crowd: {clients} clients, a file of {} MB", size / 1_000_000);
    let mut table = Table::new(title, COLUMNS);
    let mut sent = [Vec::new(), Vec::new()];
    for round in 0..bench.rounds {
        let world = World::new(bench, &[default_site()])?;
        let site = default_site().host;
        let urls: Vec<_> = (0..clients).map(|at| world.at_node(at, &site, size, "crowd")).collect();
        for (name, sent) in ["first", "cached"].iter().zip(&mut sent) {
            let down = world.declared_down();
            let outcome = world.fetch_as_far(&urls, Way::Plain)?;
            sent.push(outcome.origin_bytes as f64 / size as f64);
            table
                .row(format!("{name}, {round}"), row(&outcome, size, world.declared_down() - down));
        }
    }
    let [first, cached] = sent;
    table.judge(
        "first: bytes written by the origin / size, at most",
        most(&first),
        Target::AtMost(1.05),
    );
    table.judge(
        "cached: bytes written by the origin / size, at most",
        most(&cached),
        Target::AtMost(0.0),
    );
    Ok(table)
}

/// Clients of an origin whose link is narrow: of one file, and each of its own.
pub(crate) fn narrow(bench: &Bench) -> Result<Table> {
    let clients = if bench.quick { 10 } else { 30 };
    let [shared, own] = if bench.quick { [2_000_000; 2] } else { [96_000_000, 8_000_000] };
    let title = format!(
        "narrow origin: {} Mbit/s, {clients} clients of one file of {} MB, or each of one of {} MB",
        NARROW / 1_000_000,
        shared / 1_000_000,
        own / 1_000_000
    );
    let mut table = Table::new(title, COLUMNS);
    let links = Links { origin: NARROW, ..Links::default() };
    for (name, files, size) in [("one file", 1, shared), ("own files", clients, own)] {
        if !bench.wants(name) {
            continue;
        }
        let (mut sent, mut failed) = (Vec::new(), 0);
        for round in 0..bench.rounds {
            let world = World::over(bench, &[default_site()], links)?;
            let url = |at: usize| {
                world.at_node(at, &default_site().host, size, &format!("file-{}", at % files))
            };
            let urls: Vec<_> = (0..clients).map(url).collect();
            let outcome = world.fetch_as_far(&urls, Way::Plain)?;
            outcome.failed.iter().for_each(|why| eprintln!("{name}: {why}"));
            let due = size * files as u64;
            sent.push(outcome.origin_bytes as f64 / due as f64);
            failed += outcome.failed.len();
            table.row(format!("{name}, {round}"), row(&outcome, due, world.declared_down()));
        }
        table.judge(
            format!("{name}: bytes written by the origin / size, at most"),
            most(&sent),
            Target::AtMost(1.1),
        );
        table.judge(format!("{name}: failed clients"), failed as f64, Target::AtMost(0.0));
    }
    Ok(table)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}
