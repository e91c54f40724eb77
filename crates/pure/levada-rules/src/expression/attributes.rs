//! The facts of a request by the names that expressions have for them.

use std::{borrow::Cow, collections::BTreeSet};

use http::{HeaderName, header::COOKIE};

use crate::RequestFacts;

/// A fact with one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    Path,
    Query,
    Host,
    Scheme,
    Method,
    Address,
    Country,
}

/// Facts with names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Headers,
    Cookies,
    QueryParams,
}

/// What a name of the language stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Attribute {
    Fact(Fact),
    Header(HeaderName),
    Table(Table),
}

/// The names of the language.
pub const NAMES: &[&str] = &[
    "request.path",
    "request.url_path",
    "request.query",
    "request.host",
    "request.scheme",
    "request.method",
    "request.useragent",
    "request.referer",
    "request.headers",
    "request.cookies",
    "request.query_params",
    "source.address",
    "source.country",
];

impl Attribute {
    /// The meaning of a name, if it has one.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "request.path" | "request.url_path" => Self::Fact(Fact::Path),
            "request.query" => Self::Fact(Fact::Query),
            "request.host" => Self::Fact(Fact::Host),
            "request.scheme" => Self::Fact(Fact::Scheme),
            "request.method" => Self::Fact(Fact::Method),
            "request.useragent" => Self::Header(http::header::USER_AGENT),
            "request.referer" => Self::Header(http::header::REFERER),
            "request.headers" => Self::Table(Table::Headers),
            "request.cookies" => Self::Table(Table::Cookies),
            "request.query_params" => Self::Table(Table::QueryParams),
            "source.address" => Self::Fact(Fact::Address),
            "source.country" => Self::Fact(Fact::Country),
            _ => return None,
        })
    }
}

/// Whether a field may differ from node to node, so that a peer would see another request.
pub(super) fn changes_on_the_way(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("x-forwarded-")
        || name.starts_with("levada-")
        || name.starts_with("proxy-")
        || matches!(
            name,
            "host"
                | "via"
                | "forwarded"
                | "x-real-ip"
                | "cdn-loop"
                | "connection"
                | "keep-alive"
                | "te"
                | "trailer"
                | "transfer-encoding"
                | "upgrade"
                | "http2-settings"
                | "content-length"
                | "expect"
                | "max-forwards"
        )
}

/// The value of a header field; those of several fields of one name are joined. Cookies are joined as they
/// are for a peer (RFC 9113 Sec. 8.2.3).
pub(super) fn header<'a>(facts: &RequestFacts<'a>, name: &HeaderName) -> Cow<'a, str> {
    let mut values = facts.headers.get_all(name).iter();
    let Some(first) = values.next() else { return Cow::Borrowed("") };
    let mut text = String::from_utf8_lossy(first.as_bytes());
    for value in values {
        let text = text.to_mut();
        text.push_str(if *name == COOKIE { "; " } else { "," });
        text.push_str(&String::from_utf8_lossy(value.as_bytes()));
    }
    text
}

impl Table {
    /// The value of a name; `None` if the request has none.
    pub(super) fn get<'a>(self, facts: &RequestFacts<'a>, name: &str) -> Option<Cow<'a, str>> {
        match self {
            Self::Headers => {
                let name = HeaderName::try_from(name).ok()?;
                let is_there = !changes_on_the_way(&name) && facts.headers.contains_key(&name);
                is_there.then(|| header(facts, &name))
            }
            Self::Cookies => cookie(facts, name).map(String::from_utf8_lossy),
            Self::QueryParams => facts.argument(name).map(Cow::Borrowed),
        }
    }

    /// Bytes that a look-up goes through.
    pub(super) fn size(self, facts: &RequestFacts<'_>, name: &str) -> usize {
        match self {
            Self::Headers => {
                facts.headers.get_all(name).iter().map(|value| value.len()).sum::<usize>()
            }
            Self::Cookies => facts.headers.get_all(COOKIE).iter().map(|line| line.len()).sum(),
            Self::QueryParams => facts.query().len(),
        }
    }

    /// The names, in order.
    pub(super) fn names<'a>(self, facts: &RequestFacts<'a>) -> BTreeSet<Cow<'a, str>> {
        match self {
            Self::Headers => {
                let names = facts.headers.keys().filter(|name| !changes_on_the_way(name));
                names.map(|name| Cow::Borrowed(name.as_str())).collect()
            }
            Self::Cookies => pairs(facts).map(|(name, _)| String::from_utf8_lossy(name)).collect(),
            Self::QueryParams => {
                let pairs = facts.query().split('&').filter(|pair| !pair.is_empty());
                pairs.map(|pair| Cow::Borrowed(pair.split('=').next().unwrap_or(pair))).collect()
            }
        }
    }
}

fn cookie<'a>(facts: &RequestFacts<'a>, name: &str) -> Option<&'a [u8]> {
    pairs(facts).find_map(|(own, value)| (own == name.as_bytes()).then_some(value))
}

/// The cookies of a request. A part without `=` is none (RFC 6265 Sec. 5.2).
fn pairs<'a>(facts: &RequestFacts<'a>) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    let lines = facts.headers.get_all(COOKIE).into_iter();
    let parts = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    parts.filter_map(|part| {
        let part = part.trim_ascii();
        let at = part.iter().position(|byte| *byte == b'=')?;
        Some((&part[..at], &part[at + 1..]))
    })
}
