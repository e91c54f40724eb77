//! The target of a redirect, and whether to follow it.

use http::{HeaderMap, HeaderName, Uri, header};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// The reason why a redirect is not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RedirectRefusal {
    /// It has no valid target.
    Nowhere,
    /// It leads from https to http, and no digest would verify the file.
    Insecure(Uri),
}

/// The target of the redirect `response` to a request for `from`. A redirect from https to http is
/// followed only if a digest verifies the file.
pub(crate) fn target(
    from: &Uri,
    response: &HeaderMap,
    digest_known: bool,
) -> Result<Uri, RedirectRefusal> {
    let location = response.get(header::LOCATION).ok_or(RedirectRefusal::Nowhere)?;
    let location =
        std::str::from_utf8(location.as_bytes()).map_err(|_| RedirectRefusal::Nowhere)?;
    let to =
        levada_cache::resolve(from, &encoded(location.trim())).ok_or(RedirectRefusal::Nowhere)?;
    match to.scheme_str() {
        Some("https") => Ok(to),
        Some("http") if from.scheme_str() == Some("http") || digest_known => Ok(to),
        Some("http") => Err(RedirectRefusal::Insecure(to)),
        _ => Err(RedirectRefusal::Nowhere),
    }
}

/// Percent-encodes spaces and non-ASCII characters, which servers send although they must not;
/// browsers do the same.
fn encoded(location: &str) -> String {
    // Controls are encoded too, and so is everything that is not ASCII.
    const SPACES: &AsciiSet = &CONTROLS.add(b' ');
    utf8_percent_encode(location, SPACES).to_string()
}

/// Whether two URLs have the same origin; then they may share connections and credentials.
pub(crate) fn same_origin(a: &Uri, b: &Uri) -> bool {
    origin(a) == origin(b)
}

/// Whether the field identifies the user to one origin.
pub(crate) fn is_credential(name: &HeaderName) -> bool {
    [header::AUTHORIZATION, header::COOKIE].contains(name)
}

/// Scheme, host and port.
pub(crate) fn origin(uri: &Uri) -> (bool, String, u16) {
    let tls = uri.scheme_str() == Some("https");
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    (tls, host, uri.port_u16().unwrap_or(if tls { 443 } else { 80 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(from: &str, location: &str) -> Result<String, RedirectRefusal> {
        let mut headers = HeaderMap::new();
        let value = http::HeaderValue::from_bytes(location.as_bytes()).unwrap();
        headers.insert(header::LOCATION, value);
        target(&from.parse().unwrap(), &headers, false).map(|uri| uri.to_string())
    }

    #[test]
    fn references_are_resolved() {
        assert_eq!(to("http://a/b/c", "d").unwrap(), "http://a/b/d");
        assert_eq!(to("http://a/b/c", "/x y\u{e9}").unwrap(), "http://a/x%20y%C3%A9");
        assert_eq!(to("http://a/b", "//h:81/e").unwrap(), "http://h:81/e");
        assert_eq!(to("http://a/b", "https://h/").unwrap(), "https://h/");
    }

    #[test]
    fn https_is_not_left_and_other_schemes_are_not_followed() {
        assert!(matches!(to("https://a/b", "http://a/b"), Err(RedirectRefusal::Insecure(_))));
        assert_eq!(to("http://a/b", "file:///etc/passwd"), Err(RedirectRefusal::Nowhere));
        assert_eq!(to("http://a/b", "ftp://a/b"), Err(RedirectRefusal::Nowhere));
    }
}
