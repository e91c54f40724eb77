//! The directory of a fleet: files under version control, from which the configuration of every node is made.
//!
//! ```text
//! fleet.toml        [fleet] name; [[region]] name, fall_back
//! node.toml         what every node has
//! regions/eu.toml   what the nodes of a region have on top of it
//! sites/*.toml      [[site]] tables
//! dns.toml          [dns]
//! files/...         files that the configuration names
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use levada_types::document::did_you_mean;
use serde::Deserialize;

/// The files of a fleet by their paths, which have `/` between their parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    files: BTreeMap<String, Vec<u8>>,
}

/// `fleet.toml`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct FleetFile {
    /// The fleet.
    pub fleet: FleetTable,
    /// Its regions.
    #[serde(default)]
    pub region: Vec<Region>,
}

/// The fleet itself.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct FleetTable {
    /// Its name.
    pub name: String,
}

/// A region.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// Its name.
    pub name: String,
    /// The regions that serve its clients when none of its nodes can, the first that can.
    #[serde(default)]
    pub fall_back: Vec<String>,
}

/// Why a directory is none of a fleet.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It cannot be read.
    #[error("{}: {why}", .path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// It is larger than a state can carry.
    #[error("{} has more than {} MiB: files that nodes fetch do not belong into the configuration", .0.display(), LARGEST >> 20)]
    Large(PathBuf),
    /// A file is wrong.
    #[error("{file}: {why}")]
    Wrong {
        /// The path in the directory.
        file: String,
        /// The fault, and the remedy.
        why: String,
    },
}

/// The most bytes of a directory.
pub(crate) const LARGEST: usize = 64 << 20;

impl Directory {
    /// Reads a directory. Names that begin with a dot, and files of other kinds than those of a fleet at its top, such
    /// as a README, are left out.
    ///
    /// # Errors
    /// If something cannot be read, or has no place in a fleet.
    pub fn read(root: &Path) -> Result<Self, DirectoryError> {
        let mut directory = Self::default();
        directory.add(root, "")?;
        let size: usize = directory.files.values().map(Vec::len).sum();
        if size > LARGEST {
            return Err(DirectoryError::Large(root.to_owned()));
        }
        directory.fleet()?;
        Ok(directory)
    }

    /// The directory with these files.
    pub fn of(files: BTreeMap<String, Vec<u8>>) -> Self {
        Self { files }
    }

    /// All files, by their paths.
    pub fn files(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.files
    }

    fn add(&mut self, root: &Path, below: &str) -> Result<(), DirectoryError> {
        let path = root.join(below);
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |why| DirectoryError::Unreadable { path, why }
        };
        for entry in fs::read_dir(&path).map_err(unreadable(&path))? {
            let entry = entry.map_err(unreadable(&path))?.path();
            let Some(name) = entry.file_name().and_then(|name| name.to_str()) else { continue };
            if is_hidden(name) {
                continue;
            }
            let inner = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
            if entry.is_dir() {
                self.add(root, &inner)?;
            } else if has_place(&inner)? {
                self.files.insert(inner, fs::read(&entry).map_err(unreadable(&entry))?);
            }
        }
        Ok(())
    }

    /// The text of a file.
    ///
    /// # Errors
    /// If it is not UTF-8.
    pub fn text(&self, file: &str) -> Result<Option<&str>, DirectoryError> {
        let wrong = |_| DirectoryError::Wrong {
            file: file.to_owned(),
            why: "is not UTF-8: write it again as text".to_owned(),
        };
        self.files.get(file).map(|bytes| std::str::from_utf8(bytes).map_err(wrong)).transpose()
    }

    /// The paths of the files with sites, in their order.
    pub fn sites(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str).filter(|path| path.starts_with("sites/"))
    }

    /// `fleet.toml`.
    ///
    /// # Errors
    /// If it is absent or wrong, or does not fit the other files.
    pub fn fleet(&self) -> Result<FleetFile, DirectoryError> {
        let file = "fleet.toml";
        let wrong = |why: String| DirectoryError::Wrong { file: file.to_owned(), why };
        let text = self.text(file)?.ok_or_else(|| {
            wrong(
                "is missing: it has `[fleet]` with `name`, and a `[[region]]` for each".to_owned(),
            )
        })?;
        let fleet: FleetFile =
            toml::from_str(text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
        self.regions_fit(&fleet).map_err(wrong)?;
        Ok(fleet)
    }

    fn regions_fit(&self, fleet: &FleetFile) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for region in &fleet.region {
            if !names.insert(region.name.as_str()) {
                return Err(format!("two regions have the name {:?}: remove one", region.name));
            }
        }
        let unknown = |name: &str| {
            let help = did_you_mean(name, names.iter().copied());
            help.map_or_else(String::new, |help| format!("; {help}"))
        };
        for Region { name, fall_back } in &fleet.region {
            if let Some(other) = fall_back.iter().find(|other| !names.contains(other.as_str())) {
                let help = unknown(other);
                return Err(format!(
                    "region {name:?} falls back to {other:?}, which is none{help}"
                ));
            }
        }
        for path in self.files.keys().filter(|path| path.starts_with("regions/")) {
            let name = path.trim_start_matches("regions/").trim_end_matches(".toml");
            if !names.contains(name) {
                let help = unknown(name);
                return Err(format!("has no region {name:?}, and there is {path}{help}"));
            }
        }
        Ok(())
    }
}

