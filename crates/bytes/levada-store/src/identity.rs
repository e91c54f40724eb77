//! Identities: URIs normalized, so that equal ones find the same stored response.
//!
//! ```text
//! device=mobile 0-65535~9f86d081884c7d65 @3c6e0b8a9c15224a https://www.example.com/a?b=1
//!    variant      piece, or the digest        space               the URL
//!                that the client requires
//! ```
//!
//! Everything before the URL may be missing. The space tells routes apart that do not ask the same
//! servers in the same way (`levada_config::identity`).

use http::Uri;

/// The URL of a resource (RFC 9110 Sec. 4.2.3): the host is in lower case, and without the scheme's default port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceUrl {
    text: String,
    /// The position of the host, with its port.
    host_at: usize,
    /// The position of path and query.
    path_at: usize,
}

impl ResourceUrl {
    /// The URL with these parts; `host` may have a port.
    pub fn new(scheme: &str, host: &str, target: &str) -> Self {
        let mut text = String::with_capacity(scheme.len() + 3 + host.len() + target.len());
        text.push_str(scheme);
        text.push_str("://");
        let host_at = text.len();
        text.push_str(host);
        text[host_at..].make_ascii_lowercase();
        let path_at = host_at + without_default_port(scheme, &text[host_at..]).len();
        text.truncate(path_at);
        text.push_str(target);
        Self { text, host_at, path_at }
    }

    /// `None` for a URI without a host.
    pub fn of(uri: &Uri) -> Option<Self> {
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        Some(Self::new(uri.scheme_str().unwrap_or("http"), uri.authority()?.as_str(), target))
    }

    /// The same with another scheme. A port stays.
    pub fn with_scheme(&self, scheme: &str) -> Self {
        Self::new(scheme, self.host(), self.target())
    }

    /// The whole URL.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The scheme, and the host with its port.
    pub fn root(&self) -> &str {
        &self.text[..self.path_at]
    }

    /// The scheme of the client's connection.
    pub fn scheme(&self) -> &'static str {
        if self.text.starts_with("https:") { "https" } else { "http" }
    }

    /// The host, with a port that is not the scheme's default.
    pub fn host(&self) -> &str {
        &self.text[self.host_at..self.path_at]
    }

    /// Path and query.
    pub fn target(&self) -> &str {
        &self.text[self.path_at..]
    }
}

/// The URL in an identity: it has no space, and stands behind the last one.
pub fn url_of(identity: &str) -> &str {
    identity.rsplit_once(' ').map_or(identity, |(_, url)| url)
}

/// The space and the URL in an identity: they are the same for a file and its pieces.
pub fn in_space(identity: &str) -> &str {
    let Some((before, url)) = identity.rsplit_once(' ') else { return identity };
    let word = before.rsplit(' ').next().unwrap_or_default();
    let length = if word.starts_with(SPACE) { word.len() + 1 + url.len() } else { url.len() };
    &identity[identity.len() - length..]
}

/// The first character of the space in an identity: see [`in_space`]. No other word begins with it.
pub const SPACE: char = '@';

/// Removes the scheme's default port, which does not change the URI (RFC 9110 Sec. 4.2.3).
pub fn without_default_port<'a>(scheme: &str, host: &'a str) -> &'a str {
    let default = if scheme == "https" { 443 } else { 80 };
    let name = without_port(host);
    let Some(port) = host[name.len()..].strip_prefix(':') else { return host };
    // An empty port is the default one, and zeros before a number do not count (RFC 3986 Sec. 3.2.3).
    let is_default = port.is_empty() || port.parse::<u16>().is_ok_and(|port| port == default);
    if is_default { name } else { host }
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
        let identity = |url: &str| ResourceUrl::of(&url.parse().unwrap()).unwrap();
        assert_eq!(identity("http://A.test:80/x"), identity("http://a.test/x"));
        assert_eq!(identity("https://a.test:443/x").as_str(), "https://a.test/x");
        assert_ne!(identity("https://a.test:80/x"), identity("https://a.test/x"));
        for host in ["a.test:", "a.test:080", "A.test:80"] {
            assert_eq!(ResourceUrl::new("http", host, "/x").as_str(), "http://a.test/x");
        }
        assert_eq!(ResourceUrl::new("http", "[::1]:", "/x").as_str(), "http://[::1]/x");
        assert_eq!(ResourceUrl::new("http", "a.test:081", "/x").host(), "a.test:081");
    }

    #[test]
    fn url_and_space_are_found_behind_variants_and_pieces() {
        for before in ["", "device=mobile ", "0-9~9f ", "header.a=x 0-9~9f "] {
            for space in ["", "@3c "] {
                let identity = format!("{before}{space}http://a.test/@x");
                assert_eq!(url_of(&identity), "http://a.test/@x");
                assert_eq!(in_space(&identity), format!("{space}http://a.test/@x"));
            }
        }
    }

    #[test]
    fn ports_are_cut_off_hosts_but_not_off_addresses() {
        assert_eq!(without_port("a.example:80"), "a.example");
        assert_eq!(without_port("[::1]:80"), "[::1]");
        assert_eq!(without_port("[::1]"), "[::1]");
    }
}
