//! Signed URLs: the server of the application hands them out, and the node serves nothing else.
//!
//! ```text
//! token   a JSON Web Token that the URL carries (RFC 9246, URI Signing)     claims, jwk
//! link    a digest over the URL and the time until which it is valid      nginx's secure_link, or by HMAC
//! ```
//!
//! The signature is removed before anything else is done with the URL, so that all clients share one stored
//! response.

mod claims;
mod jwk;
mod link;
mod token;

use std::net::IpAddr;

use http::HeaderMap;

pub use jwk::{BadKeys, Issuers};
pub use link::{BadMessage, Digest, Link, Message};
pub use token::{PACKAGE, Tokens};

/// How the URLs of a site are signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignedUrls {
    /// By a token.
    Token(Tokens),
    /// By a digest.
    Link(Link),
}

/// A request's URL.
#[derive(Clone, Copy, Debug)]
pub struct RequestUrl<'a> {
    /// `http` or `https`.
    pub scheme: &'a str,
    /// Host, and port if it is not the scheme's.
    pub host: &'a str,
    /// Path and query.
    pub target: &'a str,
}

/// Why a URL cannot be signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CannotSign(pub &'static str);

impl SignedUrls {
    /// The kind of signature, in words.
    pub fn in_words(&self) -> &'static str {
        match self {
            Self::Token(_) => "URLs with a token (RFC 9246)",
            Self::Link(Link { digest: Digest::Md5, .. }) => "URLs with secure_link's MD5",
            Self::Link(Link { digest: Digest::HmacSha256, .. }) => "URLs with an HMAC-SHA-256",
        }
    }

    /// Checks a URL at the time `now`, in seconds of Unix time. Returns path and query without the signature.
    ///
    /// # Errors
    /// With the reason for the log.
    pub fn check(
        &self,
        url: &RequestUrl<'_>,
        client: IpAddr,
        headers: &HeaderMap,
        now: u64,
    ) -> Result<String, &'static str> {
        match self {
            Self::Token(tokens) => tokens.check(url, headers, now),
            Self::Link(link) => link.check(url.target, client, now),
        }
    }

    /// Path and query with a signature that is valid until `expires`, for the address of one client where the
    /// signature is about it.
    ///
    /// # Errors
    /// When a key that signs is missing.
    pub fn sign(
        &self,
        url: &RequestUrl<'_>,
        client: Option<IpAddr>,
        expires: u64,
    ) -> Result<String, CannotSign> {
        match self {
            Self::Token(tokens) => tokens.sign(url, expires),
            Self::Link(link) => link.sign(url.target, client, expires),
        }
    }
}

/// The value of an argument of the query, and the target without it.
fn take_argument(target: &str, name: &str) -> (Option<String>, String) {
    let Some((path, query)) = target.split_once('?') else { return (None, target.to_owned()) };
    let is_it = |pair: &&str| pair.split_once('=').is_some_and(|(key, _)| key == name);
    let value = query.split('&').find(is_it).and_then(|pair| pair.split_once('='));
    let value = value.map(|(_, value)| value.to_owned());
    let rest: Vec<&str> = query.split('&').filter(|pair| !is_it(pair)).collect();
    // The path of `http://a.test?x` is empty.
    let path = if path.is_empty() { "/" } else { path };
    let rest = if rest.is_empty() { path.to_owned() } else { format!("{path}?{}", rest.join("&")) };
    (value, rest)
}

/// A target with one more argument.
fn with_argument(target: &str, name: &str, value: &str) -> String {
    let before = if target.contains('?') { '&' } else { '?' };
    format!("{target}{before}{name}={value}")
}
