//! The size of entries in memory, so that the tier's limit means bytes of this process.
//!
//! Sizes of foreign structures are computed as they are laid out; tests/weights.rs holds the sums
//! against an allocator that counts.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The counts of the owners of an `Arc`.
pub(crate) const ARC: usize = 2 * size_of::<usize>();

/// The count of the owners of a `Bytes`, allocated with the second owner.
const SHARED: usize = 3 * size_of::<usize>();

/// One name with its first value: both, their hash and a link to further values.
const FIELD: usize = size_of::<HeaderName>() + size_of::<HeaderValue>() + 4 * size_of::<usize>();

/// A further value of a name: with links both ways.
const FURTHER: usize = size_of::<HeaderValue>() + 4 * size_of::<usize>();

/// A place in the index of a map of fields; three of four may be taken.
const PLACE: usize = 4;

/// A map of fields that has no room left over, without the names and values themselves.
pub(crate) fn fields(map: &HeaderMap) -> usize {
    let further = map.len() - map.keys_len();
    map.capacity() * 4 / 3 * PLACE + map.keys_len() * FIELD + further * FURTHER
}

/// A stored body.
pub(crate) fn segments(body: &[Bytes]) -> usize {
    let segment = |segment: &Bytes| segment.len() + size_of::<Bytes>() + SHARED;
    ARC + body.iter().map(segment).sum::<usize>()
}
