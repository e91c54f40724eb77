//! The faults of a request's framing: one row for each, with the response it gets.
//!
//! A fault is never repaired. Where two parsers repair differently, one client's bytes become another
//! client's request (request smuggling). A refusal has one meaning for every parser.

use http::StatusCode;

/// A departure from HTTP/1.1's request syntax that ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A line ended by LF alone.
    BareLf,
    /// A CR that no LF follows.
    BareCr,
    /// An empty line before the request line that is not the one tolerated.
    EmptyLine,
    /// No method, or one that is not a token.
    Method,
    /// A request target of no known form, or with bytes that no target has.
    Target,
    /// Something other than `HTTP/d.d` at the end of the request line.
    Version,
    /// A version of HTTP that is not spoken on this connection.
    VersionUnsupported,
    /// A request line over its bound.
    RequestLineTooLong,
    /// A head over its bound.
    HeadTooLarge,
    /// More fields than allowed.
    TooManyFields,
    /// A field name that is not a token, or no colon.
    FieldName,
    /// A control character in a field value.
    FieldValue,
    /// White space between a field name and its colon.
    SpaceBeforeColon,
    /// A line that begins with white space.
    Folded,
    /// HTTP/1.1 without `Host`.
    HostMissing,
    /// More than one `Host`.
    HostRepeated,
    /// A `Host` that names no host.
    HostInvalid,
    /// A `Content-Length` that is not a number, or one too large.
    LengthInvalid,
    /// More than one `Content-Length`.
    LengthRepeated,
    /// `Content-Length` and `Transfer-Encoding` together.
    LengthWithEncoding,
    /// A transfer coding other than `chunked`.
    EncodingUnknown,
    /// `chunked` is not the last transfer coding.
    EncodingNotFinal,
    /// More than one `Transfer-Encoding`.
    EncodingRepeated,
    /// `Transfer-Encoding` in HTTP/1.0.
    EncodingInOldVersion,
    /// A chunk size that is not a hexadecimal number, or one too large.
    ChunkSize,
    /// A chunk extension with bytes that no extension has.
    ChunkExtension,
    /// More bytes of chunk extensions than allowed.
    ChunkExtensionsTooLong,
    /// A chunk that is longer or shorter than it said.
    ChunkEnd,
    /// Framing or routing fields in a trailer section.
    TrailerForbidden,
    /// A trailer section over its bound.
    TrailersTooLarge,
    /// A TLS handshake where plain text is spoken.
    TlsHello,
}

impl Fault {
    /// Every fault.
    #[cfg(test)]
    pub(super) const ALL: [Self; 31] = [
        Self::BareLf,
        Self::BareCr,
        Self::EmptyLine,
        Self::Method,
        Self::Target,
        Self::Version,
        Self::VersionUnsupported,
        Self::RequestLineTooLong,
        Self::HeadTooLarge,
        Self::TooManyFields,
        Self::FieldName,
        Self::FieldValue,
        Self::SpaceBeforeColon,
        Self::Folded,
        Self::HostMissing,
        Self::HostRepeated,
        Self::HostInvalid,
        Self::LengthInvalid,
        Self::LengthRepeated,
        Self::LengthWithEncoding,
        Self::EncodingUnknown,
        Self::EncodingNotFinal,
        Self::EncodingRepeated,
        Self::EncodingInOldVersion,
        Self::ChunkSize,
        Self::ChunkExtension,
        Self::ChunkExtensionsTooLong,
        Self::ChunkEnd,
        Self::TrailerForbidden,
        Self::TrailersTooLarge,
        Self::TlsHello,
    ];

