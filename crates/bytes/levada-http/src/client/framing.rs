//! The end of a response's body, and its pieces (RFC 9112 Sec. 6 and 7).

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;
use memchr::memchr;

use super::{ResponseBodyError, answer::split_head};
use crate::syntax::{self, CHUNK_LINE, TRAILERS};

/// The framing of the rest of a body.
#[derive(Debug)]
pub(super) enum BodyFraming {
    /// Nothing.
    Done,
    /// This many bytes.
    Counted(u64),
    /// Chunks; `extra` bytes were spent on extensions and trailers.
    Chunked { place: ChunkState, extra: usize },
    /// Everything until the server closes.
    UntilClose,
    /// No body: the connection has switched to another protocol.
    Switched,
    /// The body was malformed.
    Broken,
}

/// The next part of a chunked body.
#[derive(Clone, Copy, Debug)]
pub(super) enum ChunkState {
    Size,
    Data(u64),
    DataEnd,
    Trailers,
}

/// Bytes of all chunk extensions, or of the trailers.
const EXTRA: usize = 16 << 10;

impl BodyFraming {
    pub(super) fn chunked() -> Self {
        Self::Chunked { place: ChunkState::Size, extra: 0 }
    }

    /// Takes the next piece out of the bytes that have come; `None` when more must come first, or at the
    /// end.
    pub(super) fn take(
        &mut self,
        read: &mut BytesMut,
    ) -> Result<Option<Frame<Bytes>>, ResponseBodyError> {
        let taken = self.take_any(read);
        if taken.is_err() {
            *self = Self::Broken;
        }
        taken
    }

    fn take_any(&mut self, read: &mut BytesMut) -> Result<Option<Frame<Bytes>>, ResponseBodyError> {
        match self {
            Self::Done => Ok(None),
            Self::Broken | Self::Switched => Err(BROKEN),
            _ if read.is_empty() => Ok(None),
            Self::UntilClose => Ok(Some(Frame::data(read.split().freeze()))),
            Self::Counted(left) => {
                let piece = split(read, left);
                if *left == 0 {
                    *self = Self::Done;
                }
                Ok(Some(Frame::data(piece)))
            }
            Self::Chunked { .. } => self.take_chunk(read),
        }
    }

    fn take_chunk(
        &mut self,
        read: &mut BytesMut,
    ) -> Result<Option<Frame<Bytes>>, ResponseBodyError> {
        while let Self::Chunked { place, extra } = self {
            match place {
                ChunkState::Size => {
                    let Some(end) = memchr(b'\n', read) else {
                        return more(read.len() < CHUNK_LINE);
                    };
                    if end >= CHUNK_LINE {
                        return Err(BROKEN);
                    }
                    let line = read.split_to(end + 1);
                    let (size, rest) = chunk_size(&line).ok_or(BROKEN)?;
                    *extra += rest;
                    if *extra > EXTRA {
                        return Err(BROKEN);
                    }
                    *place = if size == 0 { ChunkState::Trailers } else { ChunkState::Data(size) };
                }
                ChunkState::Data(_) if read.is_empty() => return Ok(None),
                ChunkState::Data(left) => {
                    let piece = split(read, left);
                    if *left == 0 {
                        *place = ChunkState::DataEnd;
                    }
                    return Ok(Some(Frame::data(piece)));
                }
                ChunkState::DataEnd => match read[..] {
                    [b'\r', b'\n', ..] => {
                        read.advance(2);
                        *place = ChunkState::Size;
                    }
                    [] | [b'\r'] => return Ok(None),
                    _ => return Err(BROKEN),
                },
                ChunkState::Trailers => match read[..] {
                    [b'\r', b'\n', ..] => {
                        read.advance(2);
                        *self = Self::Done;
                    }
                    [] | [b'\r'] => return Ok(None),
                    _ => {
                        let Some(section) = split_head(read, 0) else {
                            return more(read.len() < EXTRA);
                        };
                        let trailers = trailers(&section).ok_or(BROKEN)?;
                        *self = Self::Done;
                        return Ok(Some(trailers));
                    }
                },
            }
        }
        Ok(None)
    }
}

const BROKEN: ResponseBodyError = ResponseBodyError::Broken("its chunks are malformed");

/// Waits for more, as long as that is within bounds.
fn more(within: bool) -> Result<Option<Frame<Bytes>>, ResponseBodyError> {
    if within { Ok(None) } else { Err(BROKEN) }
}

/// As much of the rest as has come.
fn split(read: &mut BytesMut, left: &mut u64) -> Bytes {
    let count = usize::try_from(*left).map_or(read.len(), |left| left.min(read.len()));
    *left -= count as u64;
    read.split_to(count).freeze()
}

