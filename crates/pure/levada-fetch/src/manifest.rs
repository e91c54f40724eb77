//! The entries of a tree, as a text that can be published next to it (Cosync, WORLDS'04, Sec. 4).
//!
//! ```text
//! levada-manifest 2
//! root tree/
//! pack 10240 65536 tree.pack?v=1a2b3c4d5e6f7081
//! with hard-links owner
//! dir 755 bin time=1700000000.000000000 user=0/root
//! file 5 755 1700000000.000000000 sha-256=<hex> bin/hello user=0/root
//! hard bin/hey bin/hello
//! link bin/hi hello time=1700000000.000000000 user=0/root
//! end 4 sha-256=<hex>
//! ```
//!
//! Paths are percent-encoded, so that they have no spaces and can be put into URLs as they are; they are
//! relative, sorted and different. The last line counts entries and has the digest of everything before
//! it: a manifest that was cut or edited is refused as a whole. `root` and the other URLs are
//! relative to the manifest's own URL. `with` names the facts that the publisher has recorded by option ([`Extras`]).
//!
//! Version 1 has neither `with` and `hard` nor fields after the path. A line or a field that is not known
//! makes a manifest unusable: a later version may give it any meaning.
//!
//! A manifest comes from the network, and a tree is written as it says. So everything that could lead out of
//! the tree is refused here: `..`, absolute paths, links that leave, and entries below anything but a
//! directory.

mod aids;
mod metadata;
mod path;

use std::{borrow::Cow, collections::BTreeMap, fmt::Write as _};

pub use aids::{ChunkFile, Content, Pack};
pub use metadata::{Account, AclEntry, AclParty, Extras, Metadata, Time, XATTR_PREFIX};
pub use path::{RESERVED, decoded, encoded};

use crate::{Algorithm, Digest};
use metadata::{time, unknown, written_time};
use path::{check_path, check_target};

/// A tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Where the files are, relative to the manifest.
    pub root: String,
    /// One file with the content of all small files.
    pub pack: Option<Pack>,
    /// The chunk lists of the other files.
    pub chunks: Option<ChunkFile>,
    /// The facts that the publisher has recorded.
    pub extras: Extras,
    /// The entries of the tree, by path: bytes, not encoded, separated by `/`.
    pub entries: BTreeMap<Vec<u8>, Entry>,
    /// The paths that are other names of a file, and the first name of that file. Each is in `entries`
    /// as well.
    hard_links: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The entry at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A directory with these permissions.
    Directory {
        /// The lower nine bits.
        mode: u32,
        /// Its other facts.
        metadata: Metadata,
    },
    /// A file.
    File {
        /// Its length.
        size: u64,
        /// The lower nine bits of its permissions.
        mode: u32,
        /// The time of its last change.
        modified: Time,
        /// The digest of its bytes.
        digest: Digest,
        /// Its other facts.
        metadata: Metadata,
    },
    /// A symbolic link to this target, within the tree.
    Link {
        /// As the link has it.
        target: Vec<u8>,
        /// Its other facts.
        metadata: Metadata,
    },
}

/// Why a text is no manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// It is something else.
    #[error("this is no manifest: it does not begin with `{HEAD} 1` or `{HEAD} 2`")]
    Foreign,
    /// It is of a later version.
    #[error("the manifest has version {0}: a newer levada is needed to read it")]
    Version(String),
    /// Its last line is missing.
    #[error("the manifest is cut off: its last line is missing")]
    Cut,
    /// The last line does not fit the others.
    #[error("the manifest was edited or damaged: its digest is another")]
    Damaged,
    /// A line is wrong.
    #[error("line {line} of the manifest: {why}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The reason.
        why: Cow<'static, str>,
    },
}

impl Manifest {
    /// A manifest without entries.
    pub fn new(root: String, extras: Extras) -> Self {
        Self { root, extras, ..Self::default() }
    }

