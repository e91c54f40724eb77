//! Values that a configuration writes as text: durations, sizes, rates, addresses, URLs, host names.
//!
//! Each is a type of its own that is always valid, and one line of [`FORMATS`], which the schema and
//! the shape check use.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use crate::settings::{AddressPrefix, AdminAddress, BREAK_EVEN};
use levada_types::{ByteSize, format_duration, parse_duration, parse_rate};

/// A duration, such as `"300ms"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time(pub Duration);

/// An amount of bytes, such as `"64MiB"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size(pub u64);

/// The size from which a response is worth a handoff: `"auto"`, or a size such as `"100KiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeastSize {
    /// As measured.
    Auto,
    /// This one.
    Size(Size),
}

/// Bytes per second, written in bytes (`"5MiB/s"`) or in bits (`"40Mbit/s"`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate(pub u64);

/// An address of this machine and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub SocketAddr);

/// An address for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorAddress(pub AdminAddress);

/// The permissions of a file, in octal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(pub u32);

/// An IP address, or a prefix of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix(pub AddressPrefix);

/// The address of another machine: a host name or an IP address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort(pub String);

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

/// Requests per second or minute, in nginx's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRate(pub levada_access::rate::RequestRate);

/// The part of a request that a limit counts by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitKey(pub levada_access::limit_key::LimitKey);

/// A rule of access by address or country.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRule(pub levada_access::address_list::AddressRule);

/// A kind of valid referers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referer(pub levada_access::referers::Referer);

/// An origin of web pages, in which `*.` stands for all names below one; or `*` for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebOrigin(pub String);

/// A node's name, which is valid in header fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeName(pub String);

/// The value of a `Host` field: a host, and a port if it is not the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostField(pub String);

/// A host name, `*.example.com` for all names below one, `*` for all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPattern(pub String);

/// A format of text, as the schema's `format` names it.
pub struct Format {
    /// The value of `format`.
    pub name: &'static str,
    /// The expected text, for errors and documents.
    pub expected: &'static str,
    /// A valid value.
    pub example: &'static str,
    /// Whether `text` is valid, and its amount if it is an amount.
    pub measure: fn(text: &str) -> Option<Option<u128>>,
}

/// All formats of text.
pub const FORMATS: &[Format] = &[
    Format {
        name: "levada-duration",
        expected: "a duration",
        example: "300ms",
        measure: |text| text.parse().ok().map(|Time(time)| Some(time.as_nanos())),
    },
    Format {
        name: "levada-size",
        expected: "a size",
        example: "64MiB",
        measure: |text| text.parse().ok().map(|Size(bytes)| Some(bytes.into())),
    },
    Format {
        name: "levada-least-size",
        expected: "`auto`, or a size",
        example: "auto",
        measure: |text| LeastSize::from_str(text).ok().map(|_| None),
    },
    Format {
        name: "levada-rate",
        expected: "bytes or bits per second",
        example: "5MiB/s",
        measure: |text| text.parse().ok().map(|Rate(bytes)| Some(bytes.into())),
    },
    Format {
        name: "levada-name",
        expected: "a name of 1 to 64 letters, digits, `-`, `_` and `.`",
        example: "edge-1",
        measure: |text| NodeName::from_str(text).ok().map(|_| None),
    },
    Format {
        name: "levada-host-field",
        expected: "a host, with a port where it is not the usual one",
        example: "origin.example.com",
        measure: |text| HostField::from_str(text).ok().map(|_| None),
    },
    Format {
        name: "levada-address",
        expected: "an IP address and a port",
        example: "0.0.0.0:8080",
        measure: |text| Address::from_str(text).ok().map(|_| None),
    },
    Format {
        name: "levada-operator-address",
        expected: "an IP address and a port, or `unix:` and a socket's absolute path of at most 107 bytes",
        example: "127.0.0.1:9180",
        measure: |text| OperatorAddress::from_str(text).ok().map(|_| None),
    },
    Format {
        name: "levada-file-mode",
        expected: "permissions as octal digits",
        example: "0660",
        measure: |text| FileMode::from_str(text).ok().map(|_| None),
    },
    Format {
        name: "levada-prefix",
        expected: "an IP address, or a prefix of addresses",
        example: "10.0.0.0/8",
        measure: |text| Prefix::from_str(text).ok().map(|_| None),
    },
    Format {
        name: "levada-host-port",
        expected: "a host and a port",
        example: "b.internal:7070",
        measure: |text| HostPort::from_str(text).ok().map(|_| None),
    },
    Format {
        name: "levada-root",
        expected: "a URL with http or https and a host, without a path",
        example: "http://127.0.0.1:9000",
        measure: |text| Root::from_str(text).ok().map(|_| None),
    },
    Format {
        name: "levada-upstream",
        expected: Upstream::EXPECTED,
        example: "http://127.0.0.1:9000",
        measure: |text| Upstream::from_str(text).ok().map(|_| None),
    },
    Format {
        name: "levada-host",
        expected: "a host name without a port, `*.` and a host name, or `*`",
        example: "www.example.com",
        measure: |text| HostPattern::from_str(text).ok().map(|_| None),
    },
    Format {
        name: "levada-request-rate",
        expected: "requests per second or minute",
        example: "10r/s",
        measure: |text| RequestRate::from_str(text).ok().map(|_| None),
    },
    Format {
        name: "levada-limit-key",
        expected: "client, client/BITS, header:NAME, cookie:NAME, path or site",
        example: "client",
        measure: |text| LimitKey::from_str(text).ok().map(|_| None),
    },
    Format {
        name: "levada-access-rule",
        expected: "`allow` or `deny`, and then `all`, an address, a prefix, or `country` and two letters",
        example: "allow 10.0.0.0/8",
        measure: |text| AddressRule::from_str(text).ok().map(|_| None),
    },
    Format {
        name: "levada-referer",
        expected: "none, blocked, server_names, `*`, or a host with or without a path",
        example: "*.example.com",
        measure: |text| Referer::from_str(text).ok().map(|_| None),
    },
    Format {
        name: "levada-web-origin",
        expected: "`*`, or a scheme and a host without a path",
        example: "https://app.example.com",
        measure: |text| WebOrigin::from_str(text).ok().map(|_| None),
    },
];

