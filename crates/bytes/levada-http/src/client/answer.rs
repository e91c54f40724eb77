//! The head of a response (RFC 9112 Sec. 4 and 5), and the framing of the body after it.

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode,
    header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING},
};
use httparse::{ParserConfig, Status};
use hyper::ext::ReasonPhrase;
use memchr::memchr_iter;

use super::{BadResponse, framing::BodyFraming};
use crate::syntax::decimal;

/// Bytes of all the heads that answer one request.
const HEADS: usize = 256 << 10;
/// Fields that any response may have at most.
const FIELDS: usize = 128;
/// Fields that a node adds to a response that it passes on.
const ADDED: usize = 3;

/// The heads that answer one request: interim ones, then the final one.
///
/// There may be any number of interim ones (RFC 9110 Sec. 15.2), so the bound is in bytes.
pub(super) struct ResponseHeads {
    /// How many bytes of the next one were searched for its end.
    searched: usize,
    /// How many bytes may still come.
    left: usize,
    /// Whether the request asks for another protocol.
    switches: bool,
}

/// A head.
enum ParsedHead {
    Interim(StatusCode, HeaderMap),
    Final(FinalHead),
}

/// The head of a response that is not an interim one.
pub(super) struct FinalHead {
    pub(super) head: Response<()>,
    pub(super) framing: BodyFraming,
    /// Whether the connection stays open after it.
    pub(super) stays: bool,
}

/// Takes a section of fields, its empty line included, out of the bytes that have come.
pub(super) fn split_head(read: &mut BytesMut, searched: usize) -> Option<Bytes> {
    let end = head_length(read, searched)?;
    Some(read.split_to(end).freeze())
}

/// The length of the head at the beginning of these bytes, if its end has come. The part before
/// `searched` was searched before. Lines may end without CR (RFC 9112 Sec. 2.2).
fn head_length(read: &[u8], searched: usize) -> Option<usize> {
    // An end may have come in two parts.
    let from = searched.saturating_sub(2);
    memchr_iter(b'\n', &read[from..]).find_map(|at| match read[from + at + 1..] {
        [b'\n', ..] => Some(from + at + 2),
        [b'\r', b'\n', ..] => Some(from + at + 3),
        _ => None,
    })
}

impl ResponseHeads {
    /// The heads of a request that asks for another protocol, or of one that does not.
    pub(super) fn new(switches: bool) -> Self {
        Self { searched: 0, left: HEADS, switches }
    }

    /// Takes heads out of the bytes that have come, up to the final one; `None` when more must come first.
    pub(super) fn take(
        &mut self,
        read: &mut BytesMut,
        method: &Method,
        fields: usize,
        mut interim: impl FnMut(StatusCode, &HeaderMap),
    ) -> Result<Option<FinalHead>, BadResponse> {
        loop {
            // httparse skips empty lines before a status line. Here they would belong to another message.
            if read.first().is_some_and(|first| *first != b'H') {
                return Err(BadResponse);
            }
            let before = read.len();
            // Most heads come whole, and parsing finds their end. A head that comes in parts is not parsed
            // before its end has come.
            let came = self.searched == 0 || head_length(read, self.searched).is_some();
            let message = match came {
                true => ParsedHead::take(read, method, fields, self.switches)?,
                false => None,
            };
            let Some(message) = message else {
                self.searched = before;
                return if before > self.left { Err(BadResponse) } else { Ok(None) };
            };
            self.searched = 0;
            let length = before - read.len();
            self.left = self.left.checked_sub(length).ok_or(BadResponse)?;
            match message {
                ParsedHead::Interim(status, headers) => interim(status, &headers),
                ParsedHead::Final(answer) => return Ok(Some(answer)),
            }
        }
    }
}

/// The positions of a field's name and value in a head.
struct FieldPosition {
    name: (u32, u32),
    value: (u32, u32),
}

