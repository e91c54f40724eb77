//! Calls of gRPC, as far as they differ from other requests, and the form of failures for them.

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
    request, response,
};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

const TYPE: &str = "application/grpc";
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// The bytes of a message that are written as `%XX`, in addition to those that are not ASCII.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// Whether a request is a call.
pub fn is_call(parts: &request::Parts) -> bool {
    parts.method == Method::POST && is_grpc(&parts.headers)
}

/// Whether a body is a sequence of messages: `application/grpc`, with or without a format.
fn is_grpc(headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = media.and_then(|media| media.strip_prefix(TYPE.as_bytes()));
    rest.is_some_and(|rest| matches!(rest, [] | [b'+' | b';', ..]))
}

/// Makes the head of a refusal with this text one that has the status of gRPC; its response has no body
/// (`Trailers-Only`).
pub fn refuse(head: &mut response::Parts, text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    let message = utf8_percent_encode(text.trim_end(), ENCODED).to_string();
    let code = code(std::mem::replace(&mut head.status, StatusCode::OK));
    head.headers.remove(CONTENT_LENGTH);
    head.headers.insert(CONTENT_TYPE, HeaderValue::from_static(TYPE));
    head.headers.insert(STATUS, HeaderValue::from(code));
    head.headers.extend(HeaderValue::try_from(message).ok().map(|message| (MESSAGE, message)));
}

/// The code that clients take a status of HTTP for (gRPC's http-grpc-status-mapping.md).
fn code(status: StatusCode) -> u16 {
    match status.as_u16() {
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502..=504 => 14,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_by_their_type() {
        for (media, is_call) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;x=y", true),
            ("application/grpc-web", false),
            ("application/json", false),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, media.parse().unwrap())]);
            assert_eq!(is_grpc(&headers), is_call, "{media}");
        }
    }
}