/// The text is not valid. The shape check says more, because it knows the expected format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not of the expected form")
    }
}

impl std::error::Error for Malformed {}

impl FromStr for Time {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        parse_duration(text).map(Self).map_err(|_| Malformed)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        format_duration(self.0).fmt(f)
    }
}

impl FromStr for Size {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        text.parse().map(|ByteSize(bytes)| Self(bytes)).map_err(|_| Malformed)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ByteSize(self.0).fmt(f)
    }
}

impl Default for LeastSize {
    fn default() -> Self {
        Self::Size(Size::default())
    }
}

impl LeastSize {
    /// In bytes.
    pub fn bytes(self) -> u64 {
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

impl FromStr for Rate {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        parse_rate(text).map(Self).map_err(|_| Malformed)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", ByteSize(self.0))
    }
}

impl FromStr for Address {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        text.parse().map(Self).map_err(|_| Malformed)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for OperatorAddress {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        text.parse().map(Self).map_err(|_| Malformed)
    }
}

impl fmt::Display for OperatorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

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

impl FromStr for Prefix {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        text.parse().map(Self).map_err(|_| Malformed)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Implements reading and writing of a type around one that can do both.
macro_rules! around {
    ($($type:ident),* $(,)?) => {$(
        impl FromStr for $type {
            type Err = Malformed;
            fn from_str(text: &str) -> Result<Self, Malformed> {
                text.parse().map(Self).map_err(|_| Malformed)
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

around!(RequestRate, LimitKey, AddressRule, Referer);

impl FromStr for WebOrigin {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        if text == "*" {
            return Ok(Self(text.to_owned()));
        }
        let (scheme, rest) = text.split_once("://").ok_or(Malformed)?;
        let host = rest.strip_prefix("*.").unwrap_or(rest);
        let authority: http::uri::Authority = host.parse().map_err(|_| Malformed)?;
        let is_plain = !authority.host().is_empty() && !host.contains(['@', '*']);
        let is_scheme = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
        let fits = is_plain && is_scheme && !scheme.is_empty();
        if fits { Ok(Self(text.to_ascii_lowercase())) } else { Err(Malformed) }
    }
}

impl fmt::Display for WebOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for NodeName {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        let fits = (1..=64).contains(&text.len()) && text.bytes().all(plain);
        if fits { Ok(Self(text.to_owned())) } else { Err(Malformed) }
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for HostField {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        let authority: http::uri::Authority = text.parse().map_err(|_| Malformed)?;
        let fits = !authority.host().is_empty() && !text.contains('@');
        if fits { Ok(Self(text.to_owned())) } else { Err(Malformed) }
    }
}

impl fmt::Display for HostField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for HostPort {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        let authority: http::uri::Authority = text.parse().map_err(|_| Malformed)?;
        let plain = authority.port_u16().is_some_and(|port| port > 0)
            && !authority.host().is_empty()
            && !text.contains('@');
        if plain { Ok(Self(text.to_owned())) } else { Err(Malformed) }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
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

impl FromStr for HostPattern {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        let name = text.strip_prefix("*.").unwrap_or(text);
        if text == "*" || is_host_name(name) || is_ip_address(text) {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(Malformed)
        }
    }
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

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Implements serde and schema for a type that reads and writes text.
macro_rules! text {
    ($($type:ident = $format:literal),* $(,)?) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
            }
        }
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "format": $format })
            }
        }
    )*};
}

text! {
    Time = "levada-duration",
    Size = "levada-size",
    LeastSize = "levada-least-size",
    Rate = "levada-rate",
    NodeName = "levada-name",
    HostField = "levada-host-field",
    Address = "levada-address",
    OperatorAddress = "levada-operator-address",
    FileMode = "levada-file-mode",
    Prefix = "levada-prefix",
    HostPort = "levada-host-port",
    Root = "levada-root",
    Upstream = "levada-upstream",
    HostPattern = "levada-host",
    RequestRate = "levada-request-rate",
    LimitKey = "levada-limit-key",
    AddressRule = "levada-access-rule",
    Referer = "levada-referer",
    WebOrigin = "levada-web-origin",
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
