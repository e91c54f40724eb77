//! Loops between CDNs (RFC 8586).

use http::{HeaderMap, HeaderName, HeaderValue, header::VIA};

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

/// Whether a request has passed the node with this name in `Via` (RFC 9110 Sec. 7.6.3).
pub fn has_passed(headers: &HeaderMap, own: &HeaderValue) -> bool {
    let mut members =
        headers.get_all(VIA).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    members.any(|member| member.trim_ascii().eq_ignore_ascii_case(own.as_bytes()))
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn node_knows_itself_among_others_in_via() {
        let own = HeaderValue::from_static("1.1 n0");
        let via = |text| HeaderMap::from_iter([(VIA, HeaderValue::from_static(text))]);
        assert!(has_passed(&via("1.1 other, 1.1 N0"), &own));
        assert!(!has_passed(&via("1.1 n00, 1.0 n0"), &own));
    }

    #[test]
    fn own_entries_count_whatever_their_case_and_parameters() {
        let mut headers = HeaderMap::new();
        headers.append(CDN_LOOP, HeaderValue::from_static("levada, other;x=levada, Levada;v=1"));
        assert_eq!(times_passed(&headers), 2);
        headers.append(CDN_LOOP, HeaderValue::from_static("levada"));
        assert_eq!(times_passed(&headers), 3);
    }
}