    /// Reads a manifest; `sha256` computes that digest, which must be a SHA-256.
    ///
    /// # Errors
    /// With the first thing that is wrong. Nothing of such a manifest is to be used.
    pub fn parse(text: &str, sha256: impl FnOnce(&[u8]) -> Digest) -> Result<Self, ManifestError> {
        let version =
            text.lines().next().and_then(|line| line.strip_prefix(HEAD)?.strip_prefix(' '));
        match version.ok_or(ManifestError::Foreign)? {
            "1" | "2" => {}
            other if other.parse::<u32>().is_ok() => {
                return Err(ManifestError::Version(other.to_owned()));
            }
            _ => return Err(ManifestError::Foreign),
        }
        let body = text.strip_suffix('\n').ok_or(ManifestError::Cut)?;
        let (before, last) = body.rsplit_once('\n').ok_or(ManifestError::Cut)?;
        let end = last.strip_prefix("end ").and_then(|end| end.split_once(' '));
        let (count, digest) = end.ok_or(ManifestError::Cut)?;
        let covered = &text[..=before.len()];
        let told = Digest::parse(digest).filter(|d| d.algorithm() == Algorithm::Sha256);
        if told != Some(sha256(covered.as_bytes())) {
            return Err(ManifestError::Damaged);
        }
        let mut manifest = Self::default();
        for (number, line) in before.lines().enumerate().skip(1) {
            let wrong = |why| ManifestError::Line { line: number + 1, why };
            manifest.read(line).map_err(wrong)?;
        }
        if count.parse() != Ok(manifest.entries.len()) {
            return Err(ManifestError::Damaged);
        }
        Ok(manifest)
    }

