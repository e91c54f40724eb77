//! A crowd over links of other rates, down to those that are full for everybody, and one client at other distances
//! from the origin (CoDeploy's Table 1).

use std::time::Duration;

use crate::{
    Bench, Result,
    client::Way,
    shapes,
    table::{Table, Target},
    world::{Links, NODES, Site, World, default_site},
};

/// Mbit/s of each node and of the origin.
const RATES: [(u64, u64); 6] = [(10, 10), (10, 50), (40, 10), (40, 50), (100, 10), (100, 50)];
const CLIENTS: usize = 30;
const SIZE: u64 = 10_000_000;
/// One way from the origin to the switch: with 10 ms for the other end and back, the round trip.
const DISTANCES: [u64; 5] = [0, 5, 15, 35, 75];

/// The rates that are wanted, with their names.
fn wanted(bench: &Bench) -> impl Iterator<Item = (String, Links)> {
    let links = |(node, origin)| {
        let rates =
            Links { node: node * 1_000_000, origin: origin * 1_000_000, ..Links::default() };
        (format!("{node}/{origin}"), rates)
    };
    RATES.into_iter().map(links).filter(|(name, _)| bench.wants(name))
}

/// Many clients fetch one file in pieces, first and cached, over links of each rate.
pub(crate) fn full(bench: &Bench) -> Result<Table> {
    let title = format!("full links: {CLIENTS} clients, a file of {} MB", SIZE / 1_000_000);
    let mut table = Table::new(title, shapes::COLUMNS);
    let mut most = [0.0_f64; 2];
    for (name, links) in wanted(bench) {
        for round in 0..bench.rounds {
            let world = World::over(bench, &[default_site()], links)?;
            let site = default_site().host;
            let url = |at| world.at_node(at, &site, SIZE, &format!("file-{round}"));
            let urls: Vec<_> = (0..CLIENTS).map(url).collect();
            for (fetch, most) in ["first", "cached"].iter().zip(&mut most) {
                let outcome = world.fetch(&urls, Way::Plain)?;
                *most = most.max(outcome.origin_bytes as f64 / SIZE as f64);
                table.row(format!("{name}, {fetch}, {round}"), shapes::row(&outcome, SIZE, None));
            }
        }
    }
    let [first, cached] = most;
    table.judge("first: bytes of the origin / size, at most", first, Target::AtMost(1.05));
    table.judge("cached: bytes of the origin / size, at most", cached, Target::AtMost(0.05));
    Ok(table)
}

/// The same crowd straight from the origin, at one node, and at all nodes.
pub(crate) fn ways(bench: &Bench) -> Result<Table> {
    let title = format!("ways: {CLIENTS} clients, a file of {} MB", SIZE / 1_000_000);
    let mut table = Table::new(title, shapes::COLUMNS);
    let whole = Site { host: "whole.test".to_owned(), threshold: 1 << 40, large: String::new() };
    for (name, links) in wanted(bench) {
        let world = World::over(bench, &[default_site(), whole.clone()], links)?;
        let mut measure = |way: &str, url: &dyn Fn(usize) -> crate::client::Url| -> Result<()> {
            let urls: Vec<_> = (0..CLIENTS).map(url).collect();
            let outcome = world.fetch(&urls, Way::Plain)?;
            table.row(format!("{name}, {way}"), shapes::row(&outcome, SIZE, None));
            Ok(())
        };
        measure("direct", &|_| world.at_origin(SIZE, "direct"))?;
        for fetch in ["first", "cached"] {
            measure(&format!("one node, {fetch}"), &|_| {
                world.at_node(0, &whole.host, SIZE, "whole")
            })?;
            measure(&format!("{NODES} nodes, {fetch}"), &|at| {
                world.at_node(at, &default_site().host, SIZE, "pieces")
            })?;
        }
    }
    Ok(table)
}

/// One client, at distances between which all else is equal.
pub(crate) fn distances(bench: &Bench) -> Result<Table> {
    let size = if bench.quick { 10_000_000 } else { 50_000_000 };
    let title = format!("distances: one client, a file of {} MB", size / 1_000_000);
    let mut table =
        Table::new(title, &["direct Mbit/s", "aggressive", "first", "cached", "cached / direct"]);
    for delay in DISTANCES {
        let links = Links { origin_delay: Duration::from_millis(delay), ..Links::default() };
        let world = World::over(bench, &[default_site()], links)?;
        let [origin, node] =
            [world.at_origin(size, "file"), world.at_node(0, &default_site().host, size, "file")];
        let rate = |url, way| Ok::<_, Box<dyn std::error::Error>>(world.fetch(&[url], way)?.mean());
        let direct = rate(origin.clone(), Way::Plain)?;
        let aggressive = rate(origin, Way::Aggressive)?;
        let [first, cached] = [rate(node.clone(), Way::Plain)?, rate(node, Way::Plain)?];
        let values = [direct, aggressive, first, cached, cached / direct];
        table.row(format!("{} ms", 2 * (delay + 5)), values.map(Some).into());
    }
    Ok(table)
}
