//! The configuration of one node, from the directory of its fleet and the nodes that have joined.
//!
//! The texts of all files are one text, one after the other, and so are the places of their values. A problem that is
//! found in the whole is shown at the line of the file that a person wrote.

use std::{fmt::Write as _, path::Path};

use levada_config::{Settings, Surroundings, check_tree};
use levada_types::document::{Entry, Node, Problem, Severity, Source, Value};

use crate::{
    check::StartError,
    directory::Directory,
    model::{Member, Purger},
};

/// The name of the file with the secret of the cluster, next to the configuration of a node.
pub(crate) const SECRET_FILE: &str = "peering";
/// The name under which problems of the part that no person wrote are shown.
const GENERATED: &str = "(nodes of the fleet)";

/// A node and its surroundings, as variables of the configuration name them.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The node.
    pub node: &'a Member,
    /// Its directory, for what outlives a revision.
    pub directory: &'a str,
    /// The tokens by which it takes purges.
    pub purgers: &'a [Purger],
}

/// The configuration of a node.
#[derive(Debug)]
pub struct Derived {
    /// All texts, one after the other.
    source: String,
    /// The tree, whose spans are places in `source`.
    tree: Node,
    pieces: Vec<Piece>,
    /// The parts that were left out, in words.
    pub notes: Vec<String>,
}

/// A file as a part of the whole text.
#[derive(Debug)]
struct Piece {
    file: String,
    /// Its first line in the whole, from 1.
    line: usize,
}

/// Puts together the configuration of the node at `place`, one of `members`.
///
/// # Errors
/// With the problems that keep the files from being one configuration.
pub fn derive(
    directory: &Directory,
    place: Place<'_>,
    members: &[Member],
) -> Result<Derived, Vec<Misplaced>> {
    let mut parts = Parts::default();
    let text = |file: &str| {
        let text = directory.text(file).map_err(|error| vec![Misplaced::of(file, &error)]);
        text.map(|text| text.unwrap_or_default().to_owned())
    };
    let mut whole = parts.read("node.toml", &text("node.toml")?, &RESERVED);
    if let Some(region) = &place.node.region {
        let file = format!("regions/{region}.toml");
        overlay(&mut whole, parts.read(&file, &text(&file)?, &RESERVED));
    }
    let generated = parts.read(GENERATED, &generated(place, members), &[]);
    overlay(&mut whole, generated);
    let mut sites = Vec::new();
    for file in directory.sites() {
        sites.extend(parts.read_sites(file, &text(file)?));
    }
    let dns = text("dns.toml")?;
    if !dns.is_empty() {
        overlay(&mut whole, parts.read(GENERATED, &fallback(directory, members), &[]));
        overlay(&mut whole, parts.read_only("dns.toml", &dns, "dns"));
    }
    if !parts.wrong.is_empty() {
        return Err(parts.wrong);
    }
    let notes = without_empty_shields(directory, members, &mut sites);
    if let Value::Table(table) = &mut whole.value
        && !sites.is_empty()
    {
        let node = Node { span: sites[0].span.clone(), value: Value::List(sites) };
        table.insert("site".to_owned(), Entry { key: node.span.clone(), node });
    }
    fill_in(&mut whole, place);
    Ok(Derived { source: parts.source, tree: whole, pieces: parts.pieces, notes })
}

/// The keys that the fleet gives each node.
const RESERVED: [&str; 4] = ["name", "peer", "site", "dns"];

/// A problem with the place that a person wrote.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Misplaced {
    /// The file, in the directory of the fleet.
    pub file: String,
    /// Line and column, from 1; `None` for the file as a whole.
    pub at: Option<(usize, usize)>,
    /// The key, the problem, and the remedy in a line of its own.
    pub text: String,
    /// Whether the configuration can be used in spite of it.
    pub is_warning: bool,
}

impl Misplaced {
    fn of(file: &str, error: &dyn std::fmt::Display) -> Self {
        Self { file: file.to_owned(), at: None, text: error.to_string(), is_warning: false }
    }
}

impl std::fmt::Display for Misplaced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.file)?;
        if let Some((line, column)) = self.at {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}: {}", if self.is_warning { "warning" } else { "error" }, self.text)
    }
}

impl Derived {
    /// The configuration as the text of a file.
    ///
    /// # Errors
    /// If a value has no form in TOML, which the check of the tree would have refused.
    pub fn text(&self) -> Result<String, toml::ser::Error> {
        let text = toml::to_string(&to_toml(&self.tree))?;
        Ok(format!(
            "# Written by the fleet: changes here are lost. See docs/operate/fleet.md.\n{text}"
        ))
    }

