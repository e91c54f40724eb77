//! The head of a request, parsed and judged in one pass.
//!
//! Each line is taken as soon as it is complete, so that a fault is found in the line that has it. Values
//! are slices of the bytes that were read.

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
    headers: HeaderMap,
    facts: HeadFacts,
    /// Bytes of the head that were taken.
    taken: usize,
    /// The position behind them where the search for the end of a line continues.
    searched: usize,
}

#[derive(Debug)]
struct RequestLine {
    method: Method,
    uri: Uri,
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
            headers: HeaderMap::new(),
            facts: HeadFacts::default(),
            taken: 0,
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

    /// Takes the lines that have come, and the head when its last one has. A fault is final.
    pub(super) fn take(&mut self, read: &mut BytesMut) -> Result<Option<RequestHead>, Fault> {
        if !self.is_later && self.taken == 0 && read.first() == Some(&HANDSHAKE) {
            return Err(Fault::TlsHello);
        }
        loop {
            let (limit, over) = match self.line {
                None => (self.bounds.head.min(REQUEST_LINE), Fault::RequestLineTooLong),
                Some(_) => (self.bounds.head, Fault::HeadTooLarge),
            };
            let Some(line) = take_line(read, &mut self.searched, limit - self.taken.min(limit))
                .map_err(|bad| bad.or(over))?
            else {
                return Ok(None);
            };
            self.taken += line.len() + 2;
            match (line.is_empty(), self.line.is_some()) {
                (true, false) => self.skip()?,
                (false, false) => self.line = Some(request_line(line)?),
                (false, true) => self.field(line)?,
                (true, true) => return self.end().map(Some),
            }
        }
    }

    /// A server should ignore at least one empty line before a request line (RFC 9112 section 2.2).
    fn skip(&mut self) -> Result<(), Fault> {
        if std::mem::replace(&mut self.skipped, true) { Err(Fault::EmptyLine) } else { Ok(()) }
    }

    fn field(&mut self, line: Bytes) -> Result<(), Fault> {
        let (name, value) = split_field(line)?;
        if self.headers.len() >= self.bounds.fields {
            return Err(Fault::TooManyFields);
        }
        self.facts.note(name.as_str().as_bytes(), value.as_bytes())?;
        if self.headers.capacity() == 0 {
            self.headers.reserve(FIELDS);
        }
        self.headers.try_append(name, value).map_err(|_| Fault::TooManyFields)?;
        Ok(())
    }

    fn end(&mut self) -> Result<RequestHead, Fault> {
        let facts = std::mem::take(&mut self.facts);
        let Some(RequestLine { method, uri, version }) = self.line.take() else {
            return Err(Fault::Method);
        };
        let length = facts.body(version)?;
        (self.is_later, self.skipped, self.taken) = (true, false, 0);
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.version_mut() = match version {
            Version::Http10 => http::Version::HTTP_10,
            Version::Http11 => http::Version::HTTP_11,
        };
        *request.headers_mut() = std::mem::take(&mut self.headers);
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

/// Takes the next line, and cuts off its CRLF; `None` when its end has not come. Its LF must lie within the first
/// `limit` bytes.
pub(super) fn take_line(
    read: &mut BytesMut,
    searched: &mut usize,
    limit: usize,
) -> Result<Option<Bytes>, BadLine> {
    let Some(found) = memchr(b'\n', &read[*searched..]) else {
        *searched = read.len();
        return if read.len() > limit { Err(BadLine::Over) } else { Ok(None) };
    };
    let end = *searched + found;
    if end >= limit {
        return Err(BadLine::Over);
    }
    *searched = 0;
    let mut line = read.split_to(end + 1);
    if !line.ends_with(b"\r\n") {
        return Err(BadLine::BareLf);
    }
    line.truncate(end - 1);
    Ok(Some(line.freeze()))
}

fn request_line(line: Bytes) -> Result<RequestLine, Fault> {
    let SplitLine { method, target, version } = head::request_line(&line)?;
    let parsed = (Method::from_bytes(method), Uri::from_maybe_shared(line.slice_ref(target)));
    match parsed {
        (Ok(method), Ok(uri)) => Ok(RequestLine { method, uri, version }),
        (Err(_), _) => Err(Fault::Method),
        (_, Err(_)) => Err(Fault::Target),
    }
}

/// Splits a field line at its colon. A line that has a fault is judged again, for the name of the fault.
pub(super) fn split_field(mut line: Bytes) -> Result<(HeaderName, HeaderValue), Fault> {
    let fault = |line: &[u8]| head::field(line).err().unwrap_or(Fault::FieldName);
    let colon = memchr(b':', &line).unwrap_or(line.len());
    let name = match HeaderName::from_bytes(&line[..colon]) {
        Ok(name) if colon < line.len() => name,
        _ => return Err(fault(&line)),
    };
    let value = syntax::trimmed(&line[colon + 1..]);
    if !syntax::is_clean(value) {
        return Err(fault(&line));
    }
    // The slice becomes the value itself: another handle to its bytes would cost more.
    let (start, length) = (value.as_ptr().addr() - line.as_ptr().addr(), value.len());
    line.advance(start);
    line.truncate(length);
    HeaderValue::from_maybe_shared(line).map_or(Err(Fault::FieldValue), |value| Ok((name, value)))
}

#[cfg(test)]
pub(super) mod tests;
