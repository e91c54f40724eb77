//! The alphabets of a request head (RFC 9110 section 5.6.2, RFC 9112 section 3, RFC 3986).

use memchr::{memchr, memchr2};

use super::fault::Fault;
use crate::syntax::is_clean;

const TOKEN: u8 = 1;
const TARGET: u8 = 2;
const HOST: u8 = 4;
const ADDRESS: u8 = 8;

/// For every byte, the alphabets that it belongs to.
const ALPHABETS: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = alphabets(byte as u8);
        byte += 1;
    }
    table
};

const fn alphabets(byte: u8) -> u8 {
    let mut found = 0;
    if byte.is_ascii_alphanumeric() {
        found |= TOKEN | HOST;
    }
    if matches!(
        byte,
        b'!' | b'#'
            | b'$'
            | b'%'
            | b'&'
            | b'\''
            | b'*'
            | b'+'
            | b'-'
            | b'.'
            | b'^'
            | b'_'
            | b'`'
            | b'|'
            | b'~'
    ) {
        found |= TOKEN;
    }
    // Browsers leave some bytes raw that RFC 3986 does not know, such as `|`. No browser leaves these
    // raw, and a fragment is never sent (RFC 9112 section 3.2).
    if byte.is_ascii_graphic() && !matches!(byte, b'"' | b'#' | b'<' | b'>') {
        found |= TARGET;
    }
    // A registered name may also have sub-delimiters and percent signs. No name in the DNS does, and
    // a comma in `Host` looks like a list to some.
    if matches!(byte, b'-' | b'.' | b'_' | b'~') {
        found |= HOST;
    }
    if byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.') {
        found |= ADDRESS;
    }
    found
}

/// Without a branch for each byte, as in [`is_clean`].
fn all(bytes: &[u8], alphabet: u8) -> bool {
    bytes.iter().fold(alphabet, |common, &byte| common & ALPHABETS[usize::from(byte)]) != 0
}

/// The version of HTTP that a request line states, as far as framing depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// HTTP/1.0: no chunked bodies, and `Host` is optional.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// A request line that is well-formed.
pub(super) struct SplitLine<'a> {
    pub(super) method: &'a [u8],
    pub(super) target: &'a [u8],
    pub(super) version: Version,
}

/// Splits a request line, without its line end (RFC 9112 section 3).
pub(super) fn request_line(line: &[u8]) -> Result<SplitLine<'_>, Fault> {
    let method_end = memchr(b' ', line).unwrap_or(line.len());
    let (method, rest) = line.split_at(method_end);
    if method.is_empty() || !all(method, TOKEN) {
        return Err(or_bare_cr(method, Fault::Method));
    }
    // Everything up to the last space is the target, so that a space inside is a fault of the target.
    let target_end = memchr::memrchr(b' ', rest).unwrap_or(0);
    let Some(target) = rest.get(1..target_end) else {
        return Err(Fault::Version);
    };
    let version = version(&rest[target_end + 1..])?;
    if is_target(target) && has_known_form(method, target) {
        Ok(SplitLine { method, target, version })
    } else {
        Err(or_bare_cr(target, Fault::Target))
    }
}

fn version(bytes: &[u8]) -> Result<Version, Fault> {
    match bytes {
        b"HTTP/1.1" => Ok(Version::Http11),
        b"HTTP/1.0" => Ok(Version::Http10),
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => {
            Err(Fault::VersionUnsupported)
        }
        _ => Err(or_bare_cr(bytes, Fault::Version)),
    }
}

/// Whether there are only bytes that a request target has.
pub(super) fn is_target(target: &[u8]) -> bool {
    all(target, TARGET)
}

/// The four forms of RFC 9112 section 3.2, each only with the methods that may have it.
pub(super) fn has_known_form(method: &[u8], target: &[u8]) -> bool {
    match (method, target) {
        (b"CONNECT", authority) => {
            memchr(b']', authority).map_or(authority, |end| &authority[end..]).contains(&b':')
                && names_host(authority)
        }
        (_, [b'/', ..]) => true,
        (b"OPTIONS", b"*") => true,
        (_, absolute) => is_absolute(absolute),
    }
}

fn is_absolute(target: &[u8]) -> bool {
    let after = |scheme: &[u8]| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    let Some(rest) = after(b"http://").or_else(|| after(b"https://")) else {
        return false;
    };
    names_host(&rest[..memchr2(b'/', b'?', rest).unwrap_or(rest.len())])
}

/// Whether this is a host with an optional port. An empty host is a fault: no URI of the web has one
/// (RFC 9110 section 4.2.1).
pub fn names_host(authority: &[u8]) -> bool {
    let (host_is_good, port) = match authority.strip_prefix(b"[") {
        Some(rest) => {
            let end = memchr(b']', rest).unwrap_or(rest.len());
            (end > 0 && all(&rest[..end], ADDRESS), rest.get(end + 1..))
        }
        None => {
            let end = memchr(b':', authority).unwrap_or(authority.len());
            (end > 0 && all(&authority[..end], HOST), authority.get(end..))
        }
    };
    host_is_good && port.is_some_and(is_port)
}

fn is_port(bytes: &[u8]) -> bool {
    match bytes {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// Splits a field line, without its line end, at its colon (RFC 9112 section 5).
pub(super) fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let name_end = line
        .iter()
        .position(|&byte| ALPHABETS[usize::from(byte)] & TOKEN == 0)
        .unwrap_or(line.len());
    let (name, rest) = line.split_at(name_end);
    match rest {
        [b':', value @ ..] if !name.is_empty() => {
            if is_clean(value) {
                Ok((name, value))
            } else {
                Err(or_bare_cr(value, Fault::FieldValue))
            }
        }
        [b' ' | b'\t', ..] if name.is_empty() => Err(Fault::Folded),
        [b' ' | b'\t', ..] => Err(Fault::SpaceBeforeColon),
        [b'\r', ..] => Err(Fault::BareCr),
        _ => Err(Fault::FieldName),
    }
}

/// A CR within a line deserves its own name: it is the usual sign of an attempt to smuggle.
pub(super) fn or_bare_cr(bytes: &[u8], fault: Fault) -> Fault {
    if memchr(b'\r', bytes).is_some() { Fault::BareCr } else { fault }
}
