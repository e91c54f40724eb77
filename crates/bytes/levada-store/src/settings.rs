//! The settings of a store.

use std::path::{Path, PathBuf};

use levada_cache::eviction::{DEFAULT_EVICTION, EvictionEntry, find_eviction};
use levada_types::text::{As, Form, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The cache: in memory, and on disk if `disk` is set.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CacheSettings {
    /// Capacity of the memory tier, with heads and bookkeeping.
    #[schemars(extend("x-minimum" = "1MiB"))]
    #[serde(with = "As::<Size>")]
    pub memory: u64,
    /// The largest object that is kept whole. Larger objects are passed on, and only requested ranges of them
    /// are kept. It must fit into `memory` or `disk.size`; a smaller capacity lowers the default. With `disk`
    /// the default is `"1GiB"`.
    #[serde(with = "As::<Size>")]
    pub max_object: u64,
    /// Longer objects are kept in blocks of this size. Each block is fetched and evicted separately: a range
    /// costs the blocks that it touches. A small `memory` lowers the default.
    #[schemars(extend("x-minimum" = "64KiB", "x-maximum" = "16MiB"))]
    #[serde(with = "As::<Size>")]
    pub block: u64,
    /// The eviction algorithm of the memory tier.
    #[serde(with = "As::<EvictionName>")]
    pub eviction: &'static EvictionEntry,
    /// The admission rule of the memory tier.
    #[serde(rename = "admission", with = "As::<Admission>")]
    pub second_hit: bool,
    /// The most variants of one URL, by `Vary`. The least used one goes for another.
    #[schemars(range(min = 1, max = 1000))]
    #[serde(with = "As::<u32>")]
    pub variants: usize,
    /// The disk tier.
    pub disk: Option<DiskCache>,
}

/// The disk tier. It keeps objects that leave the memory, also across restarts. See
/// docs/operate/disk-cache.md.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["path", "size"]))]
pub struct DiskCache {
    /// A directory for this cache only, created if it is missing. Two nodes cannot share one.
    #[schemars(length(min = 1), extend("examples" = ["/var/cache/levada"]))]
    #[serde(skip_serializing_if = "is_empty")]
    pub path: PathBuf,
    /// Capacity of the disk tier: files, directories and index.
    #[schemars(extend("examples" = ["100GiB"], "x-minimum" = "16MiB"))]
    #[serde(with = "As::<Size>", skip_serializing_if = "is_zero")]
    pub size: u64,
}

fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

fn is_zero(size: &u64) -> bool {
    *size == 0
}

/// The admission rule of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Admission {
    /// Everything that may be stored.
    Always,
    /// Objects that are fetched for the second time: for sites where most objects are requested
    /// once.
    SecondHit,
}

impl Form for Admission {
    type Value = bool;
    fn of(second_hit: &bool) -> Self {
        if *second_hit { Self::SecondHit } else { Self::Always }
    }
    fn value(self) -> bool {
        self == Self::SecondHit
    }
}

/// The name of an algorithm. The schema has them all; any other name stands for the default.
#[derive(Deserialize, Serialize, JsonSchema)]
struct EvictionName(String);

impl Form for EvictionName {
    type Value = &'static EvictionEntry;
    fn of(entry: &Self::Value) -> Self {
        Self(entry.name.to_owned())
    }
    fn value(self) -> Self::Value {
        find_eviction(&self.0).unwrap_or(DEFAULT_EVICTION)
    }
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            memory: 256 << 20,
            max_object: 32 << 20,
            block: 1 << 20,
            eviction: DEFAULT_EVICTION,
            second_hit: false,
            variants: 100,
            disk: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_and_size_of_the_disk_tier_have_no_defaults() {
        let schema = schemars::schema_for!(DiskCache);
        for key in ["path", "size"] {
            assert!(schema.pointer(&format!("/properties/{key}")).is_some());
            assert!(schema.pointer(&format!("/properties/{key}/default")).is_none(), "{key}");
        }
    }
}
