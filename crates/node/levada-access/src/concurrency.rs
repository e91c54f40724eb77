//! Limits of concurrent requests, with the meaning of nginx's `limit_conn` (over HTTP/2, too, each request
//! counts).
//!
//! The table has an entry for each key with a request, so the requests that a node serves at once bound it.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

/// The requests of each key that are being served.
#[derive(Debug)]
pub struct ConcurrencyTable {
    shards: [Mutex<HashMap<u64, u32>>; SHARDS],
}

/// The parts of a table with a lock of their own.
const SHARDS: usize = 64;

/// One request of a key; ends when dropped.
#[derive(Debug)]
pub struct ConcurrencyPlace {
    table: Arc<ConcurrencyTable>,
    key: u64,
}

impl ConcurrencyTable {
    /// A table without requests.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { shards: std::array::from_fn(|_| Mutex::default()) })
    }

    /// A place for a request of `key`, unless `most` requests have one. `key` is a hash that clients cannot
    /// predict.
    pub fn enter(self: &Arc<Self>, key: u64, most: u32) -> Option<ConcurrencyPlace> {
        let mut counts = self.shard(key).lock();
        let count = counts.entry(key).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(ConcurrencyPlace { table: self.clone(), key })
    }

    fn shard(&self, key: u64) -> &Mutex<HashMap<u64, u32>> {
        &self.shards[key as usize % SHARDS]
    }
}

impl Drop for ConcurrencyPlace {
    fn drop(&mut self) {
        let mut counts = self.table.shard(self.key).lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_has_as_many_places_as_the_limit_and_leaves_nothing_behind() {
        let table = ConcurrencyTable::new();
        let places: Vec<_> = (0..5).map_while(|_| table.enter(1, 2)).collect();
        assert_eq!(places.len(), 2);
        let other = table.enter(2, 2);
        assert!(other.is_some());
        drop(places);
        assert!(table.enter(1, 2).is_some());
        drop(other);
        assert!(table.shards.iter().all(|shard| shard.lock().is_empty()));
    }
}
