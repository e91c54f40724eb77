//! The report of both labs: the emulated machines, a table that grows, and the paper's statements.

use std::io::{self, Write as _};

use serde_json::{Value, json};

use super::run::Run;
use levada_client::command::CommandStatus;

use crate::options::Transport;

/// A report in progress.
pub struct LabReport {
    json: bool,
    emulated: Vec<String>,
    rows: Vec<Value>,
}

/// A statement of the paper.
pub struct Claim {
    /// The statement.
    pub text: String,
    /// Whether it holds.
    pub holds: bool,
}

impl LabReport {
    /// Prints the emulated machines, and the head of the table.
    ///
    /// # Errors
    /// When nobody reads it.
    pub fn begin(json: bool, emulated: Vec<String>, head: &str) -> io::Result<Self> {
        let report = Self { json, emulated, rows: Vec::new() };
        report.say(&format!("{}\n\n{head}\n", report.emulated.join("\n")))?;
        Ok(report)
    }

    /// Adds a line to the table, and a row to the JSON.
    ///
    /// # Errors
    /// As above.
    pub fn row(&mut self, line: &str, row: Value) -> io::Result<()> {
        self.rows.push(row);
        self.say(&format!("{line}\n"))
    }

    /// Prints which statements of the paper hold. The command succeeds if all do.
    ///
    /// # Errors
    /// As above.
    pub fn end(self, claims: &[Claim], notes: &[String]) -> io::Result<CommandStatus> {
        let mut text = "\n".to_owned();
        for claim in claims {
            let mark = if claim.holds { "holds" } else { "DOES NOT HOLD" };
            text += &format!("{mark}: {}\n", claim.text);
        }
        notes.iter().for_each(|note| text += &format!("note: {note}\n"));
        self.say(&text)?;
        if self.json {
            let claim = |claim: &Claim| json!({"claim": claim.text, "holds": claim.holds});
            let whole = json!({
                "emulated": self.emulated,
                "rows": self.rows,
                "claims": claims.iter().map(claim).collect::<Vec<_>>(),
                "notes": notes,
            });
            let mut out = io::stdout().lock();
            serde_json::to_writer_pretty(&mut out, &whole)?;
            writeln!(out)?;
        }
        let fine = claims.iter().all(|claim| claim.holds);
        Ok(CommandStatus::of(fine))
    }

    fn say(&self, text: &str) -> io::Result<()> {
        match self.json {
            true => io::stderr().lock().write_all(text.as_bytes()),
            false => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes())?;
                out.flush()
            }
        }
    }
}

/// The claim that all requests were answered.
pub fn nothing_failed<'a>(runs: impl Iterator<Item = &'a Run>) -> Claim {
    let failed: u64 = runs.map(|run| run.failed).sum();
    Claim {
        text: format!("every request is answered in full ({failed} were not)"),
        holds: failed == 0,
    }
}

/// The claim that the simulator is right, if it is not.
pub fn misprediction(what: &str, run: &Run, predicted: f64) -> Option<Claim> {
    let ratio = run.measured.throughput / predicted;
    let right = (1.0 - TOLERANCE..=1.0 + TOLERANCE).contains(&ratio);
    let text = || {
        format!(
            "the simulator is right within {:.0} % of {what} (measured {ratio:.2} of what it says)",
            TOLERANCE * 100.0
        )
    };
    (!right).then(|| Claim { text: text(), holds: false })
}

/// Notes if this machine may have been the limit, and on the part of answers that bypassed the front-end, where
/// connections are handed over.
pub fn notes<'a>(transport: Transport, runs: impl Iterator<Item = &'a Run> + Clone) -> Vec<String> {
    let most = runs.clone().map(Run::share).fold(0.0, f64::max);
    let busy = (most > BUSY).then(|| {
        format!(
            "the lab alone took up to {:.0} % of this machine; a larger --time-scale leaves it room",
            most * 100.0
        )
    });
    let handed: Vec<_> = runs.map(|run| run.handed).collect();
    let least = handed.iter().copied().reduce(f64::min);
    let handed = least.and_then(|least| match transport {
        Transport::Proxy => None,
        Transport::Handoff => {
            Some(format!("{} of the answers or more were handed over", percent(least)))
        }
        _ => Some(format!(
            "so many times per request a connection left its back-end: {}",
            handed.iter().map(|moves| format!("{moves:.2}")).collect::<Vec<_>>().join(", ")
        )),
    });
    busy.into_iter().chain(handed).collect()
}

/// The columns for the quality of a measurement.
pub fn quality(run: &Run) -> String {
    let [front, back, clients] = run.shares.map(percent);
    let [late, most] = run.late;
    format!(
        "{:>7.0} {front:>7} {back:>7} {clients:>7} {late:>6.1} {most:>6.1} {:>6}",
        run.front_microseconds, run.failed
    )
}

/// Headings of these columns: front-end's processor time per request; parts of the machine; lateness in
/// milliseconds.
pub const QUALITY_1: &str = "  front   -- part of the machine --   late (ms)";
/// The second line of the headings.
pub const QUALITY_2: &str = " us/req   front    back clients   mean   most failed";

/// A part from 0 to 1, in percent.
pub fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// The simulator must be right within a fifth.
const TOLERANCE: f64 = 0.2;
/// Above this part of all cores, the measurement includes the limits of this machine.
const BUSY: f64 = 0.6;
