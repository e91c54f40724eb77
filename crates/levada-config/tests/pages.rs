//! Configurations in the documentation are configurations: every block of TOML is read by the node's
//! own checks, alone or completed by the tables around it that the page leaves out.

use std::{
    fs,
    path::{Path, PathBuf},
};

use levada_config::{Report, Severity, Source, Surroundings};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every page of Markdown below `directory`.
fn pages(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of pages") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// The blocks of TOML on a page, each with the line of its beginning.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if line.trim() == "```toml" {
            let block = lines.by_ref().map(|(_, line)| line).take_while(|l| l.trim() != "```");
            found.push((number + 1, block.collect::<Vec<_>>().join("\n")));
        }
    }
    found
}

const NAME: &str = "name = \"completed\"\n";
const LISTEN: &str = "[[listen]]\naddress = \"127.0.0.1:8080\"\n";
const SITE: &str = "[[site]]\nhosts = \"completed.example\"\norigin = \"http://10.9.9.9:80\"\n";
const SWITCH: &str = "[[site]]\nhosts = \"completed.example\"\n";

/// The block with the tables that a page leaves out: a name, a listener, and a site, which stands before
/// the parts of a site or after everything else.
fn completed(block: &str) -> String {
    let tables: Vec<_> = block.lines().map(str::trim).filter(|l| l.starts_with('[')).collect();
    let begins =
        |starts: &[&str]| tables.iter().position(|t| starts.iter().any(|s| t.starts_with(s)));
    let named =
        block.lines().take_while(|line| !line.starts_with('[')).any(|l| l.starts_with("name ="));
    let site = begins(&["[[site]]"]);
    let part = begins(&["[site.", "[[site."]);
    // Servers of a switch stand in the place of an origin.
    let own = if begins(&["[[site.server]]"]).is_some() { SWITCH } else { SITE };
    let around = part.is_some_and(|part| site.is_none_or(|site| part < site));
    let mut text = if named { String::new() } else { NAME.to_owned() };
    text += &[if around { own } else { "" }, block, "\n"].concat();
    if site.is_none() && !around {
        text += SITE;
    }
    if begins(&["[[listen]]"]).is_none() {
        text += LISTEN;
    }
    text
}

/// Whether a problem is that the machine has no such file.
fn is_of_the_machine(message: &str) -> bool {
    message.contains("No such file or directory") || message.contains("there is no directory")
}

fn check(text: String) -> Report {
    let variable = |name: &str| {
        let value = match name {
            "NODE" => "a",
            "HOST" | "POD_IP" => "10.0.0.1",
            "EAB_KEY" => "YSBrZXkgb2Ygc29tZSBsZW5ndGg",
            _ => "a text of the environment",
        };
        Some(value.to_owned())
    };
    let surroundings = Surroundings { directory: Path::new("/"), variable: &variable };
    levada_config::check(&Source { name: "block".to_owned(), text }, &surroundings).report
}

#[test]
fn every_block_of_toml_in_the_documentation_is_a_configuration() {
    let mut found = Vec::new();
    for part in ["docs/operate", "docs/policies", "docs/coming-from"] {
        pages(&root().join(part), &mut found);
    }
    found.extend(["docs/start.md", "docs/install.md", "README.md"].map(|page| root().join(page)));
    let mut wrong = Vec::new();
    let mut checked = 0;
    for page in found {
        let text = fs::read_to_string(&page).expect("a page");
        for (line, block) in blocks(&text) {
            checked += 1;
            let report = check(completed(&block));
            for problem in &report.problems {
                if problem.severity == Severity::Error && !is_of_the_machine(&problem.message) {
                    let place = page.strip_prefix(root()).unwrap_or(&page).display();
                    wrong.push(format!("{place}:{line}: {}: {}", problem.key, problem.message));
                }
            }
        }
    }
    assert!(checked > 100, "{checked}");
    assert!(wrong.is_empty(), "{} of {checked}:\n{}", wrong.len(), wrong.join("\n"));
}
