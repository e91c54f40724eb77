//! The scenario files that come with Levada, so that they can be run by name.

use std::{io, path::Path};

use levada_types::document::{Source, read_source};

/// A scenario file of examples/sim or of its directory for `levada sim matrix`.
pub struct Example {
    /// The file's name without its extension.
    pub name: &'static str,
    /// Its path in the source.
    pub path: &'static str,
    /// The file.
    pub text: &'static str,
}

/// Names each file of a directory once.
macro_rules! examples {
    ($directory:literal: $($name:literal),* $(,)?) => {
        &[$(Example {
            name: $name,
            path: concat!("examples/sim/", $directory, $name, ".toml"),
            // By a link in the crate, so that its package has the files.
            text: include_str!(concat!("../../scenarios/", $directory, $name, ".toml")),
        }),*]
    };
}

/// All scenario files.
pub const SCENARIOS: &[Example] = examples!["":
    "osdi02",
    "osdi02-flash",
    "osdi02-one-url",
    "osdi02-proximity",
    "osdi02-slow-links",
    "osdi02-large-files",
    "osdi02-128-servers",
    "lard",
    "cap-publishing",
    "cap-transaction",
    "cap-commerce",
    "own-log",
    "regions",
];

/// The scenarios of `levada sim matrix`: those of its directory, and the one for a site of one's own.
pub fn matrix() -> impl Iterator<Item = &'static Example> {
    MATRIX.iter().chain(SCENARIOS.iter().filter(|example| example.name == "own-log"))
}

const MATRIX: &[Example] = examples!["matrix/":
    "osdi02-8",
    "flash-8",
    "osdi02-16",
    "flash-16",
    "osdi02-64",
    "flash-64",
    "osdi02-128",
    "flash-128",
    "one-url-10",
    "one-url-25",
    "one-url-50",
    "one-url-80",
    "one-url-50-small",
    "slow-links-10",
    "slow-links-30",
    "slow-links-30-small",
    "lard-rice-4-1",
    "lard-rice-4-4",
    "lard-rice-8-1",
    "lard-rice-8-4",
    "lard-rice-16-1",
    "lard-rice-16-4",
    "lard-ibm-4-1",
    "lard-ibm-4-4",
    "lard-ibm-8-1",
    "lard-ibm-8-1-cold",
    "lard-ibm-8-4",
    "lard-ibm-16-1",
    "lard-ibm-16-4",
    "antagonists-8",
    "cdn-8",
    "in-memory-8",
    "slow-server-8",
    "origin-8",
    "admission-8",
    "cold-8",
    "cold-16",
    "onset-8",
    "drift-8",
    "commerce-16",
];

/// The scenario file at `path`, or the listed one of this name.
///
/// # Errors
/// When there is no such file, and no such name.
pub fn read(path: &Path) -> Result<Source, Unreadable> {
    let named = SCENARIOS.iter().find(|example| Path::new(example.name) == path);
    match named.filter(|_| !path.exists()) {
        Some(example) => {
            Ok(Source { name: example.path.to_owned(), text: example.text.to_owned() })
        }
        None => read_source(path)
            .map_err(|error| Unreadable { path: path.display().to_string(), error }),
    }
}

/// A scenario file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}; `levada sim list scenarios` has names")]
pub struct Unreadable {
    path: String,
    #[source]
    error: io::Error,
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_file_is_listed() {
        for (directory, listed) in [("examples/sim", SCENARIOS), ("examples/sim/matrix", MATRIX)] {
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(directory);
            let mut files: Vec<String> = fs::read_dir(directory)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
                .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
                .collect();
            let mut listed: Vec<_> = listed.iter().map(|example| example.name).collect();
            files.sort();
            listed.sort_unstable();
            assert_eq!(files, listed);
        }
    }
}
