//! A crate includes no file outside its own directory: its package would lack the file, so that it
//! could not be installed from a registry. Tests may; they run in this source only.

use crate::source::{Kind, Source, Token};

const MACROS: &[&str] = &["include", "include_bytes", "include_str"];

/// A line for each file that a crate includes from outside.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    sources.iter().filter(|source| source.is_shipped()).flat_map(outside).collect()
}

fn outside(source: &Source) -> Vec<String> {
    let inner = source.path.iter().skip_while(|part| *part != "src").count();
    let tokens = source.production();
    let mut wrong = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let Some(file) = included(token, &tokens[at + 1..]) else { continue };
        // The crate ends above `src`, the first of these parts.
        if file.split('/').take_while(|part| *part == "..").count() >= inner {
            let (path, line) = (source.path.display(), token.line);
            wrong.push(format!(
                "{path}:{line}: {file} is outside the crate, and so not in its package: link to it in the crate"
            ));
        }
    }
    wrong
}

/// The path that the macro includes, or the beginning of a path that it puts together.
fn included<'a>(name: &Token<'a>, rest: &[Token<'a>]) -> Option<&'a str> {
    if !MACROS.contains(&name.text) || !rest.first().is_some_and(|token| token.is("!")) {
        return None;
    }
    let path = rest.iter().take_while(|token| !token.is(";"));
    let path = path.into_iter().find(|token| token.kind == Kind::Literal)?;
    Some(path.text.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&[Source { path: path.into(), text: text.into() }]).len()
    }

    #[test]
    fn files_outside_the_crate_are_named() {
        let text = "const A: &str = include_str!(\"../../../docs/a.md\");";
        assert_eq!(found("crates/a/src/lib.rs", text), 1);
        assert_eq!(found("crates/a/src/b/c.rs", text), 1);
        assert_eq!(found("crates/a/src/b/c/d.rs", text), 0);
        let joined = "include_bytes!(concat!(\"../../\", $name))";
        assert_eq!(found("crates/a/src/lib.rs", joined), 1);
    }

    #[test]
    fn files_of_the_crate_and_of_tests_are_not() {
        assert_eq!(found("crates/a/src/lib.rs", "#![doc = include_str!(\"../README.md\")]"), 0);
        let test = "#[cfg(test)] mod tests { const A: &str = include_str!(\"../../../a\"); }";
        assert_eq!(found("crates/a/src/lib.rs", test), 0);
        assert_eq!(found("crates/a/tests/a.rs", "include_str!(\"../../../a\");"), 0);
    }
}
