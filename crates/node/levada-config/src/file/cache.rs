//! `[cache]` and `[purge]`: the memory and disk tiers, and purging.

use levada_store::CacheSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::{As, Size};

/// The cache: in memory, and on disk if `disk` is set.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cache {
    /// Capacity of the memory tier, with heads and bookkeeping.
    #[schemars(extend("x-minimum" = "1MiB"))]
    pub memory: Size,
    /// The largest object that is kept whole. Larger objects are passed on, and only requested ranges of them
    /// are kept. It must fit into `memory` or `disk.size`; a smaller capacity lowers the default. With `disk`
    /// the default is `"1GiB"`.
    pub max_object: Size,
    /// Longer objects are kept in blocks of this size. Each block is fetched and evicted separately: a range
    /// costs the blocks that it touches. A small `memory` lowers the default.
    #[schemars(extend("x-minimum" = "64KiB", "x-maximum" = "16MiB"))]
    pub block: Size,
    /// The eviction algorithm of the memory tier.
    pub eviction: String,
    /// The admission rule of the memory tier.
    pub admission: Admission,
    /// The most variants of one URL, by `Vary`. The least used one goes for another.
    #[schemars(range(min = 1, max = 1000))]
    #[serde(with = "As::<u32>")]
    pub variants: usize,
    /// The disk tier.
    pub disk: Option<DiskCache>,
}

/// The disk tier. It keeps objects that leave the memory, also across restarts. See
/// docs/operate/disk-cache.md.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["path", "size"]))]
pub struct DiskCache {
    /// A directory for this cache only, created if it is missing. Two nodes cannot share one.
    #[schemars(length(min = 1), extend("examples" = ["/var/cache/levada"]))]
    pub path: Option<String>,
    /// Capacity of the disk tier: files, directories and index.
    #[schemars(extend("x-minimum" = "16MiB", "examples" = ["100GiB"]))]
    pub size: Option<Size>,
}

/// The admission rule of a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Admission {
    /// Everything that may be stored.
    #[default]
    Always,
    /// Objects that are fetched for the second time: for sites where most objects are requested
    /// once.
    SecondHit,
}

/// Authorization of purges: docs/operate/purging.md.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Purge {
    /// The token of a purge request, at least 16 bytes. Without it the `PURGE` method is off, and the admin
    /// listener needs no token. Prefer `${NAME}` or `token_file` to a literal value.
    #[schemars(extend("writeOnly" = true, "examples" = ["${LEVADA_PURGE_TOKEN}"]))]
    pub token: Option<String>,
    /// A file with the token; white space around it is ignored.
    #[schemars(extend("examples" = ["/etc/levada/purge-token"]))]
    pub token_file: Option<String>,
    /// Whether clients receive `Surrogate-Key` and `Cache-Tag`, which another cache in front may need.
    pub expose_tags: bool,
}

impl Default for Cache {
    fn default() -> Self {
        let edge = CacheSettings::default();
        Self {
            memory: Size(edge.memory),
            max_object: Size(edge.max_object),
            block: Size(edge.block),
            eviction: edge.eviction.name.to_owned(),
            admission: if edge.second_hit { Admission::SecondHit } else { Admission::Always },
            variants: edge.variants,
            disk: None,
        }
    }
}
