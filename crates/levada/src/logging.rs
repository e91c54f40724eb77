//! The event log, on standard error.

use std::io::{self, IsTerminal as _};

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;

use crate::cli::Logging;

/// Starts logging for the rest of the process.
///
/// # Errors
/// If the level is invalid, or logging was started before.
pub(crate) fn start(logging: &Logging) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&logging.log_level)
        .with_context(|| format!("--log-level {:?} (or LEVADA_LOG)", logging.log_level))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .try_init()
        .map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}
