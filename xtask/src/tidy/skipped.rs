//! A test that cannot run says so by `levada_skip`, which counts it: a line that it prints itself is lost.

use std::{path::Path, sync::LazyLock};

use regex::Regex;

use crate::source::Source;

static PRINTED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"print(?:ln)?!\(\s*"(?i:skipped|left out)"#).expect("a pattern"));

/// A line for each file that prints that something was skipped.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let ours = sources.iter().filter(|source| !source.path.starts_with("skip"));
    let printing = ours.filter(|source| PRINTED.is_match(&source.text));
    printing.map(|source| wrong(&source.path)).collect()
}

fn wrong(path: &Path) -> String {
    format!("{}: a test that cannot run says so by levada_skip::skipped", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_reasons_are_named() {
        let found = |text: &str| check(&[Source { path: "a.rs".into(), text: text.into() }]).len();
        assert_eq!(found(concat!("eprintln", "!(\n    \"Skipped: no root\");")), 1);
        assert_eq!(found("levada_skip::skipped(\"no root\");"), 0);
    }
}
