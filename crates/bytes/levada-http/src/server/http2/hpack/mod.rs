//! Fields as HTTP/2 writes them (RFC 7541).
//!
//! The decoder has a dynamic table of the size that every client may expect. Its entries are parsed: a field that
//! a client repeats by an index is a copy of one that was read and judged before.
//!
//! The encoder writes names by their static index, and values as they are: no table has to be searched for each
//! response, and none is kept for each connection.

mod decoder;
pub(crate) mod encoder;
mod huffman;
mod table;

pub(super) use self::{decoder::Decoder, table::HeaderField};

/// A header block that cannot be decoded. No later one can be either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// The fields of header blocks that follow each other on a connection, each with its size; `None` if one is broken.
pub(super) fn fields_of<'a>(
    blocks: impl Iterator<Item = &'a [u8]>,
) -> Option<Vec<(String, usize)>> {
    let (mut decoder, mut fields) = (Decoder::new(), Vec::new());
    for block in blocks {
        decoder.decode(block, |field, size| fields.push((format!("{field:?}"), size))).ok()?;
    }
    Some(fields)
}