impl ParsedHead {
    /// Takes a head out of the bytes that have come; `None` when more of it is to come.
    fn take(
        read: &mut BytesMut,
        method: &Method,
        most: usize,
        switches: bool,
    ) -> Result<Option<Self>, BadResponse> {
        let mut table = [const { MaybeUninit::uninit() }; FIELDS];
        let table = &mut table[..most.min(FIELDS)];
        let mut parsed = httparse::Response::new(&mut []);
        let config = ParserConfig::default();
        let bytes = &read[..read.len().min(HEADS)];
        let length = match config.parse_response_with_uninit_headers(&mut parsed, bytes, table) {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) => return Ok(None),
            // A head that comes in parts gets the same result.
            Err(_) if head_length(read, 0).is_none() => return Ok(None),
            Err(_) => return Err(BadResponse),
        };
        let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.ok_or(BadResponse)?;
        // Only a request that asks for another protocol gets one.
        let switched = status == StatusCode::SWITCHING_PROTOCOLS;
        if switched && (!switches || parsed.version == Some(0)) {
            return Err(BadResponse);
        }
        let old = parsed.version == Some(0);
        let reason = parsed.reason.filter(|reason| !reason.is_empty());
        let reason = reason.filter(|reason| Some(*reason) != status.canonical_reason());
        let reason = reason.map(|reason| ReasonPhrase::try_from(reason.as_bytes()));
        // The fields share the bytes read. These cannot be split off while `parsed` borrows them.
        let start = bytes.as_ptr().addr();
        let place = |part: &[u8]| ((part.as_ptr().addr() - start) as u32, part.len() as u32);
        let field = |found: &httparse::Header<'_>| FieldPosition {
            name: place(found.name.as_bytes()),
            value: place(found.value),
        };
        let fields: Vec<FieldPosition> = parsed.headers.iter().map(field).collect();
        let head = read.split_to(length).freeze();

        let mut headers = HeaderMap::with_capacity(fields.len() + ADDED);
        let mut persistence = Persistence::default();
        let within = |(start, length): (u32, u32)| start as usize..(start + length) as usize;
        for field in &fields {
            let name = HeaderName::from_bytes(&head[within(field.name)]);
            let name = name.map_err(|_| BadResponse)?;
            let value = head.slice(within(field.value));
            if name == CONNECTION && persistence.is_all_of(&value) {
                continue;
            }
            let value = HeaderValue::from_maybe_shared(value);
            headers.append(name, value.map_err(|_| BadResponse)?);
        }
        if status.is_informational() && !switched {
            return Ok(Some(Self::Interim(status, headers)));
        }
        let framing = match switched {
            true => BodyFraming::Switched,
            false => framing(&mut headers, status, method, old)?,
        };
        let stays = !matches!(framing, BodyFraming::UntilClose | BodyFraming::Switched)
            && persistence.stays(old);
        // Its version is that of one connection: clients of the node get the node's own.
        let mut head = Response::new(());
        *head.status_mut() = status;
        *head.headers_mut() = headers;
        if let Some(Ok(reason)) = reason {
            head.extensions_mut().insert(reason);
        }
        Ok(Some(Self::Final(FinalHead { head, framing, stays })))
    }
}

/// The options in `Connection` about the connection itself (RFC 9112 Sec. 9.3).
#[derive(Default)]
struct Persistence {
    closes: bool,
    keeps: bool,
}

impl Persistence {
    /// Notes the options of a line. Returns whether it has no others, and may be dropped.
    fn is_all_of(&mut self, line: &[u8]) -> bool {
        let mut all = true;
        for option in line.split(|&byte| byte == b',') {
            match option.trim_ascii() {
                option if option.eq_ignore_ascii_case(b"close") => self.closes = true,
                option if option.eq_ignore_ascii_case(b"keep-alive") => self.keeps = true,
                _ => all = false,
            }
        }
        all
    }

    /// Whether the connection persists.
    fn stays(&self, old: bool) -> bool {
        !self.closes && (self.keeps || !old)
    }
}

/// The framing of the body (RFC 9112 Sec. 6.3). An ambiguous one is refused: the next recipient may read
/// it in another way.
fn framing(
    headers: &mut HeaderMap,
    status: StatusCode,
    method: &Method,
    old: bool,
) -> Result<BodyFraming, BadResponse> {
    let chunked = match headers.get(TRANSFER_ENCODING) {
        None => false,
        Some(coding) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {
            let one = headers.get_all(TRANSFER_ENCODING).iter().count() == 1;
            if old || !one || headers.contains_key(CONTENT_LENGTH) {
                return Err(BadResponse);
            }
            true
        }
        Some(_) => return Err(BadResponse),
    };
    let length = length(headers)?;
    let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    Ok(match length {
        _ if bodiless || *method == Method::HEAD => BodyFraming::Done,
        _ if chunked => BodyFraming::chunked(),
        Some(0) => BodyFraming::Done,
        Some(length) => BodyFraming::Counted(length),
        None => BodyFraming::UntilClose,
    })
}

