//! However a response is split into reads, it must be parsed to the same result. A strict parser
//! must accept the same responses with the same result, provided that lines end with CRLF.
#![no_main]

use levada_http::fuzzing::{AnswerEnd, ParsedAnswer, read_reply};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The first byte selects the size of the reads, and whether the response is to a HEAD.
    let Some((&first, stream)) = bytes.split_first() else {
        return;
    };
    let head = first & 0x80 != 0;
    let whole = read_reply(stream, head, []);
    let pieces = std::iter::repeat_n(usize::from(first & 0x7f) + 1, stream.len());
    assert_eq!(read_reply(stream, head, pieces), whole);
    let strict = strictly(stream, head);
    if let Some(strict) = &strict {
        assert_eq!(strict, &whole);
    }
    if let AnswerEnd::Whole { used, .. } = whole.ending {
        // The content of the body does not matter, but the strict parser may refuse bare LFs in it.
        let bare = (0..used).any(|at| stream[at] == b'\n' && (at == 0 || stream[at - 1] != b'\r'));
        assert!(strict.is_some() || bare);
    }
});

/// A whole response, parsed by a simple implementation of RFC 9112.
fn strictly(stream: &[u8], head: bool) -> Option<ParsedAnswer> {
    let mut reply = ParsedAnswer::default();
    let mut rest = stream;
    loop {
        let first = line(&mut rest)?;
        let old = match first.strip_prefix(b"HTTP/1.")? {
            [b'0', ..] => true,
            [b'1', ..] => false,
            _ => return None,
        };
        let status = first.get(8..)?.strip_prefix(b" ")?;
        let (digits, reason) = status.split_at_checked(3)?;
        let is_reason = reason.is_empty() || reason[0] == b' ' && is_text(reason);
        if !digits.iter().all(u8::is_ascii_digit) || !is_reason {
            return None;
        }
        let status: u16 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        let fields = fields(&mut rest)?;
        if status < 100 || status == 101 || fields.len() > 100 {
            return None;
        }
        if (stream.len() - rest.len()) > 256 << 10 {
            return None;
        }
        reply.statuses.push(status);
        if status < 200 {
            continue;
        }
        return end(reply, stream, rest, &fields, Answered { status, old, head });
    }
}

struct Answered {
    status: u16,
    old: bool,
    head: bool,
}

fn end(
    mut reply: ParsedAnswer,
    stream: &[u8],
    mut rest: &[u8],
    fields: &[(String, &[u8])],
    Answered { status, old, head }: Answered,
) -> Option<ParsedAnswer> {
    let values = |name: &'static str| {
        fields.iter().filter(move |field| field.0 == name).map(|field| field.1)
    };
    let members = |name| values(name).flat_map(|value| value.split(|byte| *byte == b','));
    let codings: Vec<_> = values("transfer-encoding").collect();
    let mut lengths = Vec::new();
    for length in members("content-length").map(<[u8]>::trim_ascii) {
        if length.is_empty() || !length.iter().all(u8::is_ascii_digit) {
            return None;
        }
        lengths.push(std::str::from_utf8(length).ok()?.parse::<u64>().ok()?);
    }
    if lengths.windows(2).any(|two| two[0] != two[1]) {
        return None;
    }
    let chunked = match codings[..] {
        [] => false,
        [one] if one.eq_ignore_ascii_case(b"chunked") && !old && lengths.is_empty() => true,
        _ => return None,
    };
    let says = |option: &[u8]| {
        members("connection").any(|member| member.trim_ascii().eq_ignore_ascii_case(option))
    };
    let mut reusable = !says(b"close") && (!old || says(b"keep-alive"));
    if head || status == 204 || status == 304 {
        // There is none.
    } else if chunked {
        loop {
            let line = line(&mut rest)?;
            let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
            let extension = line[digits..].trim_ascii_start();
            let is_extension = extension.is_empty() || extension[0] == b';';
            if digits == 0 || digits > 16 || !is_extension || !is_text(&line[digits..]) {
                return None;
            }
            let size = u64::from_str_radix(std::str::from_utf8(&line[..digits]).ok()?, 16).ok()?;
            if size == 0 {
                break;
            }
            let (data, after) = rest.split_at_checked(usize::try_from(size).ok()?)?;
            reply.body.extend_from_slice(data);
            rest = after.strip_prefix(b"\r\n")?;
        }
        reply.trailers = fields_of_trailers(&mut rest)?;
    } else if let Some(length) = lengths.first() {
        let (body, after) = rest.split_at_checked(usize::try_from(*length).ok()?)?;
        reply.body.extend_from_slice(body);
        rest = after;
    } else {
        reply.body.extend_from_slice(rest);
        rest = &[];
        reusable = false;
    }
    reply.ending = AnswerEnd::Whole { used: stream.len() - rest.len(), reusable };
    Some(reply)
}

fn fields_of_trailers(rest: &mut &[u8]) -> Option<usize> {
    let fields = fields(rest)?;
    (fields.len() <= 64).then_some(fields.len())
}

fn fields<'a>(rest: &mut &'a [u8]) -> Option<Vec<(String, &'a [u8])>> {
    let mut fields = Vec::new();
    loop {
        let line = line(rest)?;
        if line.is_empty() {
            return Some(fields);
        }
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        let is_token =
            |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        if name.is_empty() || !name.iter().all(is_token) || !is_text(value) {
            return None;
        }
        fields.push((String::from_utf8(name.to_ascii_lowercase()).ok()?, value.trim_ascii()));
    }
}

/// The next line without its CRLF.
fn line<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let line = rest[..end].strip_suffix(b"\r")?;
    *rest = &rest[end + 1..];
    Some(line)
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == b'\t' || *byte >= b' ' && *byte != 0x7f)
}
