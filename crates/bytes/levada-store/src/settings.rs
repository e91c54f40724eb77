//! The settings of a store.

use std::path::PathBuf;

use levada_cache::eviction::{self, DEFAULT_EVICTION};

/// The memory tier.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheSettings {
    /// Bytes it may hold, heads and bookkeeping included.
    pub memory: u64,
    /// The largest object it keeps.
    pub max_object: u64,
    /// Bytes in a block: what is longer is kept in blocks of so many bytes.
    pub block: u64,
    /// The order of eviction in either tier.
    pub eviction: &'static eviction::EvictionEntry,
    /// The most variants of one URI.
    pub variants: usize,
    /// Whether an object is kept only when it is fetched for the second time within memory.
    pub second_hit: bool,
    /// The disk tier, if there is one.
    pub disk: Option<DiskCache>,
}

/// The cache on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskCache {
    /// A directory of its own.
    pub path: PathBuf,
    /// Bytes it may take, files, directories and index included.
    pub size: u64,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            memory: 256 << 20,
            max_object: 32 << 20,
            block: 1 << 20,
            eviction: DEFAULT_EVICTION,
            variants: 100,
            second_hit: false,
            disk: None,
        }
    }
}
