//! Stored bodies as chunks that the system sends by itself.

use std::sync::Arc;

use levada_http1::{FileRange, Hold, Segments, ZeroCopyChunk};
use levada_store::{Loan, StoredBody};

/// A body that is in a file, or in several segments; one segment leaves as cheaply without this.
pub(crate) fn chunk(body: &StoredBody) -> Option<ZeroCopyChunk> {
    chunk_under(body, None)
}

/// A block of a body: in a file, or in several segments under a loan. Without a loan its readers get
/// small pieces of it.
pub(crate) fn lent_chunk(body: &StoredBody, loan: Option<&Arc<Loan>>) -> Option<ZeroCopyChunk> {
    match (body, loan) {
        (StoredBody::Memory(_), None) => None,
        _ => chunk_under(body, loan),
    }
}

fn chunk_under(body: &StoredBody, loan: Option<&Arc<Loan>>) -> Option<ZeroCopyChunk> {
    match body {
        StoredBody::Memory(segments) if segments.len() > 1 => {
            let hold = loan.cloned().map(|loan| -> Hold { loan });
            Some(ZeroCopyChunk::Memory(Segments::new(segments.clone(), hold)))
        }
        StoredBody::Memory(_) => None,
        StoredBody::File(body) => {
            let (file, hold) = (body.file().clone(), body.clone());
            let range = FileRange::new(file, body.start(), body.length(), Some(hold));
            Some(ZeroCopyChunk::File(range))
        }
    }
}
