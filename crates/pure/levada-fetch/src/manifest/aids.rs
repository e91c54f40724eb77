//! Files next to a manifest that spare requests and bytes: the pack, and the chunk lists.
//!
//! ```text
//! pack 1048576 65536 tree.pack?v=0f1e2d3c4b5a6978
//! chunks 20480 sha-256=<hex> 65536 tree.chunks?v=...
//! ```
//!
//! The pack has the content of every file of 1 to 65536 bytes, each content once, in the order of paths,
//! and nothing else: so the places of files in it follow from the entries. `chunks` names the
//! [`ChunkLists`](crate::ChunkLists) of the contents that are longer. A destination works without either.

use std::{collections::BTreeSet, fmt, ops::Range};

use super::{Entry, Manifest};
use crate::Digest;

/// One file with the content of all small files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pack {
    /// Its length.
    pub size: u64,
    /// The longest files in it.
    pub limit: u64,
    /// Its URL, relative to the manifest.
    pub reference: String,
}

/// The file with the chunk lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkFile {
    /// Its length.
    pub size: u64,
    /// Its digest.
    pub digest: Digest,
    /// Files up to this length have no list.
    pub limit: u64,
    /// Its URL, relative to the manifest.
    pub reference: String,
}

/// A content of the tree, at the first of its paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content<'a> {
    /// The path.
    pub path: &'a [u8],
    /// The digest.
    pub digest: Digest,
    /// The length.
    pub size: u64,
}

impl Manifest {
    /// The contents with a length in `sizes`, each once, in the order of paths.
    pub fn contents(&self, sizes: Range<u64>) -> Vec<Content<'_>> {
        let mut seen = BTreeSet::new();
        let contents = self.entries.iter().filter_map(|(path, entry)| match entry {
            Entry::File { size, digest, .. } if sizes.contains(size) => {
                Some(Content { path, digest: *digest, size: *size })
            }
            _ => None,
        });
        contents.filter(|content| seen.insert((content.digest, content.size))).collect()
    }
}

impl Pack {
    /// The lengths of files in it.
    pub fn sizes(&self) -> Range<u64> {
        1..self.limit + 1
    }

    pub(super) fn parse(size: &str, limit: &str, reference: &str) -> Result<Self, &'static str> {
        let limit = number(limit)?;
        if limit > LARGEST_LIMIT {
            return Err("the files of the pack are too long");
        }
        Ok(Self { size: number(size)?, limit, reference: reference.to_owned() })
    }
}

impl ChunkFile {
    /// The lengths of files with a list.
    pub fn sizes(&self) -> Range<u64> {
        self.limit + 1..u64::MAX
    }

    pub(super) fn parse(
        size: &str,
        digest: &str,
        limit: &str,
        reference: &str,
    ) -> Result<Self, &'static str> {
        let limit = number(limit)?;
        if limit > LARGEST_LIMIT {
            return Err("the limit of the chunk lists is too large");
        }
        let digest = Digest::parse(digest).ok_or("the digest cannot be read")?;
        Ok(Self { size: number(size)?, digest, limit, reference: reference.to_owned() })
    }
}

fn number(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "the size is no number")
}

impl fmt::Display for Pack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pack {} {} {}", self.size, self.limit, self.reference)
    }
}

impl fmt::Display for ChunkFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunks {} {} {} {}", self.size, self.digest, self.limit, self.reference)
    }
}

/// A destination has files of a pack in memory while they arrive.
const LARGEST_LIMIT: u64 = 16 << 20;
