//! Configurations that users meet are configurations: those of the documentation, the packages, the chart, the
//! examples and `levada init` are read by the node's own checks, with each of their commented parts in use as well.

use std::{
    fs,
    path::{Path, PathBuf},
};

use levada_config::{Report, Severity, Source, Surroundings};

use crate::support::levada;

pub(crate) fn root() -> PathBuf {
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
            "NODE" | "HOSTNAME" | "POD_NAME" => "a",
            "HOST" | "POD_IP" => "10.0.0.1",
            "CLIENTS" => "8080",
            "PEERS" => "7070",
            "ADMIN" => "9180",
            "EAB_KEY" => "YSBrZXkgb2Ygc29tZSBsZW5ndGg",
            _ => "a text of the environment",
        };
        Some(value.to_owned())
    };
    let surroundings = Surroundings {
        directory: Path::new("/"),
        variable: &variable,
        start_error: &|settings| levada_node::check(settings).err().map(|error| error.to_string()),
    };
    levada_config::check(&Source { name: "block".to_owned(), text }, &surroundings).report
}

/// The text with each commented part in use, one part at a time: lines in comments that are lines of TOML. `# For
/// HTTPS: tls = [...]` is one as well.
fn with_comments(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let parts: Vec<Option<&str>> = lines.iter().map(|line| commented(line)).collect();
    let mut all = Vec::new();
    let mut at = 0;
    while at < parts.len() {
        let length = parts[at..].iter().take_while(|part| part.is_some()).count();
        if length > 0 {
            let part = |(n, line): (usize, &&str)| match (at..at + length).contains(&n) {
                true => parts[n].unwrap_or_default().to_owned(),
                false => (*line).to_owned(),
            };
            all.push(lines.iter().enumerate().map(part).collect::<Vec<_>>().join("\n"));
        }
        at += length.max(1);
    }
    all
}

/// The line of TOML in a comment.
fn commented(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix('#')?.trim();
    let sentence = |c: char| c.is_alphanumeric() || c == ' ' || c == ',';
    let after = text.split_once(": ").filter(|(before, _)| before.chars().all(sentence));
    [text].into_iter().chain(after.map(|(_, after)| after)).find(|text| {
        let is_header = text.starts_with('[') && text.ends_with(']');
        let key = text.split_once(" = ").map_or("", |(key, _)| key);
        let is_key = |c: char| c.is_ascii_alphanumeric() || "_.-\"".contains(c);
        let is_pair = !key.is_empty() && key.chars().all(is_key);
        (is_header || is_pair) && text.parse::<toml::Table>().is_ok()
    })
}

/// What is wrong with configurations, and how many there were.
#[derive(Default)]
struct Checked {
    wrong: Vec<String>,
    count: usize,
}

impl Checked {
    /// Checks a text, which `complete` completes, alone and with each of its commented parts.
    fn check(&mut self, place: &str, text: &str, complete: impl Fn(&str) -> String) {
        for text in [text.to_owned()].into_iter().chain(with_comments(text)) {
            self.count += 1;
            for problem in &check(complete(&text)).problems {
                if problem.severity == Severity::Error && !is_of_the_machine(&problem.message) {
                    self.wrong.push(format!("{place}: {}: {}", problem.key, problem.message));
                }
            }
        }
    }

    fn file(&mut self, path: &Path) {
        let text = fs::read_to_string(path).expect("a file");
        self.check(&shown(path), &text, str::to_owned);
    }

