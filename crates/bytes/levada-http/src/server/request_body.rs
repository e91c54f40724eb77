//! The body of a request in the bytes of a connection (RFC 9112 Sec. 6 and 7), read strictly.

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;

use super::{
    facts::{LONGEST, RequestLength},
    fault::Fault,
    head,
    parser::{split_field, take_line, value},
};
use crate::syntax::{self, CHUNK_LINE, TRAILERS};

/// Bytes of all chunk extensions and trailers of one body.
pub(crate) const OVERHEAD: usize = 8 << 10;

/// The rest of one request's body.
#[derive(Debug)]
pub(super) struct BodyDecoder {
    place: BodyPlace,
    /// The position where the search for the end of a line continues.
    searched: usize,
    /// Bytes of chunk extensions and trailers that this body has cost.
    overhead: usize,
    trailers: HeaderMap,
}

/// The next part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyPlace {
    Done,
    Counted(u64),
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailers,
}

impl BodyDecoder {
    pub(super) fn new(length: RequestLength) -> Self {
        let place = match length {
            RequestLength::Counted(0) => BodyPlace::Done,
            RequestLength::Counted(length) => BodyPlace::Counted(length),
            RequestLength::Chunked => BodyPlace::ChunkSize,
        };
        Self { place, searched: 0, overhead: 0, trailers: HeaderMap::new() }
    }

    /// Whether all of the body was taken.
    pub(super) fn is_done(&self) -> bool {
        self.place == BodyPlace::Done
    }

    /// Takes the next piece out of the bytes that have come; `None` when more must come first, or at the end. A
    /// fault is final.
    pub(super) fn take(&mut self, read: &mut BytesMut) -> Result<Option<Frame<Bytes>>, Fault> {
        while !read.is_empty() {
            match self.place {
                BodyPlace::Done => break,
                BodyPlace::Counted(left) => {
                    let (piece, left) = split(read, left);
                    self.place = if left == 0 { BodyPlace::Done } else { BodyPlace::Counted(left) };
                    return Ok(Some(Frame::data(piece)));
                }
                BodyPlace::ChunkData(left) => {
                    let (piece, left) = split(read, left);
                    self.place =
                        if left == 0 { BodyPlace::ChunkEnd } else { BodyPlace::ChunkData(left) };
                    return Ok(Some(Frame::data(piece)));
                }
                BodyPlace::ChunkSize => {
                    if !self.take_size(read)? {
                        break;
                    }
                }
                BodyPlace::ChunkEnd => match read[..] {
                    [b'\r', b'\n', ..] => {
                        read.advance(2);
                        self.place = BodyPlace::ChunkSize;
                    }
                    [b'\r'] => break,
                    [b'\r', ..] => return Err(Fault::BareCr),
                    [b'\n', ..] => return Err(Fault::BareLf),
                    _ => return Err(Fault::ChunkEnd),
                },
                BodyPlace::Trailers => match self.take_trailer(read)? {
                    None => break,
                    Some(false) => {}
                    Some(true) => {
                        self.place = BodyPlace::Done;
                        let trailers = std::mem::take(&mut self.trailers);
                        return Ok((!trailers.is_empty()).then(|| Frame::trailers(trailers)));
                    }
                },
            }
        }
        Ok(None)
    }

    /// RFC 9112 section 7.1: `chunk-size [ chunk-ext ] CRLF`. False when its end has not come.
    fn take_size(&mut self, read: &mut BytesMut) -> Result<bool, Fault> {
        let line = take_line(read, &mut self.searched, CHUNK_LINE);
        let Some(line) = line.map_err(|bad| bad.or(Fault::ChunkExtensionsTooLong))? else {
            return Ok(false);
        };
        let (size, extension) = syntax::split_chunk_size(&line);
        // Recipients should bound what the extensions of a whole body cost (section 7.1.1).
        self.overhead += extension.len();
        if self.overhead > OVERHEAD {
            return Err(Fault::ChunkExtensionsTooLong);
        }
        let size = size.filter(|&size| size <= LONGEST);
        let size = size.ok_or_else(|| head::or_bare_cr(&line, Fault::ChunkSize))?;
        check_extension(extension)?;
        self.place = if size == 0 { BodyPlace::Trailers } else { BodyPlace::ChunkData(size) };
        Ok(true)
    }

    /// RFC 9112 section 7.1.2. True at the empty line that ends the section, `None` when the end of a line has not
    /// come.
    fn take_trailer(&mut self, read: &mut BytesMut) -> Result<Option<bool>, Fault> {
        let left = OVERHEAD.saturating_sub(self.overhead);
        let line = take_line(read, &mut self.searched, left);
        let Some(line) = line.map_err(|bad| bad.or(Fault::TrailersTooLarge))? else {
            return Ok(None);
        };
        self.overhead += line.len() + 2;
        if line.is_empty() {
            return Ok(Some(true));
        }
        let (name, place) = split_field(&line)?;
        if self.trailers.len() >= TRAILERS {
            return Err(Fault::TrailersTooLarge);
        }
        if is_framing(name.as_str().as_bytes()) {
            return Err(Fault::TrailerForbidden);
        }
        self.trailers.append(name, value(&line, place)?);
        Ok(Some(false))
    }
}

/// As much of the rest as has come, and the length that is left then.
fn split(read: &mut BytesMut, left: u64) -> (Bytes, u64) {
    let count = usize::try_from(left).map_or(read.len(), |left| left.min(read.len()));
    (read.split_to(count).freeze(), left - count as u64)
}

/// RFC 9112 section 7.1.1: nothing, or `;` after optional white space.
fn check_extension(extension: &[u8]) -> Result<(), Fault> {
    let is_blank = !extension.is_empty() && syntax::trimmed(extension).is_empty();
    match (syntax::begins_extension(extension) && !is_blank, syntax::is_clean(extension)) {
        (true, true) => Ok(()),
        (false, true) => Err(Fault::ChunkSize),
        (_, false) => Err(head::or_bare_cr(extension, Fault::ChunkExtension)),
    }
}

/// Whether a field decides about framing or routing. It must not come after the body.
fn is_framing(name: &[u8]) -> bool {
    let fields: [&[u8]; 3] = [b"host", b"content-length", b"transfer-encoding"];
    fields.iter().any(|field| name.eq_ignore_ascii_case(field))
}
