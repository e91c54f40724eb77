//! Expressions in CEL, the Common Expression Language: conditions and values that no other key covers.
//!
//! ```text
//! text ──► crate cel: syntax and macros ──► check: names, types, cost ──► Node
//! Node + RequestFacts ──► evaluate: bool or text, or a Failure; bounded by a Budget
//! ```
//!
//! The crate reads the language. Checking and evaluation are ours, because an edge needs types that are
//! known before the first request, and a bound whatever clients send: docs/decisions/0015.

mod attributes;
mod check;
mod evaluate;
mod node;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

pub use attributes::NAMES;
pub use check::ExpressionError;
pub use evaluate::Failure;

use crate::{CountryLookup, NamedTexts, RequestFacts};
use evaluate::{Evaluation, Value};
use node::Node;

/// The most bytes of an expression.
pub(crate) const LONGEST: usize = 4096;
/// The most steps and bytes that one evaluation may take.
pub(crate) const BUDGET: u64 = 1_000_000;

/// The functions and macros of the language.
pub const FUNCTIONS: &[&str] = &[
    "startsWith",
    "endsWith",
    "contains",
    "matches",
    "lowerAscii",
    "upperAscii",
    "split",
    "size",
    "int",
    "string",
    "exists",
    "all",
    "exists_one",
    "has",
    "cidr",
    "containsIP",
];

/// The use of an expression. It decides on the type, and on the result of a failed evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A matcher of a route; if it fails, the route does not match.
    When,
    /// A part of the cache key; if it fails, the empty text.
    Key,
    /// A condition of bypassing the cache; if it fails, it holds.
    Bypass,
    /// A condition of not storing; if it fails, it holds.
    NoStore,
    /// A part of a header field or of a URL; if it fails, the empty text.
    Value,
}

/// An expression that has been checked. Clones share their counts.
#[derive(Clone, Debug)]
pub struct Expression(Arc<Checked>);

#[derive(Debug)]
struct Checked {
    source: String,
    place: String,
    purpose: Purpose,
    node: Node,
    countries: Option<Arc<dyn CountryLookup>>,
    failures: AtomicU64,
}

/// Equal expressions do the same and are reported at the same place.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        let version = |one: &Self| one.0.countries.as_ref().map(|countries| countries.version());
        let said = |one: &Self| (one.0.purpose, version(one));
        said(self) == said(other)
            && self.0.source == other.0.source
            && self.0.place == other.0.place
    }
}

impl Expression {
    /// Reads an expression that stands at `place` of the configuration.
    ///
    /// # Errors
    /// If it cannot be read, its types do not fit, or it may cost too much.
    pub fn parse(
        source: &str,
        purpose: Purpose,
        place: String,
        countries: Option<Arc<dyn CountryLookup>>,
        mappings: &dyn NamedTexts,
    ) -> Result<Self, ExpressionError> {
        let node = check::check(source, purpose, countries.is_some(), mappings)?;
        let (source, failures) = (source.to_owned(), AtomicU64::new(0));
        Ok(Self(Arc::new(Checked { source, place, purpose, node, countries, failures })))
    }

    /// Whether the condition holds. A failed one is counted.
    pub fn holds(&self, facts: &RequestFacts<'_>) -> bool {
        match self.evaluated(facts) {
            Ok(value) => matches!(value, Value::Bool(true)),
            Err(_) => {
                self.0.failures.fetch_add(1, Relaxed);
                matches!(self.0.purpose, Purpose::Bypass | Purpose::NoStore)
            }
        }
    }

    /// The value as a text; empty if the evaluation fails, which is counted.
    pub fn text(&self, facts: &RequestFacts<'_>) -> String {
        match self.evaluated(facts) {
            Ok(value) => value.into_text(),
            Err(_) => {
                self.0.failures.fetch_add(1, Relaxed);
                String::new()
            }
        }
    }

    /// The value as a text, for operators. A failure is not counted.
    ///
    /// # Errors
    /// If the evaluation fails.
    pub fn explain(&self, facts: &RequestFacts<'_>) -> Result<String, Failure> {
        self.evaluated(facts).map(Value::into_text)
    }

    /// The expression as it stands in the configuration.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// The key of the configuration that has it.
    pub fn place(&self) -> &str {
        &self.0.place
    }

    /// The evaluations that failed since the last call.
    pub fn take_failures(&self) -> u64 {
        self.0.failures.swap(0, Relaxed)
    }

    fn evaluated<'e>(&'e self, facts: &'e RequestFacts<'_>) -> Result<Value<'e>, Failure> {
        let is_key = self.0.purpose == Purpose::Key;
        Evaluation::new(facts, self.0.countries.as_deref(), is_key).of(&self.0.node, None)
    }
}
