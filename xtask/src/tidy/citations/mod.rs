//! Citations of the five papers name sections, figures and tables that exist, and a policy cites the
//! section that describes it.
//!
//! A citation such as `Sec. 3.4.2` belongs to the paper that is named right before it, else to the
//! paper that its file is about, else to the work that was last named in the file.

mod papers;
mod text;

use std::{fs, path::Path, process::Command, sync::LazyLock};

use anyhow::{Context as _, ensure};
use levada_policy::POLICIES;
use levada_topology::TOPOLOGIES;
use regex::Regex;

use self::{
    papers::{describing, home, is_paper},
    text::Text,
};
use crate::workspace::root;

/// Files that are about one paper, by the beginning of their path.
const ABOUT: &[(&str, &str)] = &[
    ("bench/src/bin/large/", "WORLDS'04"),
    ("crates/pure/levada-fetch/src/", "WORLDS'04"),
    ("crates/pure/levada-policy/src/cap.rs", "WWW10"),
    ("crates/pure/levada-policy/src/dynamic.rs", "OSDI'02"),
    ("crates/sim/levada-cap/src/", "WWW10"),
    ("crates/sim/levada-sim/tests/cap.rs", "WWW10"),
    ("crates/sim/levada-paper/src/cap", "WWW10"),
    ("crates/sim/levada-paper/src/lard", "ASPLOS'98"),
    ("crates/sim/levada-paper/src/osdi02", "OSDI'02"),
    ("crates/sim/levada-sim/src/prototype/", "WWW10"),
    ("crates/tools/levada-lab/src/anycast/", "WWW'09"),
    ("crates/tools/levada-lab/src/cap/", "WWW10"),
    ("crates/tools/levada-lab/src/lard/", "ASPLOS'98"),
    ("examples/sim/cap-", "WWW10"),
];

/// Kinds of files that cite. The lists of this check itself are none of them.
const KINDS: &[&str] = &["csv", "md", "rs", "toml"];

/// Pages that repeat text from the source, where each citation is checked.
const GENERATED: &[&str] = &["docs/policies/reference.md", "docs/simulate/scenarios.md"];

/// A work that citations may be of: one of the papers, or a standard or an article.
static WORK: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"WWW10|\b[A-Z]+'\d\d\b|RFC \d+|\b[A-Z][a-z]+ (and [A-Z][a-z]+|et al\.)")
        .expect("a constant")
});

/// A kind and its numbers.
static CITATION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"\b(Sec|Fig|Table)(?:s?\.?|tions?|ures?) (\d+(?:\.\d+)*(?:(?:, | and | or | to |-)\d+(?:\.\d+)*)*)",
    )
    .expect("a constant")
});

/// A citation and the work that it is of.
#[derive(Debug, PartialEq, Eq)]
struct Citation<'t> {
    line: usize,
    work: Option<&'t str>,
    /// `Sec`, `Fig` or `Table`.
    kind: &'t str,
    numbers: Vec<&'t str>,
    /// Whether it continues the citation before it: `Table 5, Sec. 5.3`.
    continues: bool,
}

/// A line for each citation that is wrong.
///
/// # Errors
/// When files cannot be listed or read.
pub(super) fn check() -> anyhow::Result<Vec<String>> {
    let mut wrong = subjects();
    for path in tracked()? {
        let text = fs::read_to_string(root().join(&path)).with_context(|| path.clone())?;
        wrong.extend(of_file(&path, &text));
        wrong.extend(entries(&path, &text));
    }
    Ok(wrong)
}

/// The files of the project that may cite.
fn tracked() -> anyhow::Result<Vec<String>> {
    let output = Command::new("git").args(["ls-files"]).current_dir(root()).output()?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let cites = |path: &&str| {
        let kind = Path::new(path).extension().and_then(|kind| kind.to_str());
        kind.is_some_and(|kind| KINDS.contains(&kind))
            && !GENERATED.contains(path)
            && !path.starts_with("xtask/src/tidy/citations/")
            && root().join(path).is_file()
    };
    Ok(String::from_utf8(output.stdout)?.lines().filter(cites).map(str::to_owned).collect())
}

/// A line for each policy and topology that does not cite the section that describes it.
fn subjects() -> Vec<String> {
    let policies = POLICIES.iter().flat_map(|file| file.iter());
    let policies = policies.map(|entry| (entry.name, entry.paper));
    let topologies = TOPOLOGIES.iter().map(|entry| (entry.name, entry.source));
    policies.chain(topologies).filter_map(|(name, cited)| subject(name, cited)).collect()
}

