//! The settings of a directory that is served.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use crate::compress::Coding;
use http::HeaderValue;

/// A directory that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesSettings {
    /// The directory.
    pub root: PathBuf,
    /// Files that answer for a directory; the first that exists counts.
    pub index: Vec<String>,
    /// Whether a directory without an index is listed.
    pub listing: bool,
    /// The path below the root that answers where there is no file.
    pub fallback: Option<String>,
    /// Codings of siblings, in order of preference.
    pub precompressed: Vec<Coding>,
    /// Media types by extension in lower case, before the built-in list.
    pub types: BTreeMap<String, HeaderValue>,
    /// The `Cache-Control` of files.
    pub cache_control: Option<HeaderValue>,
    /// Whether symbolic links may lead out of the root.
    pub outside_links: bool,
    /// How long a short file is answered from memory before it is looked at again.
    pub recheck: Duration,
}

impl FilesSettings {
    /// A directory with defaults for the rest.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            index: vec!["index.html".to_owned()],
            listing: false,
            fallback: None,
            precompressed: Vec::new(),
            types: BTreeMap::new(),
            cache_control: None,
            outside_links: false,
            recheck: Duration::ZERO,
        }
    }
}

/// The suffix of a sibling in this coding.
pub(crate) const fn suffix(coding: Coding) -> &'static str {
    match coding {
        Coding::Zstd => ".zst",
        Coding::Br => ".br",
        Coding::Gzip => ".gz",
    }
}
