//! CHANGELOG.md is read by users: an entry is one line that fits the screen, below the release that has it.

use std::fs;

use anyhow::Context as _;

use crate::workspace::root;

const FILE: &str = "CHANGELOG.md";
/// The characters of an entry.
const LONGEST: usize = 120;

/// A line for each entry that is too long or stands below no release.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn check() -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(root().join(FILE)).context(FILE)?;
    Ok(wrong(&text))
}

fn wrong(text: &str) -> Vec<String> {
    let mut is_below_release = false;
    let mut wrong = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        if let Some(title) = line.strip_prefix("## ") {
            is_below_release = title == "Unreleased" || is_version(title);
        }
        let why = if line.starts_with([' ', '\t']) {
            "an entry is one line"
        } else if line.starts_with("- ") && !is_below_release {
            "an entry stands below `## Unreleased` or the heading of a version"
        } else if line.chars().count() > LONGEST {
            "an entry has at most 120 characters: docs/ says more"
        } else {
            continue;
        };
        wrong.push(format!("{FILE}:{number}: {why}"));
    }
    wrong
}

/// Whether the heading begins with a version such as 1.20.3.
fn is_version(title: &str) -> bool {
    let version = title.split(' ').next().unwrap_or_default();
    version.split('.').count() == 3 && version.split('.').all(|part| part.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_short_and_below_a_release() {
        let good = "# Changelog\n\n## Unreleased\n\n- a\n\n## 1.20.3 (2026-01-01)\n\n- b\n";
        assert!(wrong(good).is_empty());
        assert_eq!(wrong("- a\n").len(), 1);
        assert_eq!(wrong("## Soon\n- a\n").len(), 1);
        assert_eq!(wrong("## Unreleased\n- a\n  b\n").len(), 1);
        assert_eq!(wrong(&format!("## 0.1.0\n- {}\n", "ä".repeat(118))).len(), 0);
        assert_eq!(wrong(&format!("## 0.1.0\n- {}\n", "ä".repeat(119))).len(), 1);
    }
}