    /// Checks it as `levada validate` does, with relative paths below `root`: all problems, and the settings if they
    /// can be used.
    pub fn check(
        self,
        root: &Path,
        start_error: StartError<'_>,
    ) -> (Vec<Misplaced>, Option<Settings>) {
        let Self { source, tree, pieces, .. } = self;
        let source = Source { name: "levada.toml".to_owned(), text: source };
        let variable = |name: &str| std::env::var(name).ok();
        let surroundings = Surroundings { directory: root, variable: &variable, start_error };
        let checked = check_tree(&source, tree, &surroundings);
        let problems = checked.report.problems.iter().map(|problem| place(&pieces, problem));
        (problems.collect(), checked.settings)
    }
}

/// A problem of the whole, at the place in the file that a person wrote.
fn place(pieces: &[Piece], problem: &Problem) -> Misplaced {
    let piece = pieces.iter().rfind(|piece| piece.line <= problem.line);
    let (file, line) = match piece {
        Some(piece) => (piece.file.clone(), problem.line - piece.line + 1),
        None => ("node.toml".to_owned(), problem.line),
    };
    let mut text = match problem.key.is_empty() {
        true => problem.message.clone(),
        false => format!("{}: {}", problem.key, problem.message),
    };
    if let Some(help) = &problem.help {
        let _ = write!(text, "\n    help: {help}");
    }
    let is_warning = problem.severity == Severity::Warning;
    Misplaced { file, at: Some((line, problem.column)), text, is_warning }
}

/// The texts that were read, and what is wrong with them.
#[derive(Default)]
struct Parts {
    source: String,
    pieces: Vec<Piece>,
    wrong: Vec<Misplaced>,
}

impl Parts {
    /// Reads a file that must not have some keys. Its places are those in the whole.
    fn read(&mut self, file: &str, text: &str, reserved: &[&str]) -> Node {
        let (offset, line) = (self.source.len(), self.source.lines().count() + 1);
        self.pieces.push(Piece { file: file.to_owned(), line });
        self.source.push_str(text);
        if !text.is_empty() && !text.ends_with('\n') {
            self.source.push('\n');
        }
        let (mut node, errors) = Node::parse(text);
        let own = Source { name: file.to_owned(), text: text.to_owned() };
        for error in errors {
            self.say(file, own.position(error.span.start), error.message);
        }
        if let Value::Table(table) = &node.value {
            for key in reserved.iter().filter(|key| table.contains_key(**key)) {
                let at = own.position(table[*key].key.start);
                let why = match *key {
                    "name" | "peer" => "each node gets it from the fleet: remove it",
                    "site" => "sites of a fleet are in sites/*.toml",
                    _ => "`[dns]` of a fleet is in dns.toml",
                };
                self.say(file, at, format!("{key}: {why}"));
            }
        }
        shift(&mut node, offset);
        node
    }

    /// Reads a file that has nothing but `key`.
    fn read_only(&mut self, file: &str, text: &str, key: &str) -> Node {
        let node = self.read(file, text, &[]);
        if let Value::Table(table) = &node.value {
            let own = Source { name: file.to_owned(), text: self.source.clone() };
            let first = self.pieces.last().map_or(1, |piece| piece.line);
            for (other, entry) in table.iter().filter(|(other, _)| *other != key) {
                let (line, column) = own.position(entry.key.start);
                let why = format!("{other}: only `{key}` has a place here; node.toml has the rest");
                self.say(file, (line + 1 - first, column), why);
            }
        }
        node
    }

