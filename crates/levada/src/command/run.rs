//! `levada run`: a node, from its configuration to its end.

use anyhow::Context as _;
use levada::config;

use super::Verdict;
use crate::cli::RunArgs;

/// Runs a node until a signal ends it.
///
/// # Errors
/// When the configuration cannot be used or the node cannot start. What is wrong with the
/// configuration has been printed then.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<Verdict> {
    let checked = config::load(&args.config)
        .with_context(|| format!("cannot read {}", args.config.display()))?;
    eprint!("{}", checked.report);
    let settings =
        checked.settings.with_context(|| format!("{} cannot be used", args.config.display()))?;
    // The edge logs where it listens; nobody else waits for it to be ready.
    levada_edge::run(settings, |_addresses| {})?;
    Ok(Verdict::Done)
}
