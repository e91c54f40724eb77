//! Only libraries whose documentation has an example ask rustdoc for examples: it takes seconds in each of them
//! to find out that there are none (`doctest = false` in Cargo.toml).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::{source::Source, workspace::root};

/// A line for each library that does not ask and has examples, or asks and has none.
///
/// # Errors
/// When a manifest cannot be read.
pub(super) fn check(sources: &[Source]) -> anyhow::Result<Vec<String>> {
    let shipped = || sources.iter().filter(|source| source.is_shipped());
    let with_examples: BTreeSet<&str> =
        shipped().filter(|source| has_example(&source.text)).map(Source::package).collect();
    let libraries: BTreeMap<&str, PathBuf> = shipped()
        .filter(|source| source.path.ends_with("src/lib.rs"))
        .filter_map(|source| {
            Some((source.package(), source.path.parent()?.with_file_name("Cargo.toml")))
        })
        .collect();
    let mut wrong = Vec::new();
    for (package, path) in libraries {
        let manifest =
            fs::read_to_string(root().join(&path)).with_context(|| path.display().to_string())?;
        let asks = !manifest.lines().any(|line| line == "doctest = false");
        wrong.extend(complaint(&path, asks, with_examples.contains(package)));
    }
    Ok(wrong)
}

fn complaint(manifest: &Path, asks: bool, has_examples: bool) -> Option<String> {
    let manifest = manifest.display();
    match (asks, has_examples) {
        (true, false) => Some(format!(
            "{manifest}: no documentation of this library has an example: set `doctest = false` in [lib]"
        )),
        (false, true) => Some(format!(
            "{manifest}: an example in the documentation is not run: remove `doctest = false`"
        )),
        _ => None,
    }
}

/// Whether rustdoc would compile a block of its documentation, one without the name of another language, or its
/// documentation is a page with examples.
fn has_example(text: &str) -> bool {
    if text.contains("#![doc = include_str!(") {
        return true;
    }
    let documentation = text.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("//!").or_else(|| line.strip_prefix("///"))
    });
    let mut open = false;
    for line in documentation {
        let Some(language) = line.trim_start().strip_prefix("```") else { continue };
        let rust = ["", "rust", "no_run", "should_panic", "compile_fail"];
        if !open && language.split(',').all(|word| rust.contains(&word.trim())) {
            return true;
        }
        open = !open;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_other_languages_are_no_examples() {
        assert!(has_example("//! ```\n//! let x = 1;\n//! ```\n"));
        assert!(has_example("/// ```text\n/// a\n/// ```\n    /// ```rust,no_run\n"));
        assert!(has_example("//! A library.\n#![doc = include_str!(\"../README.md\")]\n"));
        assert!(!has_example("//! ```text\n//! a\n//! ```\nlet text = \"```\";\n"));
    }

    #[test]
    fn both_mistakes_are_named() {
        let manifest = Path::new("crates/a/Cargo.toml");
        assert!(complaint(manifest, true, false).unwrap().contains("set `doctest"));
        assert!(complaint(manifest, false, true).unwrap().contains("remove"));
        assert_eq!(complaint(manifest, true, true), None);
        assert_eq!(complaint(manifest, false, false), None);
    }
}
