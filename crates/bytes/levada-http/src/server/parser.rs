//! The head of a request, parsed and judged in one pass.
//!
//! Each line is judged as soon as it is complete, so that a fault is found in the line that has it. When the last
//! line has come, the head is cut off as one piece of memory, and its values are slices of it.

use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use memchr::memchr;

use super::{
    facts::{HeadFacts, RequestLength},
    fault::Fault,
    head::{self, SplitLine, Version},
};
use crate::syntax;

/// The bounds of a head.
#[derive(Clone, Copy, Debug)]
pub struct HeadBounds {
    /// Bytes of a head, its request line included.
    pub head: usize,
    /// Fields of a head.
    pub fields: usize,
}

/// The parser of one connection's heads.
#[derive(Debug)]
pub(super) struct HeadParser {
    bounds: HeadBounds,
    /// A head was taken.
    is_later: bool,
    /// One empty line was skipped.
    skipped: bool,
    line: Option<RequestLine>,
    fields: Vec<Field>,
    headers: HeaderMap,
    facts: HeadFacts,
    /// Bytes of the head that were judged.
    judged: usize,
    /// The position behind them where the search for the end of a line continues.
    searched: usize,
}

/// A field, with the place of its value in the head.
type Field = (HeaderName, Range<usize>);

#[derive(Debug)]
struct RequestLine {
    method: Method,
    target: Range<usize>,
    version: Version,
}

/// A complete head.
#[derive(Debug)]
pub(super) struct RequestHead {
    pub(super) request: Request<()>,
    pub(super) length: RequestLength,
    /// The client keeps the connection open.
    pub(super) stays: bool,
    /// It waits until it is asked for the body.
    pub(super) expects: bool,
    pub(super) takes_trailers: bool,
}

/// The first byte of a TLS handshake record (RFC 8446 section 5.1); no method begins with it.
const HANDSHAKE: u8 = 0x16;
/// Bytes of a request line. RFC 9112 section 3 wants at least 8000.
pub(super) const REQUEST_LINE: usize = 16 << 10;
/// Fields that most heads have room for.
const FIELDS: usize = 16;

impl HeadParser {
    pub(super) fn new(bounds: HeadBounds) -> Self {
        Self {
            bounds,
            is_later: false,
            skipped: false,
            line: None,
            fields: Vec::new(),
            headers: HeaderMap::new(),
            facts: HeadFacts::default(),
            judged: 0,
            searched: 0,
        }
    }

    /// Whether no byte of a head was taken. The tolerated empty line ends the request before, and begins none.
    pub(super) fn is_between(&self) -> bool {
        self.line.is_none()
    }

    /// Gives the memory of a map to the next head.
    pub(super) fn recycle(&mut self, mut headers: HeaderMap) {
        headers.clear();
        if headers.capacity() <= 4 * FIELDS {
            self.headers = headers;
        }
    }

    /// Judges the lines that have come, and takes the head when its last one has. A fault is final.
    pub(super) fn take(&mut self, read: &mut BytesMut) -> Result<Option<RequestHead>, Fault> {
        if !self.is_later && self.judged == 0 && read.first() == Some(&HANDSHAKE) {
            return Err(Fault::TlsHello);
        }
        loop {
            let (limit, over) = match self.line {
                None => (self.bounds.head.min(REQUEST_LINE), Fault::RequestLineTooLong),
                Some(_) => (self.bounds.head, Fault::HeadTooLarge),
            };
            let begin = self.judged;
            let Some(line) =
                find_line(&read[begin..], &mut self.searched, limit - begin.min(limit))
                    .map_err(|bad| bad.or(over))?
            else {
                return Ok(None);
            };
            self.judged += line.len() + LINE_END;
            match (line.is_empty(), &self.line) {
                (true, None) => self.skip(read)?,
                (false, None) => self.line = Some(request_line(line, begin)?),
                (false, Some(_)) => {
                    if self.fields.len() >= self.bounds.fields {
                        return Err(Fault::TooManyFields);
                    }
                    let (name, value) = split_field(line)?;
                    self.facts.note(name.as_str().as_bytes(), &line[value.clone()])?;
                    self.fields.push((name, begin + value.start..begin + value.end));
                }
                (true, Some(_)) => return self.end(read).map(Some),
            }
        }
    }

    /// A server should ignore at least one empty line before a request line (RFC 9112 section 2.2).
    fn skip(&mut self, read: &mut BytesMut) -> Result<(), Fault> {
        read.advance(std::mem::take(&mut self.judged));
        if std::mem::replace(&mut self.skipped, true) { Err(Fault::EmptyLine) } else { Ok(()) }
    }

