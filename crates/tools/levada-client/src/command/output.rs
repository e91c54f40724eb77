//! Reports on standard output.

use std::io::{self, StdoutLock, Write as _};

use serde::Serialize;

/// Prints a report as JSON, or as text.
///
/// # Errors
/// If it cannot be written, for example because its reader closed the pipe.
pub fn print(
    json: bool,
    report: &impl Serialize,
    text: impl FnOnce(&mut StdoutLock<'_>) -> io::Result<()>,
) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, report)?;
        writeln!(out)?;
    } else {
        text(&mut out)?;
    }
    Ok(())
}
