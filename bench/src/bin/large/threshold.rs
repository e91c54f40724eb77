//! From which size on a file is better fetched in pieces than by one node: the same sizes both ways.

use crate::{
    Bench, Result,
    client::Way,
    table::Table,
    world::{Site, World},
};

const MIB: u64 = 1 << 20;
/// From the size of a page's largest images to more than two windows hold.
const SIZES: &[u64] = &[MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB];
/// Files for each round: every one is at other nodes.
const FILES: usize = 4;

pub(crate) fn threshold(bench: &Bench) -> Result<Table> {
    let site =
        |host: &str, threshold| Site { host: host.to_owned(), threshold, large: String::new() };
    let sites = [site("whole.test", 1 << 40), site("pieces.test", MIB)];
    let world = World::new(bench, &sites)?;
    let files = if bench.quick { 1 } else { FILES * bench.rounds };
    let mut table = Table::new(
        format!("whole and in pieces: one client, median time of {files} files, in ms"),
        &["whole, first", "in pieces", "ratio", "whole, cached", "in pieces", "ratio"],
    );
    for &size in SIZES {
        let mut times = [const { [const { Vec::new() }; 2] }; 2];
        for file in 0..files {
            for (site, times) in sites.iter().zip(&mut times) {
                // Of one name only where pieces do not count: the host is part of the URL.
                let name = format!("file-{size}-{file}");
                let url = [world.at_node(0, &site.host, size, &name)];
                for times in times {
                    times.push(world.fetch(&url, Way::Plain)?.took.as_secs_f64() * 1e3);
                }
            }
        }
        let [whole, pieces] = times.map(|ways| ways.map(median));
        let pair = |at: usize| [whole[at], pieces[at], pieces[at] / whole[at]];
        let values = [pair(0), pair(1)].concat();
        let values = values.into_iter().map(Some).collect();
        table.row(format!("{} MiB", size / MIB), values);
    }
    Ok(table)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