    fn read(&mut self, line: &str) -> Result<(), Cow<'static, str>> {
        let (kind, rest) = line.split_once(' ').ok_or("it has one word only")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        match (kind, fields.as_slice()) {
            ("root", [reference]) if self.entries.is_empty() => {
                self.root = (*reference).to_owned();
            }
            // Version 1 could have a tar file of all files.
            ("tar", [_size, _digest, _reference]) if self.entries.is_empty() => {}
            ("pack", [size, limit, reference]) if self.entries.is_empty() => {
                self.pack = Some(Pack::parse(size, limit, reference)?);
            }
            ("chunks", [size, digest, limit, reference]) if self.entries.is_empty() => {
                self.chunks = Some(ChunkFile::parse(size, digest, limit, reference)?);
            }
            ("with", names) if self.entries.is_empty() => self.extras = Extras::parse(names)?,
            ("dir", [mode, path, more @ ..]) => {
                let metadata = Metadata::parse(more)?;
                self.insert(
                    decoded_path(path)?,
                    Entry::Directory { mode: octal(mode)?, metadata },
                )?;
            }
            ("file", [size, mode, modified, digest, path, more @ ..]) => {
                let size = size.parse().map_err(|_| "the size is no number")?;
                let digest = Digest::parse(digest).ok_or("the digest cannot be read")?;
                let (mode, modified) = (octal(mode)?, time(modified)?);
                let metadata = Metadata::parse(more)?;
                let file = Entry::File { size, mode, modified, digest, metadata };
                self.insert(decoded_path(path)?, file)?;
            }
            ("hard", [path, first]) => {
                self.insert_name(decoded_path(path)?, &decoded_path(first)?)?
            }
            ("link", [path, target, more @ ..]) => {
                let target = decoded(target).ok_or("the target is not encoded as it should be")?;
                let metadata = Metadata::parse(more)?;
                self.insert(decoded_path(path)?, Entry::Link { target, metadata })?;
            }
            ("root" | "tar" | "pack" | "chunks" | "with" | "dir" | "file" | "hard" | "link", _) => {
                return Err(format!("`{kind}` has not its fields or not its place").into());
            }
            _ => return Err(unknown(kind)),
        }
        Ok(())
    }

    /// Adds an entry behind all others.
    ///
    /// # Errors
    /// When the path, or where a link leads, has no place in a tree.
    pub fn insert(&mut self, path: Vec<u8>, entry: Entry) -> Result<(), &'static str> {
        check_path(&path)?;
        if let Entry::Link { target, .. } = &entry {
            check_target(&path, target)?;
        }
        if self.entries.last_key_value().is_some_and(|(last, _)| *last >= path) {
            return Err("the paths are not sorted, or one is there twice");
        }
        // Directories sort before what is in them, so that a parent is here already.
        if let Some(slash) = path.iter().rposition(|&byte| byte == b'/')
            && !matches!(self.entries.get(&path[..slash]), Some(Entry::Directory { .. }))
        {
            return Err("it is not below a directory of the manifest");
        }
        self.entries.insert(path, entry);
        Ok(())
    }

    /// Adds another name of the file `first` behind all entries.
    ///
    /// # Errors
    /// When `first` is not the first name of a file, or the path has no place in a tree.
    pub fn insert_name(&mut self, path: Vec<u8>, first: &[u8]) -> Result<(), &'static str> {
        let file = self.entries.get(first).filter(|entry| matches!(entry, Entry::File { .. }));
        let file = file.filter(|_| !self.hard_links.contains_key(first));
        let file = file.ok_or("it is no other name of a file before it")?.clone();
        self.insert(path.clone(), file)?;
        self.hard_links.insert(path, first.to_vec());
        Ok(())
    }

    /// The first name of the file at `path`, if that is another one.
    pub fn first_name(&self, path: &[u8]) -> Option<&[u8]> {
        self.hard_links.get(path).map(Vec::as_slice)
    }

    /// Writes it.
    pub fn write(&self, sha256: impl FnOnce(&[u8]) -> Digest) -> String {
        let mut text = format!("{HEAD} 2\nroot {}\n", self.root);
        // Writing to a string cannot fail.
        if let Some(pack) = &self.pack {
            let _ = writeln!(text, "{pack}");
        }
        if let Some(chunks) = &self.chunks {
            let _ = writeln!(text, "{chunks}");
        }
        let extras = self.extras.names();
        if !extras.is_empty() {
            let _ = writeln!(text, "with {}", extras.join(" "));
        }
        for (key, entry) in &self.entries {
            let path = encoded(key);
            let _ = match entry {
                Entry::Directory { mode, metadata } => {
                    writeln!(text, "dir {mode:o} {path}{metadata}")
                }
                Entry::File { size, mode, modified, digest, metadata } => {
                    match self.first_name(key) {
                        Some(first) => writeln!(text, "hard {path} {}", encoded(first)),
                        None => writeln!(
                            text,
                            "file {size} {mode:o} {} {digest} {path}{metadata}",
                            written_time(*modified)
                        ),
                    }
                }
                Entry::Link { target, metadata } => {
                    writeln!(text, "link {path} {}{metadata}", encoded(target))
                }
            };
        }
        let digest = sha256(text.as_bytes());
        let _ = writeln!(text, "end {} {digest}", self.entries.len());
        text
    }

    /// Two paths that are one where letters' case does not count.
    pub fn same_but_for_case(&self) -> Option<(&[u8], &[u8])> {
        let mut seen: BTreeMap<String, &[u8]> = BTreeMap::new();
        for path in self.entries.keys() {
            let folded = String::from_utf8_lossy(path).to_lowercase();
            if let Some(other) = seen.insert(folded, path) {
                return Some((other, path));
            }
        }
        None
    }
}

fn decoded_path(path: &str) -> Result<Vec<u8>, &'static str> {
    decoded(path).ok_or("the path is not encoded as it should be")
}

fn octal(text: &str) -> Result<u32, &'static str> {
    let mode = u32::from_str_radix(text, 8).map_err(|_| "the mode is no octal number")?;
    // No file becomes set-user-ID because a manifest says so.
    if mode > 0o777 { Err("the mode has more than permissions") } else { Ok(mode) }
}

const HEAD: &str = "levada-manifest";

#[cfg(test)]
mod tests;
