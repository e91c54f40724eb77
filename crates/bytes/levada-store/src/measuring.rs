//! The memory tier by itself, for measurements of its memory and time.

use std::{sync::Arc, time::SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use levada_cache::{
    CacheName, CacheRules, CacheStatus, OriginExchange, Validators, eviction, may_store,
};
use levada_types::Key;

use crate::{
    HitFields, Label, Object, StoredHead,
    memory::{Memory, StoredEntry},
};

/// The tier of a node's memory.
pub struct Tier(Memory, CacheName);

impl Tier {
    /// An empty tier of `bytes` bytes, for entries of up to `largest`.
    pub fn new(bytes: u64, largest: u64, eviction: &eviction::EvictionEntry) -> Self {
        Self(Memory::new(bytes, largest, eviction), CacheName::new("levada"))
    }

    /// Stores a response if it is cacheable and fits.
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
            copies: 0,
        };
        let object = Object::new(identity, head, std::iter::once(body), body.len() as u64);
        let _ = self.0.insert(key, StoredEntry::Object(Arc::new(object)));
    }

    /// Looks up a response, which counts as a hit. Returns whether it is stored.
    pub fn hit(&self, key: Key) -> bool {
        self.0.get(key).is_some()
    }

    /// Prepares a stored response for sending.
    pub fn touch_body(&self, key: Key) {
        if let Some(StoredEntry::Object(object)) = self.0.get(key) {
            let status = CacheStatus { ttl: Some(1), ..CacheStatus::default() };
            let (node, via) = (&self.1, &HeaderValue::from_static("1.1 levada"));
            let reply = object.reply(&HitFields { age: Some(1), status: &status, node, via });
            drop((reply, object.body().to_vec()));
        }
    }

    /// The bytes that the tier counts.
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// The number of responses.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the tier is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
