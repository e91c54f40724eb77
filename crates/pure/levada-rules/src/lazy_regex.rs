//! Regular expressions that are compiled when they are first used. Thousands of sites have some, most of which match
//! requests of few: each takes a tenth of a millisecond and tens of kilobytes.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use regex::{Regex, RegexSet, RegexSetBuilder};

use crate::pattern::{LARGEST, PatternError, compile};

/// An expression that was made from a pattern with stars. Clones are compiled once.
#[derive(Clone)]
pub(crate) struct LazyRegex(Arc<RegexParts>);

struct RegexParts {
    expression: String,
    compiled: OnceLock<Option<Regex>>,
}

impl LazyRegex {
    /// An expression that is right by its making.
    ///
    /// # Errors
    /// If it is too large.
    pub(crate) fn new(expression: String) -> Result<Self, PatternError> {
        let compiled = OnceLock::new();
        if expression.len() > SURELY_SMALL {
            let _ = compiled.set(Some(compile(&expression)?));
        }
        Ok(Self(Arc::new(RegexParts { expression, compiled })))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0.expression
    }

    /// The expression to match with. `None` would mean that it is too large after all.
    pub(crate) fn get(&self) -> Option<&Regex> {
        self.0.compiled.get_or_init(|| compile(&self.0.expression).ok()).as_ref()
    }
}

/// What it matches follows from its text.
impl PartialEq for LazyRegex {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl fmt::Debug for LazyRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// Expressions that are matched at once, each of which can be compiled by itself.
#[derive(Clone)]
pub(crate) struct LazySet(Arc<SetParts>);

struct SetParts {
    expressions: Vec<String>,
    compiled: OnceLock<Option<RegexSet>>,
}

impl LazySet {
    /// # Errors
    /// If they are too large together.
    pub(crate) fn new(expressions: Vec<String>) -> Result<Self, regex::Error> {
        let compiled = OnceLock::new();
        if expressions.len() > SURELY_FEW {
            let _ = compiled.set(Some(set(&expressions)?));
        }
        Ok(Self(Arc::new(SetParts { expressions, compiled })))
    }

    /// Visits the positions of all that match. Should they be too large together after all, it visits all.
    pub(crate) fn visit(&self, text: &str, found: impl FnMut(usize)) {
        let SetParts { expressions, compiled } = &*self.0;
        match compiled.get_or_init(|| set(expressions).ok()) {
            Some(set) => set.matches(text).iter().for_each(found),
            None => (0..expressions.len()).for_each(found),
        }
    }
}

impl fmt::Debug for LazySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expressions.fmt(f)
    }
}

fn set(expressions: &[String]) -> Result<RegexSet, regex::Error> {
    RegexSetBuilder::new(expressions).size_limit(LARGEST_SET).build()
}

/// The longest expression that cannot be too large: a test compiles the worst ones.
const SURELY_SMALL: usize = 256;
/// The most bytes of a compiled set.
const LARGEST_SET: usize = 16 << 20;
/// The most expressions of a set that cannot be too large.
const SURELY_FEW: usize = LARGEST_SET / LARGEST / 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_that_are_compiled_late_are_never_too_large() {
        for part in ["k", "ſ", "ß", "ﬃ", "Å", "[^/]*", "(.*)", "([^/]*)k", "(.*)ǆ", "(?:/(.*))?"]
        {
            let ends = "(?s)(?i)^$".len();
            let text = part.repeat((SURELY_SMALL - ends) / part.len());
            let compiled = LazyRegex::new(format!("(?s)(?i)^{text}$")).unwrap();
            assert!(compiled.get().is_some(), "{part}");
        }
    }
}
