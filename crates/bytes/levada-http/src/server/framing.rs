//! Where requests begin and end in the bytes of a connection (RFC 9112), strictly.
//!
//! ```text
//!              +-------------------- no body --------------------+
//!              v                                                 |
//!   +------> Head ---- Content-Length: n ----> Counted(n) -------+
//!   |          |                                                 ^
//!   |          +---- Upgrade: websocket ----> Switching ---------+  when the answer is HTTP's
//!   |          |                                                 |
//!   |          +---- Transfer-Encoding: chunked                  |
//!   |                     v                                      |
//!   |                 ChunkSize ---- 0 ---> Trailers --- empty line
//!   |                  |     ^
//!   |             ChunkData -> ChunkEnd
//! ```
//!
//! The scanner runs in front of a lenient parser. It changes no byte; it only says how many of them
//! may pass. A head passes as a whole or not at all, and so does a line of chunk framing: the parser
//! behind never sees a part of one that has a fault.
//!
//! Deliberately absent: the meaning of a request. Methods, hosts and fields are judged by their syntax
//! and their effect on framing only.

use memchr::memchr;

use super::{
    facts::{HeadFacts, RequestLength},
    fault::Fault,
    head::{self, Version},
};
use crate::syntax::{self, CHUNK_LINE, TRAILERS};

/// The bounds of a head.
#[derive(Clone, Copy, Debug)]
pub struct HeadBounds {
    /// Bytes of a head, its request line included.
    pub head: usize,
    /// Fields of a head.
    pub fields: usize,
}

/// The state of one connection's request stream.
#[derive(Debug)]
pub struct RequestFraming {
    bounds: HeadBounds,
    place: FramingState,
    head: HeadProgress,
    /// The position of the first line that was not checked, in the bytes that were not accepted yet.
    judged: usize,
    /// The position where the search for the end of that line continues.
    searched: usize,
    /// Bytes of chunk extensions and trailers that this body has cost.
    overhead: usize,
    /// Fields of its trailer section.
    trailers: usize,
    heads: u64,
    /// Whether the last of them wants the connection closed after its response.
    closes: bool,
}

/// The result of [`RequestFraming::feed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedBytes {
    /// How many bytes may pass.
    pub accepted: usize,
    /// The fault of the byte after them, or of the head or line that begins there.
    pub fault: Option<Fault>,
}

/// The part of a request that is awaited, as far as deadlines depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AwaitedPart {
    /// No byte of a request has come.
    Between,
    /// A head has started.
    Head,
    /// A head is complete, its body is not.
    Body,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FramingState {
    Head,
    Counted(u64),
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailers,
    /// The bytes that follow belong to WebSocket, if the answer switches to it, and to the next request
    /// otherwise (RFC 9110 section 7.8).
    Switching,
}

/// The head that is being read.
#[derive(Debug, Default)]
struct HeadProgress {
    /// One empty line was skipped.
    skipped: bool,
    version: Option<Version>,
    fields: usize,
    facts: HeadFacts,
}

impl RequestFraming {
    /// The state before the first request.
    pub fn new(bounds: HeadBounds) -> Self {
        Self {
            bounds,
            place: FramingState::Head,
            head: HeadProgress::default(),
            judged: 0,
            searched: 0,
            overhead: 0,
            trailers: 0,
            heads: 0,
            closes: false,
        }
    }

    /// Scans bytes in the order of their arrival.
    ///
    /// `pending` begins with the first byte that no earlier call accepted. The caller keeps the rest and
    /// presents it again with more behind it. No byte is scanned twice. A fault is final: do not call this
    /// again.
    pub fn feed(&mut self, pending: &[u8]) -> ScannedBytes {
        let mut accepted = 0;
        loop {
            match self.step(&pending[accepted..]) {
                Ok(0) => return ScannedBytes { accepted, fault: None },
                Ok(taken) => accepted += taken,
                Err(fault) => return ScannedBytes { accepted, fault: Some(fault) },
            }
        }
    }

    /// Which part of a request the next byte belongs to.
    pub(super) fn part(&self) -> AwaitedPart {
        match self.place {
            // The tolerated empty line ends the request before, and begins none.
            FramingState::Head if self.searched == 2 * usize::from(self.head.skipped) => {
                AwaitedPart::Between
            }
            FramingState::Switching => AwaitedPart::Between,
            FramingState::Head => AwaitedPart::Head,
            _ => AwaitedPart::Body,
        }
    }

