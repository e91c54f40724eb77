//! Window times piece (the paper's Figure 2): bandwidth follows the product.

use crate::{
    Bench, Result,
    client::Way,
    table::Table,
    world::{Site, THRESHOLD, World},
};

const WINDOWS: &[u64] = &[1, 2, 5, 10, 20];
const PIECES_KB: &[u64] = &[30, 60, 120, 240, 512, 1024];

/// Each has its own site, and so its own copy of the file. Files have forty windows, within limits:
/// so long that their beginning does not count, so short that the run ends.
pub(crate) fn sweep(bench: &Bench) -> Result<Table> {
    let thin = |all: &'static [u64]| all.iter().copied().step_by(if bench.quick { 3 } else { 1 });
    let windows = thin(WINDOWS).filter(|window| bench.wants(&window.to_string()));
    let grid: Vec<_> = windows.flat_map(|w| thin(PIECES_KB).map(move |c| (w, c))).collect();
    let host = |(window, kb): (u64, u64)| format!("w{window}c{kb}.test");
    let sites: Vec<_> = grid
        .iter()
        .map(|(window, kb)| Site {
            host: host((*window, *kb)),
            threshold: THRESHOLD,
            large: format!("window = {window}\nchunk_size = \"{kb}kB\"\n"),
        })
        .collect();
    let world = World::new(bench, &sites)?;
    let mut table = Table::new(
        format!("window sweep: one client, median of {} rounds", bench.rounds),
        &["window kB", "file MB", "first Mbit/s", "cached Mbit/s", "origin/size", "late"],
    );
    for (window, kb) in grid {
        let size = (40 * window * kb * 1000).clamp(1_200_000, 20_000_000);
        let mut rounds = [Vec::new(), Vec::new()];
        let (mut sent, mut late) = (0.0, 0.0);
        for round in 0..bench.rounds {
            let url = [world.at_node(0, &host((window, kb)), size, &format!("file-{round}"))];
            for rates in &mut rounds {
                let outcome = world.fetch(&url, Way::Plain)?;
                rates.push(outcome.mean());
                sent += outcome.origin_bytes as f64 / size as f64 / bench.rounds as f64;
                late += outcome.counts.late;
            }
        }
        let [first, cached] = rounds.map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        });
        let values = [(window * kb) as f64, size as f64 / 1e6, first, cached, sent, late];
        table.row(format!("{window} x {kb} kB"), values.map(Some).to_vec());
    }
    Ok(table)
}
