//! The notes of a release: the section of CHANGELOG.md.

use std::{
    fs,
    io::{self, Write as _},
};

use anyhow::{Context as _, ensure};

use crate::workspace::root;

/// Prints the notes of `version`.
///
/// # Errors
/// When Cargo.toml has another version, or the changelog has no section of it.
pub(crate) fn notes(version: &str) -> anyhow::Result<()> {
    let own = env!("CARGO_PKG_VERSION");
    ensure!(version == own, "Cargo.toml has version {own}, not {version}");
    let changelog = fs::read_to_string(root().join("CHANGELOG.md"))?;
    let section = section(&changelog, version)
        .with_context(|| format!("CHANGELOG.md has no section `## {version}`, or an empty one"))?;
    io::stdout().lock().write_all(section.as_bytes())?;
    Ok(())
}

/// The text below the heading of `version`, up to the next one.
fn section(changelog: &str, version: &str) -> Option<String> {
    let mut lines = changelog.lines();
    lines.find(|line| {
        let title = line.strip_prefix("## ").unwrap_or_default();
        title.split(' ').next() == Some(version)
    })?;
    let text: Vec<_> = lines.take_while(|line| !line.starts_with("## ")).collect();
    let text = text.join("\n").trim().to_owned();
    (!text.is_empty()).then(|| text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str =
        "# Changelog\n\n## Unreleased\n\n- c\n\n## 0.2.0 (2026-01-01)\n\n- b\n- a\n\n## 0.1.0\n";

    #[test]
    fn notes_are_the_section_of_the_version() {
        assert_eq!(section(CHANGELOG, "0.2.0").unwrap(), "- b\n- a\n");
        assert_eq!(section(CHANGELOG, "0.2"), None);
    }

    #[test]
    fn a_version_without_lines_has_no_notes() {
        assert_eq!(section(CHANGELOG, "0.1.0"), None);
    }

    #[test]
    fn this_version_can_be_released() {
        let changelog = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
        assert!(section(&changelog, env!("CARGO_PKG_VERSION")).is_some());
    }
}