fn subject(name: &str, cited: &str) -> Option<String> {
    let section = describing(name)?;
    let expected = format!("{} Sec. {}", section.paper, section.number);
    let is_cited = cited.strip_suffix(&expected).is_some();
    (!is_cited).then(|| format!("`{name}` is described in {expected}, and cites {cited}"))
}

/// A line for each entry `**fdr, fdr-global** (Sec. 3.4.2)` of a page that cites another section than
/// the one that describes its subject.
fn entries(path: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let Some((names, rest)) = line.strip_prefix("**").and_then(|line| line.split_once("** ("))
        else {
            continue;
        };
        let cited = rest.split(')').next().unwrap_or_default();
        let Some(captures) = CITATION.captures(cited) else { continue };
        let numbers: Vec<_> = captures[2].split(", ").collect();
        for name in names.split(", ") {
            if let Some(section) = describing(name).filter(|found| !numbers.contains(&found.number))
            {
                let (line, paper, number) = (at + 1, section.paper, section.number);
                wrong
                    .push(format!("{path}:{line}: `{name}` is described in {paper} Sec. {number}"));
            }
        }
    }
    wrong
}

/// A line for each wrong citation of a file.
fn of_file(path: &str, text: &str) -> Vec<String> {
    let text = Text::of(text);
    let citations = citations(path, &text);
    let mut wrong = Vec::new();
    for list in citations.chunk_by(|_, next| next.continues) {
        let (line, work) = (list[0].line, list[0].work);
        let Some(work) = work else {
            wrong.push(format!("{path}:{line}: a citation of nothing"));
            continue;
        };
        if !is_paper(work) {
            continue;
        }
        let mut numbers = list
            .iter()
            .flat_map(|citation| citation.numbers.iter().map(|number| (citation.kind, *number)));
        let missing = numbers.find(|(kind, number)| home(work, kind, number).is_none());
        let error = match missing {
            Some((kind, number)) => Some(format!("there is no {kind} {number}")),
            None => misplaced(work, list),
        };
        wrong.extend(error.map(|error| format!("{path}:{line}: {work}: {error}")));
    }
    wrong
}

/// The error of a figure or table that is cited together with one section, and is elsewhere. `list` is
/// a citation with those that continue it.
fn misplaced(paper: &str, list: &[Citation<'_>]) -> Option<String> {
    let sections: Vec<_> = list.iter().filter(|citation| citation.kind == "Sec").collect();
    let [section] = sections[..] else { return None };
    let [within] = section.numbers[..] else { return None };
    let things = list.iter().filter(|citation| citation.kind != "Sec");
    let numbers = things.flat_map(|thing| thing.numbers.iter().map(|number| (thing.kind, *number)));
    for (kind, number) in numbers {
        let found = home(paper, kind, number)?;
        if found != within && !found.starts_with(&format!("{within}.")) {
            return Some(format!("{kind} {number} is in Sec. {found}, not {within}"));
        }
    }
    None
}

/// All citations of a file, in order.
fn citations<'t>(path: &str, text: &'t Text) -> Vec<Citation<'t>> {
    let about = ABOUT.iter().find(|(prefix, _)| path.starts_with(prefix)).map(|(_, paper)| *paper);
    let works: Vec<_> = WORK.find_iter(&text.flat).collect();
    let mut found: Vec<Citation<'t>> = Vec::new();
    let mut previous = 0;
    for captures in CITATION.captures_iter(&text.flat) {
        let [whole, kind, numbers] = [0, 1, 2].map(|group| captures.get(group).expect("no option"));
        let named = works.iter().rev().find(|work| work.end() <= whole.start());
        let continues = is_list(&text.flat[previous..whole.start()]);
        let work = match (named, found.last()) {
            (_, Some(before)) if continues => before.work,
            (Some(named), _) if is_near(&text.flat[named.end()..whole.start()]) => {
                Some(named.as_str())
            }
            (named, _) => about.or_else(|| named.map(|named| named.as_str())),
        };
        let separators = |c: char| !c.is_ascii_digit() && c != '.';
        let numbers = numbers.as_str().split(separators).filter(|number| !number.is_empty());
        let line = text.line(whole.start());
        let (kind, numbers) = (kind.as_str(), numbers.collect());
        found.push(Citation { line, work, kind, numbers, continues });
        previous = whole.end();
    }
    found
}

/// Whether two citations with this between them are one list.
fn is_list(between: &str) -> bool {
    matches!(between, ", " | " and " | ", and " | " or " | ", with ")
}

/// Whether a citation belongs to the work that is named so shortly before it.
fn is_near(between: &str) -> bool {
    const NEAR: usize = 48;
    between.len() <= NEAR && !between.contains(['.', ')', ';', '|', '"'])
}

#[cfg(test)]
mod tests;
