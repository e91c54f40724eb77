//! One complete response, as it is kept.

use std::{sync::Arc, time::SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode, header};
use levada_cache::{Condition, Freshness, Validators, Vary};

use crate::{
    disk::FileBody,
    label::Label,
    packed::PackedHead,
    segments::{at, gather},
    template::{self, HitFields},
    weight::{ARC, SHARED, segments},
};

/// The head of a response that may be served again, as it arrives. Objects have it packed.
#[derive(Clone, Debug)]
pub struct StoredHead {
    /// As received.
    pub status: StatusCode,
    /// End-to-end fields only; `Age` is computed for every response.
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
    head: PackedHead,
    freshness: Freshness,
    label: Label,
    body: StoredBody,
}

/// With its counts in an `Arc`, an object fits a size class of allocators exactly.
const _: () = assert!(size_of::<Object>() + ARC <= 160);

/// A stored body.
#[derive(Clone, Debug)]
pub enum StoredBody {
    /// One segment in memory, without a list: most bodies are that short.
    Short(Bytes),
    /// Segments in memory.
    Memory(Arc<[Bytes]>),
    /// It stays in its file, for a client that can be sent it from there.
    File(Arc<FileBody>),
}

impl StoredBody {
    /// A body of these segments.
    pub(crate) fn of(mut segments: Vec<Bytes>) -> Self {
        match segments.pop() {
            Some(only) if segments.is_empty() => Self::Short(only),
            last => Self::Memory(segments.into_iter().chain(last).collect()),
        }
    }

    pub(crate) fn segments(&self) -> &[Bytes] {
        match self {
            Self::Short(segment) => std::slice::from_ref(segment),
            Self::Memory(segments) => segments,
            Self::File(_) => &[],
        }
    }

    fn len(&self) -> u64 {
        match self {
            Self::File(stretch) => stretch.length(),
            _ => self.segments().iter().map(|segment| segment.len() as u64).sum(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its size on the heap.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Short(segment) => segment.len() + SHARED,
            _ => segments(self.segments()),
        }
    }
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
        pieces: impl Iterator<Item = &'a Bytes>,
        len: u64,
    ) -> Self {
        Self::made(identity, head, StoredBody::of(gather(pieces, len)), None)
    }

    /// An object whose body is kept in blocks.
    pub fn blocked(identity: &str, head: StoredHead, blocks: Blocks) -> Self {
        Self::made(identity, head, StoredBody::of(Vec::new()), Some(blocks))
    }

    /// The same body under a head that a validation has renewed.
    pub fn renewed(&self, head: StoredHead) -> Self {
        Self::made(self.identity(), head, self.body.clone(), self.blocks())
    }

    fn made(identity: &str, head: StoredHead, body: StoredBody, blocks: Option<Blocks>) -> Self {
        let packed = PackedHead::new(identity, &head, blocks);
        Self { head: packed, freshness: head.freshness, label: head.label, body }
    }

    /// An object as it was written.
    pub(crate) fn read(
        head: PackedHead,
        freshness: Freshness,
        label: Label,
        body: StoredBody,
    ) -> Self {
        Self { head, freshness, label, body }
    }

    /// The URI it answers, in full: two URIs may share a key.
    pub fn identity(&self) -> &str {
        self.head.identity()
    }

    /// Whether it answers this URI.
    pub(crate) fn is_of(&self, identity: &str) -> bool {
        self.head.identity_bytes() == identity.as_bytes()
    }

    /// Its head, unpacked.
    pub fn head(&self) -> StoredHead {
        StoredHead {
            status: self.status(),
            headers: self.fields(|_| true),
            freshness: self.freshness,
            validators: self.validators(),
            vary: Vary::of_key(self.variant()),
            variant: self.variant().into(),
            label: self.label.clone(),
            copies: self.copies(),
        }
    }

    pub(crate) fn packed(&self) -> &PackedHead {
        &self.head
    }

    /// The status as received.
    pub fn status(&self) -> StatusCode {
        self.head.status()
    }

    /// As received, or stale by a soft purge.
    pub fn freshness(&self) -> Freshness {
        self.label.freshness(self.freshness)
    }

    /// As received, whatever purges there were.
    pub fn received_freshness(&self) -> Freshness {
        self.freshness
    }

    /// The facts that purges go by.
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// The fields by which its URI varies, if it does.
    pub fn vary(&self) -> Option<Vary> {
        Some(Vary::of_key(self.variant())).filter(|vary| !vary.is_empty())
    }

    /// The key of the variant that it is.
    pub fn variant(&self) -> &[u8] {
        self.head.variant()
    }

    /// The received fields whose names pass.
    pub fn fields(&self, passes: impl Fn(&HeaderName) -> bool) -> HeaderMap {
        template::stored(self.head.fields(), passes)
    }

    /// The validators by which it can be confirmed.
    pub fn validators(&self) -> Validators {
        let validators = [header::ETAG, header::LAST_MODIFIED, header::DATE];
        let fields = self.fields(|name| validators.contains(name));
        let validators = Validators::of(&fields, self.freshness.received());
        if self.is_coded_copy() { validators.of_remade() } else { validators }
    }

    /// The version of the original that coded copies are copies of: see [`StoredHead::copies`].
    pub fn copies(&self) -> u64 {
        self.head.copies()
    }

    /// Whether it is a coded copy.
    pub fn is_coded_copy(&self) -> bool {
        self.copies() != 0 && template::contains(self.head.fields(), &header::CONTENT_ENCODING)
    }

    /// Whether the client that sent these fields has this response already (RFC 9110 Sec. 13.2.2).
    pub fn is_held_by(&self, request: &HeaderMap) -> bool {
        self.status() == StatusCode::OK
            && self.validators().evaluate(request) == Condition::NotModified
    }

    /// Whether this is the variant that `request` selects.
    pub fn answers(&self, request: &HeaderMap) -> bool {
        let variant = self.variant();
        variant.is_empty() || *Vary::of_key(variant).key(request) == *variant
    }

    /// The fields of a response from the store, with the node's status behind what caches nearer to the
    /// origin have reported in `Cache-Status`.
    pub fn reply(&self, own: &HitFields<'_>) -> HeaderMap {
        template::hit(self.head.fields(), self.length(), self.freshness.received(), own)
    }

    /// The same fields as lines of HTTP/1, each with its end.
    pub fn reply_text(&self, own: &HitFields<'_>) -> Vec<u8> {
        template::hit_text(self.head.fields(), self.length(), self.freshness.received(), own)
    }

    /// Where the body is, if it is not here.
    pub fn blocks(&self) -> Option<Blocks> {
        match self.body.len() {
            0 => self.head.blocks(),
            _ => None,
        }
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
        self.blocks().map_or_else(|| self.body.len(), |blocks| blocks.length)
    }

    /// Its size in memory.
    pub(crate) fn weight(&self) -> u64 {
        let own = size_of::<Self>() + ARC + self.head.len() + self.label.weight();
        (own + self.body.weight()) as u64
    }
}
