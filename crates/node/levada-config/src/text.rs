//! Values that a configuration writes as text, apart from those of [`levada_types::text`]: addresses, URLs, host names, rules.
//!
//! Each is a type of its own that is always valid, and one of [`FORMATS`], which the schema and the shape check use.

use std::{fmt, path::PathBuf, str::FromStr};

use http::uri::Authority;
use levada_redirector::handoff::BREAK_EVEN;
use levada_types::{
    AddressPrefix, AdminAddress,
    text::{Form, Malformed},
    text_around, text_formats,
};

pub use levada_types::text::{Address, As, Format, Rate, Size, Time};

/// The size from which a response is worth a handoff: `"auto"`, or a size such as `"100KiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeastSize {
    /// As measured.
    Auto,
    /// This one.
    Size(Size),
}

/// The permissions of a file, in octal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(pub u32);

/// The root of an HTTP server: scheme, host and port, without a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// `https` rather than `http`.
    pub tls: bool,
    /// Host name or address; an IPv6 address without its brackets.
    pub host: String,
    /// Port; the scheme's default if the URL has none.
    pub port: u16,
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// A server in the network.
    Root(Root),
    /// A Unix socket: an absolute path.
    Unix(PathBuf),
    /// The members of a source.
    Discovery {
        /// `https` rather than `http`.
        tls: bool,
        /// The name of the source.
        source: String,
    },
}

