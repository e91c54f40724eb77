//! A request as rules see it.

use std::{borrow::Cow, fmt::Debug, net::IpAddr, sync::Arc};

use http::{HeaderMap, Method, header::COOKIE};

use crate::normal_path;

/// The scheme that a client used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Plain text.
    Http,
    /// TLS.
    Https,
}

impl Scheme {
    /// As it stands in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// The countries of addresses.
pub trait CountryLookup: Debug + Send + Sync {
    /// The two letters of the country of an address, if it is known.
    fn country(&self, client: IpAddr) -> Option<String>;
    /// A number that differs between databases that differ.
    fn version(&self) -> u64;
}

/// A text that follows from a request.
pub trait RequestText: Debug + Send + Sync {
    /// The text.
    fn text(&self, facts: &RequestFacts<'_>) -> String;

    /// How many texts like it are made on the way, itself included.
    fn weight(&self) -> usize;
}

/// Texts by their names.
pub trait NamedTexts {
    /// The text of this name, if there is one.
    fn named(&self, name: &str) -> Option<Arc<dyn RequestText>>;
}

/// What a client asked for, as it asked for it: rules never see what other rules made of a request. So a
/// peer that gets the request finds the same route.
#[derive(Clone, Debug)]
pub struct RequestFacts<'a> {
    /// The client, behind trusted proxies too.
    pub client: IpAddr,
    /// The scheme of the client's connection.
    pub scheme: Scheme,
    /// The host in lower case, without the scheme's default port.
    pub host: &'a str,
    /// The method.
    pub method: &'a Method,
    /// Path and query as the client wrote them.
    pub target: &'a str,
    /// The path in the form that rules compare.
    pub path: Cow<'a, str>,
    /// The header fields.
    pub headers: &'a HeaderMap,
    /// Whether the request comes from another route of the site.
    pub internal: bool,
}

impl<'a> RequestFacts<'a> {
    /// The facts of a request for `target`, which is a path and an optional query.
    pub fn new(
        client: IpAddr,
        (scheme, host): (Scheme, &'a str),
        (method, target): (&'a Method, &'a str),
        headers: &'a HeaderMap,
    ) -> Self {
        let path = target.split('?').next().unwrap_or_default();
        let path = normal_path(path);
        Self { client, scheme, host, method, target, path, headers, internal: false }
    }

    /// The query without its `?`; empty if there is none.
    pub fn query(&self) -> &'a str {
        self.target.split_once('?').map_or("", |(_, query)| query)
    }

    /// The value of an argument of the query, as the client wrote it.
    pub fn argument(&self, name: &str) -> Option<&'a str> {
        let pairs = self.query().split('&').filter(|pair| !pair.is_empty());
        pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .find_map(|(own, value)| (own == name).then_some(value))
    }

    /// The value of a cookie.
    pub fn cookie(&self, name: &str) -> Option<&'a [u8]> {
        let lines = self.headers.get_all(COOKIE).into_iter();
        let mut pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
        pairs.find_map(|pair| pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    }

    /// The host without its port.
    pub fn host_name(&self) -> &'a str {
        match self.host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => self.host,
        }
    }
}
