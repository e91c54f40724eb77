//! Stored bodies as chunks that the system sends by itself.

use std::sync::Arc;

use levada_store::{Loan, StoredBody};

use crate::guard::{Segments, ZeroCopyChunk};

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
            let (segments, _loan) = (segments.clone(), loan.cloned());
            Some(ZeroCopyChunk::Memory(Segments { segments, _loan }))
        }
        StoredBody::Memory(_) => None,
        StoredBody::File(file) => Some(ZeroCopyChunk::File(file.clone())),
    }
}