    fn end(&mut self, read: &mut BytesMut) -> Result<RequestHead, Fault> {
        let facts = std::mem::take(&mut self.facts);
        let Some(RequestLine { method, target, version }) = self.line.take() else {
            return Err(Fault::Method);
        };
        let length = facts.body(version)?;
        let head = read.split_to(std::mem::take(&mut self.judged)).freeze();
        (self.is_later, self.skipped) = (true, false);
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() =
            Uri::from_maybe_shared(head.slice(target)).map_err(|_| Fault::Target)?;
        *request.version_mut() = match version {
            Version::Http10 => http::Version::HTTP_10,
            Version::Http11 => http::Version::HTTP_11,
        };
        let mut headers = std::mem::take(&mut self.headers);
        if headers.capacity() == 0 {
            headers.reserve(FIELDS);
        }
        for (name, place) in self.fields.drain(..) {
            headers.try_append(name, value(&head, place)?).map_err(|_| Fault::TooManyFields)?;
        }
        self.fields.shrink_to(4 * FIELDS);
        *request.headers_mut() = headers;
        Ok(RequestHead {
            request,
            length,
            stays: !facts.closes(version),
            expects: facts.expects(version),
            takes_trailers: facts.takes_trailers(),
        })
    }
}

/// The first head in these bytes; `None` while it is not complete.
///
/// # Errors
/// The fault that ends the connection.
pub fn first_head(bytes: &[u8], bounds: HeadBounds) -> Result<Option<Request<()>>, Fault> {
    let head = HeadParser::new(bounds).take(&mut BytesMut::from(bytes))?;
    Ok(head.map(|head| head.request))
}

/// The fault of a line's end.
pub(super) enum BadLine {
    /// No CR comes before its LF.
    BareLf,
    /// It is beyond its bound.
    Over,
}

impl BadLine {
    /// The fault, which is `over` when the line is too long.
    pub(super) fn or(self, over: Fault) -> Fault {
        match self {
            Self::BareLf => Fault::BareLf,
            Self::Over => over,
        }
    }
}

/// CR and LF.
const LINE_END: usize = 2;

/// The next line, without its CRLF; `None` when its end has not come. Its LF must lie within the first `limit` bytes.
fn find_line<'a>(
    bytes: &'a [u8],
    searched: &mut usize,
    limit: usize,
) -> Result<Option<&'a [u8]>, BadLine> {
    let Some(found) = memchr(b'\n', &bytes[*searched..]) else {
        *searched = bytes.len();
        return if bytes.len() > limit { Err(BadLine::Over) } else { Ok(None) };
    };
    let end = *searched + found;
    if end >= limit {
        return Err(BadLine::Over);
    }
    *searched = 0;
    match bytes[..end].split_last() {
        Some((b'\r', line)) => Ok(Some(line)),
        _ => Err(BadLine::BareLf),
    }
}

/// Takes the next line, as [`find_line`] finds it.
pub(super) fn take_line(
    read: &mut BytesMut,
    searched: &mut usize,
    limit: usize,
) -> Result<Option<Bytes>, BadLine> {
    let Some(length) = find_line(read, searched, limit)?.map(<[u8]>::len) else {
        return Ok(None);
    };
    let mut line = read.split_to(length + LINE_END);
    line.truncate(length);
    Ok(Some(line.freeze()))
}

fn request_line(line: &[u8], begin: usize) -> Result<RequestLine, Fault> {
    let SplitLine { method, target, version } = head::request_line(line)?;
    let at = begin + method.len() + 1;
    let method = Method::from_bytes(method).map_err(|_| Fault::Method)?;
    Ok(RequestLine { method, target: at..at + target.len(), version })
}

/// Splits a field line at its colon, and finds the place of its value. A line that has a fault is judged again, for the
/// name of the fault.
pub(super) fn split_field(line: &[u8]) -> Result<Field, Fault> {
    let fault = || head::field(line).err().unwrap_or(Fault::FieldName);
    // Names are short.
    let colon = line.iter().position(|&byte| byte == b':').ok_or_else(fault)?;
    let name = HeaderName::from_bytes(&line[..colon]).map_err(|_| fault())?;
    let value = syntax::trimmed(&line[colon + 1..]);
    if !syntax::is_clean(value) {
        return Err(fault());
    }
    let start = value.as_ptr().addr() - line.as_ptr().addr();
    Ok((name, start..start + value.len()))
}

/// The value at a place that [`split_field`] found.
pub(super) fn value(bytes: &Bytes, place: Range<usize>) -> Result<HeaderValue, Fault> {
    HeaderValue::from_maybe_shared(bytes.slice(place)).map_err(|_| Fault::FieldValue)
}

#[cfg(test)]
pub(super) mod tests;