    /// Whether the last head asks for WebSocket. No byte after it is accepted before [`Self::resume`].
    pub fn is_switching(&self) -> bool {
        self.place == FramingState::Switching
    }

    /// Goes on with requests: the answer did not switch to WebSocket.
    pub fn resume(&mut self) {
        if self.is_switching() {
            self.place = FramingState::Head;
        }
    }

    /// Whether the connection closes after the response to the last request (RFC 9112 section 9.6).
    pub(super) fn closes(&self) -> bool {
        self.closes
    }

    /// How many heads were accepted.
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// Takes one head, one line or one run of body bytes; 0 when more bytes are needed.
    fn step(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        if bytes.is_empty() {
            return Ok(0);
        }
        match self.place {
            FramingState::Head => self.head(bytes),
            FramingState::Counted(left) => {
                Ok(self.run(bytes, left, FramingState::Counted, FramingState::Head))
            }
            FramingState::ChunkSize => self.chunk_size(bytes),
            FramingState::ChunkData(left) => {
                Ok(self.run(bytes, left, FramingState::ChunkData, FramingState::ChunkEnd))
            }
            FramingState::ChunkEnd => self.chunk_end(bytes),
            FramingState::Trailers => self.trailer(bytes),
            FramingState::Switching => Ok(0),
        }
    }

    fn head(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        if self.heads == 0 && bytes[0] == HANDSHAKE {
            return Err(Fault::TlsHello);
        }
        loop {
            let (limit, over) = match self.head.version {
                None => (self.bounds.head.min(REQUEST_LINE), Fault::RequestLineTooLong),
                Some(_) => (self.bounds.head, Fault::HeadTooLarge),
            };
            let Some(line) = self.line(bytes, limit, over)? else {
                return Ok(0);
            };
            match (self.head.version, line) {
                (None, []) => self.head.skip()?,
                (None, line) => self.head.version = Some(head::request_line(line)?.version),
                (Some(version), []) => return self.head_end(version),
                (Some(_), line) => self.head.field(line, self.bounds.fields)?,
            }
        }
    }

    fn head_end(&mut self, version: Version) -> Result<usize, Fault> {
        self.place = self.head.body(version)?;
        self.closes = self.head.facts.closes(version);
        self.head = HeadProgress::default();
        self.overhead = 0;
        self.trailers = 0;
        self.heads += 1;
        Ok(self.take_line())
    }

    /// Takes a run of body bytes of which `left` are to come.
    fn run(
        &mut self,
        bytes: &[u8],
        left: u64,
        more: fn(u64) -> FramingState,
        then: FramingState,
    ) -> usize {
        let taken = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
        self.place = match left - taken as u64 {
            0 => then,
            left => more(left),
        };
        taken
    }

    /// RFC 9112 section 7.1: `chunk-size [ chunk-ext ] CRLF`.
    fn chunk_size(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let Some(line) = self.line(bytes, CHUNK_LINE, Fault::ChunkExtensionsTooLong)? else {
            return Ok(0);
        };
        let (size, extension) = syntax::split_chunk_size(line);
        // Recipients should bound what the extensions of a whole body cost (section 7.1.1).
        self.overhead += extension.len();
        if self.overhead > OVERHEAD {
            return Err(Fault::ChunkExtensionsTooLong);
        }
        let size = size.filter(|&size| size <= LONGEST);
        self.place = match size.ok_or_else(|| head::or_bare_cr(line, Fault::ChunkSize))? {
            0 => FramingState::Trailers,
            length => FramingState::ChunkData(length),
        };
        check_extension(extension)?;
        Ok(self.take_line())
    }

    fn chunk_end(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        match bytes {
            [b'\r', b'\n', ..] => {
                self.place = FramingState::ChunkSize;
                Ok(2)
            }
            [b'\r'] => Ok(0),
            [b'\r', ..] => Err(Fault::BareCr),
            [b'\n', ..] => Err(Fault::BareLf),
            _ => Err(Fault::ChunkEnd),
        }
    }

