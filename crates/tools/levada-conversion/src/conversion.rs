//! The result of a conversion: the new file, and what became of the statements of the former one.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use crate::{
    ledger::{Ledger, Place, Remark},
    plan::Plan,
};

/// A converted configuration.
#[derive(Clone, Debug)]
pub struct Conversion {
    /// The text of `levada.toml`, with what was left as comments at its end.
    pub toml: String,
    /// The fate of each statement.
    pub ledger: Ledger,
}

impl Conversion {
    /// The text of a plan and the account of a ledger, both of which end here.
    pub fn new(mut plan: Plan, mut ledger: Ledger) -> Self {
        ledger.close();
        let everywhere = std::mem::take(&mut plan.defaults.1);
        for site in &mut plan.sites {
            site.table.1.merge(&everywhere);
            site.settle();
        }
        let mut toml = plan.to_string();
        for line in report(&ledger).lines() {
            let line = line.trim_end();
            toml.push_str(if line.is_empty() { "#" } else { "# " });
            let _ = writeln!(toml, "{line}");
        }
        Self { toml, ledger }
    }

    /// Whether every statement is in the new file, or needless.
    pub fn is_complete(&self) -> bool {
        self.ledger.left.is_empty()
    }
}

/// The list of what was not converted, and of what else an operator should know.
pub fn report(ledger: &Ledger) -> String {
    let mut text = String::new();
    let mut section = |title: &str, remarks: &[Remark]| {
        if !remarks.is_empty() {
            let _ = writeln!(text, "{title}:");
            for remark in remarks {
                let _ = writeln!(text, "  {remark}");
            }
        }
    };
    section("Not converted", &ledger.left);
    section("Converted with a difference", &ledger.differs);
    section("Not needed", &ledger.needless);
    text
}

/// A configuration that cannot be read at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Unreadable {
    /// Its line.
    pub place: Place,
    /// The problem there.
    pub message: String,
}

impl Unreadable {
    /// A problem at a line, counted from 1.
    pub fn at(file: &Arc<str>, line: usize, message: &str) -> Self {
        let place = Place { file: file.clone(), line };
        Self { place, message: message.to_owned() }
    }

    /// A block that begins at this place and does not end.
    pub fn without_end(opened: &Place) -> Self {
        Self::at(&opened.file, opened.line, "the block that begins here has no `}`")
    }

    /// The first NUL, if a file is no text.
    pub fn no_text(file: &Arc<str>, text: &str) -> Option<Self> {
        let line = text.lines().position(|line| line.contains('\0'))?;
        Some(Self::at(file, line + 1, "a NUL: this is no text"))
    }
}

impl fmt::Display for Conversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.toml)
    }
}
