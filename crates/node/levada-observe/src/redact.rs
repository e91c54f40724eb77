//! Query arguments whose values logs and spans leave out, because they are secrets.

use std::{borrow::Cow, sync::Arc};

use percent_encoding::percent_decode;

/// The text in the place of a value, as OpenTelemetry's semantic conventions have it.
const REDACTED: &[u8] = b"REDACTED";

/// The names of arguments that are secrets by custom: of tokens, of keys, and of what signs a URL.
pub const SECRET_ARGUMENTS: [&str; 23] = [
    "access_token",
    "api_key",
    "apikey",
    "auth",
    "authorization",
    "AWSAccessKeyId",
    "client_secret",
    "id_token",
    "jwt",
    "key",
    "md5",
    "password",
    "refresh_token",
    "secret",
    "session",
    "sig",
    "signature",
    "token",
    "URISigningPackage",
    "X-Amz-Credential",
    "X-Amz-Security-Token",
    "X-Amz-Signature",
    "X-Goog-Signature",
];

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct RedactedArguments(Arc<[String]>);

impl Default for RedactedArguments {
    fn default() -> Self {
        Self::new(&SECRET_ARGUMENTS)
    }
}

impl RedactedArguments {
    /// The arguments of these names, in upper or lower case.
    pub fn new(names: &[impl AsRef<str>]) -> Self {
        Self(names.iter().map(|name| name.as_ref().to_owned()).collect())
    }

    /// The URL without the values of these arguments.
    pub fn without<'a>(&self, url: &'a str) -> Cow<'a, str> {
        match self.redacted(url.as_bytes()) {
            None => Cow::Borrowed(url),
            Some(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// The URL without the values of these arguments, if it has one of them.
    pub(crate) fn redacted(&self, url: &[u8]) -> Option<Vec<u8>> {
        let query = url.iter().position(|byte| *byte == b'?')? + 1;
        let arguments = || url[query..].split(|byte| *byte == b'&');
        if !arguments().any(|argument| self.value(argument).is_some()) {
            return None;
        }
        let mut kept = url[..query].to_vec();
        for (number, argument) in arguments().enumerate() {
            if number > 0 {
                kept.push(b'&');
            }
            match self.value(argument) {
                None => kept.extend_from_slice(argument),
                Some(at) => kept.extend([&argument[..at], REDACTED].concat()),
            }
        }
        Some(kept)
    }

    /// The place of the value, if the argument is one of these and has a value.
    fn value(&self, argument: &[u8]) -> Option<usize> {
        let at = argument.iter().position(|byte| *byte == b'=')? + 1;
        let is_named = |name: &String| {
            let sent = percent_decode(&argument[..at - 1]).map(|byte| byte.to_ascii_lowercase());
            sent.eq(name.bytes().map(|byte| byte.to_ascii_lowercase()))
        };
        (at < argument.len() && self.0.iter().any(is_named)).then_some(at)
    }
}

/// A URL as the event log names it: any of its arguments may be a secret.
pub fn without_query(url: &str) -> &str {
    url.split_once('?').map_or(url, |(path, _)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_secret_arguments_are_left_out_and_all_else_stays() {
        let by_default = RedactedArguments::default();
        for (url, shown) in [
            ("/a", "/a"),
            ("/a?b=1&tokens=2&key=", "/a?b=1&tokens=2&key="),
            ("/token=1?token", "/token=1?token"),
            ("/a?token=abc", "/a?token=REDACTED"),
            ("/a?b=1&TOKEN=a=b&c", "/a?b=1&TOKEN=REDACTED&c"),
            ("/a?t%6fken=1&x-amz-signature=2", "/a?t%6fken=REDACTED&x-amz-signature=REDACTED"),
            ("/a?&&sig=1?sig=2&", "/a?&&sig=REDACTED&"),
            ("https://a.test/ä?key=ü", "https://a.test/ä?key=REDACTED"),
        ] {
            assert_eq!(by_default.without(url), shown);
        }
    }

    #[test]
    fn list_can_be_another_one_or_empty() {
        let own = RedactedArguments::new(&["ticket"]);
        assert_eq!(own.without("/a?ticket=1&token=2"), "/a?ticket=REDACTED&token=2");
        let none = RedactedArguments::new(&[] as &[&str]);
        assert_eq!(none.without("/a?token=2"), "/a?token=2");
    }
}