/// The size that a line with its end states, and the length of its extensions.
fn chunk_size(line: &[u8]) -> Option<(u64, usize)> {
    let (size, rest) = syntax::split_chunk_size(line.strip_suffix(b"\r\n")?);
    let is_extension = syntax::begins_extension(rest) && syntax::is_clean(rest);
    is_extension.then_some((size?, rest.len()))
}

fn trailers(section: &[u8]) -> Option<Frame<Bytes>> {
    if section.len() > EXTRA {
        return None;
    }
    let mut table = [httparse::EMPTY_HEADER; TRAILERS];
    let parsed = httparse::parse_headers(section, &mut table).ok()?;
    let httparse::Status::Complete((end, fields)) = parsed else { return None };
    if end != section.len() {
        return None;
    }
    let mut trailers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        trailers.append(name, HeaderValue::from_bytes(field.value).ok()?);
    }
    Some(Frame::trailers(trailers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The body that comes out, however the bytes are cut.
    fn body(bytes: &[u8], step: usize) -> Result<(Vec<u8>, HeaderMap, usize), ResponseBodyError> {
        let mut framing = BodyFraming::chunked();
        let (mut read, mut body, mut last) = (BytesMut::new(), Vec::new(), HeaderMap::new());
        for piece in bytes.chunks(step) {
            read.extend_from_slice(piece);
            while let Some(frame) = framing.take(&mut read)? {
                match frame.into_data() {
                    Ok(data) => body.extend_from_slice(&data),
                    Err(frame) => last = frame.into_trailers().unwrap_or_default(),
                }
            }
        }
        match framing {
            BodyFraming::Done => Ok((body, last, read.len())),
            _ => Err(BROKEN),
        }
    }

    #[test]
    fn chunks_become_the_body_however_they_arrive() {
        let bytes = b"5;a=b\r\nhello\r\n06\r\n world\r\n0\r\nx: y\r\n\r\nnext";
        for step in 1..bytes.len() {
            let (text, trailers, rest) = body(bytes, step).unwrap();
            assert_eq!(text, b"hello world");
            assert_eq!(trailers["x"], "y");
            assert_eq!(rest, 4, "what comes after is left alone");
        }
        assert_eq!(body(b"0\r\n\r\n", 1).unwrap().0, b"");
    }

    #[test]
    fn what_was_malformed_stays_so() {
        let mut framing = BodyFraming::chunked();
        let mut read = BytesMut::from(&b"x\r\n0\r\n\r\n"[..]);
        for _ in 0..3 {
            assert!(framing.take(&mut read).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_body_or_refused(bytes in "([0-9a-f]{0,2}|\r\n|;|[ -~]{0,3}){0,40}") {
            let whole = body(bytes.as_bytes(), usize::MAX);
            let cut = body(bytes.as_bytes(), 1);
            prop_assert_eq!(whole.is_ok(), cut.is_ok());
        }
    }

    #[test]
    fn chunks_that_could_be_understood_in_two_ways_are_refused() {
        for bytes in [
            &b"5\nhello\r\n0\r\n\r\n"[..],
            b"5\r\nhello\n0\r\n\r\n",
            b"5\r\nhellox\r\n0\r\n\r\n",
            b"\r\n\r\n",
            b"-1\r\n\r\n",
            b"0x5\r\nhello\r\n0\r\n\r\n",
            b"5 5\r\nhello\r\n0\r\n\r\n",
            b"10000000000000000\r\n",
            b"00000000000000005\r\nhello\r\n0\r\n\r\n",
            b"0\r\nbad name: x\r\n\r\n",
            b"0\r\n\n\n",
            b"0\r\n\nHTTP/1.1 200 OK\r\n\r\n",
            b"0\r\na: b\r\n c\r\n\r\n",
            b"5;a\rb\r\nhello\r\n0\r\n\r\n",
            b"5;\0\r\nhello\r\n0\r\n\r\n",
            b"5\r\r\nhello\r\n0\r\n\r\n",
            b";a\r\n0\r\n\r\n",
            b"5\r\nhel",
        ] {
            let text = String::from_utf8_lossy(bytes);
            assert!(body(bytes, 1).is_err() && body(bytes, 100).is_err(), "{text}");
        }
        let many = |line: &str, count: usize| line.repeat(count).into_bytes();
        for bytes in [
            many("1", CHUNK_LINE),
            [b"1;".to_vec(), many("x", CHUNK_LINE), b"\r\nx\r\n0\r\n\r\n".to_vec()].concat(),
            [many(&format!("1;{}\r\nx\r\n", "x".repeat(900)), 20), b"0\r\n\r\n".to_vec()].concat(),
            [b"0\r\n".to_vec(), many("a: b\r\n", EXTRA / 6), b"\r\n".to_vec()].concat(),
            [b"0\r\n".to_vec(), many("a: b\r\n", TRAILERS + 1), b"\r\n".to_vec()].concat(),
        ] {
            assert!(body(&bytes, 100).is_err() && body(&bytes, usize::MAX).is_err());
        }
    }
}
