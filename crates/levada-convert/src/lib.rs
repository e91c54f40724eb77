//! Configurations of other proxies and caches, and what Levada says in their place.
//!
//! Each converter reads a configuration into statements with their lines, fills a [`plan::Plan`], and enters
//! every statement into a [`Ledger`]: taken over, needless, or left. The plan is written as `levada.toml`.
//! This crate opens no files: the caller hands over texts, and reads [`Includes`] when asked.
//!
//! ```text
//! text ──► nginx::parse, varnish::parse, trafficserver ──► statements with places
//!                   │                                             │
//!                   ▼                                             ▼
//!              Plan (tables of levada.toml)                 Ledger (what became of each)
//! ```
//!
//! nginx's parser is our own: the published crate that knows its grammar is not kept any more and refuses
//! directives that it does not know, and the others bring more code than the grammar of words, quotes and
//! braces needs.

mod files;
mod ledger;
mod matchers;
mod nginx;
mod plan;
mod table;
mod trafficserver;
mod units;
mod varnish;
mod vocabulary;

use std::fmt::{self, Write as _};

pub use files::{Includes, InputFile, NoIncludes};
pub use ledger::{Ledger, Place, Remark};
pub use nginx::convert as nginx;
pub use trafficserver::{FILES as TRAFFIC_SERVER_FILES, convert as trafficserver};
pub use varnish::convert as varnish;

/// A converted configuration.
#[derive(Clone, Debug)]
pub struct Conversion {
    /// The text of `levada.toml`, with what was left as comments at its end.
    pub toml: String,
    /// What became of each statement.
    pub ledger: Ledger,
}

impl Conversion {
    fn new(plan: &plan::Plan, mut ledger: Ledger) -> Self {
        ledger.sort();
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
    /// What is wrong there.
    pub message: String,
}

impl fmt::Display for Conversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.toml)
    }
}
