//! Loops between CDNs (RFC 8586).

use http::{HeaderMap, HeaderName};

/// Lists the CDNs that a request has passed (RFC 8586).
pub const CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");
/// The identifier of this CDN in `CDN-Loop`: all peers use it.
pub const CDN_ID: &str = "levada";

/// Counts this CDN's entries in `CDN-Loop` (RFC 8586 Sec. 2). All peers use one identifier and pass a
/// request on once, so a few entries are normal and many are a loop.
pub fn times_passed(headers: &HeaderMap) -> usize {
    let entries = headers.get_all(CDN_LOOP).iter();
    let entries = entries.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let ids = entries.map(|entry| entry.split(|byte| *byte == b';').next().unwrap_or_default());
    ids.filter(|id| id.trim_ascii().eq_ignore_ascii_case(CDN_ID.as_bytes())).count()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn own_entries_count_whatever_their_case_and_parameters() {
        let mut headers = HeaderMap::new();
        headers.append(CDN_LOOP, HeaderValue::from_static("levada, other;x=levada, Levada;v=1"));
        assert_eq!(times_passed(&headers), 2);
        headers.append(CDN_LOOP, HeaderValue::from_static("levada"));
        assert_eq!(times_passed(&headers), 3);
    }
}