    fn read_sites(&mut self, file: &str, text: &str) -> Vec<Node> {
        let node = self.read_only(file, text, "site");
        let Value::Table(mut table) = node.value else { return Vec::new() };
        match table.remove("site").map(|entry| entry.node.value) {
            Some(Value::List(sites)) => sites,
            Some(_) => {
                self.say(file, (1, 1), "site: write it as `[[site]]`".to_owned());
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    fn say(&mut self, file: &str, at: (usize, usize), text: String) {
        self.wrong.push(Misplaced { file: file.to_owned(), at: Some(at), text, is_warning: false });
    }
}

/// The part that no person writes: the node's name, its place in the cluster, and the list of all nodes.
fn generated(place: Place<'_>, members: &[Member]) -> String {
    let node = place.node;
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let mut text = format!(
        "name = {}\n[peering]\nlisten = {}\nsecret_file = {}\n",
        quoted(&node.name),
        quoted(&node.address.to_string()),
        quoted(SECRET_FILE)
    );
    for member in members {
        let _ = write!(
            text,
            "[[peer]]\nname = {}\naddress = {}\n",
            quoted(&member.name),
            quoted(&member.address.to_string())
        );
        if let Some(region) = &member.region {
            let _ = writeln!(text, "region = {}", quoted(region));
        }
        let public: Vec<_> = member.public.iter().map(|ip| quoted(&ip.to_string())).collect();
        let _ = writeln!(text, "public = [{}]", public.join(", "));
    }
    for purger in place.purgers {
        let hosts: Vec<_> = purger.hosts.iter().map(|host| quoted(host)).collect();
        let (digest, hosts) = (quoted(&purger.digest), hosts.join(", "));
        let _ = writeln!(text, "[[purge.grant]]\ndigest = {digest}\nhosts = [{hosts}]");
        if let Some(end) = purger.expires {
            let _ = writeln!(text, "expires = {end}");
        }
    }
    text
}

/// The regions that stand in for others in DNS, as `fleet.toml` has them, as far as they have nodes.
fn fallback(directory: &Directory, members: &[Member]) -> String {
    let regions = directory.fleet().map(|fleet| fleet.region).unwrap_or_default();
    let has_nodes =
        |name: &&String| members.iter().any(|member| member.region.as_ref() == Some(*name));
    let mut text = "[dns.fallback]\n".to_owned();
    for region in regions.iter().filter(|region| has_nodes(&&region.name)) {
        let others: Vec<_> = region.fall_back.iter().filter(has_nodes).cloned().collect();
        let _ = writeln!(text, "{:?} = {}", region.name, toml::Value::from(others));
    }
    text
}

/// Removes `shield` where no node of that region has joined: its sites ask the origin. In words for each region.
fn without_empty_shields(
    directory: &Directory,
    members: &[Member],
    sites: &mut [Node],
) -> Vec<String> {
    let regions = directory.fleet().map(|fleet| fleet.region).unwrap_or_default();
    let is_empty = |name: &str| {
        regions.iter().any(|region| region.name == name)
            && !members.iter().any(|member| member.region.as_deref() == Some(name))
    };
    let mut notes = Vec::new();
    for site in sites {
        let Value::Table(table) = &mut site.value else { continue };
        let shield = match table.get("shield").map(|entry| &entry.node.value) {
            Some(Value::Table(shield)) => shield.get("region").map(|entry| &entry.node.value),
            shield => shield,
        };
        let Some(Value::Text(shield)) = shield else { continue };
        if is_empty(shield) {
            let note = format!(
                "region {shield} has no nodes: sites with `shield = {shield:?}` ask their origins directly"
            );
            if !notes.contains(&note) {
                notes.push(note);
            }
            table.remove("shield");
        }
    }
    notes
}

/// Puts `top` on `base`: tables are merged key by key, any other value of `top` replaces that of `base`.
fn overlay(base: &mut Node, top: Node) {
    let (Value::Table(below), Value::Table(above)) = (&mut base.value, top.value) else { return };
    for (key, entry) in above {
        match below.get_mut(&key) {
            Some(present)
                if matches!(
                    (&present.node.value, &entry.node.value),
                    (Value::Table(_), Value::Table(_))
                ) =>
            {
                overlay(&mut present.node, entry.node);
            }
            _ => drop(below.insert(key, entry)),
        }
    }
}

/// Fills in the variables that say which node this is. All others are for the environment of the node.
fn fill_in(node: &mut Node, place: Place<'_>) {
    match &mut node.value {
        Value::Text(text) if text.contains("${FLEET_") => {
            let Place { node, directory, .. } = place;
            *text = text
                .replace("${FLEET_NODE}", &node.name)
                .replace("${FLEET_REGION}", node.region.as_deref().unwrap_or_default())
                .replace("${FLEET_IP}", &ip(node))
                .replace("${FLEET_DIRECTORY}", directory);
        }
        Value::List(list) => list.iter_mut().for_each(|one| fill_in(one, place)),
        Value::Table(table) => {
            table.values_mut().for_each(|entry| fill_in(&mut entry.node, place));
        }
        _ => {}
    }
}

/// The address of a node as it stands before a port.
fn ip(member: &Member) -> String {
    match member.address.ip() {
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        std::net::IpAddr::V4(ip) => ip.to_string(),
    }
}

fn shift(node: &mut Node, by: usize) {
    node.span = node.span.start + by..node.span.end + by;
    match &mut node.value {
        Value::List(list) => list.iter_mut().for_each(|one| shift(one, by)),
        Value::Table(table) => table.values_mut().for_each(|entry| {
            entry.key = entry.key.start + by..entry.key.end + by;
            shift(&mut entry.node, by);
        }),
        _ => {}
    }
}

fn to_toml(node: &Node) -> toml::Value {
    match &node.value {
        Value::Text(text) => text.clone().into(),
        Value::Integer(number) => (*number).into(),
        Value::Number(number) => (*number).into(),
        Value::Switch(on) => (*on).into(),
        Value::List(list) => toml::Value::Array(list.iter().map(to_toml).collect()),
        Value::Table(table) => {
            let entries = table.iter().map(|(key, entry)| (key.clone(), to_toml(&entry.node)));
            toml::Value::Table(entries.collect())
        }
        // The check has refused both.
        Value::Foreign(kind) => (*kind).into(),
        Value::Reported => String::new().into(),
    }
}
