//! `[cache]` and `[purge]`: what is kept, where, and who may have it forgotten.

use levada_edge::settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::Size;

/// The cache: in memory, and on disk where `disk` says so.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cache {
    /// What the memory may hold, heads and bookkeeping included.
    #[schemars(extend("x-minimum" = "1MiB"))]
    pub memory: Size,
    /// The largest object that is kept whole; larger ones are passed on, and only parts that are asked for by range are kept. It fits into `memory` or `disk.size`, which lowers the default; with `disk` the default is `"1GiB"`.
    pub max_object: Size,
    /// What is longer is kept in blocks of this size, each fetched and evicted by itself: a range costs the blocks that it touches. A small `memory` lowers the default.
    #[schemars(extend("x-minimum" = "64KiB", "x-maximum" = "16MiB"))]
    pub block: Size,
    /// What goes first when it is full.
    pub eviction: String,
    /// What is kept.
    pub admission: Admission,
    /// What is kept on disk as well.
    pub disk: Option<DiskCache>,
}

/// The cache on disk: what leaves the memory is still there, and so it is after a restart. See docs/operate/disk-cache.md.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["path", "size"]))]
pub struct DiskCache {
    /// A directory of its own, which is made if it is missing. No two nodes may have the same.
    #[schemars(length(min = 1), extend("examples" = ["/var/cache/levada"]))]
    pub path: Option<String>,
    /// What it may take: files, directories and index.
    #[schemars(extend("x-minimum" = "16MiB", "examples" = ["100GiB"]))]
    pub size: Option<Size>,
}

/// What the cache keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Admission {
    /// Whatever may be stored.
    #[default]
    Always,
    /// What is fetched for the second time: for sites where most objects are asked for once.
    SecondHit,
}

/// Who may purge what is stored: docs/operate/purging.md.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Purge {
    /// What those who purge must know, at least 16 bytes. Without it the `PURGE` method is off, and the admin listener asks for nothing. Better given by `${NAME}` or `token_file`.
    #[schemars(extend("writeOnly" = true, "examples" = ["${LEVADA_PURGE_TOKEN}"]))]
    pub token: Option<String>,
    /// A file that holds the token; white space around it does not count.
    #[schemars(extend("examples" = ["/etc/levada/purge-token"]))]
    pub token_file: Option<String>,
    /// Whether clients receive `Surrogate-Key` and `Cache-Tag`, as another cache in front may need them.
    pub expose_tags: bool,
}

impl Default for Cache {
    fn default() -> Self {
        let edge = settings::CacheSettings::default();
        Self {
            memory: Size(edge.memory),
            max_object: Size(edge.max_object),
            block: Size(edge.block),
            eviction: edge.eviction.name.to_owned(),
            admission: if edge.second_hit { Admission::SecondHit } else { Admission::Always },
            disk: None,
        }
    }
}
