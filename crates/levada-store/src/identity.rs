//! Identities: URIs normalized, so that equal ones find the same stored response.

use http::Uri;

/// The identity and the host of a URL: a request for it has the same identity.
pub fn of(uri: &Uri) -> Option<(String, String)> {
    let host = uri.authority()?.as_str().to_ascii_lowercase();
    let scheme = uri.scheme_str().unwrap_or("http");
    let host = without_default_port(scheme, &host).to_owned();
    let target = uri.path_and_query().map_or("/", |t| t.as_str());
    Some((format!("{scheme}://{host}{target}"), host))
}

/// Removes the scheme's default port, which does not change the URI (RFC 9110 Sec. 4.2.3).
pub fn without_default_port<'a>(scheme: &str, host: &'a str) -> &'a str {
    let default = if scheme == "https" { ":443" } else { ":80" };
    host.strip_suffix(default).unwrap_or(host)
}

/// The host without its port.
pub fn without_port(host: &str) -> &str {
    match memchr::memrchr2(b':', b']', host.as_bytes()) {
        Some(at) if host.as_bytes()[at] == b':' => &host[..at],
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_port_makes_no_other_uri() {
        let identity = |url: &str| of(&url.parse().unwrap()).unwrap().0;
        assert_eq!(identity("http://A.test:80/x"), identity("http://a.test/x"));
        assert_eq!(identity("https://a.test:443/x"), "https://a.test/x");
        assert_ne!(identity("https://a.test:80/x"), identity("https://a.test/x"));
    }

    #[test]
    fn ports_are_cut_off_hosts_but_not_off_addresses() {
        assert_eq!(without_port("a.example:80"), "a.example");
        assert_eq!(without_port("[::1]:80"), "[::1]");
        assert_eq!(without_port("[::1]"), "[::1]");
    }
}
