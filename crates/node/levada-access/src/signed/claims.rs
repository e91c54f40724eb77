//! The claims of a signed token (RFC 9246 Sec. 2.1).
//!
//! A claim that restricts a token and that this node does not carry out makes the token invalid, as the RFC
//! demands: `cdniip` (an encrypted address), `jti` (one use), `cdnistt` (renewal).

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use regex::RegexBuilder;
use ring::digest;
use serde::Deserialize;
use serde_json::Value;

/// The claims that this node knows: all others may be ignored, unless `cdnicrit` names them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Claims {
    pub(super) iss: Option<String>,
    aud: Option<Value>,
    exp: Option<f64>,
    nbf: Option<f64>,
    jti: Option<Value>,
    cdniv: Option<u64>,
    cdnicrit: Option<String>,
    cdniip: Option<Value>,
    cdniuc: Option<String>,
    cdnistt: Option<u64>,
}

const KNOWN: [&str; 9] =
    ["iss", "aud", "exp", "nbf", "iat", "cdniv", "cdnicrit", "cdniuc", "cdnistt"];
/// The longest regular expression, in bytes, and the largest one when compiled.
const LONGEST_REGEX: usize = 2048;
const LARGEST_REGEX: usize = 1 << 18;

impl Claims {
    /// Whether they allow a request for `url`, which is without the token.
    pub(super) fn allow(
        &self,
        url: &str,
        audience: Option<&str>,
        now: u64,
    ) -> Result<(), &'static str> {
        let now = now as f64;
        if self.cdniv.is_some_and(|version| version != 1) {
            return Err("the token's cdniv is not 1");
        }
        let critical = self.cdnicrit.iter().flat_map(|names| names.split(','));
        if critical.map(str::trim).any(|name| !KNOWN.contains(&name)) {
            return Err("the token has a critical claim that is not supported");
        }
        if self.jti.is_some() || self.cdniip.is_some() || self.cdnistt.is_some_and(|way| way != 0) {
            return Err("the token has jti, cdniip or cdnistt, which are not supported");
        }
        if self.exp.is_some_and(|end| now >= end) {
            return Err("the token has expired");
        }
        if self.nbf.is_some_and(|begin| now < begin) {
            return Err("the token is not valid yet");
        }
        if self.aud.as_ref().is_some_and(|aud| !names(aud, audience)) {
            return Err("the token is for another audience");
        }
        match self.cdniuc.as_deref().map(|container| contains(container, url)) {
            Some(true) => Ok(()),
            Some(false) => Err("the token is for another URL"),
            None => Err("the token has no cdniuc"),
        }
    }
}

fn names(aud: &Value, audience: Option<&str>) -> bool {
    let Some(audience) = audience else { return false };
    match aud {
        Value::Array(all) => all.iter().any(|one| one.as_str() == Some(audience)),
        one => one.as_str() == Some(audience),
    }
}

/// Whether a URI container is about a URL: `regex:` and an expression for all of it, or `hash:sha-256;` and its
/// digest.
fn contains(container: &str, url: &str) -> bool {
    if let Some(expression) = container.strip_prefix("regex:") {
        if expression.len() > LONGEST_REGEX {
            return false;
        }
        let build = |expression: &str| {
            RegexBuilder::new(expression).size_limit(LARGEST_REGEX).nest_limit(50).build()
        };
        // It must be an expression of its own: in `a)|(b` the parentheses around it would lose their meaning.
        let whole = build(expression).and_then(|_| build(&format!("^(?:{expression})$")));
        return whole.is_ok_and(|regex| regex.is_match(url));
    }
    let shown = container.strip_prefix("hash:sha-256;");
    shown.is_some_and(|shown| shown == hash_of(url))
}

/// A URI container for just this URL.
pub(super) fn container_of(url: &str) -> String {
    format!("hash:sha-256;{}", hash_of(url))
}

fn hash_of(url: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, url.as_bytes()))
}
