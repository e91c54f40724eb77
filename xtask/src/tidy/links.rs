//! Every page of docs/ is in the book's summary, and every link between files of the source leads to a
//! file and to a heading that exists. Alerts name a section of the runbook.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use anyhow::Context as _;
use regex::Regex;

use crate::workspace::root;

static LINK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\]\(([^)\s]+)\)").expect("a pattern"));
static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"`[^`]*`").expect("a pattern"));

/// A line for each page that is not in the summary, and for each link that leads nowhere.
///
/// # Errors
/// When a page cannot be read.
pub(super) fn check() -> anyhow::Result<Vec<String>> {
    let docs = root().join("docs");
    let mut pages = Vec::new();
    add_pages(&docs, &mut pages)?;
    let summary = fs::read_to_string(docs.join("SUMMARY.md"))?;
    let listed: BTreeSet<PathBuf> = links(&summary).map(|(path, _)| docs.join(path)).collect();
    let mut wrong = Vec::new();
    for page in pages.iter().filter(|page| !page.ends_with("SUMMARY.md")) {
        if !listed.contains(page) {
            wrong.push(format!("{} is not in docs/SUMMARY.md", shown(page)));
        }
    }
    pages.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|page| root().join(page)));
    for page in &pages {
        let text = fs::read_to_string(page).with_context(|| shown(page))?;
        wrong.extend(links(&text).filter_map(|link| broken(page, &text, link)));
    }
    wrong.extend(alerts_without_section()?);
    Ok(wrong)
}

/// A line for each alert that does not lead to a section of the runbook.
fn alerts_without_section() -> anyhow::Result<Vec<String>> {
    let read = |path: &str| fs::read_to_string(root().join(path)).context(path.to_owned());
    let rules = read("packaging/prometheus/levada.rules.yml")?;
    let runbook = read("docs/operate/runbook.md")?;
    let sections: BTreeSet<String> = headings(&runbook).collect();
    let alerts = rules.split("- alert: ").skip(1);
    let leads = |alert: &str| {
        let section = alert.split_once("/operate/runbook.html#").map(|(_, rest)| rest);
        let section = section.and_then(|rest| rest.split('"').next());
        section.is_some_and(|section| sections.contains(section))
    };
    let name = |alert: &str| alert.lines().next().unwrap_or_default().to_owned();
    let without = alerts.filter(|alert| !leads(alert)).map(name);
    Ok(without
        .map(|name| format!("{name} has no runbook_url to a section of the runbook"))
        .collect())
}

fn add_pages(directory: &Path, pages: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        // The built book.
        if path.is_dir() && !path.ends_with("docs/book") {
            add_pages(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    Ok(())
}

/// The links of a page to other files and to its own headings: path and heading, either empty.
fn links(text: &str) -> impl Iterator<Item = (String, String)> {
    let text = prose(text);
    let found: Vec<String> = LINK.captures_iter(&text).map(|link| link[1].to_owned()).collect();
    found.into_iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:")).map(
        |link| match link.split_once('#') {
            Some((path, heading)) => (path.to_owned(), heading.to_owned()),
            None => (link, String::new()),
        },
    )
}

/// The text without its code.
fn prose(text: &str) -> String {
    let mut within = false;
    let mut kept = String::new();
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        within ^= fence;
        if !within && !fence {
            kept += &CODE.replace_all(line, "");
            kept.push('\n');
        }
    }
    kept
}

fn broken(page: &Path, text: &str, (path, heading): (String, String)) -> Option<String> {
    let target = match path.is_empty() {
        true => page.to_owned(),
        false => page.parent()?.join(&path),
    };
    if !target.exists() {
        return Some(format!("{}: there is no {path}", shown(page)));
    }
    if heading.is_empty() || target.extension().is_none_or(|extension| extension != "md") {
        return None;
    }
    let there = if path.is_empty() { text.to_owned() } else { fs::read_to_string(&target).ok()? };
    let known = headings(&there).any(|known| known == heading);
    (!known).then(|| format!("{}: {path} has no heading #{heading}", shown(page)))
}

/// The anchors of a page's headings, as the book and forges make them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let mut within = false;
    let lines = text.lines().filter(move |line| {
        within ^= line.trim_start().starts_with("```");
        !within && line.starts_with('#')
    });
    let anchor = |line: &str| {
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        heading.chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    lines.map(anchor).collect::<Vec<_>>().into_iter()
}

fn shown(page: &Path) -> String {
    page.strip_prefix(root()).unwrap_or(page).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_are_no_links() {
        let text = "[a](b.md) `[c](d.md)` [e](https://f)\n```\n[g](h.md)\n```\n[i](#j-k)\n";
        let found: Vec<_> = links(text).collect();
        let pair = |path: &str, heading: &str| (path.to_owned(), heading.to_owned());
        assert_eq!(found, [pair("b.md", ""), pair("", "j-k")]);
    }

    #[test]
    fn headings_are_anchors() {
        let anchors: Vec<_> = headings("# `a` is, well\n```\n# no\n```\n## B-c d\n").collect();
        assert_eq!(anchors, ["a-is-well", "b-c-d"]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let page = root().join("docs/start.md");
        let link = |path: &str, heading: &str| broken(&page, "", (path.into(), heading.into()));
        assert!(link("no-such.md", "").is_some_and(|line| line.contains("there is no")));
        assert!(link("install.md", "no-such").is_some_and(|line| line.contains("no heading")));
        assert_eq!(link("../README.md", ""), None);
    }
}
