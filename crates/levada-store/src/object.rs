//! One complete response, as it is kept.

use std::{sync::Arc, time::SystemTime};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use levada_cache::{CACHE_STATUS, CacheName, CacheStatus, Condition, Freshness, Validators, Vary};
use parking_lot::Mutex;

use crate::{
    disk::FileBody,
    label::Label,
    segments::{at, gather},
    weight::{ARC, fields, segments},
};

/// The head of a response that may be served again.
#[derive(Clone, Debug)]
pub struct StoredHead {
    /// As received.
    pub status: StatusCode,
    /// End-to-end fields only; `Age` is computed anew for every response.
    pub headers: HeaderMap,
    /// How long it may be used, purges aside: see [`Self::freshness`].
    pub freshness: Freshness,
    /// By which it can be confirmed.
    pub validators: Validators,
    /// The request fields that select this variant, and what they were.
    pub vary: Vary,
    /// The key of the variant: the values of those fields.
    pub variant: Box<[u8]>,
    /// The facts that purges go by.
    pub label: Label,
    /// The version of the original that coded copies are copies of; part of their keys. Zero if there are none.
    /// `Accept-Encoding` does not select a variant then: the copies take its part.
    pub copies: u64,
}

impl StoredHead {
    /// As received, or stale by a soft purge.
    pub fn freshness(&self) -> Freshness {
        self.label.freshness(self.freshness)
    }

    /// Whether the client that sent these fields has this response already (RFC 9110 Sec. 13.2.2).
    pub fn is_held_by(&self, request: &HeaderMap) -> bool {
        self.status == StatusCode::OK && self.validators.evaluate(request) == Condition::NotModified
    }

    /// Whether it is the head of a coded copy.
    pub fn is_coded_copy(&self) -> bool {
        self.copies != 0 && self.headers.contains_key(header::CONTENT_ENCODING)
    }

    /// The validators by the fields, of a response that was received at this time. Two copies of one original may
    /// differ in their bytes.
    pub fn validators_of(&self, received: SystemTime) -> Validators {
        let validators = Validators::of(&self.headers, received);
        if self.is_coded_copy() { validators.of_remade() } else { validators }
    }

    /// Whether this is the variant that `request` selects.
    pub fn answers(&self, request: &HeaderMap) -> bool {
        self.vary.is_empty() || self.vary.matches(request, &self.variant, &mut Vec::new())
    }
}

/// One complete response.
#[derive(Debug)]
pub struct Object {
    /// The URI it answers, in full: two URIs may share a key.
    identity: Box<str>,
    /// The head that is sent.
    pub head: StoredHead,
    reply: Mutex<CachedReply>,
    body: StoredBody,
    len: u64,
    /// Where the body is, if it is not here.
    blocks: Option<Blocks>,
}

/// A stored body.
#[derive(Clone, Debug)]
pub enum StoredBody {
    /// Segments in memory.
    Memory(Arc<[Bytes]>),
    /// It stays in its file, for a client that can be sent it from there.
    File(Arc<FileBody>),
}

impl StoredBody {
    pub(crate) fn segments(&self) -> &[Bytes] {
        match self {
            Self::Memory(segments) => segments,
            Self::File(_) => &[],
        }
    }

