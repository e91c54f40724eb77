//! Access to the admin listener: its names, and the token that orders need.
//!
//! A browser on this machine reaches the listener, too. With a name of its own that resolves to this
//! address (DNS rebinding), a web page could read all pages. So the host of a request must be an address,
//! `localhost`, or a name from the configuration: no web page has such an origin.

use std::net::IpAddr;

use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{AUTHORIZATION, HOST},
};
use levada_store::identity::without_port;

use levada_tls::secret;

/// Why an order is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderRefusal {
    /// The token is missing or wrong.
    Token,
    /// A browser says that a page of another site sends the order.
    OtherSite,
    /// There is no token, and the order comes from another machine.
    OtherMachine,
    /// There is no token, and the order comes from another user of this machine.
    OtherUser,
}

impl OrderRefusal {
    /// The status of the answer.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Token => StatusCode::UNAUTHORIZED,
            Self::OtherMachine | Self::OtherUser | Self::OtherSite => StatusCode::FORBIDDEN,
        }
    }

    /// The body of the answer, with the remedy.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Token => "an order needs the token of [admin]: Authorization: Bearer TOKEN\n",
            Self::OtherSite => "an order does not come from a page of another site\n",
            Self::OtherMachine => {
                "orders from other machines need a token: set `token_file` in [admin]\n"
            }
            Self::OtherUser => {
                "without a token, only root and the user of the node give orders here: set `token_file` in \
                 [admin], or `listen` to a Unix socket with a `mode`\n"
            }
        }
    }
}

/// Whether a client may change something: with the token, or from this machine if there is none; of which user, is
/// for the caller to find out. `None`: it came by a Unix socket, whose permissions have decided already.
pub fn may_order(
    token: Option<&str>,
    client: Option<IpAddr>,
    headers: &HeaderMap,
) -> Result<(), OrderRefusal> {
    if is_of_another_site(headers) {
        return Err(OrderRefusal::OtherSite);
    }
    let Some(client) = client else { return Ok(()) };
    let Some(token) = token else {
        let is_here = client.to_canonical().is_loopback();
        return if is_here { Ok(()) } else { Err(OrderRefusal::OtherMachine) };
    };
    if shows(token, headers) { Ok(()) } else { Err(OrderRefusal::Token) }
}

/// Whether a request shows the token (RFC 6750 Sec. 2.1).
pub fn shows(token: &str, headers: &HeaderMap) -> bool {
    shown(headers).is_some_and(|shown| secret::equal(shown, token.as_bytes()))
}

/// The token that a request shows.
pub(crate) fn shown(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, shown) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(BEARER.len())?;
    scheme.eq_ignore_ascii_case(BEARER).then(|| shown.trim_ascii())
}

/// Whether a browser says that a page of another site makes this request (Fetch Metadata, Sec. 2.3).
pub fn is_of_another_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    matches!(site, Some(b"cross-site" | b"same-site"))
}

const BEARER: &[u8] = b"bearer ";

/// Whether `Host` can belong to this listener. No browser sends a request without it.
pub fn names_this_listener<'a>(
    headers: &HeaderMap,
    mut hosts: impl Iterator<Item = &'a String>,
) -> bool {
    let Some(host) = headers.get(HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let name = without_port(host);
    let address = name.trim_start_matches('[').trim_end_matches(']');
    address.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || hosts.any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(name: http::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn order_needs_the_token_or_comes_from_this_machine() {
        let [here, mapped, there] =
            ["127.0.0.1", "::ffff:127.0.0.2", "192.0.2.1"].map(|text| text.parse().ok());
        let none = HeaderMap::new();
        assert_eq!(may_order(None, here, &none), Ok(()));
        assert_eq!(may_order(None, mapped, &none), Ok(()));
        assert_eq!(may_order(None, there, &none), Err(OrderRefusal::OtherMachine));
        for (shown, result) in [
            ("Bearer secret", Ok(())),
            ("bearer secret", Ok(())),
            ("Bearer", Err(OrderRefusal::Token)),
            ("Bearer ", Err(OrderRefusal::Token)),
            ("Bearer secre", Err(OrderRefusal::Token)),
            ("Basic secret", Err(OrderRefusal::Token)),
        ] {
            let headers = fields(AUTHORIZATION, shown);
            assert_eq!(may_order(Some("secret"), here, &headers), result, "{shown}");
        }
        assert_eq!(may_order(Some("secret"), here, &none), Err(OrderRefusal::Token));
        assert_eq!(may_order(Some("secret"), None, &none), Ok(()), "by the Unix socket");
    }

    #[test]
    fn order_from_a_page_of_another_site_is_refused() {
        let here = "127.0.0.1".parse().ok();
        let site = http::HeaderName::from_static("sec-fetch-site");
        for (said, result) in [
            ("same-origin", Ok(())),
            ("none", Ok(())),
            ("same-site", Err(OrderRefusal::OtherSite)),
            ("cross-site", Err(OrderRefusal::OtherSite)),
        ] {
            assert_eq!(may_order(None, here, &fields(site.clone(), said)), result, "{said}");
        }
    }

    #[test]
    fn host_is_an_address_or_a_known_name() {
        let known = ["node-1.example".to_owned()];
        for (host, is_good) in [
            ("127.0.0.1:9180", true),
            ("[::1]:9180", true),
            ("[::1]", true),
            ("localhost", true),
            ("LOCALHOST:9180", true),
            ("Node-1.example:9180", true),
            ("evil.example:9180", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example", false),
        ] {
            let headers = fields(HOST, host);
            assert_eq!(names_this_listener(&headers, known.iter()), is_good, "{host}");
        }
        assert!(names_this_listener(&HeaderMap::new(), known.iter()));
    }
}