/// Makes types of texts that a function accepts, and that are kept as another one writes them.
macro_rules! accepted_texts {
    ($($(#[$doc:meta])* $type:ident = $accepts:ident, $kept:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $type(pub String);
        impl FromStr for $type {
            type Err = Malformed;
            fn from_str(text: &str) -> Result<Self, Malformed> {
                if $accepts(text) { Ok(Self($kept(text))) } else { Err(Malformed) }
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

accepted_texts! {
    /// The address of another machine: a host name or an IP address, and a port.
    HostPort = is_host_port, str::to_owned;
    /// An origin of web pages, in which `*.` stands for all names below one; or `*` for all.
    WebOrigin = is_web_origin, str::to_ascii_lowercase;
    /// A node's name, which is valid in header fields.
    NodeName = is_node_name, str::to_owned;
    /// The value of a `Host` field: a host, and a port if it is not the default.
    HostField = is_host_field, str::to_owned;
    /// A host name, `*.example.com` for all names below one, `*` for all.
    HostPattern = is_host_pattern, str::to_ascii_lowercase;
}

text_around! {
    /// An address for operators.
    OperatorAddress(AdminAddress);
    /// An IP address.
    #[derive(Copy)]
    IpAddress(std::net::IpAddr);
    /// An IP address, or a prefix of addresses.
    #[derive(Copy)]
    Prefix(AddressPrefix);
    /// Requests per second or minute, in nginx's words.
    #[derive(Copy)]
    RequestRate(levada_access::rate::RequestRate);
    /// The part of a request that a limit counts by.
    LimitKey(levada_access::limit_key::LimitKey);
    /// A rule of access by address or country.
    #[derive(Copy)]
    AddressRule(levada_access::address_list::AddressRule);
    /// A kind of valid referers.
    Referer(levada_access::referers::Referer);
}

text_formats! {
    LeastSize = "levada-least-size", "`auto`, or a size", "auto";
    NodeName = "levada-name", "a name of 1 to 64 letters, digits, `-`, `_` and `.`", "edge-1";
    HostField = "levada-host-field", "a host, with a port where it is not the usual one", "origin.example.com";
    OperatorAddress = "levada-operator-address",
        "an IP address and a port, or `unix:` and a socket's absolute path of at most 107 bytes", "127.0.0.1:9180";
    FileMode = "levada-file-mode", "permissions as octal digits", "0660";
    Prefix = "levada-prefix", "an IP address, or a prefix of addresses", "10.0.0.0/8";
    IpAddress = "levada-ip-address", "an IP address", "192.0.2.1";
    HostPort = "levada-host-port", "a host and a port", "b.internal:7070";
    Root = "levada-root", "a URL with http or https and a host, without a path", "http://127.0.0.1:9000";
    Upstream = "levada-upstream", Upstream::EXPECTED, "http://127.0.0.1:9000";
    HostPattern = "levada-host", "a host name without a port, `*.` and a host name, or `*`", "www.example.com";
    RequestRate = "levada-request-rate", "requests per second or minute", "10r/s";
    LimitKey = "levada-limit-key", "client, client/BITS, header:NAME, cookie:NAME, path or site", "client";
    AddressRule = "levada-access-rule",
        "`allow` or `deny`, and then `all`, an address, a prefix, or `country` and two letters", "allow 10.0.0.0/8";
    Referer = "levada-referer",
        "none, blocked, server_names, `*`, or a host with or without a path", "*.example.com";
    WebOrigin = "levada-web-origin", "`*`, or a scheme and a host without a path", "https://app.example.com";
}

/// All formats of text.
pub const FORMATS: &[Format] = &[
    Time::FORMAT,
    Size::FORMAT,
    Rate::FORMAT,
    Address::FORMAT,
    LeastSize::FORMAT,
    NodeName::FORMAT,
    HostField::FORMAT,
    OperatorAddress::FORMAT,
    FileMode::FORMAT,
    IpAddress::FORMAT,
    Prefix::FORMAT,
    HostPort::FORMAT,
    Root::FORMAT,
    Upstream::FORMAT,
    HostPattern::FORMAT,
    RequestRate::FORMAT,
    LimitKey::FORMAT,
    AddressRule::FORMAT,
    Referer::FORMAT,
    WebOrigin::FORMAT,
];

impl Form for LeastSize {
    type Value = u64;
    fn of(bytes: &u64) -> Self {
        Self::Size(Size(*bytes))
    }
    fn value(self) -> u64 {
        match self {
            Self::Auto => BREAK_EVEN,
            Self::Size(Size(bytes)) => bytes,
        }
    }
}

impl FromStr for LeastSize {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        if text == AUTO { Ok(Self::Auto) } else { text.parse().map(Self::Size) }
    }
}

impl fmt::Display for LeastSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str(AUTO),
            Self::Size(size) => size.fmt(f),
        }
    }
}

const AUTO: &str = "auto";

impl FromStr for FileMode {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        let mode = u32::from_str_radix(text, 8).map_err(|_| Malformed)?;
        if is_octal && mode <= 0o777 { Ok(Self(mode)) } else { Err(Malformed) }
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

fn is_host_port(text: &str) -> bool {
    is_host_field(text)
        && text.parse().is_ok_and(|authority: Authority| authority.port_u16() > Some(0))
}

fn is_host_field(text: &str) -> bool {
    let has_host = |authority: Authority| !authority.host().is_empty();
    text.parse().is_ok_and(has_host) && !text.contains('@')
}

fn is_web_origin(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return text == "*" };
    let is_scheme = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    let host = rest.strip_prefix("*.").unwrap_or(rest);
    is_host_field(host) && !host.contains('*') && is_scheme && !scheme.is_empty()
}

fn is_node_name(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=64).contains(&text.len()) && text.bytes().all(plain)
}

impl FromStr for Root {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        let uri: http::Uri = text.parse().map_err(|_| Malformed)?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(Malformed),
        };
        let authority = uri.authority().ok_or(Malformed)?;
        let bare = matches!(uri.path(), "" | "/") && uri.query().is_none() && !text.contains('#');
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if !bare || host.is_empty() || authority.as_str().contains('@') {
            return Err(Malformed);
        }
        let given = authority.as_str().len() > authority.host().len();
        let port = match authority.port_u16() {
            Some(port) if port > 0 => port,
            None if !given => {
                if tls {
                    443
                } else {
                    80
                }
            }
            _ => return Err(Malformed),
        };
        Ok(Self { tls, host: host.to_owned(), port })
    }
}

impl Root {
    /// The root of a URL, and the rest, which begins with one of these characters.
    pub(crate) fn of_url<'u>(url: &'u str, ends: &[char]) -> (Option<Self>, &'u str) {
        let host = url.find("://").map_or(0, |at| at + 3);
        let end = url[host..].find(ends).map_or(url.len(), |at| host + at);
        let (root, rest) = url.split_at(end);
        (root.parse().ok(), rest)
    }
}

