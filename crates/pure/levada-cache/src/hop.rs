//! Hop-by-hop header fields, which are not forwarded (RFC 9110, Sec. 7.6.1).

use crate::vary::list;
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Whether a field is never forwarded and never stored (RFC 9111, Sec. 3.1), even if `Connection`
/// does not name it. `Alt-Svc` is about the server that was asked, which clients of this node do not reach.
pub fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authentication-info"
            | "proxy-authorization"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "http2-settings"
            | "alt-svc"
    )
}

/// Removes the hop-by-hop fields of a request. Returns whether the sender takes trailers (RFC 9110, Sec. 10.1.4).
pub fn strip_request(headers: &mut HeaderMap) -> bool {
    // One pass over the fields that are present replaces a search for each name: most messages have
    // none.
    if !headers.keys().any(is_hop_by_hop) {
        return false;
    }
    let is_trailers = |member: &[u8]| member.eq_ignore_ascii_case(b"trailers");
    let takes_trailers =
        headers.get_all(header::TE).iter().any(|te| list(te.as_bytes()).any(is_trailers));
    strip(headers);
    takes_trailers
}

/// Joins cookies. HTTP/2 lets a client divide them over several fields; HTTP/1.1 knows one (RFC 9113
/// Sec. 8.2.3).
pub fn join_cookies(headers: &mut HeaderMap) {
    let crumbs: Vec<&[u8]> =
        headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() > 1
        && let Ok(cookie) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]))
    {
        headers.insert(header::COOKIE, cookie);
    }
}

/// Removes the hop-by-hop fields of a response; the remaining ones may be forwarded and stored.
pub fn strip_response(headers: &mut HeaderMap) {
    if headers.keys().any(is_hop_by_hop) {
        strip(headers);
    }
}

/// Removes named fields, such as those of [`crate::Storable::strip`].
pub fn strip_fields<T>(headers: &mut HeaderMap<T>, names: &[HeaderName]) {
    // One pass over the fields that are present replaces a search for each name: most messages have
    // none of the names, and most of their fields do not even have the length of one.
    let bit = |name: &HeaderName| 1_u64 << (name.as_str().len() % 64);
    let lengths = names.iter().fold(0, |lengths, name| lengths | bit(name));
    if !headers.keys().any(|name| lengths & bit(name) != 0 && names.contains(name)) {
        return;
    }
    for name in names {
        headers.remove(name);
    }
}

fn strip(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> = nominated(headers).collect();
    strip_fields(headers, &names);
    while let Some(name) = headers.keys().find(|name| is_hop_by_hop(name)).cloned() {
        headers.remove(name);
    }
}

/// The fields that `Connection` names, except fields without which the message would change its
/// meaning. Otherwise a client could make the node remove `Host`, the length of a body, fields that
/// identify users, or fields that prevent loops (RFC 9110, Sec. 7.6.1 forbids naming such fields).
pub(crate) fn nominated(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|line| list(line.as_bytes()))
        // This is the usual member, and it is removed in any case.
        .filter(|name| !name.eq_ignore_ascii_case(b"keep-alive"))
        .filter_map(|name| HeaderName::from_bytes(name).ok())
        .filter(|name| !is_end_to_end(name))
}

fn is_end_to_end(name: &HeaderName) -> bool {
    const KEPT: [HeaderName; 13] = [
        header::HOST,
        header::CONTENT_LENGTH,
        header::CONTENT_TYPE,
        header::CONTENT_ENCODING,
        header::CONTENT_RANGE,
        header::CACHE_CONTROL,
        header::VARY,
        header::AUTHORIZATION,
        header::COOKIE,
        header::SET_COOKIE,
        header::FORWARDED,
        header::VIA,
        HeaderName::from_static("cdn-loop"),
    ];
    KEPT.contains(name) || name.as_str().starts_with("x-forwarded-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    #[test]
    fn fields_of_the_connection_end_with_it() {
        let mut all = headers(&[
            ("connection", "a, B ,,close"),
            ("connection", "c"),
            ("a", "1"),
            ("b", "1"),
            ("c", "1"),
            ("d", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("te", "trailers"),
            ("alt-svc", "h3=\":443\""),
            ("proxy-authorization", "x"),
            ("close", "1"),
        ]);
        strip_response(&mut all);
        assert_eq!(all, headers(&[("d", "1")]));
    }

    #[test]
    fn connection_cannot_take_away_what_a_message_means() {
        let kept = [
            ("host", "a"),
            ("content-length", "1"),
            ("authorization", "x"),
            ("cookie", "x"),
            ("x-forwarded-for", "::1"),
            ("cdn-loop", "x"),
        ];
        let mut all = headers(&kept);
        let named = kept.map(|(name, _)| name).join(",");
        all.insert(header::CONNECTION, named.parse().unwrap());
        strip_request(&mut all);
        assert_eq!(all, headers(&kept));
    }

    #[test]
    fn sender_that_takes_trailers_says_so() {
        for (te, takes) in [("trailers", true), ("deflate;q=0.5, Trailers", true), ("gzip", false)]
        {
            assert_eq!(strip_request(&mut headers(&[("te", te)])), takes, "{te}");
        }
        assert!(!strip_request(&mut headers(&[("a", "trailers")])));
    }

    #[test]
    fn nonsense_in_connection_is_passed_over() {
        let mut all = headers(&[("connection", "\"a b\", \u{fc}, x"), ("x", "1"), ("y", "1")]);
        strip_request(&mut all);
        assert_eq!(all, headers(&[("y", "1")]));
    }
}
