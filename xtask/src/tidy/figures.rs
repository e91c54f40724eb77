//! The figures behind the checks, as one report that can be printed again at any time.

use super::{cycles, functions, names, prose, size};
use crate::source;

/// Prints all figures.
///
/// # Errors
/// When the source cannot be read.
pub(crate) fn print() -> anyhow::Result<()> {
    let sources = source::all()?;
    let (lines, shares) = (size::lines_by_package(&sources), names::shares(&sources));
    println!(
        "crate            lines  modules  largest cycle (lines; paths as written)  shared names"
    );
    for cycle in cycles::largest(&sources) {
        let name = cycle.package.as_str();
        println!(
            "{name:<15} {:>6}  {:>7}  {:>38}  {:>10.1} %",
            lines.get(name).copied().unwrap_or_default(),
            cycle.all,
            format!("{} ({}; {})", cycle.modules.len(), cycle.lines, cycle.as_written),
            shares.get(name).copied().unwrap_or_default(),
        );
    }
    println!("\nproduction lines in all        {}", size::lines_in_all(&sources));
    let lengths = functions::lengths(&sources);
    let at = |share: f64| lengths[((lengths.len() - 1) as f64 * share) as usize];
    println!("functions                      {}", lengths.len());
    println!(
        "their lines                    median {}, p90 {}, p99 {}, max {}",
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    );
    let sentences = prose::count(&sources);
    println!(
        "sentences of comments          {}, of which {} ({:.2} %) begin with What, Who and the like",
        sentences.all,
        sentences.roundabout.len(),
        sentences.percent()
    );
    println!("sentences with rare words      {}", sentences.rare.len());
    Ok(())
}
