//! The result of a comparison, as text and JSON.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use serde::Serialize;

use super::{difference::Difference, requests::Asked};

/// The result of a comparison.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Report {
    /// The former server.
    pub(crate) server: &'static str,
    /// Requests that both got.
    pub(crate) compared: usize,
    /// Requests to which the former server gives other responses each time: what varies was not compared.
    pub(crate) varying: usize,
    /// Requests with different responses.
    pub(crate) different: Vec<Differing>,
}

/// A request with different responses.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Differing {
    line: usize,
    method: String,
    url: String,
    differences: Vec<Difference>,
}

impl Differing {
    pub(super) fn new(asked: &Asked, differences: Vec<Difference>) -> Self {
        let (method, url) = (asked.method.to_string(), asked.url.to_string());
        Self { line: asked.line, method, url, differences }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut by_kind = BTreeMap::new();
        for differing in &self.different {
            writeln!(f, "line {}: {} {}", differing.line, differing.method, differing.url)?;
            for one in &differing.differences {
                *by_kind.entry(&one.of).or_insert(0) += 1;
                let said = |text: &str| {
                    if text.is_empty() { "nothing".to_owned() } else { printable(text) }
                };
                writeln!(
                    f,
                    "  {}: {} {}, Levada {}",
                    one.of,
                    self.server,
                    said(&one.theirs),
                    said(&one.ours)
                )?;
            }
        }
        let Self { compared, varying, different, .. } = self;
        let alike = compared - different.len();
        write!(
            f,
            "{compared} responses compared with {}: {alike} alike, {} different",
            self.server,
            different.len()
        )?;
        let kinds: Vec<_> =
            by_kind.iter().map(|(kind, number)| format!("{kind} {number}")).collect();
        if !kinds.is_empty() {
            write!(f, " ({})", kinds.join(", "))?;
        }
        if *varying > 0 {
            write!(f, ", {varying} vary at {} itself", self.server)?;
        }
        writeln!(f)
    }
}

/// Without control characters: it goes to a terminal.
fn printable(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars().take(300) {
        match c.is_control() {
            true => drop(write!(shown, "{}", c.escape_default())),
            false => shown.push(c),
        }
    }
    shown
}