/// Whether a name is left out of a directory.
pub(crate) fn is_hidden(name: &str) -> bool {
    name.starts_with('.')
}

/// Whether a file belongs to a fleet. A configuration file that nothing would read is an error.
pub(crate) fn has_place(path: &str) -> Result<bool, DirectoryError> {
    let is_toml = path.ends_with(".toml");
    let known = match path.split_once('/') {
        None => ["fleet.toml", "node.toml", "dns.toml"].contains(&path),
        Some(("files", _)) => true,
        Some(("sites" | "regions", name)) => is_toml && !name.contains('/'),
        Some(_) => false,
    };
    if is_toml && !known {
        let why = "nothing reads it: a fleet has fleet.toml, node.toml, dns.toml, regions/NAME.toml, sites/*.toml, \
                   and other files in files/";
        return Err(DirectoryError::Wrong { file: path.to_owned(), why: why.to_owned() });
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(files: &[(&str, &str)]) -> Result<FleetFile, String> {
        let files = files.iter().map(|(path, text)| (path.to_string(), text.as_bytes().to_vec()));
        Directory::of(files.collect()).fleet().map_err(|error| error.to_string())
    }

    #[test]
    fn regions_have_one_name_each_and_fall_back_to_others() {
        let good = "fleet.name = \"a\"\n[[region]]\nname = \"eu\"\nfall_back = [\"us\"]\n[[region]]\nname = \"us\"\n";
        assert_eq!(fleet(&[("fleet.toml", good)]).unwrap().region[0].fall_back, ["us"]);
        let twice = "fleet.name = \"a\"\n[[region]]\nname = \"eu\"\n[[region]]\nname = \"eu\"\n";
        let error = fleet(&[("fleet.toml", twice)]).unwrap_err();
        assert_eq!(error, "fleet.toml: two regions have the name \"eu\": remove one");
        let unknown = good.replace("[\"us\"]", "[\"uss\"]");
        let error = fleet(&[("fleet.toml", &unknown)]).unwrap_err();
        assert!(error.contains("region \"eu\" falls back to \"uss\", which is none"), "{error}");
        let error = fleet(&[("fleet.toml", good), ("regions/ap.toml", "")]).unwrap_err();
        assert!(error.contains("has no region \"ap\", and there is regions/ap.toml"), "{error}");
        let error =
            fleet(&[("fleet.toml", "[fleet]\nname = \"a\"\nshield = \"eu\"\n")]).unwrap_err();
        assert!(error.contains("unknown field `shield`"), "{error}");
    }

    #[test]
    fn configuration_that_nothing_would_read_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("fleet.toml", "[fleet]\nname = \"a\"\n");
        write("README.md", "the fleet");
        write(".git/config", "");
        write("files/pages/404.html", "gone");
        let read = || Directory::read(directory.path());
        let files: Vec<_> = read().unwrap().files().keys().cloned().collect();
        assert_eq!(files, ["files/pages/404.html", "fleet.toml"]);
        write("site/www.toml", "");
        let error = read().unwrap_err().to_string();
        assert!(error.starts_with("site/www.toml: nothing reads it"), "{error}");
    }
}
