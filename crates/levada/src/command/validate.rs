//! `levada validate`: all problems of a configuration.

use std::io::Write as _;

use levada_config::Severity;

use super::configuration;
use crate::cli::ValidateArgs;
use levada_client::command::{CommandStatus, output};

/// Checks the file and prints its problems.
///
/// # Errors
/// When the file cannot be read or the report cannot be written.
pub(crate) fn run(args: &ValidateArgs) -> anyhow::Result<CommandStatus> {
    if args.schema {
        output::print(true, &levada_config::schema::schema(), |_| Ok(()))?;
        return Ok(CommandStatus::Success);
    }
    let report = configuration::load(args.named.as_ref().unwrap_or(&args.config))?.report;
    output::print(args.json, &report, |out| write!(out, "{report}{}", summary(&report)))?;
    Ok(CommandStatus::of(report.is_usable()))
}

fn summary(report: &levada_config::Report) -> String {
    let verdict = if report.is_usable() { "can be used" } else { "cannot be used" };
    let counts = [(Severity::Error, "error"), (Severity::Warning, "warning")]
        .into_iter()
        .map(|(severity, noun)| (report.count(severity), noun))
        .filter(|(count, _)| *count > 0)
        .map(|(count, noun)| format!("{count} {noun}{}", if count == 1 { "" } else { "s" }))
        .collect::<Vec<_>>();
    let reason = if counts.is_empty() { String::new() } else { format!(": {}", counts.join(", ")) };
    format!("{} {verdict}{reason}\n", report.file)
}
