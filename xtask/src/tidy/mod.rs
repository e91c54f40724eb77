//! Rules of this project that the compiler does not check. One file a rule; each returns a line for
//! everything that breaks it, and all lines are reported together.

mod allowance;
mod changelog;
mod citations;
mod cycles;
mod examples;
mod figures;
mod functions;
mod links;
mod names;
mod outside;
mod pinned;
mod prose;
mod purity;
mod registry;
mod size;
mod skipped;

use anyhow::bail;

pub(crate) use figures::print as figures;

use crate::source;

/// Runs all checks.
///
/// # Errors
/// With a line for each thing that is wrong.
pub(crate) fn run() -> anyhow::Result<()> {
    let sources = source::all()?;
    let mut wrong = purity::check()?;
    wrong.extend(registry::check()?);
    wrong.extend(changelog::check()?);
    wrong.extend(citations::check()?);
    wrong.extend(links::check()?);
    wrong.extend(pinned::check()?);
    wrong.extend(examples::check(&sources)?);
    wrong.extend(cycles::check(&sources));
    wrong.extend(size::check(&sources));
    wrong.extend(names::check(&sources));
    wrong.extend(outside::check(&sources));
    wrong.extend(prose::check(&sources));
    wrong.extend(skipped::check(&sources));
    if !wrong.is_empty() {
        bail!("not tidy:\n  {}", wrong.join("\n  "));
    }
    Ok(())
}
