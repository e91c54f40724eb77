//! One block of the body of an object that is kept in blocks.

use bytes::Bytes;
use levada_types::Key;

use super::{
    segments::gather,
    weight::{ARC, segments},
};

/// The bytes from `number` times the block size on.
#[derive(Debug)]
#[allow(dead_code, reason = "read when long objects are kept in blocks")]
pub(crate) struct Block {
    /// The key of the object.
    pub(crate) object: Key,
    /// Which of the object's contents it is part of.
    pub(crate) version: u64,
    pub(crate) number: u32,
    body: Box<[Bytes]>,
    len: u64,
}

impl Block {
    /// A block with its body copied together, as that of an object is.
    #[allow(dead_code, reason = "made when long objects are kept in blocks")]
    pub(crate) fn new<'a>(
        object: Key,
        version: u64,
        number: u32,
        pieces: impl Iterator<Item = &'a Bytes>,
        len: u64,
    ) -> Self {
        let body = gather(pieces, len);
        let len = body.iter().map(|segment| segment.len() as u64).sum();
        Self { object, version, number, body, len }
    }

    #[allow(dead_code, reason = "read when long objects are kept in blocks")]
    pub(crate) fn body(&self) -> &[Bytes] {
        &self.body
    }

    #[allow(dead_code, reason = "read when long objects are kept in blocks")]
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// What it takes of memory.
    pub(super) fn weight(&self) -> u64 {
        (size_of::<Self>() + ARC + segments(&self.body)) as u64
    }
}
