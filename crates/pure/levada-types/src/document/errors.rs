//! The problems of a file: all at once, each with its place and its remedy.

use std::fmt;

use serde::Serialize;

use super::tree::{Node, Path, Source, Span};

/// An error or a warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Its severity.
    pub severity: Severity,
    /// Line in the file, from 1.
    pub line: usize,
    /// Character in the line, from 1.
    pub column: usize,
    /// The key, such as `site[1].policy.busy`; empty for the file as a whole.
    pub key: String,
    /// The problem.
    pub message: String,
    /// The remedy, where it is known.
    pub help: Option<String>,
}

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The node will not start.
    Error,
    /// The node starts, but probably not as intended.
    Warning,
}

/// All problems of one file, in the order of its lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The file, as it was given.
    pub file: String,
    /// The problems.
    pub problems: Vec<Problem>,
    /// Number of problems beyond those listed.
    pub left_out: usize,
}

impl Report {
    /// Whether the configuration can be used.
    pub fn is_usable(&self) -> bool {
        self.count(Severity::Error) == 0
    }

    /// Number of listed problems of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.problems.iter().filter(|problem| problem.severity == severity).count()
    }
}

impl fmt::Display for Report {
    /// One paragraph per problem; its first line begins with file, line and column, as editors and
    /// terminals expect it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            write!(f, "{}:{}:{}: ", self.file, problem.line, problem.column)?;
            f.write_str(match problem.severity {
                Severity::Error => "error: ",
                Severity::Warning => "warning: ",
            })?;
            if !problem.key.is_empty() {
                write!(f, "{}: ", problem.key)?;
            }
            writeln!(f, "{}", problem.message)?;
            if let Some(help) = &problem.help {
                writeln!(f, "    help: {help}")?;
            }
        }
        if self.left_out > 0 {
            writeln!(f, "... and {} more", self.left_out)?;
        }
        Ok(())
    }
}

/// Collects the problems that the checks find.
pub struct Findings<'a> {
    source: &'a Source,
    root: &'a Node,
    problems: Vec<Problem>,
    left_out: usize,
}

/// The most problems that are listed: a file of garbage has as many mistakes as bytes.
const MOST: usize = 100;

impl<'a> Findings<'a> {
    /// No problems yet of `source`, whose tree is `root`.
    pub fn new(source: &'a Source, root: &'a Node) -> Self {
        Self { source, root, problems: Vec::new(), left_out: 0 }
    }

    /// Whether no error has been reported.
    pub fn is_usable(&self) -> bool {
        self.problems.iter().all(|problem| problem.severity != Severity::Error)
    }

    /// Reports an error at `path`, or at the nearest table around it when the key is missing.
    pub fn error(&mut self, path: &Path, message: impl Into<String>) -> Said<'_, 'a> {
        self.error_at(self.root.place(path), path, message)
    }

    /// Reports a warning at `path`.
    pub fn warning(&mut self, path: &Path, message: impl Into<String>) -> Said<'_, 'a> {
        self.say(Severity::Warning, self.root.place(path), path, message.into())
    }

    /// Reports an error at a known place, such as that of a key.
    pub fn error_at(
        &mut self,
        place: Span,
        path: &Path,
        message: impl Into<String>,
    ) -> Said<'_, 'a> {
        self.say(Severity::Error, place, path, message.into())
    }

    /// Whether the file has a value at `path`, right or wrong.
    pub fn has(&self, path: &Path) -> bool {
        self.root.entry(path).is_some()
    }

    /// The place of the key itself, for errors of the key.
    pub fn key_place(&self, path: &Path) -> Span {
        self.root.entry(path).map_or_else(|| self.root.place(path), |entry| entry.key.clone())
    }

    fn say(
        &mut self,
        severity: Severity,
        place: Span,
        path: &Path,
        message: String,
    ) -> Said<'_, 'a> {
        // A place costs a walk through the file, and garbage has as many problems as bytes.
        if self.problems.len() == MOST {
            self.left_out += 1;
            return Said { findings: self, problem: None };
        }
        let (line, column) = self.source.position(place.start);
        let key = path.to_string();
        let problem = Problem { severity, line, column, key, message, help: None };
        Said { findings: self, problem: Some(problem) }
    }

    fn add(&mut self, problem: Problem) {
        // A route meets the problems of the keys that it inherits once more.
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// The problems by line.
    pub fn into_report(mut self) -> Report {
        self.problems.sort_by_key(|problem| (problem.line, problem.column));
        let file = self.source.name.clone();
        Report { file, problems: self.problems, left_out: self.left_out }
    }
}

/// A problem that is reported at the end of the statement, with a remedy where one is added.
pub struct Said<'f, 'a> {
    findings: &'f mut Findings<'a>,
    problem: Option<Problem>,
}

impl Said<'_, '_> {
    /// Adds the remedy.
    pub fn help(self, help: impl Into<String>) -> Self {
        self.maybe_help(Some(help.into()))
    }

    /// Adds the remedy, if there is one.
    pub fn maybe_help(mut self, help: Option<String>) -> Self {
        self.problem.iter_mut().for_each(|problem| problem.help.clone_from(&help));
        self
    }

    /// A value with a problem comes to nothing.
    pub fn none<T>(self) -> Option<T> {
        None
    }
}

impl Drop for Said<'_, '_> {
    fn drop(&mut self) {
        if let Some(problem) = self.problem.take() {
            self.findings.add(problem);
        }
    }
}

/// A line that suggests the name in `known` that is most similar to `given`.
pub fn did_you_mean<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(given, known).map(|name| format!("did you mean `{name}`?"))
}

/// The name in `known` that `given` may be a misspelling of: at most a third of its letters differ,
/// or one letter of a short name.
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A text this long is no misspelt key, and the distance costs the product of the lengths.
    if given.len() > 64 {
        return None;
    }
    let given = given.to_ascii_lowercase().replace('-', "_");
    let distance = |name: &str| strsim::damerau_levenshtein(&given, &name.replace('-', "_"));
    known
        .into_iter()
        .map(|name| (distance(name), name))
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(1) && *distance < name.len())
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_pen_are_recognised() {
        let known = ["health_check", "hosts", "origin", "policy"];
        for (given, meant) in [
            ("helth_check", Some("health_check")),
            ("health-check", Some("health_check")),
            ("host", Some("hosts")),
            ("Origin", Some("origin")),
            ("polciy", Some("policy")),
            ("backend", None),
        ] {
            assert_eq!(nearest(given, known), meant, "{given}");
        }
        assert_eq!(nearest(&"h".repeat(1000), known), None);
        assert_eq!(nearest("d", ["a"]), None);
    }
}
