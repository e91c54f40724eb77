//! The facts of a request head that decide about its body and its connection (RFC 9112 Sec. 6.3, 9.3).

use super::{fault::Fault, head::Version};
use crate::syntax::{self, names};

/// The facts known of a head so far.
#[derive(Debug, Default)]
pub(super) struct HeadFacts {
    host: bool,
    length: Option<u64>,
    chunked: bool,
    /// It has `Connection: close`.
    closes: bool,
    /// It has `Connection: keep-alive`.
    keeps: bool,
    /// It has `Expect: 100-continue`.
    expects: bool,
    /// It has `TE: trailers`.
    trailers: bool,
}

/// The length of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestLength {
    Counted(u64),
    Chunked,
}

impl HeadFacts {
    /// Notes a field. Its name and value have good syntax, and the value no white space around it.
    pub(super) fn note(&mut self, name: &[u8], value: &[u8]) -> Result<(), Fault> {
        // The length first: it tells most fields apart without reading a byte.
        match name.len() {
            2 if name.eq_ignore_ascii_case(b"te") => self.trailers |= names(value, b"trailers"),
            4 if name.eq_ignore_ascii_case(b"host") => return self.host(value),
            6 if name.eq_ignore_ascii_case(b"expect") => {
                self.expects |= value.eq_ignore_ascii_case(b"100-continue");
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.closes |= names(value, b"close");
                self.keeps |= names(value, b"keep-alive");
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => return self.length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => return self.encoding(value),
            _ => {}
        }
        Ok(())
    }

    fn host(&mut self, value: &[u8]) -> Result<(), Fault> {
        if std::mem::replace(&mut self.host, true) {
            return Err(Fault::HostRepeated);
        }
        if super::head::names_host(value) { Ok(()) } else { Err(Fault::HostInvalid) }
    }

    /// RFC 9112 section 6.3 lets a recipient accept repeated equal lengths; it need not.
    fn length(&mut self, value: &[u8]) -> Result<(), Fault> {
        if self.length.is_some() {
            return Err(Fault::LengthRepeated);
        }
        let length = syntax::decimal(value).filter(|&length| length <= LONGEST);
        self.length = Some(length.ok_or(Fault::LengthInvalid)?);
        Ok(())
    }

    fn encoding(&mut self, value: &[u8]) -> Result<(), Fault> {
        if self.chunked {
            return Err(Fault::EncodingRepeated);
        }
        if !value.eq_ignore_ascii_case(CHUNKED) {
            return Err(unknown_encoding(value));
        }
        self.chunked = true;
        Ok(())
    }

    /// RFC 9112 section 6.3, for requests.
    pub(super) fn body(&self, version: Version) -> Result<RequestLength, Fault> {
        match (self.length, self.chunked) {
            (Some(_), true) => Err(Fault::LengthWithEncoding),
            (_, true) if version == Version::Http10 => Err(Fault::EncodingInOldVersion),
            _ if version == Version::Http11 && !self.host => Err(Fault::HostMissing),
            (None, true) => Ok(RequestLength::Chunked),
            (length, false) => Ok(RequestLength::Counted(length.unwrap_or(0))),
        }
    }

    /// Whether the connection closes after the response (RFC 9112 section 9.3).
    pub(super) fn closes(&self, version: Version) -> bool {
        self.closes || (version == Version::Http10 && !self.keeps)
    }

    /// Whether the client waits with its body until it is asked for it (RFC 9110 section 10.1.1).
    pub(super) fn expects(&self, version: Version) -> bool {
        self.expects && version == Version::Http11
    }

    /// Whether the client takes trailers.
    pub(super) fn takes_trailers(&self) -> bool {
        self.trailers
    }
}

/// Whether `Upgrade` has WebSocket among its protocols (RFC 6455 section 4.2.1).
pub fn names_websocket(value: &[u8]) -> bool {
    names(value, b"websocket")
}

/// Without `chunked` at the end of the list, the length of the body is unknown (RFC 9112 section 6.3).
fn unknown_encoding(codings: &[u8]) -> Fault {
    let mut codings = codings.split(|&byte| byte == b',').map(syntax::trimmed).rev();
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(CHUNKED);
    if !codings.next().is_some_and(is_chunked) && codings.any(is_chunked) {
        Fault::EncodingNotFinal
    } else {
        Fault::EncodingUnknown
    }
}

/// The longest body or chunk: the largest file offset.
pub(super) const LONGEST: u64 = i64::MAX as u64;
const CHUNKED: &[u8] = b"chunked";
