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
    if args.stop_with_stdin {
        std::thread::Builder::new().name("stdin".to_owned()).spawn(end_with_stdin)?;
    }
    // The edge logs where it listens; nobody else waits for it to be ready.
    levada_edge::run(settings, |_addresses| {})?;
    Ok(Verdict::Done)
}

/// Ends this process when standard input does. Whoever held its other end is gone, and with it
/// everybody who could miss an answer: nothing is drained.
fn end_with_stdin() {
    // An error is an end as well.
    let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    std::process::exit(0);
}
