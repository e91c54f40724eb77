//! The name of a node, as fields of requests and responses have it.

use http::{
    HeaderMap, HeaderValue,
    header::{AGE, VIA},
};
use levada_cache::{CacheName, CacheStatus};

use crate::HitFields;

/// The name of this node.
pub struct NodeName {
    /// As a member of `Via`.
    pub via: HeaderValue,
    /// As `Cache-Status` has it.
    pub cache: CacheName,
    /// As `Proxy-Status` has it.
    pub token: String,
}

impl NodeName {
    /// Of the node with this name in its configuration.
    pub fn new(name: &str) -> Self {
        let via = HeaderValue::try_from(format!("1.1 {name}"));
        Self {
            via: via.unwrap_or_else(|_| HeaderValue::from_static("1.1 levada")),
            cache: CacheName::new(name),
            token: token(name),
        }
    }

    /// This node's fields of a response from the store.
    pub fn hit<'a>(&'a self, age: Option<u32>, status: &'a CacheStatus<'static>) -> HitFields<'a> {
        HitFields { age, status, node: &self.cache, via: &self.via }
    }

    /// Adds this node's fields to those of a response from the cache.
    pub fn add_hit(&self, headers: &mut HeaderMap, age: Option<u32>, status: &CacheStatus<'_>) {
        if let Some(age) = age {
            headers.insert(AGE, HeaderValue::from(age));
        }
        status.append_to(headers, &self.cache);
        self.add_via(headers);
    }

    /// Adds this node to `Via` (RFC 9110 Sec. 7.6.3), and removes the cache directives that are for Levada only
    /// (RFC 9213).
    pub fn add_via(&self, headers: &mut HeaderMap) {
        levada_cache::strip_own_target(headers);
        headers.append(VIA, self.via.clone());
    }
}

/// A name as a structured field's token or string (RFC 8941).
fn token(name: &str) -> String {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.:/*".contains(c));
    if starts && plain {
        return name.to_owned();
    }
    let safe: String = name.chars().filter(|c| matches!(c, ' '..='~')).collect();
    format!("\"{}\"", safe.replace('\\', "\\\\").replace('"', "\\\""))
}
