//! The keys by which limits tell requests apart.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    net::{IpAddr, Ipv4Addr},
    str::FromStr,
};

use http::{HeaderMap, HeaderName, header::COOKIE};

use crate::client_network;

/// The part of a request that a limit counts by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitKey {
    /// The client's address; for IPv6 its network of 64 bits. With a number, that many bits of an IPv4
    /// address.
    Client(u8),
    /// The value of a header field.
    Header(HeaderName),
    /// The value of a cookie.
    Cookie(String),
    /// The path.
    Path,
    /// One key for all requests.
    Site,
}

/// The text names no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected client, client/BITS, header:NAME, cookie:NAME, path or site")]
pub struct NoLimitKey;

impl LimitKey {
    /// The hash of the key of a request. `None` if the request lacks it: as with nginx, it is not counted then.
    pub(crate) fn of(
        &self,
        hasher: &RandomState,
        client: IpAddr,
        path: &str,
        headers: &HeaderMap,
    ) -> Option<u64> {
        Some(match self {
            Self::Client(bits) => hasher.hash_one(network(client, *bits)),
            Self::Header(name) => hasher.hash_one(headers.get(name)?.as_bytes()),
            Self::Cookie(name) => hasher.hash_one(cookie(headers, name)?),
            Self::Path => hasher.hash_one(path),
            Self::Site => 1,
        })
    }
}

fn network(client: IpAddr, bits: u8) -> IpAddr {
    match client_network::of(client) {
        IpAddr::V4(v4) if bits < 32 => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            Ipv4Addr::from(u32::from(v4) & mask).into()
        }
        whole => whole,
    }
}

/// The value of a cookie.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| *key == name).map(|p| p.1)
}

impl FromStr for LimitKey {
    type Err = NoLimitKey;

    fn from_str(text: &str) -> Result<Self, NoLimitKey> {
        match (text, text.split_once(':'), text.strip_prefix("client/")) {
            ("client", ..) => Ok(Self::Client(32)),
            ("path", ..) => Ok(Self::Path),
            ("site", ..) => Ok(Self::Site),
            (_, Some(("header", name)), _) => {
                name.parse().map(Self::Header).map_err(|_| NoLimitKey)
            }
            (_, Some(("cookie", name)), _) if is_token(name) => Ok(Self::Cookie(name.to_owned())),
            (_, None, Some(bits)) => {
                let bits = bits.parse().ok().filter(|bits| (1..=32).contains(bits));
                bits.map(Self::Client).ok_or(NoLimitKey)
            }
            _ => Err(NoLimitKey),
        }
    }
}

fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && !b"=;,\"".contains(&b))
}

impl fmt::Display for LimitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(32) => f.write_str("client"),
            Self::Client(bits) => write!(f, "client/{bits}"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Path => f.write_str("path"),
            Self::Site => f.write_str("site"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_differ_by_the_part_that_the_key_names() {
        let hasher = RandomState::new();
        let of = |key: &str, client: &str, path: &str, field: (&'static str, &'static str)| {
            let name = HeaderName::from_static(field.0);
            let headers = HeaderMap::from_iter([(name, field.1.parse().unwrap())]);
            let key: LimitKey = key.parse().unwrap();
            key.of(&hasher, client.parse().unwrap(), path, &headers)
        };
        let none = ("accept", "*/*");
        let client = |key, address| of(key, address, "/", none);
        assert_ne!(client("client", "192.0.2.1"), client("client", "192.0.2.2"));
        assert_eq!(client("client/24", "192.0.2.1"), client("client/24", "192.0.2.2"));
        assert_ne!(client("client/24", "192.0.2.1"), client("client/24", "192.0.3.1"));
        assert_eq!(client("client", "2001:db8::1"), client("client", "2001:db8::2"));
        assert_ne!(of("path", "192.0.2.1", "/a", none), of("path", "192.0.2.1", "/b", none));
        assert_eq!(of("site", "192.0.2.1", "/a", none), of("site", "192.0.2.9", "/b", none));
        let header = |value| of("header:x-key", "192.0.2.1", "/", ("x-key", value));
        assert_ne!(header("a"), header("b"));
        assert_eq!(of("header:x-key", "192.0.2.1", "/", none), None);
        let jar = |line| of("cookie:id", "192.0.2.1", "/", ("cookie", line));
        assert_eq!(jar("a=b; id=7"), jar("id=7"));
        assert_ne!(jar("id=7"), jar("id=8"));
        assert_eq!(jar("idd=7"), None);
    }

    #[test]
    fn key_is_one_of_the_known_words() {
        for text in ["client", "client/24", "header:x-key", "cookie:id", "path", "site"] {
            assert_eq!(text.parse::<LimitKey>().unwrap().to_string(), text);
        }
        for text in
            ["", "ip", "client/0", "client/33", "header:", "header:a b", "cookie:", "cookie:a=b"]
        {
            assert_eq!(text.parse::<LimitKey>(), Err(NoLimitKey), "{text}");
        }
    }
}
