//! The fields that have an index (RFC 7541 Sec. 2.3, App. A).

use std::{collections::VecDeque, sync::LazyLock};

use http::{
    HeaderName, HeaderValue, Method,
    uri::{Authority, PathAndQuery, Scheme},
};
use hyper::ext::Protocol;

use super::Broken;

/// The name of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Method,
    Scheme,
    Authority,
    Path,
    Protocol,
    Plain(HeaderName),
    /// No request has a field of this name.
    Bad,
}

/// A field of a request.
#[derive(Clone, Debug)]
pub(in super::super) enum HeaderField {
    Method(Method),
    Scheme(Scheme),
    Authority(Authority),
    Path(PathAndQuery),
    Protocol(Protocol),
    Plain(HeaderName, HeaderValue),
    /// It makes a request malformed (RFC 9113 Sec. 8.2.1, 8.3).
    Bad,
}

impl Name {
    pub(super) fn of(name: &[u8]) -> Self {
        match name {
            b":method" => Self::Method,
            b":scheme" => Self::Scheme,
            b":authority" => Self::Authority,
            b":path" => Self::Path,
            b":protocol" => Self::Protocol,
            _ => HeaderName::from_lowercase(name).map_or(Self::Bad, Self::Plain),
        }
    }

    pub(super) fn field(&self, value: &[u8]) -> HeaderField {
        let field = match self {
            Self::Method => Method::from_bytes(value).ok().map(HeaderField::Method),
            Self::Scheme => Scheme::try_from(value).ok().map(HeaderField::Scheme),
            Self::Authority => Authority::try_from(value).ok().map(HeaderField::Authority),
            Self::Path => path(value).map(HeaderField::Path),
            Self::Protocol => protocol(value).map(HeaderField::Protocol),
            Self::Plain(name) => HeaderValue::from_bytes(value)
                .ok()
                .map(|value| HeaderField::Plain(name.clone(), value)),
            Self::Bad => None,
        };
        field.unwrap_or(HeaderField::Bad)
    }
}

/// A path, or the asterisk of OPTIONS. A fragment, which URIs may have, is no part of it.
fn path(value: &[u8]) -> Option<PathAndQuery> {
    let begins_well = matches!(value, [b'/', ..] | b"*");
    let path = begins_well.then(|| PathAndQuery::try_from(value).ok())??;
    (path.as_str().len() == value.len()).then_some(path)
}

/// A protocol of an extended CONNECT. One that is not known here has no name.
fn protocol(value: &[u8]) -> Option<Protocol> {
    let known = if value.eq_ignore_ascii_case(b"websocket") { "websocket" } else { "" };
    (!value.is_empty()).then(|| Protocol::from_static(known))
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: Name,
    /// Bytes of its name, which a bad one does not tell.
    pub(super) name_length: usize,
    pub(super) field: HeaderField,
    /// Its size as all tables and lists count it.
    pub(super) size: usize,
}

/// Bytes of an entry beyond its name and value (RFC 7541 Sec. 4.1).
const ENTRY: usize = 32;

impl Entry {
    pub(super) fn new(name: Name, name_length: usize, value: &[u8]) -> Self {
        let field = name.field(value);
        Self { name, name_length, field, size: name_length + value.len() + ENTRY }
    }
}

/// The dynamic table of a client's fields.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// The last one comes first.
    entries: VecDeque<Entry>,
    size: usize,
    most: usize,
}

impl Table {
    pub(super) fn new(most: usize) -> Self {
        Self { entries: VecDeque::new(), size: 0, most }
    }

    /// The entry of an index, in the static table or in this one.
    pub(super) fn get(&self, index: usize) -> Result<&Entry, Broken> {
        let index = index.checked_sub(1).ok_or(Broken)?;
        let dynamic = || self.entries.get(index - STATIC.len());
        STATIC_ENTRIES.get(index).or_else(dynamic).ok_or(Broken)
    }

    /// Makes room for an entry by dropping the oldest ones. One that is larger than the table empties it.
    pub(super) fn insert(&mut self, entry: Entry) {
        self.shrink(self.most.saturating_sub(entry.size));
        if entry.size <= self.most {
            self.size += entry.size;
            self.entries.push_front(entry);
        }
    }

    pub(super) fn resize(&mut self, most: usize) {
        self.most = most;
        self.shrink(most);
    }

    fn shrink(&mut self, most: usize) {
        while self.size > most
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size -= oldest.size;
        }
    }
}

static STATIC_ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let entry = |(name, value): &(&str, &str)| {
        Entry::new(Name::of(name.as_bytes()), name.len(), value.as_bytes())
    };
    STATIC.iter().map(entry).collect()
});

#[rustfmt::skip]
pub(super) const STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""), ("etag", ""),
    ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""),
    ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""),
    ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
];
