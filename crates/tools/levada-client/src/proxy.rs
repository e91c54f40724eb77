//! A proxy between client and servers: absolute-form requests for http, CONNECT for https (RFC
//! 9110, Sec. 9.3.6).

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;

/// An HTTP proxy.
#[derive(Clone, Debug)]
pub struct Proxy {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) authorization: Option<HeaderValue>,
}

/// The error for a text that is not a proxy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a proxy: write http://HOST:PORT or http://USER:PASSWORD@HOST:PORT")]
pub struct ProxyError(String);

impl Proxy {
    /// Parses `http://[USER:PASSWORD@]HOST[:PORT]`; the scheme is optional.
    ///
    /// # Errors
    /// For any other text. Proxies with TLS or SOCKS are not supported.
    pub fn parse(text: &str) -> Result<Self, ProxyError> {
        let wrong = || ProxyError(text.to_owned());
        let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = full.parse().map_err(|_| wrong())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        if uri.scheme_str() != Some("http") {
            return Err(wrong());
        }
        Ok(Self {
            host: host.to_owned(),
            // The same default as curl's.
            port: uri.port_u16().unwrap_or(1080),
            authorization: basic(&uri),
        })
    }
}

/// The user information of the URI, as a field value (RFC 7617).
pub(crate) fn basic(uri: &Uri) -> Option<HeaderValue> {
    let (user, _) = uri.authority()?.as_str().rsplit_once('@')?;
    let user: Vec<u8> = percent_decode_str(user).collect();
    let mut value =
        HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(user))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_read_as_curl_reads_them() {
        let proxy = Proxy::parse("http://user:pa%20ss@[::1]:3128").unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("[::1]", 3128));
        assert_eq!(proxy.authorization.unwrap(), "Basic dXNlcjpwYSBzcw==");
        assert_eq!(Proxy::parse("cache.example:80").unwrap().port, 80);
        for wrong in ["socks5://a:1", "https://a:1", "http://", "a b"] {
            assert!(Proxy::parse(wrong).is_err(), "{wrong}");
        }
    }
}
