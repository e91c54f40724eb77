//! One of eight nodes with a twentieth of its rate, or killed in the middle; for each way to deal with
//! late pieces.
//!
//! Every way gets the same URLs, and so the same pieces on the same nodes: the round's number is all that
//! differs. Each disturbed fetch is compared with an undisturbed one, in the same world where that is
//! possible, and no node remembers the victim from an earlier round.

use std::time::Duration;

use crate::{
    Bench, Result,
    client::Way,
    shapes::{COLUMNS, row},
    table::{Table, Target},
    world::{Outcome, SLOWER, Site, World, default_site},
};

/// Not the one that the client asks.
const VICTIM: usize = 5;
const ASKED: usize = 0;
const MODES: [&str; 3] = ["timeout", "hedge", "deadline"];

/// The fault of the affected node.
#[derive(Clone, Copy)]
enum Fault {
    Slow,
    /// After this part of the time that the undisturbed fetch took.
    Killed,
}

pub(crate) fn slow(bench: &Bench) -> Result<Table> {
    measure(bench, Fault::Slow, &format!("one node {SLOWER} x slower"))
}

pub(crate) fn killed(bench: &Bench) -> Result<Table> {
    measure(bench, Fault::Killed, "one node killed in the middle")
}

/// The four fetches of a round.
const FETCHES: [&str; 4] = ["first", "first, disturbed", "cached", "cached, disturbed"];

fn measure(bench: &Bench, fault: Fault, title: &str) -> Result<Table> {
    let size = if bench.quick { 10_000_000 } else { 50_000_000 };
    let title = format!("{title}: a file of {} MB, {} rounds", size / 1_000_000, bench.rounds);
    let mut table = Table::new(title, COLUMNS);
    let mut ratios = Vec::new();
    for mode in MODES.into_iter().filter(|mode| bench.wants(mode)) {
        let mut rounds: [Vec<Outcome>; 4] = Default::default();
        for round in 0..bench.rounds {
            let name = format!("file-{round}");
            for (at, outcome) in one_round(bench, mode, fault, size, &name)?.into_iter().enumerate()
            {
                rounds[at].push(outcome);
            }
        }
        for (name, outcomes) in FETCHES.iter().zip(&rounds) {
            let rows: Vec<_> = outcomes.iter().map(|outcome| row(outcome, size, None)).collect();
            table.row(format!("{mode}, {name}"), mean(&rows));
        }
        let [first, first_disturbed, cached, cached_disturbed] = &rounds;
        for (name, disturbed, undisturbed) in
            [("first", first_disturbed, first), ("cached", cached_disturbed, cached)]
        {
            let pairs = disturbed.iter().zip(undisturbed);
            let ratio = pairs.map(|(with, without)| with.mean() / without.mean()).collect();
            ratios.push((format!("{mode}, {name}: disturbed / undisturbed"), ratio));
        }
    }
    for (name, ratios) in ratios {
        table.judge_median(name, ratios, Target::AtLeast(0.8));
    }
    Ok(table)
}

/// One world in which all that is disturbed is the last fetch, and one for the first fetch of a file.
fn one_round(
    bench: &Bench,
    mode: &str,
    fault: Fault,
    size: u64,
    name: &str,
) -> Result<[Outcome; 4]> {
    let site = Site { large: format!("retry = \"{mode}\"\n"), ..default_site() };
    let world = World::new(bench, std::slice::from_ref(&site))?;
    let url = world.at_node(ASKED, &site.host, size, name);
    let urls = std::slice::from_ref(&url);
    let first = world.fetch(urls, Way::Plain)?;
    let cached = world.fetch(urls, Way::Plain)?;
    let cached_disturbed = disturbed(&world, fault, &url, cached.took)?;
    drop(world);
    let world = World::new(bench, &[site])?;
    let first_disturbed = disturbed(&world, fault, &url, first.took)?;
    Ok([first, first_disturbed, cached, cached_disturbed])
}

fn disturbed(
    world: &World,
    fault: Fault,
    url: &crate::client::Url,
    undisturbed: Duration,
) -> Result<Outcome> {
    match fault {
        Fault::Slow => {
            world.slow_down(VICTIM);
            world.fetch(std::slice::from_ref(url), Way::Plain)
        }
        Fault::Killed => world.fetch_and_kill(url, undisturbed / 3, VICTIM),
    }
}

/// The mean of each column.
fn mean(rows: &[Vec<Option<f64>>]) -> Vec<Option<f64>> {
    let columns = rows.first().map_or(0, Vec::len);
    let mean = |column: usize| {
        let sum: Option<f64> = rows.iter().map(|row| row[column]).sum();
        sum.map(|sum| sum / rows.len() as f64)
    };
    (0..columns).map(mean).collect()
}
