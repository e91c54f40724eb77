//! The cache of a node: stored responses, the fetches into them, and purges.
//!
//! ```text
//!   lookup        a stored response that may be used, or the fetch that is needed
//!   fill ─ fetch  one fetch for all requests of an object, and its outcome
//!   part_origin   single blocks of a long body, by range
//!   shield        a fetch by way of the region that asks the origin for all others
//!   rest          the rest of a body that broke off, by range
//!   posted        the answer to a POST, for later requests
//!   stored        the response to a client
//!   copies        the same, with a coded copy where the client takes one
//! ```
//!
//! The stages of a request are handed the [`Cache`], not the node. `pipeline.rs` calls them.

pub(crate) mod copies;
pub(crate) mod fetch;
pub(crate) mod fill;
pub(crate) mod lookup;
pub(crate) mod part_origin;
pub(crate) mod posted;
pub(crate) mod rest;
pub(crate) mod shield;
pub(crate) mod stored;

use std::{
    hash::{BuildHasher, RandomState},
    num::NonZero,
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::{HeaderMap, StatusCode, header::CONTENT_RANGE};
use levada_body::compress::{Copies, Workers};
use levada_body::{BlockMemory, BlockOutcome, BlockTiers, SingleFlight, part};
use levada_cache::Uses;
use levada_cluster::{
    nodes::Peers,
    purge::{PendingStore, Purges},
};
use levada_store::{Loans, Object, Remembered, Store, disk::DiskError};
use levada_types::Key;
use levada_upstream::Clock;

use self::fill::Fills;
use crate::{forward::Forwarder, metrics::Metrics};
use levada_config::Settings;

/// How long requests for a URI do not wait for each other after a response that could not be stored.
const UNSTORABLE: Duration = Duration::from_secs(120);

/// How long a URI stays known as one without ranges.
const NO_PARTS: Duration = Duration::from_secs(600);

/// How long a node that stops takes to close its tier, when its requests have ended.
const CLOSING: Duration = Duration::from_secs(15);

/// The stored responses of a node, and the fetches into them.
pub struct Cache {
    pub(crate) clock: Clock,
    pub store: Arc<Store>,
    pub(crate) fills: Arc<Fills>,
    /// The fetches of single blocks that are under way.
    pub(crate) block_flights: Arc<SingleFlight<BlockOutcome>>,
    /// Where bodies are kept in blocks: in the store, and outside it.
    pub tiers: Arc<BlockTiers>,
    pub purges: Arc<Purges>,
    /// URIs for which the origin does not send ranges, or not ones that could be stored.
    pub(crate) no_parts: Remembered,
    /// Keys whose responses turned out not to be storable: their requests do not wait for each other.
    pub(crate) unstorable: Remembered,
    /// Counts of requests, for sites with `min_uses`.
    uses: OnceLock<Uses>,
    /// The size of a block.
    pub(crate) block: u64,
    /// Coded copies that are being made.
    pub(crate) copies: Copies,
    /// The way to origins.
    pub(crate) forwarder: Arc<Forwarder>,
    /// The cluster, whose regions may shield origins.
    pub(crate) peers: Option<Arc<Peers>>,
}

impl Cache {
    /// Opens the tiers and the purge journal, or goes on with `former` purges. A node that is about to give
    /// the directory back is waited for.
    pub(crate) fn open(
        settings: &Settings,
        clock: Clock,
        metrics: &Metrics,
        forwarder: &Arc<Forwarder>,
        peers: Option<&Arc<Peers>>,
        former: Option<&str>,
    ) -> Result<Self, DiskError> {
        let cache = &settings.cache;
        let patience = settings.limits.drain_timeout + CLOSING;
        let store = Store::open_within(cache, &metrics.disk, patience)?;
        let store = Arc::new(store.counting(metrics.cache.variants_evicted.clone()));
        // After the tier, which creates the directory and locks it against other nodes.
        let directory = cache.disk.as_ref().map(|disk| &*disk.path);
        let (in_cluster, expose_tags) = (settings.peering.is_some(), settings.purge.expose_tags);
        let purges = Purges::open(directory, in_cluster, expose_tags, former);
        let tiers = BlockTiers {
            store: store.clone(),
            loans: Loans::new(cache.memory / 4),
            memory: BlockMemory::new(cache.memory / 4),
            max_object: cache.max_object,
        };
        let tiers = Arc::new(tiers);
        let limits = &settings.limits;
        let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = limits.compress_workers.unwrap_or_else(|| cores() / 2);
        let workers = Workers::new(threads, limits.compress_queue, metrics.compress.clone());
        Ok(Self {
            clock,
            copies: Copies::new(workers, tiers.clone()),
            store,
            fills: Fills::new(),
            block_flights: SingleFlight::new(),
            tiers,
            purges: Arc::new(purges),
            no_parts: Remembered::new(NO_PARTS),
            unstorable: Remembered::new(UNSTORABLE),
            uses: OnceLock::new(),
            block: cache.block,
            forwarder: forwarder.clone(),
            peers: peers.cloned(),
        })
    }

    /// Fetches, and copies that are being made.
    pub fn flights(&self) -> usize {
        self.fills.count() + self.block_flights.count() + self.copies.count()
    }

    pub(crate) fn uses(&self) -> &Uses {
        self.uses.get_or_init(|| Uses::new(RandomState::new().hash_one(0)))
    }

    /// Whether the origin does not send ranges of this URI.
    pub(crate) fn has_no_parts(&self, key: Key) -> bool {
        self.no_parts.holds(key, self.clock.now())
    }

    pub(crate) fn remember_no_parts(&self, key: Key) {
        self.no_parts.remember(key, self.clock.now());
    }

    /// Stores the object of a URI, or a part of it, unless it was purged or invalidated while it was
    /// fetched.
    pub(crate) fn keep(&self, uri: Key, object: Arc<Object>, pending: &PendingStore) {
        let key = place(uri, object.status(), || object.fields(|name| *name == CONTENT_RANGE));
        if self.purges.may_keep(&object) && !pending.is_outdated(uri) {
            self.store.put(key, object);
            // An invalidation notes the URI first, then removes the stored response.
            if pending.is_outdated(uri) {
                self.store.remove(key);
            }
        }
    }

    /// Invalidates a URI: stored responses, and fetches that run, are not for later requests.
    pub(crate) fn invalidate(&self, key: Key) {
        self.purges.invalidate(key);
        self.store.remove(key);
        part::places(key).for_each(|part| self.store.remove(part));
    }
}

/// The key under which a response is stored.
pub(crate) fn place(uri: Key, status: StatusCode, fields: impl FnOnce() -> HeaderMap) -> Key {
    match status {
        StatusCode::PARTIAL_CONTENT => part::place(uri, &fields()),
        _ => uri,
    }
}
