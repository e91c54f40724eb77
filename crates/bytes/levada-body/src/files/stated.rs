//! `[site.files]`: a directory in the place of servers.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use levada_types::{text::Time, values::OneOrMany};

use crate::compress::Coding;

/// A directory that the node serves: its path, or a table.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum FilesOrRoot {
    /// The directory.
    Root(String),
    /// All settings.
    Table(Files),
}

/// A directory that the node serves: docs/operate/static-files.md.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline, extend("required" = ["root"]))]
pub struct Files {
    /// The directory.
    #[schemars(length(min = 1), extend("examples" = ["/srv/www"]))]
    pub root: Option<String>,
    /// Files that answer for a directory; the first that exists counts.
    pub index: OneOrMany<String>,
    /// Whether a directory without an index is answered by a list of its entries.
    pub listing: bool,
    /// The path that answers where there is no file, with 200.
    #[schemars(regex(pattern = "^/"), extend("examples" = ["/index.html"]))]
    pub fallback: Option<String>,
    /// Where a request goes on if there is no file: `next`, the next route that takes it; `@name`, a route; or a path,
    /// with which the routes are tried again.
    #[serde(rename = "else")]
    #[schemars(length(min = 1), extend("examples" = ["next"]))]
    pub otherwise: Option<String>,
    /// Codings of siblings (`.br`, `.zst`, `.gz`) that are sent to clients that accept them, in order of preference.
    pub precompressed: Vec<Coding>,
    /// Media types by extension, before the built-in list.
    pub types: BTreeMap<String, String>,
    /// The `Cache-Control` of files.
    #[schemars(extend("examples" = ["max-age=3600"]))]
    pub cache_control: Option<String>,
    /// Whether symbolic links may lead out of `root`.
    pub outside_links: bool,
    /// How long a file of up to 64 KiB is answered from memory before the node looks at it again.
    #[schemars(extend("x-maximum" = "1m"))]
    pub recheck: Time,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            root: None,
            index: OneOrMany::One("index.html".to_owned()),
            listing: false,
            fallback: None,
            otherwise: None,
            precompressed: Vec::new(),
            types: BTreeMap::new(),
            cache_control: None,
            outside_links: false,
            recheck: Time(Duration::ZERO),
        }
    }
}

impl FilesOrRoot {
    /// The table, also of the short form.
    pub fn table(&self) -> Files {
        match self {
            Self::Root(root) => Files { root: Some(root.clone()), ..Files::default() },
            Self::Table(table) => table.clone(),
        }
    }
}