    #[track_caller]
    fn are_right(self, least: usize) {
        assert!(self.count >= least, "{}", self.count);
        let Self { wrong, count } = self;
        assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    }
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

#[test]
fn every_block_of_toml_in_the_documentation_is_a_configuration() {
    let mut found = Vec::new();
    for part in ["docs/operate", "docs/policies", "docs/coming-from"] {
        pages(&root().join(part), &mut found);
    }
    found.extend(["docs/start.md", "docs/install.md", "README.md"].map(|page| root().join(page)));
    let mut checked = Checked::default();
    for page in found {
        let text = fs::read_to_string(&page).expect("a page");
        // A file of a fleet is checked with the others of its fleet.
        let alone = blocks(&text).into_iter().filter(|(_, block)| of_fleet(block).is_none());
        for (line, block) in alone {
            checked.check(&format!("{}:{line}", shown(&page)), &block, completed);
        }
    }
    checked.are_right(100);
}

/// The path below the directory of a fleet of a block that begins with it.
fn of_fleet(block: &str) -> Option<&str> {
    block.lines().next()?.strip_prefix("# fleet/")
}

#[test]
fn fleet_of_the_documentation_can_be_used() {
    let text = fs::read_to_string(root().join("docs/operate/fleet.md")).expect("a page");
    let directory = tempfile::tempdir().expect("a directory");
    let mut count = 0;
    for (_, block) in blocks(&text) {
        let Some(path) = of_fleet(&block) else { continue };
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, &block).expect("written");
        count += 1;
    }
    assert!(count >= 3, "{count}");
    let checked = levada(&["fleet", "check", directory.path().to_str().expect("a path")]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn every_file_of_packages_and_examples_is_a_configuration() {
    let mut checked = Checked::default();
    for file in [
        "packaging/levada.toml",
        "packaging/container/root/etc/levada/levada.toml",
        "packaging/compose/node.toml",
        "packaging/compose/origin.toml",
    ] {
        checked.file(&root().join(file));
    }
    for entry in fs::read_dir(root().join("examples")).expect("the examples") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            checked.file(&path);
        }
    }
    checked.are_right(12);
}

/// The text of a block scalar of YAML: the lines below `key: |` that are further to the right.
pub(crate) fn scalar(yaml: &str, key: &str) -> String {
    let begin = format!("{key}: |");
    let mut lines = yaml.lines().skip_while(|line| line.trim() != begin).peekable();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let outer = indent(lines.next().expect("the key"));
    let inner = lines.take_while(|line| line.trim().is_empty() || indent(line) > outer);
    inner.map(str::trim_start).collect::<Vec<_>>().join("\n")
}

#[test]
fn configuration_of_the_chart_is_one_with_the_values_of_every_example() {
    let chart = root().join("packaging/helm/levada");
    let template = fs::read_to_string(chart.join("templates/configmap.yaml")).expect("a template");
    let values = fs::read_to_string(chart.join("values.yaml")).expect("values");
    let page = fs::read_to_string(root().join("docs/install.md")).expect("a page");
    let in_page = page.split("```yaml").skip(1).filter(|block| block.contains("config: |"));
    let mut checked = Checked::default();
    for yaml in [values.as_str()].into_iter().chain(in_page) {
        let sites = scalar(yaml.split("\n```").next().unwrap_or_default(), "config");
        let of_chart = |line: &str| {
            let value = [
                (".Values.config", sites.as_str()),
                (".Values.peering.slowStart", "\"30s\""),
                (".Values.cache.memory", "\"256MiB\""),
                (".Values.cache.disk.size", "\"9GiB\""),
                ("include \"levada.name\"", "cdn-levada"),
            ];
            let Some((before, rest)) = line.split_once("{{") else { return line.to_owned() };
            let (inner, after) = rest.split_once("}}").expect("the end of an expression");
            let known = value.iter().find(|(name, _)| inner.contains(name));
            known.map_or_else(String::new, |(_, value)| format!("{before}{value}{after}"))
        };
        let text = scalar(&template, "levada.toml");
        let text = text.lines().map(of_chart).collect::<Vec<_>>().join("\n");
        checked.check("the chart", &text, str::to_owned);
    }
    checked.are_right(2);
}

#[test]
fn every_file_of_init_is_a_configuration() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut checked = Checked::default();
    let files = directory.path().to_str().expect("a path");
    for (number, content) in [
        &["--origin", "http://127.0.0.1:9000"][..],
        &["--origin", "https://www.example.com", "--host", "a.test", "--host", "*.b.test"],
        &["--files", files, "--listen", "127.0.0.1:8081"],
    ]
    .into_iter()
    .enumerate()
    {
        let file = directory.path().join(format!("{number}.toml"));
        let output = ["init", "--output", file.to_str().expect("a path")];
        let output = levada(&[&output[..], content].concat());
        assert!(output.status.success(), "{output:?}");
        checked.file(&file);
    }
    checked.are_right(10);
}
