//! Stored bodies: read segment by segment, or sent by the system itself in one zero-copy chunk.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use levada_http::{FileRange, Hold, Segments, ZeroCopyChunk, ZeroCopyQueue};
use levada_store::{Loan, Object, StoredBody};

use crate::{ReadError, read_at::ReadAt};

/// Reads the body of a stored object.
pub enum StoredReader {
    /// By its segments.
    Segments(Arc<Object>),
    /// By the system.
    Chunk(ZeroCopyChunk, Arc<ZeroCopyQueue>),
}

impl StoredReader {
    /// For a client whose connection has `queue`: by way of it if that pays.
    pub fn new(object: &Arc<Object>, queue: Option<&Arc<ZeroCopyQueue>>) -> Self {
        match (chunk(object.stored_body()), queue) {
            (Some(chunk), Some(queue)) => Self::Chunk(chunk, queue.clone()),
            _ => Self::Segments(object.clone()),
        }
    }
}

impl ReadAt for StoredReader {
    fn poll_at(
        &mut self,
        _: &mut Context<'_>,
        position: u64,
        most: u64,
    ) -> Poll<Option<Result<Bytes, ReadError>>> {
        Poll::Ready(match self {
            Self::Segments(object) => object.at(position).map(Ok),
            Self::Chunk(chunk, queue) => queue.hand_in(chunk, position, most).map(Ok),
        })
    }
}

/// A body that is in a file, or in several segments; one segment leaves as cheaply without this.
pub fn chunk(body: &StoredBody) -> Option<ZeroCopyChunk> {
    chunk_under(body, None)
}

/// A block of a body: in a file, or in several segments under a loan. Without a loan its readers get
/// small pieces of it.
pub(crate) fn lent_chunk(body: &StoredBody, loan: Option<&Arc<Loan>>) -> Option<ZeroCopyChunk> {
    match (body, loan) {
        (StoredBody::Short(_) | StoredBody::Memory(_), None) => None,
        _ => chunk_under(body, loan),
    }
}

fn chunk_under(body: &StoredBody, loan: Option<&Arc<Loan>>) -> Option<ZeroCopyChunk> {
    match body {
        StoredBody::Memory(segments) if segments.len() > 1 => {
            let hold = loan.cloned().map(|loan| -> Hold { loan });
            Some(ZeroCopyChunk::Memory(Segments::new(segments.clone(), hold)))
        }
        StoredBody::Short(_) | StoredBody::Memory(_) => None,
        StoredBody::File(body) => {
            let (file, hold) = (body.file().clone(), body.clone());
            let range = FileRange::new(file, body.start(), body.length(), Some(hold));
            Some(ZeroCopyChunk::File(range))
        }
    }
}
