//! The memory tier: complete objects, bounded in bytes with their heads and bookkeeping.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use levada_cache::{Freshness, Validators, Vary};
use levada_types::{Key, hash64, weigh};
use quick_cache::{Weighter, sync::Cache};

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
        Self { identity: identity.into(), head, body: body.into(), len }
    }

    /// The same body under a head that a validation has renewed.
    pub(crate) fn renewed(&self, head: StoredHead) -> Self {
        Self { identity: self.identity.clone(), head, body: self.body.clone(), len: self.len }
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
        OVERHEAD + self.len + (self.identity.len() + fields) as u64
    }
}

/// All objects in memory.
///
/// An object that does not vary stands under the key of its URI. One that varies stands under a key
/// of URI and variant, and the URI's own entry says by which fields.
pub(crate) struct Memory {
    entries: Cache<Key, Entry, ByWeight>,
}

#[derive(Clone)]
enum Entry {
    Object(Arc<Object>),
    Varies(Arc<(Box<str>, Vary)>),
}

#[derive(Clone)]
struct ByWeight;

impl Weighter<Key, Entry> for ByWeight {
    fn weight(&self, _key: &Key, entry: &Entry) -> u64 {
        match entry {
            Entry::Object(object) => object.weight(),
            Entry::Varies(varies) => OVERHEAD + varies.0.len() as u64,
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
    pub(crate) fn new(bytes: u64) -> Self {
        // A guess at the number of objects only sizes the index.
        let guess = usize::try_from(bytes / (16 << 10)).unwrap_or(usize::MAX).clamp(64, 1 << 20);
        Self { entries: Cache::with_weighter(guess, bytes, ByWeight) }
    }

    /// The object for a URI and the request's fields.
    pub(crate) fn get(&self, key: Key, identity: &str, request: &HeaderMap) -> Sought {
        match self.entries.get(&key) {
            Some(Entry::Object(object)) if *object.identity == *identity => {
                Sought { key, object: Some(object), varies: false }
            }
            Some(Entry::Varies(varies)) if *varies.0 == *identity => {
                self.variant(variant_key(key, &varies.1.key(request)), identity, request)
            }
            _ => Sought { key, object: None, varies: false },
        }
    }

    fn variant(&self, key: Key, identity: &str, request: &HeaderMap) -> Sought {
        let object = match self.entries.get(&key) {
            Some(Entry::Object(o)) if *o.identity == *identity && o.head.answers(request) => Some(o),
            _ => None,
        };
        Sought { key, object, varies: true }
    }

    /// Keeps an object of the URI whose key is `key`.
    pub(crate) fn put(&self, key: Key, object: Arc<Object>) {
        if object.head.vary.is_empty() {
            return self.entries.insert(key, Entry::Object(object));
        }
        let varies = Arc::new((object.identity.clone(), object.head.vary.clone()));
        let variant = variant_key(key, &object.head.variant);
        self.entries.insert(key, Entry::Varies(varies));
        self.entries.insert(variant, Entry::Object(object));
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

fn variant_key(key: Key, variant: &[u8]) -> Key {
    Key(weigh(key, hash64(variant)))
}
