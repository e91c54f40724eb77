//! The book: built by mdBook without warnings, with links that lead somewhere in it as they do in the
//! source.

use std::{
    io::{self, Read as _},
    path::{Component, Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use anyhow::{Context as _, ensure};
use regex::{Captures, Regex};
use serde_json::Value as Json;

use crate::workspace::root;

/// The place of the source for readers of the book.
const SOURCE: &str = "https://levada.example/levada/blob/main";

static LINK: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\]\(([^)\s:]+)\)").expect("a pattern"));

/// Whether there is mdBook.
pub(crate) fn is_possible() -> bool {
    Command::new("mdbook").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Builds docs/book.
///
/// # Errors
/// When mdBook is missing, fails or warns.
pub(crate) fn build() -> anyhow::Result<()> {
    ensure!(is_possible(), "mdbook is missing: `cargo install --locked mdbook`");
    let built = Command::new("mdbook").arg("build").current_dir(root()).output()?;
    let said = String::from_utf8_lossy(&built.stderr);
    let quiet = !said.lines().any(|line| line.contains("WARN") || line.contains("ERROR"));
    ensure!(built.status.success() && quiet, "mdbook build:\n{said}");
    Ok(())
}

/// mdBook's preprocessor (`[preprocessor.source-links]` of book.toml): the book comes as JSON on
/// standard input and goes, with other links, to standard output.
///
/// # Errors
/// When the input is no book.
pub(crate) fn link_to_source() -> anyhow::Result<()> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let Json::Array(mut input) = serde_json::from_str(&text)? else {
        anyhow::bail!("mdBook sends a pair");
    };
    let mut book = input.pop().context("mdBook sends a pair")?;
    relink(&mut book);
    serde_json::to_writer(io::stdout().lock(), &book)?;
    Ok(())
}

/// Changes every chapter below `book`.
fn relink(book: &mut Json) {
    match book {
        Json::Array(items) => items.iter_mut().for_each(relink),
        Json::Object(item) => {
            let path = item.get("path").and_then(Json::as_str).map(PathBuf::from);
            if let (Some(path), Some(Json::String(content))) = (path, item.get_mut("content")) {
                *content = linked(&path, content);
            }
            item.values_mut().for_each(relink);
        }
        _ => {}
    }
}

/// The chapter at `path` in docs/. Its links that leave docs/ lead to the source, and links to a README
/// lead to the first page of its directory, which mdBook calls index.
fn linked(path: &Path, content: &str) -> String {
    let link = |found: &Captures<'_>| match outside(path, &found[1]) {
        Some(file) => format!("]({SOURCE}/{file})"),
        None => found[0].replace("README.md", "index.md"),
    };
    LINK.replace_all(content, link).into_owned()
}

/// The path from the root of the source, if the link leaves docs/.
fn outside(page: &Path, link: &str) -> Option<String> {
    let mut place: Vec<&str> = vec!["docs"];
    let directory = page.parent()?.to_str()?;
    for part in Path::new(directory).components().chain(Path::new(link).components()) {
        match part {
            Component::Normal(name) => place.push(name.to_str()?),
            Component::ParentDir => drop(place.pop()?),
            _ => {}
        }
    }
    (place.first() != Some(&"docs")).then(|| place.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_leave_the_book_lead_to_the_source() {
        let page = Path::new("operate/runbook.md");
        let text = "[a](../start.md) [b](../../examples/tls.toml) [c](../lab/README.md#x)";
        let expected =
            format!("[a](../start.md) [b]({SOURCE}/examples/tls.toml) [c](../lab/index.md#x)");
        assert_eq!(linked(page, text), expected);
    }

    #[test]
    fn every_chapter_is_visited() {
        let chapter = |path: &str, inner: Json| serde_json::json!({ "Chapter": { "path": path, "content": "[x](../README.md)", "sub_items": inner } });
        let mut book = serde_json::json!({ "items": [chapter("a.md", serde_json::json!([chapter("b.md", Json::Null)]))] });
        relink(&mut book);
        assert_eq!(book.to_string().matches("blob/main/README.md").count(), 2);
    }
}
