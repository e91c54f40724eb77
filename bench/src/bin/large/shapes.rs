//! The paper's comparison (Sec. 4): straight from the origin, aggressively from there, and through the
//! nodes when they have nothing and when they have all of it; one client, and many at once.

use levada_config::LargeSettings;

use crate::{
    Bench, Result,
    client::{Url, Way},
    table::{Table, Target},
    world::{NODES, Outcome, World, default_site},
};

pub(crate) const COLUMNS: &[&str] = &[
    "mean Mbit/s",
    "min Mbit/s",
    "all in s",
    "origin/size",
    "on its wire",
    "late",
    "failed",
    "hedges",
    "MB/transfer",
];

/// One row of [`COLUMNS`].
pub(crate) fn row(outcome: &Outcome, size: u64, memory: Option<f64>) -> Vec<Option<f64>> {
    let Outcome { took, origin_bytes, origin_wire, counts, .. } = outcome;
    vec![
        Some(outcome.mean()),
        Some(outcome.min()),
        Some(took.as_secs_f64()),
        Some(*origin_bytes as f64 / size as f64),
        Some(*origin_wire as f64 / size as f64),
        Some(counts.late),
        Some(counts.failed),
        Some(counts.hedges),
        memory,
    ]
}

pub(crate) fn single(bench: &Bench) -> Result<Table> {
    let size = if bench.quick { 10_000_000 } else { 50_000_000 };
    compare(bench, "one client", size, 1)
}

pub(crate) fn crowd(bench: &Bench) -> Result<Table> {
    let (size, clients) = if bench.quick { (2_000_000, 16) } else { (5_000_000, 60) };
    compare(bench, "many clients", size, clients)
}

fn compare(bench: &Bench, name: &str, size: u64, clients: usize) -> Result<Table> {
    let world = World::new(bench, &[default_site()])?;
    let title = format!("{name}: {clients} at once, a file of {} MB", size / 1_000_000);
    let mut table = Table::new(title, COLUMNS);
    let origin: Vec<Url> = vec![world.at_origin(size, "file"); clients];
    let nodes: Vec<Url> = (0..clients)
        .map(|client| world.at_node(client, &default_site().host, size, "file"))
        .collect();
    let plan = LargeSettings::default().plan;
    let window = (plan.chunk * plan.window as u64).min(size) as f64;
    // Nodes share the clients evenly.
    let most = clients.div_ceil(NODES) as f64;
    let mut measure = |name: &str, urls: &[Url], way, agent: bool| -> Result<Outcome> {
        let outcome = world.fetch(urls, way)?;
        let growth = outcome.growth.iter().copied().fold(0.0, f64::max) / most;
        table.row(name, row(&outcome, size, agent.then_some(growth / 1e6)));
        Ok(outcome)
    };
    let direct = match bench.wants("direct") {
        true => {
            let direct = measure("direct", &origin, Way::Plain, false)?;
            Some((direct, measure("aggressive", &origin, Way::Aggressive, false)?))
        }
        false => None,
    };
    let first = measure("first", &nodes, Way::Plain, true)?;
    let cached = measure("cached", &nodes, Way::Plain, true)?;
    let memory = cached.growth.iter().copied().fold(0.0, f64::max) / most / window;
    if let Some((direct, aggressive)) = direct {
        let times = cached.mean() / direct.mean();
        if clients > 1 {
            table.judge("first / direct", first.mean() / direct.mean(), Target::Above(1.0));
            table.judge("cached / direct", times, Target::AtLeast(4.0));
            let times = aggressive.mean() / direct.mean();
            table.judge("aggressive / direct, as published", times, Target::AtMost(1.0));
        } else {
            table.judge("cached / direct", times, Target::Above(1.0));
            // For one client the paper has no more than that (Sec. 4).
            let times = first.mean() / aggressive.mean();
            table.judge("first / aggressive, as published", times, Target::AtMost(1.0));
        }
    }
    let sent = first.origin_bytes as f64 / size as f64;
    table.judge("first: bytes written by the origin / size", sent, Target::AtMost(1.1));
    let sent = cached.origin_bytes as f64 / size as f64;
    table.judge("cached: bytes written by the origin / size", sent, Target::AtMost(0.0));
    table.judge("cached: growth of a node / (transfers x window)", memory, Target::AtMost(1.1));
    Ok(table)
}
