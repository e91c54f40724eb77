//! One block of the body of an object that is kept in blocks.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Instant,
};

use bytes::Bytes;
use levada_types::{Key, hash64, weigh};

use crate::{
    loan::{Loan, Loans, SharedLoan},
    object::StoredBody,
    segments::{at, gather},
    weight::ARC,
};

/// The bytes from `number` times the block size on.
#[derive(Debug)]
pub struct Block {
    /// The key of the object.
    pub object: Key,
    /// Which of the object's contents it is part of.
    pub version: u64,
    /// Which block of that body: 0 is the first.
    pub number: u64,
    body: StoredBody,
    lent: SharedLoan,
}

impl Block {
    /// A block with its body copied together, as that of an object is.
    pub fn new<'a>(
        object: Key,
        version: u64,
        number: u64,
        pieces: impl Iterator<Item = &'a Bytes>,
        len: u64,
    ) -> Self {
        Self::with_body(object, version, number, StoredBody::of(gather(pieces, len)))
    }

    /// A block with a body of its own already.
    pub(crate) fn with_body(object: Key, version: u64, number: u64, body: StoredBody) -> Self {
        Self { object, version, number, body, lent: SharedLoan::default() }
    }

    /// The bytes at a position, up to the end of a segment.
    pub fn at(&self, position: u64) -> Option<Bytes> {
        at(self.body(), position)
    }

    /// The body, unless it is in a file.
    pub fn body(&self) -> &[Bytes] {
        self.body.segments()
    }

    /// Where the body is.
    pub fn stored_body(&self) -> &StoredBody {
        &self.body
    }

    /// The loan under which it may be read even when no tier keeps it any longer.
    pub fn loan(&self, loans: &Arc<Loans>) -> Option<Arc<Loan>> {
        self.lent.take(loans, self.weight())
    }

    /// Its size in memory.
    pub(crate) fn weight(&self) -> u64 {
        (size_of::<Self>() + ARC + self.body.weight()) as u64
    }
}

/// The key of a block.
pub fn block_key(object: Key, version: u64, number: u64) -> Key {
    Key(weigh(Key(weigh(object, version)), number))
}

/// A version that no other object has had, not even before a restart.
pub fn new_version() -> u64 {
    hash64(&RandomState::new().hash_one(Instant::now()).to_le_bytes())
}