impl fmt::Display for Root {
    /// A URL without a trailing slash; the scheme's default port is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, usual) = if self.tls { ("https", 443) } else { ("http", 80) };
        write!(f, "{scheme}://")?;
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        if self.port == usual { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

/// The size of the path in the kernel's `struct sockaddr_un`, without the final zero.
const LONGEST_SOCKET_PATH: usize = 107;

impl Upstream {
    /// The expected text, for errors.
    pub const EXPECTED: &str = "a URL with http or https and a host, without a path, `unix:` and a socket's \
                                absolute path of at most 107 bytes, or `http://discovery:` and the name of \
                                a source";
}

impl Upstream {
    /// A source in the place of a port. A number is the port of a host with this name.
    fn discovery(text: &str) -> Option<Self> {
        let (scheme, source) = text.split_once("://discovery:")?;
        let tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let NodeName(source) = source.parse().ok()?;
        let is_port = source.bytes().all(|b| b.is_ascii_digit());
        (!is_port).then_some(Self::Discovery { tls, source })
    }
}

impl FromStr for Upstream {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        if let Some(discovery) = Self::discovery(text) {
            return Ok(discovery);
        }
        let Some(path) = text.strip_prefix("unix:") else { return text.parse().map(Self::Root) };
        // The path stands between quotes in header fields.
        let plain = |b: u8| matches!(b, b' '..=b'~') && b != b'"' && b != b'\\';
        let fits = path.len() <= LONGEST_SOCKET_PATH
            && path.starts_with('/')
            && !path.ends_with('/')
            && path.bytes().all(plain);
        if fits { Ok(Self::Unix(path.into())) } else { Err(Malformed) }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(root) => root.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Discovery { tls, source } => {
                write!(f, "http{}://discovery:{source}", if *tls { "s" } else { "" })
            }
        }
    }
}

fn is_host_pattern(text: &str) -> bool {
    let name = text.strip_prefix("*.").unwrap_or(text);
    text == "*" || is_host_name(name) || is_ip_address(text)
}

fn is_host_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    name.len() <= 253 && name.split('.').all(label)
}

fn is_ip_address(text: &str) -> bool {
    // In a Host header an IPv6 address stands in brackets.
    match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => text.parse::<std::net::Ipv4Addr>().is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_reads_its_own_example() {
        for format in FORMATS {
            assert!((format.measure)(format.example).is_some(), "{}", format.name);
            assert!((format.measure)("\u{0}").is_none(), "{}", format.name);
        }
    }

    #[test]
    fn a_root_has_scheme_host_and_port() {
        for (text, written) in [
            ("http://example.com", "http://example.com"),
            ("https://example.com:8443/", "https://example.com:8443"),
            ("http://[::1]:80", "http://[::1]"),
        ] {
            assert_eq!(text.parse::<Root>().unwrap().to_string(), written);
        }
        for text in [
            "example.com",
            "ftp://example.com",
            "http://example.com/path",
            "http://example.com?q",
            "http://user@example.com",
            "http://example.com:0",
            "http://example.com:99999",
            "http://",
            "/",
            "",
        ] {
            assert_eq!(text.parse::<Root>(), Err(Malformed), "{text}");
        }
    }

    #[test]
    fn a_server_is_at_a_url_or_at_a_socket() {
        let longest = format!("unix:/{}", "a".repeat(LONGEST_SOCKET_PATH - 1));
        for text in ["http://example.com", "unix:/run/app.sock", &longest] {
            assert_eq!(text.parse::<Upstream>().unwrap().to_string(), text);
        }
        for text in [
            "unix:",
            "unix:run/app.sock",
            "unix:/run/",
            "unix:/a\"b",
            "unix:/a\\b",
            "unix:/a\nb",
            "http://unix:/run/app.sock",
            &format!("{longest}b"),
        ] {
            assert_eq!(text.parse::<Upstream>(), Err(Malformed), "{text}");
        }
    }

    #[test]
    fn hosts_are_names_wildcards_and_addresses() {
        for text in ["Example.com", "*.example.com", "*", "localhost", "127.0.0.1", "[::1]"] {
            assert!(text.parse::<HostPattern>().is_ok(), "{text}");
        }
        for text in ["", "example.com:80", "http://example.com", "a.*.com", "*.", "a..b", "a b"] {
            assert_eq!(text.parse::<HostPattern>(), Err(Malformed), "{text}");
        }
    }
}
