//! The memory tier: complete objects, bounded in bytes with their heads and bookkeeping.

use std::{
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use levada_cache::{CACHE_STATUS, Freshness, Validators, Vary};
use levada_types::{Key, hash64, weigh};
use quick_cache::{
    DefaultHashBuilder, OptionsBuilder, Weighter,
    sync::{Cache, DefaultLifecycle},
};

/// The head of a response that may be served again.
#[derive(Clone, Debug)]
pub(crate) struct StoredHead {
    pub(crate) status: StatusCode,
    /// End-to-end fields only; `Age` is computed anew for every response.
    pub(crate) headers: HeaderMap,
    pub(crate) freshness: Freshness,
    pub(crate) validators: Validators,
    /// The request fields that select this variant, and what they were.
    pub(crate) vary: Vary,
    pub(crate) variant: Box<[u8]>,
}

impl StoredHead {
    /// Whether this is the variant that `request` selects.
    pub(crate) fn answers(&self, request: &HeaderMap) -> bool {
        self.vary.is_empty() || self.vary.matches(request, &self.variant, &mut Vec::new())
    }
}

/// One complete response.
#[derive(Debug)]
pub(crate) struct Object {
    /// The URI it answers, in full: two URIs may share a key.
    identity: Box<str>,
    pub(crate) head: StoredHead,
    reply: HeaderMap,
    body: Box<[Bytes]>,
    len: u64,
}

/// Segments of a stored body: few enough for one vectored write of a usual object, small enough that
/// the allocator finds room.
const SEGMENT: usize = 256 << 10;
/// Bookkeeping per object beside its head and body: the index entry, the allocations' own overhead.
const OVERHEAD: u64 = 512;
/// Bookkeeping per header field, beside name and value.
const FIELD_OVERHEAD: usize = 112;

impl Object {
    /// An object with its body copied together: pieces as they came from the network hold on to much
    /// larger read buffers.
    pub(crate) fn new<'a>(
        identity: &str,
        head: StoredHead,
        via: &HeaderValue,
        pieces: impl Iterator<Item = &'a Bytes>,
        len: u64,
    ) -> Self {
        let mut body = Vec::with_capacity((len as usize).div_ceil(SEGMENT));
        let mut left = len as usize;
        let mut segment = Vec::with_capacity(left.min(SEGMENT));
        for piece in pieces {
            let mut piece: &[u8] = piece;
            while !piece.is_empty() {
                let (now, later) = piece.split_at(piece.len().min(SEGMENT - segment.len()));
                segment.extend_from_slice(now);
                piece = later;
                if segment.len() == SEGMENT {
                    left = left.saturating_sub(SEGMENT);
                    let full =
                        std::mem::replace(&mut segment, Vec::with_capacity(left.min(SEGMENT)));
                    body.push(Bytes::from(full));
                }
            }
        }
        if !segment.is_empty() {
            body.push(Bytes::from(segment.into_boxed_slice()));
        }
        let len = body.iter().map(|s| s.len() as u64).sum();
        let reply = reply(&head.headers, via, len);
        let head = StoredHead { headers: owned(&head.headers), ..head };
        Self { identity: identity.into(), head, reply, body: body.into(), len }
    }

    /// The same body under a head that a validation has renewed.
    pub(crate) fn renewed(&self, head: StoredHead, via: &HeaderValue) -> Self {
        let reply = reply(&head.headers, via, self.len);
        let head = StoredHead { headers: owned(&head.headers), ..head };
        let (identity, body) = (self.identity.clone(), self.body.clone());
        Self { identity, head, reply, body, len: self.len }
    }

    /// The fields of a response from the store, to be cloned. `Age` and `Cache-Status` are in it, to
    /// be overwritten: a field that is there already needs no room made for it.
    pub(crate) fn reply(&self) -> &HeaderMap {
        &self.reply
    }

    /// Whether caches nearer to the origin have reported in `Cache-Status`.
    pub(crate) fn has_history(&self) -> bool {
        self.head.headers.contains_key(CACHE_STATUS)
    }

    pub(crate) fn body(&self) -> &[Bytes] {
        &self.body
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    fn weight(&self) -> u64 {
        let fields: usize = self
            .head
            .headers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len() + FIELD_OVERHEAD)
            .sum();
        // The fields are kept twice: as received, and as sent.
        OVERHEAD + self.len + (self.identity.len() + 2 * fields) as u64
    }
}

fn reply(headers: &HeaderMap, via: &HeaderValue, len: u64) -> HeaderMap {
    let mut reply = owned(headers);
    reply.insert(header::CONTENT_LENGTH, HeaderValue::from(len));
    reply.append(header::VIA, via.clone());
    reply.insert(header::AGE, HeaderValue::from(0));
    reply.entry(CACHE_STATUS).or_insert_with(|| HeaderValue::from_static("-"));
    reply
}

