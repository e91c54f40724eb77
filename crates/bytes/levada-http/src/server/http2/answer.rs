//! The head of a response as a header block.

use http::{
    HeaderMap, Method, StatusCode,
    header::{CONNECTION, CONTENT_LENGTH, DATE, TE},
    response::Parts,
};

use super::{
    head::is_of_connection,
    hpack::encoder::{write_field, write_status},
};
use crate::{date, server::encoder::write_number, syntax};

/// Whether a response has no body, whatever it brings (RFC 9110 Sec. 6.4.1).
pub(super) fn has_no_body(method: &Method, status: StatusCode) -> bool {
    *method == Method::HEAD
        || status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Writes a head. `ready` are fields that were written already as lines of HTTP/1, the length and the date among them.
/// `length` is that of the body, if it is known.
pub(super) fn write_head(
    block: &mut Vec<u8>,
    head: &Parts,
    ready: Option<&[u8]>,
    length: Option<u64>,
) {
    write_status(block, head.status);
    lines(ready.unwrap_or_default()).for_each(|(name, value)| write_field(block, name, value));
    write_fields(block, &head.headers);
    if ready.is_some() {
        return;
    }
    if let Some(length) = length
        && !head.headers.contains_key(CONTENT_LENGTH)
    {
        let mut digits = Vec::with_capacity(20);
        write_number(&mut digits, length, 10);
        write_field(block, b"content-length", &digits);
    }
    if !head.headers.contains_key(DATE) {
        write_field(block, b"date", date::now().as_bytes());
    }
}

/// Writes fields, without those that are not known in HTTP/2 or that `Connection` names.
pub(super) fn write_fields(block: &mut Vec<u8>, fields: &HeaderMap) {
    let named = fields.get(CONNECTION).map(|names| names.as_bytes());
    for (name, value) in fields {
        let is_named = named.is_some_and(|named| syntax::names(named, name.as_str().as_bytes()));
        if !(is_named || is_of_connection(name) || *name == TE) {
            write_field(block, name.as_str().as_bytes(), value.as_bytes());
        }
    }
}

/// The names and values of fields that are lines.
fn lines(mut text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        let line = &text[..memchr::memchr(b'\r', text)?];
        text = text.get(line.len() + b"\r\n".len()..).unwrap_or_default();
        let name = &line[..memchr::memchr(b':', line)?];
        Some((name, syntax::trimmed(&line[name.len() + 1..])))
    })
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::{
        super::hpack::{Decoder, HeaderField},
        *,
    };

    fn written(response: Response<()>, ready: Option<&str>, length: Option<u64>) -> Vec<String> {
        let (mut block, mut fields) = (Vec::new(), Vec::new());
        let ready = ready.map(str::as_bytes);
        write_head(&mut block, &response.into_parts().0, ready, length);
        let each = |field, _| {
            if let HeaderField::Plain(name, value) = field {
                fields.push(format!("{name}={}", value.to_str().unwrap()));
            }
        };
        Decoder::new().decode(&block, each).unwrap();
        fields
    }

    #[test]
    fn length_and_date_are_added_where_they_are_missing() {
        let response = || Response::builder().header("x-a", "1");
        let date = |fields: Vec<String>| {
            let (dates, rest) = fields.into_iter().partition(|f| f.starts_with("date="));
            let dates: Vec<String> = dates;
            assert_eq!(dates.len(), 1);
            rest
        };
        let of = |response, length| -> Vec<String> { date(written(response, None, length)) };
        assert_eq!(of(response().body(()).unwrap(), Some(5)), ["x-a=1", "content-length=5"]);
        assert_eq!(of(response().body(()).unwrap(), None), ["x-a=1"]);
        let own = || response().header("content-length", "7").header("date", "x").body(()).unwrap();
        assert_eq!(of(own(), Some(5)), ["x-a=1", "content-length=7"]);
    }

    #[test]
    fn fields_of_connections_are_left_out() {
        let response = Response::builder()
            .header("connection", "close, x-hop")
            .header("x-hop", "1")
            .header("transfer-encoding", "chunked")
            .header("te", "trailers")
            .header("date", "now")
            .body(())
            .unwrap();
        assert_eq!(written(response, None, None), ["date=now"]);
    }

    #[test]
    fn lines_become_fields() {
        let text = "content-length: 5\r\ndate: now\r\nx-a: a: b\r\nx-empty: \r\n";
        let response = Response::builder().header("alt-svc", "x").body(()).unwrap();
        assert_eq!(
            written(response, Some(text), Some(5)),
            ["content-length=5", "date=now", "x-a=a: b", "x-empty=", "alt-svc=x"]
        );
    }
}