/// The stated length. Several that agree, in one field or more, become one (RFC 9110 Sec. 8.6).
fn length(headers: &mut HeaderMap) -> Result<Option<u64>, BadResponse> {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lines.next() else { return Ok(None) };
    let repeated = lines.next().is_some();
    if let (Some(length), false) = (decimal(first.as_bytes()), repeated) {
        return Ok(Some(length));
    }
    let mut all = headers
        .get_all(CONTENT_LENGTH)
        .iter()
        .flat_map(|line| line.as_bytes().split(|&byte| byte == b','))
        .map(|member| decimal(member.trim_ascii()));
    let length = all.next().flatten().ok_or(BadResponse)?;
    if all.any(|other| other != Some(length)) {
        return Err(BadResponse);
    }
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    Ok(Some(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_as(method: &Method, head: &str) -> Result<Option<FinalHead>, BadResponse> {
        match ParsedHead::take(&mut BytesMut::from(head.as_bytes()), method, 100, false)? {
            Some(ParsedHead::Final(answer)) => Ok(Some(answer)),
            _ => Ok(None),
        }
    }

    fn read(head: &str) -> Result<Option<FinalHead>, BadResponse> {
        read_as(&Method::GET, head)
    }

    #[test]
    fn head_is_taken_when_its_empty_line_has_come() {
        for end in ["\r\n\r\n", "\n\n", "\n\r\n"] {
            let (mut read, mut searched) = (BytesMut::new(), 0);
            let text = format!("HTTP/1.1 200 OK\r\na: b{end}");
            for byte in &text.as_bytes()[..text.len() - 1] {
                read.extend_from_slice(&[*byte]);
                assert_eq!(split_head(&mut read, searched), None);
                searched = read.len();
            }
            read.extend_from_slice(b"\nbody");
            assert_eq!(split_head(&mut read, searched).unwrap(), text);
            assert_eq!(read, "body");
        }
    }

    #[test]
    fn lengths_that_disagree_are_refused() {
        for lines in ["content-length: 1\r\ncontent-length: 2", "content-length: 1, 2"] {
            assert!(read(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n")).is_err(), "{lines}");
        }
        for value in ["", "+1", "-1", "1 1", "0x1", "99999999999999999999", "1,", "1, x"] {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {value}\r\n\r\n");
            assert!(read(&head).is_err(), "{value}");
        }
    }

    /// Reads heads that come in pieces of this size: the interim ones and the final one.
    fn heads(bytes: &[u8], piece: usize) -> Result<(Vec<u16>, u16), BadResponse> {
        let (mut heads, mut read, mut interims) =
            (ResponseHeads::new(false), BytesMut::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            read.extend_from_slice(piece);
            let interim = |status: StatusCode, _: &HeaderMap| interims.push(status.as_u16());
            if let Some(answer) = heads.take(&mut read, &Method::GET, 100, interim)? {
                return Ok((interims, answer.head.status().as_u16()));
            }
        }
        panic!("no final head has come")
    }

    #[test]
    fn interim_heads_come_before_the_one_that_counts() {
        let text = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\na: b\r\n\r\n\
            HTTP/1.1 200 OK\r\n\r\nbody";
        for piece in 1..text.len() {
            assert_eq!(heads(text, piece), Ok((vec![100, 103], 200)));
        }
    }

    #[test]
    fn heads_are_bounded_all_together() {
        let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(HEADS / 25 + 1);
        let endless = format!("HTTP/1.1 200 OK\r\na: {}", "x".repeat(HEADS));
        for text in [&interim, &endless, &format!("{endless}\r\n\r\n")] {
            for piece in [1000, usize::MAX] {
                assert_eq!(heads(text.as_bytes(), piece), Err(BadResponse));
            }
        }
    }

    #[test]
    fn nothing_comes_before_a_head() {
        for text in ["\r\nHTTP/1.1 200 OK\r\n\r\n", "\n", "hello", " HTTP/1.1 200 OK\r\n\r\n"] {
            assert_eq!(heads(text.as_bytes(), 1), Err(BadResponse), "{text:?}");
        }
    }

    #[test]
    fn connection_stays_unless_the_server_says_otherwise() {
        for (version, connection, expected) in [
            ("1.1", "x", true),
            ("1.1", "x, Close", false),
            ("1.0", "x", false),
            ("1.0", "Keep-Alive", true),
            ("1.0", "keep-alive, close", false),
        ] {
            let head = format!(
                "HTTP/{version} 200 OK\r\ncontent-length: 1\r\nconnection: {connection}\r\n\r\n"
            );
            assert_eq!(read(&head).unwrap().unwrap().stays, expected, "{version} {connection}");
        }
        assert!(!read("HTTP/1.1 200 OK\r\n\r\n").unwrap().unwrap().stays, "until it closes");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(rest in "[ -~\\r\\n\u{80}-\u{ff}]{0,80}") {
            let mut bytes = BytesMut::from(format!("HTTP/1.1 200 OK\r\n{rest}").as_bytes());
            while let Ok(Some(_)) = ParsedHead::take(&mut bytes, &Method::GET, 2, true) {}
        }
    }

    #[test]
    fn only_a_request_that_asks_for_another_protocol_gets_one() {
        let head = |version| {
            BytesMut::from(format!("HTTP/{version} 101 Switching Protocols\r\n\r\nframes").as_str())
        };
        let take = |mut read: BytesMut, switches| {
            let taken = ParsedHead::take(&mut read, &Method::GET, 100, switches);
            matches!(
                taken,
                Ok(Some(ParsedHead::Final(FinalHead { framing: BodyFraming::Switched, .. })))
            )
            .then_some(read)
        };
        assert_eq!(take(head("1.1"), true).unwrap(), "frames");
        assert_eq!(take(head("1.1"), false), None);
        assert_eq!(take(head("1.0"), true), None, "it is older than the field");
    }

    #[test]
    fn response_without_a_body_has_none_whatever_its_length() {
        for status in ["204 No Content", "304 Not Modified"] {
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: 5\r\n\r\n");
            assert!(matches!(read(&head).unwrap().unwrap().framing, BodyFraming::Done));
        }
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
        let answer = read_as(&Method::HEAD, head).unwrap().unwrap();
        assert!(matches!(answer.framing, BodyFraming::Done));
    }
}
