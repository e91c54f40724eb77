//! The scenario files that come with Levada, so that they can be run by name.

/// A scenario file of examples/sim.
pub(super) struct Example {
    /// The file's name without its extension.
    pub(super) name: &'static str,
    /// Its path in the source.
    pub(super) path: &'static str,
    pub(super) text: &'static str,
}

/// Names each file once.
macro_rules! examples {
    ($($name:literal),* $(,)?) => {
        &[$(Example {
            name: $name,
            path: concat!("examples/sim/", $name, ".toml"),
            text: include_str!(concat!("../../../../../examples/sim/", $name, ".toml")),
        }),*]
    };
}

/// All scenario files.
pub(super) const SCENARIOS: &[Example] = examples![
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
];

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn every_file_is_listed() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sim");
        let mut files: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        let mut listed: Vec<_> = SCENARIOS.iter().map(|example| example.name).collect();
        files.sort();
        listed.sort_unstable();
        assert_eq!(files, listed);
    }
}
