//! The ledger: user instructions, system calls and allocations per request, counted by callgrind, next to the
//! last figures in `bench/cost.toml`. `cargo xtask cost` builds what is
//! measured and runs this; `bench/README.md` says how to read it.
//!
//! ```text
//!   clients (wire.rs) ──> nodes under callgrind (node.rs) ──> origin
//!                              └──> profile and system calls (counts.rs) ──> ledger.rs
//! ```

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fs,
    path::Path,
    process::{self, Command},
};

use ledger::{Figures, Ledger, Verdict};
use rows::{GATE, ROWS, Row, World};

mod counts;
mod ledger;
mod node;
#[path = "../../origin.rs"]
#[expect(dead_code, reason = "edge counts bytes")]
mod origin;
#[path = "../../pattern.rs"]
#[expect(dead_code, reason = "edge compares bytes")]
mod pattern;
mod rows;
mod wire;

/// The table of the rows that CI compares, on the program that the tests have built.
const GATE_PROFILE: &str = "gate";
/// The exit code where the file has the figures of another toolchain.
const NOT_COMPARED: i32 = 2;
/// The ledger has the median of so many rounds. A row that seems worse has as many.
const MOST_ROUNDS: usize = 15;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let (mut profile, mut writes, mut only) = ("dev".to_owned(), false, Vec::new());
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        match &*word {
            "--gate" => GATE_PROFILE.clone_into(&mut profile),
            "--profile" => profile = words.next().ok_or("--profile wants a name")?,
            "--write" => writes = true,
            _ => only.push(word),
        }
    }
    let gate = profile == GATE_PROFILE;
    let write = if gate { "cargo xtask cost --gate --write" } else { "cargo xtask cost --write" };
    let wanted = |row: &&Row| {
        let named = only.is_empty() || only.iter().any(|part| row.name.contains(part));
        named && (!gate || GATE.contains(&row.name))
    };
    let rows: Vec<_> = ROWS.iter().filter(wanted).collect();
    if rows.is_empty() {
        let names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        return Err(format!("no such row; there are:\n{}", names.join("\n")).into());
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("cost.toml");
    let mut ledger = Ledger::read(&file)?;
    let mut last = ledger.of(&profile);
    let toolchain = ledger::toolchain();
    if last.toolchain != toolchain && !writes {
        eprintln!(
            "nothing is compared: bench/cost.toml has the figures of {}; this is {toolchain}. `{write}` writes its \
             figures.",
            last.toolchain
        );
        process::exit(NOT_COMPARED);
    }
    let figures = measure(&rows, gate, |row, rounds, figures| {
        let is_worse =
            ledger::judge(last.rows.get(row), figures, ledger.more_calls(row)) == Verdict::Worse;
        rounds < MOST_ROUNDS && (writes || is_worse)
    })?;
    let mut worse = compare(&figures, &last, &ledger);
    worse.extend(ledger::unknown(&last, |name| ROWS.iter().any(|row| row.name == name)));
    if writes {
        let rows = if only.is_empty() { BTreeMap::new() } else { last.rows };
        last = Figures { toolchain, rows: rows.into_iter().chain(figures).collect() };
        return ledger.write(&file, &profile, last);
    }
    if worse.is_empty() {
        return Ok(());
    }
    Err(format!(
        "worse than in bench/cost.toml by more than its limit, not in it, or in it and not measured: {}. If a change \
         is worth that, write the figures by `{write}`, and say why in its commit.",
        worse.join(", ")
    )
    .into())
}

/// Measures the binary next to this program, or the one that LEVADA names. `wanted` knows a row, its rounds so far
/// and its figures, and whether another round may change a verdict.
fn measure(
    rows: &[&Row],
    gate: bool,
    wanted: impl Fn(&str, usize, [f64; 3]) -> bool,
) -> Result<BTreeMap<String, [f64; 3]>> {
    let program = match env::var_os("LEVADA") {
        Some(path) => path.into(),
        None => env::current_exe()?.with_file_name("levada"),
    };
    let dir = env::temp_dir().join(format!("levada-cost-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let measure = || {
        // Valgrind would read for long where each line of the source is.
        let stripped = dir.join("levada");
        let strip = Command::new("strip")
            .arg("--strip-debug")
            .arg("-o")
            .arg(&stripped)
            .arg(&program)
            .status();
        if !strip.map_err(|e| format!("strip: {e}; install binutils"))?.success() {
            return Err("strip failed".into());
        }
        let mut world = World::start(&stripped, &dir, rows, gate)?;
        let measured = rows.iter().map(|row| {
            let wanted = |rounds, counts| wanted(row.name, rounds, ledger::rounded(counts));
            let counts = world.measure(row, wanted).map_err(|e| format!("{}: {e}", row.name))?;
            Ok((row.name.to_owned(), ledger::rounded(counts)))
        });
        measured.collect()
    };
    let measured = measure();
    fs::remove_dir_all(&dir)?;
    measured
}

/// Prints figures next to the last ones, and returns the rows that are worse.
fn compare(figures: &BTreeMap<String, [f64; 3]>, last: &Figures, ledger: &Ledger) -> Vec<String> {
    let mut worse = Vec::new();
    println!(
        "{:34}{:>21}{:>21}{:>21}",
        "per request", "instructions", "system calls", "allocations"
    );
    for (name, now) in figures {
        let before = last.rows.get(name);
        let verdict = ledger::judge(before, *now, ledger.more_calls(name));
        print!("{name:34}");
        for (at, digits) in [0, 2, 2].into_iter().enumerate() {
            let change = before.map(|before| 100.0 * (now[at] / before[at] - 1.0));
            let change = change.map_or(String::new(), |change| format!("{change:+.1} %"));
            print!("{:>12.digits$} {change:>8}", now[at]);
        }
        println!(
            "  {}",
            match verdict {
                Verdict::Same => "",
                Verdict::Better => "better: to be written",
                Verdict::Worse => "WORSE",
                Verdict::New => "NEW",
            }
        );
        if matches!(verdict, Verdict::Worse | Verdict::New) {
            worse.push(name.clone());
        }
    }
    worse
}
