//! Large files with pieces and without: CoDeploy's measurements (WORLDS'04), by real processes
//! on hosts of their own. `bench/README.md` says how to run and read it.
//!
//! ```text
//!   origin ══ 50 Mbit/s, 15 ms ══╗
//!                             switch ══ 5 ms ══ clients
//!   8 nodes ══ 100 Mbit/s, 5 ms ═╝
//! ```

use std::{
    fs,
    path::{Path, PathBuf},
};

use bench::{Bench, Result};
use options::Options;
use table::Table;

mod bench;
mod client;
mod crowds;
mod faults;
mod links;
mod options;
#[path = "../../origin.rs"]
mod origin;
#[path = "../../pattern.rs"]
mod pattern;
#[path = "../../server.rs"]
mod server;
mod shapes;
mod slice;
mod sweep;
mod table;
mod threshold;
mod world;

type Measure = fn(&Bench) -> Result<Table>;

const CASES: &[(&str, Measure)] = &[
    ("one client", shapes::single),
    ("many clients", shapes::crowd),
    ("large crowd", crowds::large),
    ("narrow origin", crowds::narrow),
    ("full links", links::full),
    ("ways", links::ways),
    ("distances", links::distances),
    ("slow node", faults::slow),
    ("killed node", faults::killed),
    ("window sweep", sweep::sweep),
    ("threshold", threshold::threshold),
    ("slice", slice::slice),
];

fn main() -> Result<()> {
    let Some(options) = options::read(std::env::args().skip(1))? else { return Ok(()) };
    levada_net::lab::possible()?;
    let dir = std::env::temp_dir().join(format!("levada-large-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let outcome = binary().and_then(|levada| run(&options, levada, &dir));
    fs::remove_dir_all(&dir)?;
    match outcome? {
        0 => Ok(()),
        failures => Err(format!("{failures} cases failed, see above").into()),
    }
}

/// Measures the wanted cases one after another, and returns how many failed.
fn run(options: &Options, levada: PathBuf, dir: &Path) -> Result<u32> {
    let bench = Bench {
        quick: options.quick,
        rounds: options.rounds,
        parts: options.parts.clone(),
        logs: options.logs.clone(),
        levada,
        dir: dir.to_owned(),
    };
    if let Some(logs) = &bench.logs {
        fs::create_dir_all(logs).map_err(|why| format!("--logs {}: {why}", logs.display()))?;
    }
    let mut failures = 0;
    let mut tables = Vec::new();
    let wanted = |name: &str| {
        options.only.is_empty() || options.only.iter().any(|part| name.contains(part.as_str()))
    };
    for (name, measure) in CASES.iter().filter(|(name, _)| wanted(name)) {
        match measure(&bench) {
            Ok(table) if options.json => tables.push(table.json()),
            Ok(table) => table.print(),
            Err(why) => {
                eprintln!("FAILED {name}: {why}");
                failures += 1;
            }
        }
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&tables)?);
    }
    Ok(failures)
}

/// The build next to this program, or what LEVADA names.
fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("LEVADA") {
        let wrong = |why| format!("LEVADA={}: {why}", path.display());
        return Ok(fs::canonicalize(&path).map_err(wrong)?);
    }
    let path = std::env::current_exe()?.with_file_name("levada");
    if !path.exists() {
        return Err("build the binary first: cargo build --release -p levada".into());
    }
    Ok(path)
}
