//! The Rust source of the project as the checks of `tidy` read it: files, tokens, modules.
//!
//! This is a light scanner, not a compiler. It knows comments, literals, attributes, `mod`, `use`
//! and paths; it expands no macro and infers no type.

mod lex;
mod modules;
mod production;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

pub(crate) use lex::{Kind, Token};
pub(crate) use modules::{Reading, Tree};

use crate::workspace::root;

/// One file of Rust.
pub(crate) struct Source {
    /// From the root of the source.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// The directories that hold Rust.
const TOP: &[&str] = &["bench", "crates", "fuzz", "skip", "xtask"];

/// Every file of Rust, tests and examples included, ordered by path.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn all() -> anyhow::Result<Vec<Source>> {
    let mut sources = Vec::new();
    for top in TOP {
        for file in rust_files(&root().join(top))? {
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let path = file.strip_prefix(root())?.to_owned();
            sources.push(Source { path, text });
        }
    }
    Ok(sources)
}

/// The files of Rust below `directory`, ordered by path.
///
/// # Errors
/// When a directory cannot be read.
pub(crate) fn rust_files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("target") {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

impl Source {
    /// The package it belongs to: the directory in a folder of `crates`, or the topmost one.
    pub(crate) fn package(&self) -> &str {
        let mut parts = self.path.iter().filter_map(|part| part.to_str());
        match parts.next() {
            Some("crates") => {
                let folder = parts.next().unwrap_or_default();
                parts.next().filter(|name| name.starts_with("levada-")).unwrap_or(folder)
            }
            top => top.unwrap_or_default(),
        }
    }

    /// Whether the whole file is a test.
    pub(crate) fn is_test(&self) -> bool {
        self.path.ends_with("tests.rs") || self.path.iter().any(|part| part == "tests")
    }

    /// Whether it is part of the package's library or programs, as examples and benches are not.
    pub(crate) fn is_shipped(&self) -> bool {
        !self.is_test() && self.path.iter().any(|part| part == "src")
    }

    /// Its lines up to the tests at its end.
    pub(crate) fn production_lines(&self) -> usize {
        if self.is_test() {
            return 0;
        }
        self.text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count()
    }

    /// Every token, comments included.
    pub(crate) fn tokens(&self) -> Vec<Token<'_>> {
        lex::tokens(&self.text)
    }

    /// The tokens that are compiled when no test is, without comments.
    pub(crate) fn production(&self) -> Vec<Token<'_>> {
        production::of(self.tokens())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    #[test]
    fn a_file_belongs_to_its_package() {
        assert_eq!(source("crates/node/levada-edge/src/node.rs", "").package(), "levada-edge");
        assert_eq!(source("xtask/src/main.rs", "").package(), "xtask");
    }

    #[test]
    fn production_ends_where_tests_begin() {
        let text = "fn one() {}\n\n#[cfg(test)]\nmod tests {}\n";
        assert_eq!(source("crates/a/src/lib.rs", text).production_lines(), 2);
        assert_eq!(source("crates/a/src/b/tests.rs", text).production_lines(), 0);
        assert_eq!(source("crates/a/tests/b.rs", text).production_lines(), 0);
    }
}
