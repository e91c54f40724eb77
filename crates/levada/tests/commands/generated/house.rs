//! The map in ARCHITECTURE.md: the crates of each folder with what they depend on, and the floors that follow
//! from that.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use anyhow::{Context as _, bail};
use toml::Table;

use super::{
    pages::{Page, with_generated},
    root,
};

const PAGE: &str = "ARCHITECTURE.md";
const MARK: &str = "<!-- generated: crates of ";
/// The word for all crates, by floors.
const HOUSE: &str = "the house";

/// A crate as its manifest describes it.
struct Crate {
    /// The folder below `crates`; the program stands in none.
    folder: String,
    description: String,
    /// The crates of ours that it is built of, tests aside.
    needs: BTreeSet<String>,
}

/// The crates by name.
type House = BTreeMap<String, Crate>;

/// The page with its map.
///
/// # Errors
/// When a manifest or the page cannot be read.
pub(super) fn page() -> anyhow::Result<Page> {
    let house = house()?;
    let written = fs::read_to_string(root().join(PAGE)).context(PAGE)?;
    let text = with_generated(&written, MARK, |folder| match folder {
        HOUSE => Ok(floors(&house)),
        _ => rows(&house, folder),
    })?;
    Ok(Page { path: PAGE.to_owned(), text })
}

fn house() -> anyhow::Result<House> {
    let mut house = House::new();
    let crates = root().join("crates");
    for folder in directories(&crates)? {
        if folder.join("Cargo.toml").is_file() {
            add(&mut house, "", &folder)?;
            continue;
        }
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for directory in directories(&folder)? {
            add(&mut house, &name, &directory)?;
        }
    }
    Ok(house)
}

fn directories(of: &Path) -> anyhow::Result<Vec<std::path::PathBuf>> {
    let entries = fs::read_dir(of)?.collect::<Result<Vec<_>, _>>()?;
    Ok(entries.iter().map(fs::DirEntry::path).filter(|path| path.is_dir()).collect())
}

fn add(house: &mut House, folder: &str, directory: &Path) -> anyhow::Result<()> {
    let file = directory.join("Cargo.toml");
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let manifest: Table = text.parse().with_context(|| file.display().to_string())?;
    let package = |key: &str| manifest["package"][key].as_str().unwrap_or_default().to_owned();
    let needs = manifest.get("dependencies").and_then(|table| table.as_table());
    let ours = |name: &&String| name.starts_with("levada-");
    let needs = needs.into_iter().flat_map(|table| table.keys()).filter(ours).cloned().collect();
    let described = Crate { folder: folder.to_owned(), description: package("description"), needs };
    house.insert(package("name"), described);
    Ok(())
}

fn rows(house: &House, folder: &str) -> anyhow::Result<String> {
    let mut text = String::from("\n| crate | contents | depends on |\n|---|---|---|\n");
    let inside: Vec<_> = house.iter().filter(|(_, described)| described.folder == folder).collect();
    if inside.is_empty() {
        bail!("there is no folder `crates/{folder}`");
    }
    for (name, described) in inside {
        let needs: Vec<_> = described.needs.iter().map(|name| short(name)).collect();
        let needs = if needs.is_empty() { "nothing of ours".to_owned() } else { needs.join(", ") };
        let _ = writeln!(text, "| `{name}` | {} | {needs} |", described.description);
    }
    Ok(text + "\n")
}

fn short(name: &str) -> &str {
    name.strip_prefix("levada-").unwrap_or(name)
}

/// The crates from the program down, each below all that need it.
fn floors(house: &House) -> String {
    let mut floors: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for name in house.keys() {
        floors.entry(height(house, name)).or_default().push(short(name));
    }
    let needs: usize = house.values().map(|described| described.needs.len()).sum();
    let (crates, chain) = (house.len(), floors.len());
    let mut text = format!("\n{crates} crates, {needs} dependencies, {chain} floors:\n\n```text\n");
    for (floor, names) in floors.iter().rev() {
        let _ = writeln!(text, "{floor}  {}", names.join("  "));
    }
    text + "```\n\n"
}

/// The number of crates in the longest chain from this one down.
fn height(house: &House, name: &str) -> usize {
    let below = house[name].needs.iter().map(|needed| height(house, needed));
    1 + below.max().unwrap_or(0)
}
