use super::*;

fn found(path: &str, text: &str) -> Vec<String> {
    let text = Text::of(text);
    let citations = citations(path, &text);
    let name = |citation: &Citation<'_>| {
        let work = citation.work.unwrap_or("nothing");
        format!("{work} {} {}", citation.kind, citation.numbers.join(","))
    };
    citations.iter().map(name).collect()
}

#[test]
fn every_citation_of_the_project_is_right() {
    let wrong = check().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn citations_are_read_as_people_write_them() {
    let text =
        "//! As in OSDI'02,\n//! Sec. 3.4.2, Figures 6-9 and 12. (WWW'09 Section 4, Table 1)";
    assert_eq!(
        found("a.rs", text),
        ["OSDI'02 Sec 3.4.2", "OSDI'02 Fig 6,9,12", "WWW'09 Sec 4", "WWW'09 Table 1"]
    );
}

#[test]
fn a_citation_without_a_paper_is_of_the_one_that_its_file_is_about() {
    let text = "// LARD's (ASPLOS'98 Sec. 3.1). And (Sec. 4.2).";
    assert_eq!(
        found("crates/sim/levada-cap/src/a.rs", text),
        ["ASPLOS'98 Sec 3.1", "WWW10 Sec 4.2"]
    );
    assert_eq!(found("a.rs", text), ["ASPLOS'98 Sec 3.1", "ASPLOS'98 Sec 4.2"]);
    assert_eq!(of_file("a.rs", "// (Sec. 1)"), ["a.rs:1: a citation of nothing"]);
}

#[test]
fn other_works_are_none_of_ours() {
    let text = "// RFC 9111 (Sec. 99). NSDI'16 Sec. 88, and Gross and Harris, Sec. 77.";
    assert_eq!(of_file("crates/pure/levada-fetch/src/a.rs", text), [""; 0]);
}

#[test]
fn sections_that_do_not_exist_are_named() {
    assert_eq!(of_file("a.rs", "\n// OSDI'02 Sec. 4.4"), ["a.rs:2: OSDI'02: there is no Sec 4.4"]);
    assert_eq!(of_file("a.rs", "OSDI'02 Fig. 19"), ["a.rs:1: OSDI'02: there is no Fig 19"]);
}

#[test]
fn tables_are_held_against_the_section_beside_them() {
    assert_eq!(of_file("a.rs", "OSDI'02 Table 5, Sec. 5.3"), [""; 0]);
    assert_eq!(of_file("a.rs", "OSDI'02 Table 4, Sec. 5.2"), [""; 0]);
    assert_eq!(of_file("a.rs", "OSDI'02 Figures 5 and 11, Sec. 5.1 and 5.2.1"), [""; 0]);
    let wrong = of_file("a.rs", "OSDI'02 Table 4, Figures 12-15, Sec. 5.2.1");
    assert_eq!(wrong, ["a.rs:1: OSDI'02: Table 4 is in Sec. 5.2.2, not 5.2.1"]);
}

#[test]
fn a_policy_cites_the_section_that_describes_it() {
    assert_eq!(subject("fdr", "OSDI'02 Sec. 3.4.2"), None);
    assert!(subject("fdr", "OSDI'02 Sec. 3.3").unwrap().contains("3.4.2"));
    assert!(subject("np-fdr", "OSDI'02 Sec. 3.4").is_some());
    assert_eq!(subject("maglev", "NSDI'16 Sec. 3.4"), None);
}

#[test]
fn an_entry_of_a_page_cites_the_section_that_describes_it() {
    assert_eq!(entries("a.md", "**r-chash, r-hrw** (Sec. 3.2.1, 3.2.2). Sets."), [""; 0]);
    let wrong = entries("a.md", "\n**fdr, maglev** (Sec. 3.3, fine). A set.");
    assert_eq!(wrong, ["a.md:2: `fdr` is described in OSDI'02 Sec. 3.4.2"]);
}

#[test]
fn every_policy_and_topology_of_our_papers_has_its_section() {
    let policies =
        POLICIES.iter().flat_map(|file| file.iter()).map(|entry| (entry.name, entry.paper));
    let topologies = TOPOLOGIES.iter().map(|entry| (entry.name, entry.source));
    for (name, cited) in policies.chain(topologies) {
        let ours = cited.starts_with("OSDI'02") || cited.starts_with("ASPLOS'98");
        assert!(!ours || name == "lan_cluster" || describing(name).is_some(), "{name}");
    }
}