    /// RFC 9112 section 7.1.2. The empty line at the end makes a body complete, so it does not pass when a
    /// trailer before it has a fault.
    fn trailer(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let left = OVERHEAD.saturating_sub(self.overhead);
        let Some(line) = self.line(bytes, left, Fault::TrailersTooLarge)? else {
            return Ok(0);
        };
        if line.is_empty() {
            self.place = FramingState::Head;
        } else {
            let (name, _) = head::field(line)?;
            self.trailers += 1;
            if self.trailers > TRAILERS {
                return Err(Fault::TrailersTooLarge);
            }
            if is_framing(name) {
                return Err(Fault::TrailerForbidden);
            }
        }
        let taken = self.take_line();
        self.overhead += taken;
        Ok(taken)
    }

    /// The next line without its CRLF, or `None` when its end has not come. The fault is `over` when
    /// `limit` bytes from the start have come without it.
    fn line<'a>(
        &mut self,
        bytes: &'a [u8],
        limit: usize,
        over: Fault,
    ) -> Result<Option<&'a [u8]>, Fault> {
        let rest = bytes.get(self.searched..).unwrap_or_default();
        let Some(found) = memchr(b'\n', rest) else {
            self.searched = bytes.len();
            return if bytes.len() > limit { Err(over) } else { Ok(None) };
        };
        let end = self.searched + found;
        if end >= limit {
            return Err(over);
        }
        let line = &bytes[self.judged..end];
        self.judged = end + 1;
        self.searched = end + 1;
        line.strip_suffix(b"\r").map(Some).ok_or(Fault::BareLf)
    }

    /// Accepts the lines checked so far.
    fn take_line(&mut self) -> usize {
        self.searched = 0;
        std::mem::take(&mut self.judged)
    }
}

impl HeadProgress {
    /// A server should ignore at least one empty line before a request line (RFC 9112 section 2.2).
    fn skip(&mut self) -> Result<(), Fault> {
        if std::mem::replace(&mut self.skipped, true) { Err(Fault::EmptyLine) } else { Ok(()) }
    }

    fn field(&mut self, line: &[u8], limit: usize) -> Result<(), Fault> {
        let (name, value) = head::field(line)?;
        self.fields += 1;
        if self.fields > limit {
            return Err(Fault::TooManyFields);
        }
        self.facts.note(name, syntax::trimmed(value))
    }

    fn body(&self, version: Version) -> Result<FramingState, Fault> {
        Ok(match self.facts.body(version)? {
            RequestLength::Chunked => FramingState::ChunkSize,
            RequestLength::Counted(0) if self.facts.may_switch(version) => FramingState::Switching,
            RequestLength::Counted(0) => FramingState::Head,
            RequestLength::Counted(length) => FramingState::Counted(length),
        })
    }
}

/// RFC 9112 section 7.1.1: nothing, or `;` after optional white space.
pub(super) fn check_extension(extension: &[u8]) -> Result<(), Fault> {
    let is_blank = !extension.is_empty() && syntax::trimmed(extension).is_empty();
    match (syntax::begins_extension(extension) && !is_blank, syntax::is_clean(extension)) {
        (true, true) => Ok(()),
        (false, true) => Err(Fault::ChunkSize),
        (_, false) => Err(head::or_bare_cr(extension, Fault::ChunkExtension)),
    }
}

/// Whether a field decides about framing or routing. It must not come after the body.
pub(super) fn is_framing(name: &[u8]) -> bool {
    let fields: [&[u8]; 3] = [b"host", b"content-length", b"transfer-encoding"];
    fields.iter().any(|field| name.eq_ignore_ascii_case(field))
}

/// The first byte of a TLS handshake record (RFC 8446 section 5.1); no method begins with it.
pub(super) const HANDSHAKE: u8 = 0x16;
/// Bytes of a request line. RFC 9112 section 3 wants at least 8000.
pub(super) const REQUEST_LINE: usize = 16 << 10;
/// Bytes of all chunk extensions and trailers of one body. This and [`TRAILERS`] are less than hyper
/// allows, so that the guard answers.
pub(crate) const OVERHEAD: usize = 8 << 10;
/// The longest body or chunk: the largest file offset.
pub(super) const LONGEST: u64 = i64::MAX as u64;

#[cfg(test)]
pub(super) mod tests;
