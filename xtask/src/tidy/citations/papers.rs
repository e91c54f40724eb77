//! The papers' sections, as xtask/papers.txt lists them.

use std::sync::LazyLock;

/// A section of a paper.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Section {
    /// The paper, as citations name it.
    pub(super) paper: &'static str,
    pub(super) number: &'static str,
    /// The figures and tables in it: `Fig` or `Table`, first and last number.
    things: Vec<(&'static str, u32, u32)>,
    /// The policies and topologies that it describes.
    subjects: Vec<&'static str>,
}

static SECTIONS: LazyLock<Vec<Section>> =
    LazyLock::new(|| parse(include_str!("../../../papers.txt")));

/// Whether this is one of the papers.
pub(super) fn is_paper(name: &str) -> bool {
    SECTIONS.iter().any(|section| section.paper == name)
}

/// The section in which the cited thing is: of a section, itself. `kind` is `Sec`, `Fig` or `Table`.
pub(super) fn home(paper: &str, kind: &str, number: &str) -> Option<&'static str> {
    let wanted: Option<u32> = number.parse().ok();
    let holds = |section: &&Section| {
        let mut things = section.things.iter().filter(|(thing, _, _)| *thing == kind);
        let thing =
            things.any(|(_, first, last)| wanted.is_some_and(|n| (*first..=*last).contains(&n)));
        section.paper == paper && (thing || kind == "Sec" && section.number == number)
    };
    SECTIONS.iter().find(holds).map(|section| section.number)
}

/// The section that describes a policy or topology.
pub(super) fn describing(subject: &str) -> Option<&'static Section> {
    SECTIONS.iter().find(|section| section.subjects.contains(&subject))
}

fn parse(list: &'static str) -> Vec<Section> {
    let mut sections = Vec::new();
    let mut paper = "";
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        if !first.starts_with(|c: char| c.is_ascii_digit()) {
            paper = first;
            continue;
        }
        let mut parts = rest.split('|').skip(1).map(str::trim);
        let things = parts.next().unwrap_or_default().split(", ").filter_map(thing).collect();
        let subjects = parts.next().unwrap_or_default().split_whitespace().collect();
        sections.push(Section { paper, number: first, things, subjects });
    }
    sections
}

/// Reads `Figure 6-9` or `Table 3`.
fn thing(text: &'static str) -> Option<(&'static str, u32, u32)> {
    let (kind, numbers) = text.split_once(' ')?;
    let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
    let kind = if kind == "Figure" { "Fig" } else { kind };
    Some((kind, first.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read() {
        assert!(is_paper("WWW10") && !is_paper("RFC 9111"));
        assert_eq!(home("OSDI'02", "Sec", "3.4.2"), Some("3.4.2"));
        assert_eq!(home("OSDI'02", "Fig", "7"), Some("5.1.3"));
        assert_eq!(home("WWW'09", "Table", "1"), Some("4.2"));
        assert_eq!(home("WWW'09", "Table", "2"), None);
        assert_eq!(describing("fdr-global").unwrap().number, "3.4.2");
    }

    #[test]
    fn every_figure_and_table_of_the_list_is_read() {
        let list = include_str!("../../../papers.txt");
        let written = list.lines().filter(|line| !line.starts_with('#'));
        let written: usize =
            written.map(|l| l.matches("Figure ").count() + l.matches("Table ").count()).sum();
        assert_eq!(SECTIONS.iter().map(|section| section.things.len()).sum::<usize>(), written);
    }
}
