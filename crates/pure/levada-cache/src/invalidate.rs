//! Invalidation of stored responses by successful unsafe requests (RFC 9111, Sec. 4.4).

use http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header, uri::Scheme};

/// The URIs whose stored responses must be invalidated: the target, and the URIs of the same origin
/// that `Location` and `Content-Location` name. Empty for safe methods and for errors.
///
/// `target` is absolute, as the node resolved it. Other origins are not affected, so that one site
/// cannot invalidate the responses of another.
/// be able to empty another's cache.
pub fn invalidated(
    method: &Method,
    status: StatusCode,
    target: &Uri,
    response: &HeaderMap,
) -> Vec<Uri> {
    let succeeded = status.is_success() || status.is_redirection();
    if is_safe(method) || !succeeded {
        return Vec::new();
    }
    let named = [header::LOCATION, header::CONTENT_LOCATION];
    let mut uris = vec![target.clone()];
    for uri in named.iter().filter_map(|name| reference(response, name, target)) {
        if same_origin(&uri, target) && !uris.contains(&uri) {
            uris.push(uri);
        }
    }
    uris
}

/// Whether a method is safe (RFC 9110, Sec. 9.2.1). Unknown methods are unsafe.
pub fn is_safe(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE].contains(method)
}

fn reference(response: &HeaderMap, name: &HeaderName, base: &Uri) -> Option<Uri> {
    resolve(base, response.get(name)?.to_str().ok()?.trim())
}

fn same_origin(a: &Uri, b: &Uri) -> bool {
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    a.scheme() == b.scheme() && host(a) == host(b) && port(a) == port(b)
}

fn port(uri: &Uri) -> Option<u16> {
    uri.port_u16().or_else(|| match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTPS => Some(443),
        Some(scheme) if *scheme == Scheme::HTTP => Some(80),
        _ => None,
    })
}

/// Resolves a reference against an absolute URI (RFC 3986, Sec. 5.2), without its fragment.
pub fn resolve(base: &Uri, reference: &str) -> Option<Uri> {
    let reference = reference.split('#').next()?;
    let scheme = base.scheme_str()?;
    if has_scheme(reference) {
        return normalised(reference.parse().ok()?);
    }
    if let Some(rest) = reference.strip_prefix("//") {
        return normalised(format!("{scheme}://{rest}").parse().ok()?);
    }
    let authority = base.authority()?;
    let path = merged(base, reference);
    normalised(format!("{scheme}://{authority}{path}").parse().ok()?)
}

fn has_scheme(reference: &str) -> bool {
    let end = reference.find([':', '/', '?']).filter(|&at| reference.as_bytes()[at] == b':');
    end.is_some_and(|at| at > 0 && reference.as_bytes()[0].is_ascii_alphabetic())
}

fn merged(base: &Uri, reference: &str) -> String {
    let path = base.path();
    if reference.is_empty() {
        return base.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
    }
    if reference.starts_with('/') {
        return reference.to_owned();
    }
    if reference.starts_with('?') {
        return format!("{path}{reference}");
    }
    let directory = path.rfind('/').map_or("/", |at| &path[..=at]);
    format!("{directory}{reference}")
}

/// Removes the dot segments of the path (RFC 3986, Sec. 5.2.4).
fn normalised(uri: Uri) -> Option<Uri> {
    if !uri.path().contains("/.") {
        return Some(uri);
    }
    let mut segments: Vec<&str> = Vec::new();
    let mut all = uri.path().split('/').skip(1).peekable();
    while let Some(segment) = all.next() {
        let last = all.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    segments.pop();
                }
                if last {
                    segments.push("");
                }
            }
            other => segments.push(other),
        }
    }
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    let path = format!("/{}{query}", segments.join("/"));
    let mut parts = uri.into_parts();
    parts.path_and_query = Some(path.parse().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;
    use proptest::prelude::*;

    fn dropped(method: &Method, status: u16, lines: &[(&'static str, &str)]) -> Vec<String> {
        let target = "http://a.example/dir/page?q=1".parse().unwrap();
        let status = StatusCode::from_u16(status).unwrap();
        let uris = invalidated(method, status, &target, &headers(lines));
        uris.iter().skip(1).map(Uri::to_string).collect()
    }

    #[test]
    fn success_of_an_unsafe_method_drops_its_target() {
        let target: Uri = "http://a.example/".parse().unwrap();
        let count = |method: &str, status| {
            let method = method.parse().unwrap();
            invalidated(&method, StatusCode::from_u16(status).unwrap(), &target, &HeaderMap::new())
                .len()
        };
        for method in ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH"] {
            assert_eq!((count(method, 200), count(method, 303), count(method, 500)), (1, 1, 0));
        }
        assert_eq!((count("GET", 200), count("HEAD", 200), count("OPTIONS", 200)), (0, 0, 0));
    }

    #[test]
    fn named_locations_are_dropped_too() {
        for (location, resolved) in [
            ("other", "http://a.example/dir/other"),
            ("/x#f", "http://a.example/x"),
            ("../y/./z", "http://a.example/y/z"),
            ("../../..", "http://a.example/"),
            ("?q=2", "http://a.example/dir/page?q=2"),
            ("http://A.example:80/x", "http://A.example:80/x"),
            ("//a.example/x", "http://a.example/x"),
        ] {
            assert_eq!(dropped(&Method::POST, 201, &[("location", location)]), [resolved]);
        }
        let both = [("location", "/x"), ("content-location", "/y")];
        assert_eq!(dropped(&Method::PUT, 200, &both).len(), 2);
    }

    #[test]
    fn other_origins_are_left_alone() {
        for location in [
            "https://a.example/x",
            "http://b.example/x",
            "http://a.example:81/x",
            "//b.example/x",
            "mailto:x",
            "http://",
            "",
            ":",
        ] {
            let uris = dropped(&Method::POST, 200, &[("location", location)]);
            assert!(
                uris.iter().all(|uri| uri.starts_with("http://a.example/")),
                "{location}: {uris:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_reference_panics(location in "[a-z:/?#.@%\\[\\] -]{0,24}") {
            let _ = dropped(&Method::POST, 200, &[("location", &location)]);
        }
    }
}
