//! One of eight nodes with a twentieth of its rate, or killed in the middle.

use crate::{
    Bench, Result,
    client::Way,
    shapes::{COLUMNS, row},
    table::{Table, Target},
    world::{SLOWER, Site, World, default_site},
};

/// Not the one that the client asks.
const VICTIM: usize = 5;
const ASKED: usize = 0;

fn size(bench: &Bench) -> u64 {
    if bench.quick { 10_000_000 } else { 50_000_000 }
}

/// The three ways to deal with late pieces.
fn sites() -> Vec<Site> {
    let modes = ["timeout", "hedge", "deadline"];
    let site = |mode| Site { host: format!("{mode}.test"), large: format!("retry = \"{mode}\"\n") };
    modes.map(site).into()
}

pub(crate) fn slow(bench: &Bench) -> Result<Table> {
    let size = size(bench);
    let title = format!("one node {SLOWER} x slower: a file of {} MB", size / 1_000_000);
    let mut table = Table::new(title, COLUMNS);
    let mut rates = Vec::new();
    for slow in [None, Some(VICTIM)] {
        let world = World::new(bench, &sites(), slow)?;
        for site in sites() {
            let url = [world.at_node(ASKED, &site.host, size, "file")];
            let kind = if slow.is_some() { "slow" } else { "undisturbed" };
            let mode = site.host.trim_end_matches(".test");
            for turn in ["first", "cached"] {
                let outcome = world.fetch(&url, Way::Plain)?;
                table.row(format!("{kind}, {mode}, {turn}"), row(&outcome, size, None));
                rates.push(outcome.mean());
            }
        }
    }
    let (undisturbed, disturbed) = rates.split_at(rates.len() / 2);
    let ratios = disturbed.iter().zip(undisturbed).map(|(slow, other)| slow / other);
    let turns = ["first", "cached"];
    let names =
        sites().into_iter().flat_map(|site| turns.map(|turn| format!("{}, {turn}", site.host)));
    for (name, ratio) in names.zip(ratios) {
        let name = name.replace(".test", "");
        table.judge(format!("{name}: slow / undisturbed"), ratio, Target::AtLeast(0.8));
    }
    Ok(table)
}

pub(crate) fn killed(bench: &Bench) -> Result<Table> {
    let size = size(bench);
    let title = format!("one node killed in the middle: a file of {} MB", size / 1_000_000);
    let mut table = Table::new(title, COLUMNS);
    let site = default_site().host;
    for turn in ["first", "cached"] {
        // A killed node stays dead: every case has a network of its own.
        let world = World::new(bench, &[default_site()], None)?;
        let url = |name| world.at_node(ASKED, &site, size, name);
        let mut undisturbed = world.fetch(&[url("one")], Way::Plain)?;
        if turn == "cached" {
            undisturbed = world.fetch(&[url("one")], Way::Plain)?;
            world.fetch(&[url("two")], Way::Plain)?;
        }
        let outcome = world.fetch_and_kill(&url("two"), undisturbed.took / 3, VICTIM)?;
        table.row(format!("undisturbed, {turn}"), row(&undisturbed, size, None));
        table.row(format!("killed, {turn}"), row(&outcome, size, None));
        let ratio = outcome.mean() / undisturbed.mean();
        table.judge(format!("{turn}: killed / undisturbed"), ratio, Target::AtLeast(0.8));
    }
    Ok(table)
}
