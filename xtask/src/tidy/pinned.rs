//! Tools of a release are named by their content or their version: actions and base images by digest, tools by
//! version. A name that moves could bring other code tomorrow.

use std::fs;

use anyhow::Context as _;

use crate::workspace::root;

const FILES: [&str; 4] =
    [".github/workflows/ci.yml", ".github/workflows/release.yml", ".ci/run", "Dockerfile"];

/// A line for each thing whose name may move.
///
/// # Errors
/// When a file cannot be read.
pub(super) fn check() -> anyhow::Result<Vec<String>> {
    let mut all = Vec::new();
    for file in FILES {
        let text = fs::read_to_string(root().join(file)).context(file)?;
        all.extend(wrong(file, &text));
    }
    Ok(all)
}

fn wrong(file: &str, text: &str) -> Vec<String> {
    let why = |(line, number): (&str, usize)| {
        let line = line.trim().trim_start_matches("- ");
        let why = if line.strip_prefix("uses: ").is_some_and(|action| !has_digest(action)) {
            "an action is named by the digest of its commit, with its version as a comment"
        } else if line.strip_prefix("FROM ").is_some_and(|image| !is_fixed_image(image)) {
            "a base image is named by its digest"
        } else if line.contains("@latest") {
            "`@latest` moves: name the version"
        } else if line.strip_prefix("cargo install ").is_some_and(|tools| !have_versions(tools)) {
            "a tool is installed by its version: `cargo install --locked NAME@VERSION`"
        } else {
            return None;
        };
        Some(format!("{file}:{number}: {why}"))
    };
    text.lines().zip(1..).filter_map(why).collect()
}

fn has_digest(action: &str) -> bool {
    let digest = action.split(' ').next().and_then(|name| name.split_once('@'));
    digest.is_some_and(|(_, digest)| digest.len() == 40 && is_hexadecimal(digest))
}

/// An image with a digest, an empty one, or an earlier stage of the same file.
fn is_fixed_image(image: &str) -> bool {
    let name = image.split(' ').next().unwrap_or_default();
    let digest = name.split_once("@sha256:").map(|(_, digest)| digest);
    let is_stage = name == "scratch" || !name.contains(['/', ':', '.']);
    digest.map_or(is_stage, |digest| digest.len() == 64 && is_hexadecimal(digest))
}

fn have_versions(tools: &str) -> bool {
    let named = |word: &&str| !word.starts_with('-');
    // The loop of `.ci/run` names versions in its list.
    tools.split(' ').filter(named).all(|tool| tool.contains('@') || tool.contains("$tool"))
}

fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_move_are_found() {
        let digest = "0123456789abcdef0123456789abcdef01234567";
        let good = format!(
            "- uses: a/b@{digest} # v1\nFROM r/i:1@sha256:{digest}{} AS b\nFROM scratch AS base\n\
             FROM base AS image\n cargo install --locked --debug cargo-a@1.2.3 cargo-b@1\n",
            &digest[..24]
        );
        assert_eq!(wrong("f", &good), Vec::<String>::new());
        for bad in [
            "      - uses: actions/checkout@v4",
            "uses: actions/checkout@main # v4",
            "FROM docker.io/library/rust:1-alpine AS build",
            "FROM rust:1",
            "go run example.com/tool@latest",
            "cargo install --locked cargo-deb",
            "cargo install --locked cargo-a@1 cargo-b",
        ] {
            assert_eq!(wrong("f", bad).len(), 1, "{bad}");
        }
    }
}