    fn len(&self) -> u64 {
        match self {
            Self::Memory(segments) => segments.iter().map(|segment| segment.len() as u64).sum(),
            Self::File(stretch) => stretch.length(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The fields of a response from the store. Fields that change with time have their values of the
/// last hit: most hits come within the same second as the one before, and get a copy.
#[derive(Debug)]
struct CachedReply {
    fields: HeaderMap,
    /// The age and the status in the fields; `None` before the first hit.
    told: Option<(u32, CacheStatus<'static>)>,
}

/// A body that is kept in blocks of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// Part of the blocks' keys: no two bodies have the same.
    pub version: u64,
    /// Bytes in every block but the last.
    pub block: u64,
    /// Bytes in all.
    pub length: u64,
}

impl Object {
    /// An object with its body copied together: pieces as they came from the network hold on to much
    /// larger read buffers.
    pub fn new<'a>(
        identity: &str,
        head: StoredHead,
        via: &HeaderValue,
        pieces: impl Iterator<Item = &'a Bytes>,
        len: u64,
    ) -> Self {
        Self::with_body(identity, head, via, StoredBody::Memory(gather(pieces, len)))
    }

    /// An object with a body of its own already.
    pub(crate) fn with_body(
        identity: &str,
        head: StoredHead,
        via: &HeaderValue,
        body: StoredBody,
    ) -> Self {
        let len = body.len();
        Self::made(identity.into(), head, via, (body, len), None)
    }

    /// An object whose body is kept in blocks.
    pub fn blocked(identity: &str, head: StoredHead, via: &HeaderValue, blocks: Blocks) -> Self {
        let body = (StoredBody::Memory(Arc::default()), blocks.length);
        Self::made(identity.into(), head, via, body, Some(blocks))
    }

    /// The same body under a head that a validation has renewed.
    pub fn renewed(&self, head: StoredHead, via: &HeaderValue) -> Self {
        let body = (self.body.clone(), self.len);
        Self::made(self.identity.clone(), head, via, body, self.blocks)
    }

    fn made(
        identity: Box<str>,
        head: StoredHead,
        via: &HeaderValue,
        (body, len): (StoredBody, u64),
        blocks: Option<Blocks>,
    ) -> Self {
        let head = StoredHead { headers: owned(&head.headers), ..head };
        let reply = Mutex::new(CachedReply { fields: reply(&head.headers, via, len), told: None });
        Self { identity, head, reply, body, len, blocks }
    }

    /// The URI it answers, in full.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The fields of a response from the store of this age, with `status` behind what caches nearer to
    /// the origin have reported in `Cache-Status`.
    pub fn reply(&self, age: u32, status: &CacheStatus<'static>, node: &CacheName) -> HeaderMap {
        let mut reply = self.reply.lock();
        if reply.told != Some((age, *status)) {
            let told = status.value_behind(&self.head.headers, node);
            // Both are there already, and a map that is full would grow before an insertion finds out.
            for (name, value) in [(header::AGE, HeaderValue::from(age)), (CACHE_STATUS, told)] {
                if let Some(there) = reply.fields.get_mut(name) {
                    *there = value;
                }
            }
            reply.told = Some((age, *status));
        }
        reply.fields.clone()
    }

    /// Where the body is, if it is not here.
    pub fn blocks(&self) -> Option<Blocks> {
        self.blocks
    }

    /// The bytes at a position of the body, up to the end of a segment.
    pub fn at(&self, position: u64) -> Option<Bytes> {
        at(self.body(), position)
    }

    /// The body, unless it is in a file or in blocks.
    pub fn body(&self) -> &[Bytes] {
        self.body.segments()
    }

    /// Where the body is: without segments if it is in blocks.
    pub fn stored_body(&self) -> &StoredBody {
        &self.body
    }

    /// Bytes of the body, wherever it is.
    pub fn length(&self) -> u64 {
        self.len
    }

    /// Its size in memory.
    pub(crate) fn weight(&self) -> u64 {
        let head = &self.head;
        let values: usize = head.headers.values().map(HeaderValue::len).sum();
        let names: usize = head.headers.keys().map(|name| name.as_str().len()).sum();
        let own = size_of::<Self>() + ARC + self.identity.len() + head.variant.len();
        let vary = size_of_val(head.vary.fields()) + head.label.weight();
        // Names and values are shared between what was received and what is sent.
        let maps =
            fields(&head.headers) + fields(&self.reply.lock().fields) + names + values + SMALL;
        (own + vary + maps + segments(self.body())) as u64
    }
}

/// An allowance for small parts: the length as a field, the entity tag, the values of the last hit,
/// and the counts by which copied values are shared.
const SMALL: usize = 240;

/// The fields as they are sent, with room for what [`Object::reply`] puts there. They share their values with `headers`, which share them among
/// themselves: see [`owned`].
fn reply(headers: &HeaderMap, via: &HeaderValue, len: u64) -> HeaderMap {
    let mut reply = HeaderMap::with_capacity(headers.keys_len() + 4);
    reply.extend(headers.iter().map(|(name, value)| (name.clone(), value.clone())));
    reply.insert(header::CONTENT_LENGTH, HeaderValue::from(len));
    reply.append(header::VIA, via.clone());
    reply.insert(header::AGE, HeaderValue::from(0));
    reply.insert(CACHE_STATUS, HeaderValue::from_static("-"));
    levada_cache::strip_own_target(&mut reply);
    // A copy has no room left over.
    reply.clone()
}

/// A copy that shares nothing: values as they came from the network hold on to whole read buffers.
fn owned(headers: &HeaderMap) -> HeaderMap {
    let mut values = BytesMut::with_capacity(headers.values().map(HeaderValue::len).sum());
    let mut copy = HeaderMap::with_capacity(headers.keys_len());
    for (name, value) in headers {
        values.extend_from_slice(value.as_bytes());
        let bytes = values.split().freeze();
        let value = HeaderValue::from_maybe_shared(bytes).unwrap_or_else(|_| value.clone());
        copy.append(name.clone(), value);
    }
    copy.clone()
}
