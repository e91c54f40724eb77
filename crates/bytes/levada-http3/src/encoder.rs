//! The head of a response as a frame (RFC 9114 Sec. 7.2.2, RFC 9204 Sec. 4.5). Names are those of the static table where
//! it has them. Values are written as they are: Huffman's code would cost more time than the bytes that it saves.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use levada_http::write_integer;

use crate::frames::{HEADERS, frame_header};

/// The largest field section that is written here, with 32 bytes for each field (RFC 9114 Sec. 4.2.2). No client is known
/// that takes less. h3, which knows what the client takes, writes others.
const MOST: usize = 4 << 10;

/// The frame of a head; `None` if it is too large.
pub(crate) fn headers_frame(status: StatusCode, fields: &HeaderMap) -> Option<[Bytes; 2]> {
    let length = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        name.as_str().len() + value.len() + 32
    };
    let size = fields.iter().map(length).sum::<usize>();
    if size > MOST {
        return None;
    }
    let mut section = Vec::with_capacity(size + 16);
    // No line refers to the dynamic table.
    section.extend_from_slice(&[0, 0]);
    match static_status(status) {
        Some(index) => write_integer(&mut section, 0xc0, 6, index),
        None => {
            write_integer(&mut section, 0x50, 4, STATUS);
            push_text(&mut section, 0, 7, status.as_str().as_bytes());
        }
    }
    for (name, value) in fields {
        match static_name(name.as_str()) {
            Some(index) => write_integer(&mut section, 0x50, 4, index),
            None => push_text(&mut section, 0x20, 3, name.as_str().as_bytes()),
        }
        push_text(&mut section, 0, 7, value.as_bytes());
    }
    Some([frame_header(HEADERS as u8, section.len()), section.into()])
}

fn push_text(out: &mut Vec<u8>, first: u8, bits: u32, text: &[u8]) {
    write_integer(out, first, bits, text.len());
    out.extend_from_slice(text);
}

/// The first index with the name `:status` (RFC 9204 App. A).
const STATUS: usize = 24;

/// The index of a status.
fn static_status(status: StatusCode) -> Option<usize> {
    Some(match status.as_u16() {
        103 => 24,
        200 => 25,
        304 => 26,
        404 => 27,
        503 => 28,
        100 => 63,
        204 => 64,
        206 => 65,
        302 => 66,
        400 => 67,
        403 => 68,
        421 => 69,
        425 => 70,
        500 => 71,
        _ => return None,
    })
}

/// The first index with this name, of those that responses have.
fn static_name(name: &str) -> Option<usize> {
    Some(match name {
        "age" => 2,
        "content-disposition" => 3,
        "content-length" => 4,
        "date" => 6,
        "etag" => 7,
        "last-modified" => 10,
        "link" => 11,
        "location" => 12,
        "set-cookie" => 14,
        "accept-ranges" => 32,
        "access-control-allow-headers" => 33,
        "access-control-allow-origin" => 35,
        "cache-control" => 36,
        "content-encoding" => 42,
        "content-type" => 44,
        "strict-transport-security" => 56,
        "vary" => 59,
        "x-content-type-options" => 61,
        "x-xss-protection" => 62,
        "access-control-allow-credentials" => 73,
        "access-control-allow-methods" => 76,
        "access-control-expose-headers" => 79,
        "alt-svc" => 83,
        "content-security-policy" => 85,
        "expect-ct" => 87,
        "server" => 92,
        "timing-allow-origin" => 93,
        "x-frame-options" => 97,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_those_of_the_examples() {
        // RFC 7541 App. C.1.
        for (bits, value, bytes) in
            [(5, 10, &[0x0a][..]), (5, 1337, &[0x1f, 0x9a, 0x0a]), (8, 42, &[0x2a])]
        {
            let mut out = Vec::new();
            write_integer(&mut out, 0, bits, value);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn large_head_is_left_to_h3() {
        let fields = |length: usize| {
            HeaderMap::from_iter([(http::header::ETAG, "x".repeat(length).parse().unwrap())])
        };
        assert!(headers_frame(StatusCode::OK, &fields(MOST - 36)).is_some());
        assert!(headers_frame(StatusCode::OK, &fields(MOST - 35)).is_none());
    }
}
