//! `Cache-Status` (RFC 9211): reports in a response how the cache handled the request.
//!
//! ```text
//! Cache-Status: origin-shield; hit; ttl=20, edge-1; fwd=stale; fwd-status=304; stored
//! ```

use crate::targeted::is_tchar;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The name of the field.
pub const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// The name of a cache, encoded for the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheName(Box<[u8]>);

impl CacheName {
    /// Encodes a name: as a token if it is one, else as a string, with `?` in place of bytes that a
    /// string cannot contain.
    pub fn new(name: &str) -> Self {
        if is_token(name.as_bytes()) {
            return Self(name.as_bytes().into());
        }
        let mut text = Vec::with_capacity(name.len() + 2);
        write_string(name, &mut text);
        Self(text.into())
    }
}

/// The reason why a request was forwarded (RFC 9211, Sec. 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardReason {
    /// The cache was configured not to handle the request.
    Bypass,
    /// The request method's semantics require forwarding.
    Method,
    /// The cache has no response for the URI.
    UriMiss,
    /// The cache has a response for the URI, but the request's fields do not match it.
    VaryMiss,
    /// No stored response could be used, for a reason that is not known.
    Miss,
    /// A fresh response was stored, but the request asked for validation.
    Request,
    /// The stored response was stale.
    Stale,
    /// The stored response is partial.
    Partial,
}

impl ForwardReason {
    /// The token of the field.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Miss => "miss",
            Self::Request => "request",
            Self::Stale => "stale",
            Self::Partial => "partial",
        }
    }
}

/// How one cache handled a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatus<'a> {
    /// The reason why the request was forwarded; `None` is a hit.
    pub forwarded: Option<ForwardReason>,
    /// The status of the response to the forwarded request.
    pub forwarded_status: Option<u16>,
    /// The remaining freshness lifetime in seconds; negative if stale.
    pub ttl: Option<i64>,
    /// Whether the response was stored.
    pub stored: bool,
    /// Whether the request was collapsed with another forwarded request.
    pub collapsed: bool,
    /// The cache key, if it is shown.
    pub key: Option<&'a str>,
    /// Implementation-specific detail.
    pub detail: Option<&'a str>,
}

impl CacheStatus<'_> {
    /// The field value with this cache as its only member.
    pub fn value(&self, node: &CacheName) -> HeaderValue {
        let mut text = Vec::with_capacity(64);
        self.write(node, &mut text);
        field_value(&text)
    }

    /// Appends this cache after the caches nearer to the origin (Sec. 2), as one line.
    pub fn append_to(&self, headers: &mut HeaderMap, node: &CacheName) {
        let value = self.value_behind(headers, node);
        headers.insert(CACHE_STATUS, value);
    }

    /// The field value with this cache after the members of `earlier`.
    pub fn value_behind(&self, earlier: &HeaderMap, node: &CacheName) -> HeaderValue {
        let mut text = Vec::with_capacity(128);
        for line in earlier.get_all(CACHE_STATUS) {
            text.extend_from_slice(line.as_bytes());
            text.extend_from_slice(b", ");
        }
        self.write(node, &mut text);
        field_value(&text)
    }

    /// Appends the member to `text`.
    pub fn write(&self, node: &CacheName, text: &mut Vec<u8>) {
        text.extend_from_slice(&node.0);
        match self.forwarded {
            None => text.extend_from_slice(b"; hit"),
            Some(why) => {
                text.extend_from_slice(b"; fwd=");
                text.extend_from_slice(why.as_str().as_bytes());
            }
        }
        if let Some(status) = self.forwarded_status {
            text.extend_from_slice(b"; fwd-status=");
            text.extend([100, 10, 1].map(|unit| b'0' + (status / unit % 10) as u8));
        }
        if let Some(ttl) = self.ttl {
            text.extend_from_slice(b"; ttl=");
            text.extend_from_slice(itoa::Buffer::new().format(ttl).as_bytes());
        }
        if self.stored {
            text.extend_from_slice(b"; stored");
        }
        if self.collapsed {
            text.extend_from_slice(b"; collapsed");
        }
        if let Some(key) = self.key {
            text.extend_from_slice(b"; key=");
            write_string(key, text);
        }
        if let Some(detail) = self.detail {
            text.extend_from_slice(b"; detail=");
            if is_token(detail.as_bytes()) {
                text.extend_from_slice(detail.as_bytes());
            } else {
                write_string(detail, text);
            }
        }
    }
}

/// This module writes visible ASCII only; an earlier cache's line was a valid field value.
fn field_value(text: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(text).unwrap_or(HeaderValue::from_static("levada"))
}

fn is_token(text: &[u8]) -> bool {
    text.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'*')
        && text.iter().all(|&b| is_tchar(b) || b == b':' || b == b'/')
}

/// A String of RFC 9651, Sec. 4.1.6.
fn write_string(content: &str, text: &mut Vec<u8>) {
    text.push(b'"');
    for b in content.bytes() {
        match b {
            b'"' | b'\\' => text.extend_from_slice(&[b'\\', b]),
            b' '..=b'~' => text.push(b),
            _ => text.push(b'?'),
        }
    }
    text.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;
    use proptest::prelude::*;

    #[test]
    fn hit_and_miss_are_written_as_the_rfc_writes_them() {
        let node = CacheName::new("edge-1.example");
        let hit = CacheStatus { ttl: Some(376), ..CacheStatus::default() };
        assert_eq!(hit.value(&node), "edge-1.example; hit; ttl=376");
        let miss = CacheStatus {
            forwarded: Some(ForwardReason::Stale),
            forwarded_status: Some(304),
            ttl: Some(-412),
            stored: true,
            collapsed: true,
            key: Some("http://a/\"b\""),
            detail: Some("private"),
        };
        assert_eq!(
            miss.value(&node),
            r#"edge-1.example; fwd=stale; fwd-status=304; ttl=-412; stored; collapsed; key="http://a/\"b\""; detail=private"#
        );
    }

    #[test]
    fn name_that_is_no_token_is_quoted() {
        let hit = CacheStatus::default();
        for (name, written) in
            [("1 edge", "\"1 edge\""), ("1-edge", "\"1-edge\""), ("*edge", "*edge")]
        {
            assert_eq!(hit.value(&CacheName::new(name)), format!("{written}; hit"));
        }
        assert_eq!(hit.value(&CacheName::new("Br\u{fc}cke")), "\"Br??cke\"; hit");
    }

    #[test]
    fn this_cache_stands_behind_those_nearer_to_the_origin() {
        let mut all = headers(&[("cache-status", "shield; hit"), ("cache-status", "x; fwd=miss")]);
        CacheStatus::default().append_to(&mut all, &CacheName::new("edge"));
        assert_eq!(all["cache-status"], "shield; hit, x; fwd=miss, edge; hit");
        assert_eq!(all.get_all(CACHE_STATUS).iter().count(), 1);
    }

    proptest! {
        #[test]
        fn any_text_gives_a_field_value(node in ".{0,20}", key in ".{0,20}", detail in ".{0,20}") {
            let status = CacheStatus { key: Some(&key), detail: Some(&detail), ..CacheStatus::default() };
            prop_assert!(status.value(&CacheName::new(&node)) != "levada");
        }
    }
}