/// A copy that shares nothing: values as they came from the network hold on to whole read buffers.
fn owned(headers: &HeaderMap) -> HeaderMap {
    let mut values = BytesMut::with_capacity(headers.values().map(HeaderValue::len).sum());
    let mut copy = HeaderMap::with_capacity(headers.len() + 4);
    for (name, value) in headers {
        values.extend_from_slice(value.as_bytes());
        let bytes = values.split().freeze();
        let value = HeaderValue::from_maybe_shared(bytes).unwrap_or_else(|_| value.clone());
        copy.append(name.clone(), value);
    }
    copy
}

/// All objects in memory.
///
/// An object that does not vary stands under the key of its URI. One that varies stands under a key
/// of URI and variant, and the URI's own entry says by which fields.
pub(crate) struct Memory {
    entries: Cache<Key, Entry, ByWeight>,
    generations: AtomicU64,
}

#[derive(Clone)]
enum Entry {
    Object(Arc<Object>),
    Varies(Arc<Varies>),
}

/// By which fields a URI varies.
struct Varies {
    identity: Box<str>,
    vary: Vary,
    /// Part of the variants' keys: when the URI is forgotten and stored again, the variants from
    /// before must not come back with it.
    generation: u64,
}

#[derive(Clone)]
struct ByWeight;

impl Weighter<Key, Entry> for ByWeight {
    fn weight(&self, _key: &Key, entry: &Entry) -> u64 {
        match entry {
            Entry::Object(object) => object.weight(),
            Entry::Varies(varies) => OVERHEAD + varies.identity.len() as u64,
        }
    }
}

/// What is known of a URI.
pub(crate) struct Sought {
    /// Under which key its object is, or would be.
    pub(crate) key: Key,
    pub(crate) object: Option<Arc<Object>>,
    /// Other variants are known.
    pub(crate) varies: bool,
}

impl Memory {
    /// A store of this many bytes for objects of up to `largest`.
    pub(crate) fn new(bytes: u64, largest: u64) -> Self {
        // A guess at the number of objects only sizes the index.
        let guess = usize::try_from(bytes / (16 << 10)).unwrap_or(usize::MAX).clamp(64, 1 << 20);
        // The index is divided so that threads do not meet at one lock, its bytes with it: a part must
        // still have room for the largest object and some others, or that would never be kept.
        let parts = usize::try_from(bytes / largest.saturating_mul(4).max(1)).unwrap_or(usize::MAX);
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        let parts = parts.clamp(1, threads * 4);
        let parts = if parts.is_power_of_two() { parts } else { parts.next_power_of_two() / 2 };
        let options = OptionsBuilder::new()
            .estimated_items_capacity(guess)
            .weight_capacity(bytes)
            .shards(parts)
            .build();
        let entries = match options {
            Ok(options) => Cache::with_options(
                options,
                ByWeight,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
            Err(_) => Cache::with_weighter(guess, bytes, ByWeight),
        };
        Self { entries, generations: AtomicU64::new(0) }
    }

    /// The object for a URI and the request's fields.
    pub(crate) fn get(&self, key: Key, identity: &str, request: &HeaderMap) -> Sought {
        match self.entries.get(&key) {
            Some(Entry::Object(object)) if *object.identity == *identity => {
                Sought { key, object: Some(object), varies: false }
            }
            Some(Entry::Varies(varies)) if *varies.identity == *identity => {
                self.variant(varies.key(key, &varies.vary.key(request)), identity, request)
            }
            _ => Sought { key, object: None, varies: false },
        }
    }

    fn variant(&self, key: Key, identity: &str, request: &HeaderMap) -> Sought {
        let object = match self.entries.get(&key) {
            Some(Entry::Object(o)) if *o.identity == *identity && o.head.answers(request) => {
                Some(o)
            }
            _ => None,
        };
        Sought { key, object, varies: true }
    }

    /// Keeps an object of the URI whose key is `key`.
    pub(crate) fn put(&self, key: Key, object: Arc<Object>) {
        if object.head.vary.is_empty() {
            return self.entries.insert(key, Entry::Object(object));
        }
        let varies = self.varies(key, &object);
        let variant = varies.key(key, &object.head.variant);
        self.entries.insert(key, Entry::Varies(varies));
        self.entries.insert(variant, Entry::Object(object));
    }

    /// What leads to the variants of this object's URI: as it stands, or a new one.
    fn varies(&self, key: Key, object: &Object) -> Arc<Varies> {
        match self.entries.peek(&key) {
            Some(Entry::Varies(varies))
                if varies.identity == object.identity && varies.vary == object.head.vary =>
            {
                varies
            }
            _ => Arc::new(Varies {
                identity: object.identity.clone(),
                vary: object.head.vary.clone(),
                generation: self.generations.fetch_add(1, Relaxed),
            }),
        }
    }

    /// Forgets what is stored for a URI. Variants that nothing leads to any more are evicted in time.
    pub(crate) fn remove(&self, key: Key) {
        self.entries.remove(&key);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.entries.weight()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

impl Varies {
    fn key(&self, key: Key, variant: &[u8]) -> Key {
        Key(weigh(Key(weigh(key, hash64(variant))), self.generation))
    }
}
