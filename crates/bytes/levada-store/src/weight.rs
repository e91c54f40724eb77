//! The size of entries in memory, so that the tier's limit means bytes of this process.
//!
//! Sizes of foreign structures are computed as they are laid out; tests/weights.rs holds the sums
//! against an allocator that counts.

use bytes::Bytes;

/// The counts of the owners of an `Arc`.
pub(crate) const ARC: usize = 2 * size_of::<usize>();

/// The count of the owners of a `Bytes`, allocated with the second owner.
pub(crate) const SHARED: usize = 3 * size_of::<usize>();

/// A stored body.
pub(crate) fn segments(body: &[Bytes]) -> usize {
    let segment = |segment: &Bytes| segment.len() + size_of::<Bytes>() + SHARED;
    ARC + body.iter().map(segment).sum::<usize>()
}
