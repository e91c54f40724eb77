//! Checks the configuration of every node, as `levada validate` does, before anything is written.

use std::{collections::BTreeMap, fs, io, path::Path};

use levada_config::Settings;
use serde::Serialize;

use crate::{
    derive::{Misplaced, Place, SECRET_FILE, derive},
    directory::{Directory, DirectoryError},
    enrol::new_member,
    model::Member,
};

/// The reason why a node could not start by settings, if it could not.
pub type StartError<'a> = &'a (dyn Fn(&Settings) -> Option<String> + Sync);

/// A problem, and the nodes that have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FleetProblem {
    /// Place and words, as `levada validate` prints them.
    pub problem: String,
    /// The file of the directory.
    pub file: String,
    /// Its line, from 1; `None` for the file as a whole.
    pub line: Option<usize>,
    /// Its column, from 1.
    pub column: Option<usize>,
    /// Whether the configuration can be used in spite of it.
    pub is_warning: bool,
    /// The names of the nodes.
    pub nodes: Vec<String>,
}

/// The findings of the check of a fleet.
#[derive(Debug, Default)]
pub struct FleetCheck {
    /// All problems, each once.
    pub problems: Vec<FleetProblem>,
    /// The parts that are left out on purpose, in words.
    pub notes: Vec<String>,
    /// The settings of the nodes that have no error.
    pub settings: BTreeMap<String, Settings>,
}

/// Why a fleet could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The directory is none of a fleet.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// There is no room to write the files for the check.
    #[error("the files cannot be written for the check: {0}")]
    Stage(#[from] io::Error),
}

impl FleetCheck {
    /// Whether every node can use its configuration.
    pub fn is_usable(&self) -> bool {
        self.problems.iter().all(|problem| problem.is_warning)
    }
}

/// Checks the configuration of each member. Without members, a node is assumed in each region.
///
/// # Errors
/// If the directory is none of a fleet, or its files cannot be written to a place for the check.
pub fn check(
    directory: &Directory,
    members: &[Member],
    start_error: StartError<'_>,
) -> Result<FleetCheck, CheckError> {
    let fleet = directory.fleet()?;
    let assumed = assumed(&fleet);
    let members = if members.is_empty() { &assumed[..] } else { members };
    let regions: Vec<_> = fleet.region.iter().map(|region| region.name.as_str()).collect();
    let (stage, mut check) = (tempfile::tempdir()?, FleetCheck::default());
    write_files(directory.files(), stage.path())?;
    fs::write(stage.path().join(SECRET_FILE), "a secret that stands for the real one")?;
    let mut found: BTreeMap<Misplaced, Vec<String>> = BTreeMap::new();
    for node in members {
        let mut say = |problem| found.entry(problem).or_default().push(node.name.clone());
        if let Some(problem) = region_is_unknown(node, &regions) {
            say(problem);
            continue;
        }
        let at = stage.path().to_string_lossy();
        match derive(directory, Place { node, directory: &at, purgers: &[] }, members) {
            Err(wrong) => wrong.into_iter().for_each(&mut say),
            Ok(mut derived) => {
                let notes = std::mem::take(&mut derived.notes);
                check.notes.extend(notes);
                let (problems, settings) = derived.check(stage.path(), start_error);
                problems.into_iter().for_each(&mut say);
                check.settings.extend(settings.map(|settings| (node.name.clone(), settings)));
            }
        }
    }
    let said = |(problem, nodes): (Misplaced, _)| FleetProblem {
        problem: problem.to_string(),
        line: problem.at.map(|(line, _)| line),
        column: problem.at.map(|(_, column)| column),
        file: problem.file,
        is_warning: problem.is_warning,
        nodes,
    };
    check.problems = found.into_iter().map(said).collect();
    for region in regions
        .iter()
        .filter(|name| !members.iter().any(|member| member.region.as_deref() == Some(**name)))
    {
        check.notes.push(format!("region {region} has no nodes"));
    }
    check.notes.sort();
    check.notes.dedup();
    Ok(check)
}

/// Writes files below `root`.
///
/// # Errors
/// If one cannot be written.
pub(crate) fn write_files(files: &BTreeMap<String, Vec<u8>>, root: &Path) -> io::Result<()> {
    for (path, content) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap_or(root))?;
        fs::write(path, content)?;
    }
    Ok(())
}

fn region_is_unknown(node: &Member, regions: &[&str]) -> Option<Misplaced> {
    let text = match &node.region {
        Some(region) if !regions.contains(&region.as_str()) => {
            format!(
                "node {} is of region {region:?}, which is none: add it as `[[region]]`",
                node.name
            )
        }
        None if !regions.is_empty() => {
            format!("node {} has no region: remove it, and join it with --region", node.name)
        }
        _ => return None,
    };
    Some(Misplaced { file: "fleet.toml".to_owned(), at: None, text, is_warning: false })
}

/// A node of each region, for a fleet that no node has joined yet.
fn assumed(fleet: &crate::directory::FleetFile) -> Vec<Member> {
    let node = |number: usize, region: Option<&str>| {
        let name = region.map_or_else(|| "node-1".to_owned(), |region| format!("{region}-1"));
        new_member(&name, region, ([127, 0, 0, number as u8], 7070).into(), &[])
    };
    match fleet.region.is_empty() {
        true => vec![node(1, None)],
        false => {
            (1..).zip(&fleet.region).map(|(number, one)| node(number, Some(&one.name))).collect()
        }
    }
}
