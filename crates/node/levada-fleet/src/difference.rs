//! The difference between the files that nodes use and others: files, and the settings of nodes.

use std::{collections::BTreeMap, fmt};

use levada_config::changes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    check::{CheckError, FleetCheck, StartError, check},
    content,
    directory::Directory,
    model::{Member, StoredFile},
    state::{Followed, State},
    store::StoreError,
};

/// A file that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedFile {
    /// How.
    pub change: FileChange,
    /// Its path in the directory.
    pub path: String,
}

/// How a file differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileChange {
    /// It is new.
    Added,
    /// Its content is another one.
    Changed,
    /// It is gone.
    Removed,
}

/// Settings that change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedSettings {
    /// The change in words, or the reason why a running node cannot take it.
    pub what: String,
    /// The names of the nodes.
    pub nodes: Vec<String>,
}

impl fmt::Display for ChangedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let change = match self.change {
            FileChange::Added => "added",
            FileChange::Changed => "changed",
            FileChange::Removed => "removed",
        };
        write!(f, "{change:<8} {}", self.path)
    }
}

impl fmt::Display for ChangedSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.nodes.join(", "), self.what)
    }
}

/// The files of the head; none before the first revision.
///
/// # Errors
/// If the state does not answer.
pub async fn head_files(state: &State, followed: &Followed) -> Result<Directory, StoreError> {
    let Some(head) = &followed.head else { return Ok(Directory::default()) };
    let manifest = content::manifest(state, head).await?;
    content::fetch(state, &manifest, &Directory::default()).await
}

/// The files that differ.
pub fn changed_files(
    former: &BTreeMap<String, StoredFile>,
    next: &BTreeMap<String, StoredFile>,
) -> Vec<ChangedFile> {
    let file = |change, path: &String| ChangedFile { change, path: path.clone() };
    let gone = former.keys().filter(|path| !next.contains_key(*path));
    let gone = gone.map(|path| file(FileChange::Removed, path));
    let changed = next.iter().filter_map(|(path, content)| match former.get(path) {
        None => Some(file(FileChange::Added, path)),
        Some(other) if other != content => Some(file(FileChange::Changed, path)),
        Some(_) => None,
    });
    changed.chain(gone).collect()
}

/// The settings that differ, each change once.
///
/// # Errors
/// If the former files are none of a fleet, or there is no room to check them.
pub fn changed_settings(
    former: &Directory,
    next: &FleetCheck,
    members: &[Member],
    start_error: StartError<'_>,
) -> Result<Vec<ChangedSettings>, CheckError> {
    if former.files().is_empty() {
        return Ok(Vec::new());
    }
    let before = check(former, members, start_error)?;
    let mut changed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, settings) in &next.settings {
        let Some(before) = before.settings.get(name) else { continue };
        let words = match changes::between(before, settings) {
            Ok(words) if words.is_empty() => continue,
            Ok(words) => words.join(", "),
            Err(why) => why,
        };
        changed.entry(words).or_default().push(name.clone());
    }
    Ok(changed.into_iter().map(|(what, nodes)| ChangedSettings { what, nodes }).collect())
}
