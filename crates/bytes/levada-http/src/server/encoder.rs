//! The head of a response, written as bytes, with the framing of its body (RFC 9112 Sec. 4 to 6).

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version,
    header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING},
    response::Parts,
};
use hyper::ext::ReasonPhrase;

use crate::{date, syntax};

/// The facts of a request that decide about the head of its response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) method: &'a Method,
    pub(super) version: Version,
    /// Whether the connection goes on, unless the response says otherwise.
    pub(super) stays: bool,
}

/// How a response's body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerFraming {
    /// This many bytes. With 0 the body is not asked for any.
    Counted(u64),
    Chunked,
    /// All until the connection closes.
    UntilClose,
}

/// A head that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrittenHead {
    pub(super) framing: AnswerFraming,
    /// Whether the connection goes on.
    pub(super) stays: bool,
}

/// Writes a head. `ready` are fields that were written already, the length and the date among them. `length` is that
/// of the body, if it is known.
pub(super) fn write_head(
    text: &mut Vec<u8>,
    head: &Parts,
    ready: Option<&[u8]>,
    length: Option<u64>,
    asked: Asked<'_>,
) -> WrittenHead {
    let is_old = asked.version == Version::HTTP_10;
    text.extend_from_slice(if is_old { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    text.extend_from_slice(head.status.as_str().as_bytes());
    text.push(b' ');
    text.extend_from_slice(match head.extensions.get::<ReasonPhrase>() {
        Some(reason) => reason.as_bytes(),
        None => head.status.canonical_reason().unwrap_or("<none>").as_bytes(),
    });
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(ready.unwrap_or_default());
    let (mut stated, mut is_dated) = (None, ready.is_some());
    let (mut closes, mut keeps) = (false, false);
    for (name, value) in &head.headers {
        if *name == CONTENT_LENGTH {
            stated = syntax::decimal(value.as_bytes());
            continue;
        } else if *name == TRANSFER_ENCODING {
            continue;
        } else if *name == CONNECTION {
            closes |= syntax::names(value.as_bytes(), b"close");
            keeps |= syntax::names(value.as_bytes(), b"keep-alive");
        } else if *name == DATE {
            is_dated = true;
        }
        write_field(text, name, value);
    }
    let framing = match (ready, length) {
        (Some(_), Some(length)) => AnswerFraming::Counted(length),
        _ => framing(text, head.status, length, stated, asked),
    };
    let is_switching = head.status == StatusCode::SWITCHING_PROTOCOLS;
    let stays = asked.stays && !closes && framing != AnswerFraming::UntilClose;
    if is_old && stays && !keeps {
        text.extend_from_slice(b"connection: keep-alive\r\n");
    } else if !is_old && !stays && !closes && !is_switching {
        text.extend_from_slice(b"connection: close\r\n");
    }
    if !is_dated {
        write_field(text, &DATE, &date::now());
    }
    text.extend_from_slice(b"\r\n");
    WrittenHead { framing, stays }
}

/// Writes the field that frames the body, if there is one to be (RFC 9110 Sec. 8.6).
fn framing(
    text: &mut Vec<u8>,
    status: StatusCode,
    length: Option<u64>,
    stated: Option<u64>,
    asked: Asked<'_>,
) -> AnswerFraming {
    let is_tunnel = *asked.method == Method::CONNECT && status.is_success();
    if status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || is_tunnel
    {
        return AnswerFraming::Counted(0);
    }
    let is_head = *asked.method == Method::HEAD;
    let known = match is_head {
        // The length is that of the body that GET has.
        true => stated.or(length.filter(|&length| length > 0)),
        false => length.or(stated),
    };
    match known {
        Some(length) => {
            text.extend_from_slice(b"content-length: ");
            write_number(text, length, 10);
            text.extend_from_slice(b"\r\n");
            AnswerFraming::Counted(if is_head { 0 } else { length })
        }
        None if is_head => AnswerFraming::Counted(0),
        None if asked.version == Version::HTTP_10 => AnswerFraming::UntilClose,
        None => {
            text.extend_from_slice(b"transfer-encoding: chunked\r\n");
            AnswerFraming::Chunked
        }
    }
}

/// Writes fields, each in a line.
pub(super) fn write_fields(text: &mut Vec<u8>, fields: &HeaderMap) {
    fields.iter().for_each(|(name, value)| write_field(text, name, value));
}

#[inline]
fn write_field(text: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    // One by one: parts of a known length are copied without a call.
    text.extend_from_slice(name.as_str().as_bytes());
    text.extend_from_slice(b": ");
    text.extend_from_slice(value.as_bytes());
    text.extend_from_slice(b"\r\n");
}

/// Writes a number in digits of base 10 or 16.
pub(super) fn write_number(text: &mut Vec<u8>, mut number: u64, base: u64) {
    let (mut digits, mut first) = ([0; 20], 20);
    loop {
        first -= 1;
        digits[first] = b"0123456789abcdef"[(number % base) as usize];
        number /= base;
        if number == 0 {
            break text.extend_from_slice(&digits[first..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    fn written(
        method: Method,
        version: Version,
        status: u16,
        fields: &[(&str, &str)],
        length: Option<u64>,
    ) -> (String, WrittenHead) {
        let mut response = Response::builder().status(status).header("date", "now");
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        let (head, ()) = response.body(()).unwrap().into_parts();
        let mut text = Vec::new();
        let asked = Asked { method: &method, version, stays: true };
        let written = write_head(&mut text, &head, None, length, asked);
        (String::from_utf8(text).unwrap().replace("date: now\r\n", ""), written)
    }

    #[test]
    fn body_is_framed_by_what_is_known_of_it() {
        use AnswerFraming::*;
        let (get, head) = (Method::GET, Method::HEAD);
        let (new, old) = (Version::HTTP_11, Version::HTTP_10);
        let stated = &[("content-length", "7")][..];
        for (method, version, status, fields, length, line, framing) in [
            (&get, new, 200, &[][..], Some(5), "content-length: 5\r\n", Counted(5)),
            (&get, new, 200, &[], Some(0), "content-length: 0\r\n", Counted(0)),
            (&get, new, 200, stated, None, "content-length: 7\r\n", Counted(7)),
            (&get, new, 200, stated, Some(5), "content-length: 5\r\n", Counted(5)),
            (&get, new, 200, &[], None, "transfer-encoding: chunked\r\n", Chunked),
            (&get, old, 200, &[], None, "", UntilClose),
            (&head, new, 200, stated, Some(0), "content-length: 7\r\n", Counted(0)),
            (&head, new, 200, &[], Some(0), "", Counted(0)),
            (&head, new, 200, &[], None, "", Counted(0)),
            (&get, new, 204, &[], Some(0), "", Counted(0)),
            (&get, new, 304, stated, Some(0), "", Counted(0)),
            (&Method::CONNECT, new, 200, &[], Some(0), "", Counted(0)),
        ] {
            let (text, written) = written(method.clone(), version, status, fields, length);
            let row = format!("{method} {version:?} {status} {fields:?} {length:?}: {text}");
            assert_eq!(written.framing, framing, "{row}");
            let lines = text.split_once("\r\n").unwrap().1;
            let lines = lines.replace("connection: keep-alive\r\n", "");
            let lines = lines.replace("connection: close\r\n", "");
            assert_eq!(lines, format!("{line}\r\n"), "{row}");
            assert_eq!(written.stays, framing != UntilClose, "{row}");
        }
    }

    #[test]
    fn connection_is_named_where_its_version_expects_the_other() {
        let of = |version, fields: &[(&str, &str)]| {
            let (text, written) = written(Method::GET, version, 200, fields, Some(0));
            (text.matches("connection: ").count(), text.contains("close"), written.stays)
        };
        assert_eq!(of(Version::HTTP_11, &[]), (0, false, true));
        assert_eq!(of(Version::HTTP_11, &[("connection", "close")]), (1, true, false));
        assert_eq!(of(Version::HTTP_10, &[]), (1, false, true));
        assert_eq!(of(Version::HTTP_10, &[("connection", "close")]), (1, true, false));
    }

    #[test]
    fn reason_is_that_of_the_server_if_it_gave_one() {
        let (mut head, ()) = Response::new(()).into_parts();
        head.extensions.insert(ReasonPhrase::from_static(b"Fine"));
        let (mut text, method) = (Vec::new(), Method::GET);
        let asked = Asked { method: &method, version: Version::HTTP_11, stays: true };
        write_head(&mut text, &head, None, Some(0), asked);
        assert!(text.starts_with(b"HTTP/1.1 200 Fine\r\n"));
    }

    #[test]
    fn numbers_are_written_in_both_bases() {
        for number in [0, 9, 10, 255, 4096, u64::MAX] {
            let mut text = Vec::new();
            write_number(&mut text, number, 10);
            write_number(&mut text, number, 16);
            assert_eq!(text, format!("{number}{number:x}").into_bytes());
        }
    }
}
