//! One block of the body of an object that is kept in blocks.

use std::sync::Arc;

use bytes::Bytes;
use levada_types::Key;

use crate::{
    blocks::{Loan, Loans, SharedLoan},
    guard::ZeroCopyChunk,
};

use super::{
    object::Body,
    segments::{at, gather},
    weight::{ARC, segments},
};

/// The bytes from `number` times the block size on.
#[derive(Debug)]
pub(crate) struct Block {
    /// The key of the object.
    pub(crate) object: Key,
    /// Which of the object's contents it is part of.
    pub(crate) version: u64,
    pub(crate) number: u64,
    body: Body,
    lent: SharedLoan,
}

impl Block {
    /// A block with its body copied together, as that of an object is.
    pub(crate) fn new<'a>(
        object: Key,
        version: u64,
        number: u64,
        pieces: impl Iterator<Item = &'a Bytes>,
        len: u64,
    ) -> Self {
        Self::with_body(object, version, number, Body::Here(gather(pieces, len)))
    }

    /// A block with a body of its own already.
    pub(super) fn with_body(object: Key, version: u64, number: u64, body: Body) -> Self {
        Self { object, version, number, body, lent: SharedLoan::default() }
    }

    /// What is at a position, up to the end of a segment.
    pub(crate) fn at(&self, position: u64) -> Option<Bytes> {
        at(self.body(), position)
    }

    /// The body, unless it is in a file.
    pub(crate) fn body(&self) -> &[Bytes] {
        self.body.segments()
    }

    /// The body as it leaves at once: from its file, or under the loan that [`Self::loan`] gave.
    pub(crate) fn chunk(&self, loan: Option<&Arc<Loan>>) -> Option<ZeroCopyChunk> {
        match (&self.body, loan) {
            (Body::Here(_), None) => None,
            _ => self.body.chunk(loan),
        }
    }

    /// The loan under which it may be read even when no tier keeps it any longer.
    pub(crate) fn loan(&self, loans: &Arc<Loans>) -> Option<Arc<Loan>> {
        self.lent.take(loans, self.weight())
    }

    /// What it takes of memory.
    pub(super) fn weight(&self) -> u64 {
        (size_of::<Self>() + ARC + segments(self.body())) as u64
    }
}
