//! Window times piece (the paper's Figure 2): bandwidth follows the product.

use crate::{
    Bench, Result,
    client::Way,
    table::Table,
    world::{Site, World},
};

const WINDOWS: &[u64] = &[1, 2, 5, 10, 20];
const PIECES_KB: &[u64] = &[30, 60, 120, 240, 512, 1024];

/// Each has its own site, and so its own copy of the file. Files have forty windows, within limits:
/// so long that their beginning does not count, so short that the run ends.
pub(crate) fn sweep(bench: &Bench) -> Result<Table> {
    let thin = |all: &'static [u64]| all.iter().copied().step_by(if bench.quick { 3 } else { 1 });
    let grid: Vec<_> = thin(WINDOWS).flat_map(|w| thin(PIECES_KB).map(move |c| (w, c))).collect();
    let host = |(window, kb): (u64, u64)| format!("w{window}c{kb}.test");
    let sites: Vec<_> = grid
        .iter()
        .map(|(window, kb)| Site {
            host: host((*window, *kb)),
            large: format!("window = {window}\nchunk_size = \"{kb}kB\"\n"),
        })
        .collect();
    let world = World::new(bench, &sites, None)?;
    let mut table = Table::new(
        "window sweep: one client",
        &["window kB", "file MB", "first Mbit/s", "cached Mbit/s", "origin/size", "late"],
    );
    for (window, kb) in grid {
        let size = (40 * window * kb * 1000).clamp(1_200_000, 20_000_000);
        let url = [world.at_node(0, &host((window, kb)), size, "file")];
        let first = world.fetch(&url, Way::Plain)?;
        let cached = world.fetch(&url, Way::Plain)?;
        let values = [
            (window * kb) as f64,
            size as f64 / 1e6,
            first.mean(),
            cached.mean(),
            first.origin_bytes as f64 / size as f64,
            first.counts.late + cached.counts.late,
        ];
        table.row(format!("{window} x {kb} kB"), values.map(Some).to_vec());
    }
    Ok(table)
}
