//! The memory tier with nothing around it, for measurements: what it takes of memory and of time.

use std::{sync::Arc, time::SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use levada_cache::{
    CacheName, CacheRules, CacheStatus, OriginExchange, Validators, eviction, may_store,
};
use levada_types::Key;

use crate::{
    Label, Object, StoredHead,
    memory::{Memory, StoredEntry},
};

/// The tier of a node's memory.
pub struct Tier(Memory, CacheName);

impl Tier {
    /// An empty tier of so many bytes, for entries of up to `largest`.
    pub fn new(bytes: u64, largest: u64, eviction: &eviction::EvictionEntry) -> Self {
        Self(Memory::new(bytes, largest, eviction), CacheName::new("levada"))
    }

    /// Keeps a response if it may be stored and fits.
    pub fn put(&self, key: Key, identity: &str, fields: &HeaderMap, body: &Bytes) {
        let now = SystemTime::now();
        let exchange = OriginExchange {
            method: &Method::GET,
            request: &HeaderMap::new(),
            status: StatusCode::OK,
            response: fields,
            requested: now,
            received: now,
        };
        let Ok(storable) = may_store(&exchange, &CacheRules::default()) else { return };
        let head = StoredHead {
            status: exchange.status,
            headers: fields.clone(),
            freshness: storable.freshness,
            validators: Validators::of(fields, now),
            variant: storable.vary.key(exchange.request),
            vary: storable.vary,
            label: Label::new(0, 0),
        };
        let via = HeaderValue::from_static("1.1 levada");
        let object = Object::new(identity, head, &via, std::iter::once(body), body.len() as u64);
        let _ = self.0.insert(key, StoredEntry::Object(Arc::new(object)));
    }

    /// Whether there is a response; it is a hit like any other.
    pub fn hit(&self, key: Key) -> bool {
        self.0.get(key).is_some()
    }

    /// Sends a stored body, as far as memory is concerned.
    pub fn touch_body(&self, key: Key) {
        if let Some(StoredEntry::Object(object)) = self.0.get(key) {
            let status = CacheStatus { ttl: Some(1), ..CacheStatus::default() };
            drop((object.reply(1, &status, &self.1), object.body().to_vec()));
        }
    }

    /// The bytes that the tier counts.
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// How many responses there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
