//! `levada doctor`: compares a machine with the needs of a node.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use levada_client::command::{CommandStatus, color, output};
use levada_config::{Checked, Severity};
use levada_doctor::{Finding, Level, Needs};
use serde::Serialize;

use super::{configuration, default_config};

/// Checks this machine: limits, rights, clock, names, ports, kernel and disk.
///
/// It changes nothing, and takes a few seconds. Run it as the user that starts the node. Without --config it
/// takes levada.toml or /etc/levada/levada.toml, if there is one.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// The configuration file of the node.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Connects to each origin and server: TLS handshake, version of HTTP.
    #[arg(long)]
    origins: bool,
    /// Prints the report as JSON.
    #[arg(long)]
    json: bool,
}

/// Checks the machine and prints the findings.
///
/// # Errors
/// If the file cannot be read or the report cannot be written.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<CommandStatus> {
    let file = args.config.clone().or_else(|| default_config::existing().next());
    let checked = file.as_deref().map(configuration::load).transpose()?;
    let settings = checked.as_ref().and_then(|checked| checked.settings.as_ref());
    let needs = settings.map(Needs::of).unwrap_or_default();
    let mut findings = vec![configuration(file.as_deref(), checked.as_ref())];
    findings.extend(levada_doctor::examine(&needs));
    if let Some(settings) = settings.filter(|_| args.origins) {
        findings.extend(levada_doctor::check_origins(settings));
    }
    let report = Report::new(findings);
    output::print(args.json, &report, |out| print(out, &report, color::is_wanted(&io::stdout())))?;
    Ok(CommandStatus::of(report.fail == 0))
}

/// The findings and their numbers.
#[derive(Serialize)]
struct Report {
    findings: Vec<Finding>,
    fail: usize,
    warn: usize,
}

impl Report {
    fn new(findings: Vec<Finding>) -> Self {
        let count = |level| findings.iter().filter(|finding| finding.level == level).count();
        Self { fail: count(Level::Fail), warn: count(Level::Warn), findings }
    }
}

/// Whether the file can be used. With errors, the machine is compared with the defaults.
fn configuration(file: Option<&Path>, checked: Option<&Checked>) -> Finding {
    const CHECK: &str = "configuration";
    let (Some(file), Some(checked)) = (file, checked) else {
        let places = default_config::PLACES.join(" or ");
        return Finding::skip(CHECK, format!("none: there is no {places}"))
            .meaning("the machine is compared with the defaults; ports and disk are not checked")
            .remedy("levada init, or -c FILE");
    };
    let (file, validate) = (file.display(), format!("levada validate -c {}", file.display()));
    match (checked.report.count(Severity::Error), checked.report.count(Severity::Warning)) {
        (0, 0) => Finding::ok(CHECK, format!("{file} can be used")),
        (0, warnings) => Finding::warn(CHECK, format!("{file} can be used, warnings: {warnings}"))
            .remedy(validate),
        (errors, _) => Finding::fail(CHECK, format!("{file} has errors: {errors}"))
            .meaning("the node does not start; the machine is compared with the defaults")
            .remedy(validate),
    }
}

fn print(out: &mut impl Write, report: &Report, is_colored: bool) -> io::Result<()> {
    let width = report.findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    for Finding { level, check, seen, meaning, remedy } in &report.findings {
        let word = format!("{:<4}", level.as_str());
        let word = if is_colored { colored(*level, &word) } else { word };
        writeln!(out, "{word}  {check:<width$}  {seen}")?;
        if let Some(meaning) = meaning {
            writeln!(out, "      {meaning}")?;
        }
        if let Some(remedy) = remedy {
            writeln!(out, "      remedy: {remedy}")?;
        }
    }
    let [fail, warn] = [report.fail, report.warn];
    writeln!(out, "\n{} checks: {fail} failed, {warn} with a warning", report.findings.len())
}

fn colored(level: Level, word: &str) -> String {
    let code = match level {
        Level::Ok => 32,
        Level::Skip => 2,
        Level::Warn => 33,
        Level::Fail => 31,
    };
    format!("\x1b[{code}m{word}\x1b[0m")
}

const EXAMPLES: &str = "\
Examples:
  levada doctor -c levada.toml
  levada doctor --origins
  sudo -u levada levada doctor
  levada doctor --json | jq '.findings[] | select(.level != \"ok\")'

Exit codes:
  0  nothing failed; there may be warnings
  1  something failed: the node does not start, or does not serve as configured
  2  the file cannot be read";
