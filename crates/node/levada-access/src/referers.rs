//! Hotlink rules: the pages that may embed a site's files, by `Referer`, as nginx's `valid_referers`.

use std::{fmt, str::FromStr};

use http::{HeaderMap, header::REFERER};

/// The referers that are valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Referers(Vec<Referer>);

/// One kind of valid referers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Referer {
    /// All requests, where a route lifts the rule of its site.
    Any,
    /// The field is missing.
    None,
    /// The field has a value that no URL with `http://` or `https://` is: something on the way has removed it.
    Blocked,
    /// The host of the request itself.
    Own,
    /// A host, or with `*.` all below it, and the beginning of the path.
    Host {
        /// In lower case, without `*`.
        host: String,
        /// All hosts that end with `host`.
        below: bool,
        /// The beginning of the path; empty for all.
        path: String,
    },
}

/// The text is no kind of referers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected none, blocked, server_names, * or a host such as *.example.com, with or without a path"
)]
pub struct NoReferer;

impl Referers {
    /// Valid referers of these kinds.
    pub fn new(kinds: Vec<Referer>) -> Self {
        Self(kinds)
    }

    /// Whether the request's referer is valid. `host` is the host of the request, without its port.
    pub fn admit(&self, host: &str, headers: &HeaderMap) -> bool {
        let referer = headers.get(REFERER).map(|value| value.as_bytes());
        let has = |kind| self.0.contains(&kind);
        if has(Referer::Any) {
            return true;
        }
        let Some(referer) = referer else { return has(Referer::None) };
        let Some((shown, path)) = std::str::from_utf8(referer).ok().and_then(split) else {
            return has(Referer::Blocked);
        };
        let shown = shown.to_ascii_lowercase();
        self.0.iter().any(|kind| match kind {
            Referer::Any | Referer::None | Referer::Blocked => false,
            Referer::Own => shown.eq_ignore_ascii_case(host),
            Referer::Host { host, below: true, path: begin } => {
                shown.ends_with(host.as_str())
                    && shown.len() > host.len()
                    && path.starts_with(begin)
            }
            Referer::Host { host, below: false, path: begin } => {
                shown == *host && path.starts_with(begin)
            }
        })
    }
}

impl fmt::Display for Referers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&kinds.join(", "))
    }
}

/// The host of a URL, without its port, and the path.
fn split(url: &str) -> Option<(&str, &str)> {
    let after = |scheme: &str| {
        let (head, rest) = url.split_at_checked(scheme.len())?;
        head.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    let rest = after("http://").or_else(|| after("https://"))?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // Nothing before an `@` is the host.
    let host = authority.rsplit('@').next().unwrap_or_default();
    let end = match host.strip_prefix('[') {
        Some(v6) => v6.find(']').map_or(host.len(), |at| at + 2),
        None => host.find(':').unwrap_or(host.len()),
    };
    Some((&host[..end], path))
}

impl FromStr for Referer {
    type Err = NoReferer;

    fn from_str(text: &str) -> Result<Self, NoReferer> {
        match text {
            "*" => return Ok(Self::Any),
            "none" => return Ok(Self::None),
            "blocked" => return Ok(Self::Blocked),
            "server_names" => return Ok(Self::Own),
            _ => {}
        }
        let (host, path) = text.split_at(text.find('/').unwrap_or(text.len()));
        let (host, below) = match host.strip_prefix('*') {
            Some(suffix) if suffix.starts_with('.') => (suffix, true),
            Some(_) => return Err(NoReferer),
            None => (host, false),
        };
        let labels = host.strip_prefix('.').unwrap_or(host);
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        let is_host = match labels.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok() && !below,
            None => !labels.is_empty() && labels.bytes().all(plain),
        };
        let host = host.to_ascii_lowercase();
        if is_host { Ok(Self::Host { host, below, path: path.to_owned() }) } else { Err(NoReferer) }
    }
}

impl fmt::Display for Referer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::None => f.write_str("none"),
            Self::Blocked => f.write_str("blocked"),
            Self::Own => f.write_str("server_names"),
            Self::Host { host, below, path } => {
                write!(f, "{}{host}{path}", if *below { "*" } else { "" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn referer_is_valid_by_host_and_path() {
        let texts = ["none", "blocked", "server_names", "*.example.com", "example.org/galleries/"];
        let kinds = texts.iter().map(|text| text.parse().unwrap()).collect();
        let referers = Referers::new(kinds);
        let admit = |value: &str| {
            let headers = HeaderMap::from_iter([(REFERER, value.parse().unwrap())]);
            referers.admit("a.test", &headers)
        };
        assert!(referers.admit("a.test", &HeaderMap::new()));
        for valid in [
            "https://a.test/page",
            "HTTPS://A.test",
            "http://www.example.com:8080/x",
            "https://a.b.example.com",
            "https://example.org/galleries/1",
            "removed by a firewall",
        ] {
            assert!(admit(valid), "{valid}");
        }
        for foreign in [
            "https://example.com/",
            "https://evil-example.com/",
            "https://www.example.com.evil.test/",
            "https://www.example.com@evil.test/",
            "https://evil.test/?https://www.example.com/",
            "https://evil.test#.example.com",
            "https://example.org/",
            "http://",
        ] {
            assert!(!admit(foreign), "{foreign}");
        }
        let own_only = Referers::new(vec![Referer::Own]);
        assert!(!own_only.admit("a.test", &HeaderMap::new()));
    }

    #[test]
    fn kind_is_written_as_it_is_read() {
        let hosts = ["*.example.com", "example.org/a/", "[::1]"];
        for text in ["*", "none", "blocked", "server_names"].into_iter().chain(hosts) {
            assert_eq!(text.parse::<Referer>().unwrap().to_string(), text);
        }
        for text in ["", "**", "*example.com", "/a", "exa mple.com", "https://example.com"] {
            assert_eq!(text.parse::<Referer>(), Err(NoReferer), "{text}");
        }
    }
}