    /// The name used in logs and metrics.
    pub fn as_str(self) -> &'static str {
        self.row().1
    }

    /// The status of the answer; `None` where an answer in HTTP would not be understood.
    pub fn status(self) -> Option<StatusCode> {
        StatusCode::from_u16(self.row().0).ok()
    }

    /// One sentence for the client, with the section that it can read.
    pub fn sentence(self) -> &'static str {
        self.row().2
    }

    #[rustfmt::skip]
    fn row(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::BareLf => (400, "bare-lf", "A line ends with LF alone (RFC 9112 section 2.2)."),
            Self::BareCr => (400, "bare-cr", "A CR is not followed by LF (RFC 9112 section 2.2)."),
            Self::EmptyLine => (400, "empty-line", "More than one empty line precedes the request line (RFC 9112 section 2.2)."),
            Self::Method => (400, "method", "The method is not a token (RFC 9112 section 3.1)."),
            Self::Target => (400, "target", "The request target is invalid (RFC 9112 section 3.2)."),
            Self::Version => (400, "version", "The request line does not end with an HTTP version (RFC 9112 section 2.3)."),
            Self::VersionUnsupported => (505, "version-unsupported", "This connection speaks HTTP/1.1 and HTTP/1.0 only (RFC 9110 section 15.6.6)."),
            Self::RequestLineTooLong => (414, "request-line-too-long", "The request line is too long (RFC 9112 section 3)."),
            Self::HeadTooLarge => (431, "head-too-large", "The header section is too large (RFC 6585 section 5)."),
            Self::TooManyFields => (431, "too-many-fields", "The header section has too many fields (RFC 6585 section 5)."),
            Self::FieldName => (400, "field-name", "A field name is not a token followed by a colon (RFC 9112 section 5)."),
            Self::FieldValue => (400, "field-value", "A field value has a control character (RFC 9110 section 5.5)."),
            Self::SpaceBeforeColon => (400, "space-before-colon", "White space follows a field name (RFC 9112 section 5.1)."),
            Self::Folded => (400, "folded-line", "A field line begins with white space (RFC 9112 sections 2.2 and 5.2)."),
            Self::HostMissing => (400, "host-missing", "The Host field is missing (RFC 9112 section 3.2)."),
            Self::HostRepeated => (400, "host-repeated", "There is more than one Host field (RFC 9112 section 3.2)."),
            Self::HostInvalid => (400, "host-invalid", "The Host field names no host (RFC 9112 section 3.2)."),
            Self::LengthInvalid => (400, "length-invalid", "Content-Length is not a number within bounds (RFC 9112 section 6.3)."),
            Self::LengthRepeated => (400, "length-repeated", "There is more than one Content-Length (RFC 9112 section 6.3)."),
            Self::LengthWithEncoding => (400, "length-with-encoding", "Content-Length and Transfer-Encoding exclude each other (RFC 9112 section 6.1)."),
            Self::EncodingUnknown => (501, "encoding-unknown", "The only transfer coding known here is chunked (RFC 9112 section 6.1)."),
            Self::EncodingNotFinal => (400, "encoding-not-final", "The last transfer coding is not chunked (RFC 9112 section 6.3)."),
            Self::EncodingRepeated => (400, "encoding-repeated", "There is more than one Transfer-Encoding (RFC 9112 section 6.3)."),
            Self::EncodingInOldVersion => (400, "encoding-in-http-1-0", "HTTP/1.0 has no Transfer-Encoding (RFC 9112 section 6.1)."),
            Self::ChunkSize => (400, "chunk-size", "A chunk size is not a hexadecimal number within bounds (RFC 9112 section 7.1)."),
            Self::ChunkExtension => (400, "chunk-extension", "A chunk extension is invalid (RFC 9112 section 7.1.1)."),
            Self::ChunkExtensionsTooLong => (400, "chunk-extensions-too-long", "The chunk extensions are too long (RFC 9112 section 7.1.1)."),
            Self::ChunkEnd => (400, "chunk-end", "A chunk does not end where it said (RFC 9112 section 7.1)."),
            Self::TrailerForbidden => (400, "trailer-forbidden", "A trailer field belongs into the header section (RFC 9110 section 6.5.1)."),
            Self::TrailersTooLarge => (431, "trailers-too-large", "The trailer section is too large (RFC 6585 section 5)."),
            Self::TlsHello => (0, "tls-hello", "A TLS handshake begins where plain text is spoken (RFC 8446 section 5.1)."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_its_own_name_and_cites_its_section() {
        let names: std::collections::HashSet<_> = Fault::ALL.iter().map(|f| f.as_str()).collect();
        assert_eq!(names.len(), Fault::ALL.len());
        assert!(Fault::ALL.iter().all(|fault| fault.sentence().contains("(RFC ")));
    }

    #[test]
    fn only_a_tls_handshake_gets_no_answer() {
        let silent = |fault: &&Fault| fault.status().is_none();
        assert_eq!(Fault::ALL.iter().filter(silent).collect::<Vec<_>>(), [&Fault::TlsHello]);
    }
}
