//! The trust boundary: which connections may state for whom they speak.
//!
//! A field such as `X-Forwarded-For` means something only if its sender is trusted. From any other client
//! it is removed, because servers behind this node would believe it. Names with an underscore are removed
//! with them: for CGI, `X_Forwarded_For` and `X-Forwarded-For` are the same.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName};

use levada_tls::client_fields::is_about_certificates;
use levada_types::AddressPrefix;

/// The addresses of the clients that a request has come from, as proxies state them.
pub const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Proxies in front of this node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrustedProxies {
    /// Their addresses.
    pub addresses: AddressPrefix,
    /// Whether their connections begin with a header of the PROXY protocol.
    pub proxy_protocol: bool,
}

/// The proxies whose statements about clients count.
pub struct TrustBoundary {
    trusted: Vec<TrustedProxies>,
}

impl TrustBoundary {
    /// A boundary that `trusted` may cross.
    pub fn new(trusted: &[TrustedProxies]) -> Self {
        Self { trusted: trusted.to_vec() }
    }

    /// Removes the statements of a client that is neither a peer nor trusted. Returns the address of the
    /// client that the request is for.
    pub fn cross(&self, client: IpAddr, is_peer: bool, headers: &mut HeaderMap) -> IpAddr {
        if is_peer || self.trusts(client) {
            return self.forwarded_for(headers).unwrap_or(client);
        }
        while let Some(name) = headers.keys().find(|name| is_statement(name)).cloned() {
            headers.remove(name);
        }
        client
    }

    /// Whether statements from this address count.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|proxies| proxies.addresses.contains(address))
    }

    /// Whether a connection from this address begins with a header of the PROXY protocol.
    pub fn announces(&self, address: IpAddr) -> bool {
        self.trusted
            .iter()
            .any(|proxies| proxies.proxy_protocol && proxies.addresses.contains(address))
    }

    /// The last address of `X-Forwarded-For` that is not trusted: each trusted proxy has appended the address
    /// that it saw, and anything before that may be invented.
    fn forwarded_for(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let lines = headers.get_all(FORWARDED_FOR).iter().rev();
        let members = lines.flat_map(|line| line.to_str().unwrap_or("").rsplit(','));
        let mut last = None;
        for address in members.map_while(|member| address(member.trim())) {
            last = Some(address);
            if !self.trusts(address) {
                break;
            }
        }
        last
    }
}

/// An address, which some proxies write with a port.
fn address(text: &str) -> Option<IpAddr> {
    let with_port = || text.parse().ok().map(|address: std::net::SocketAddr| address.ip());
    text.parse().ok().or_else(with_port).map(|address: IpAddr| address.to_canonical())
}

/// Whether the field says for whom a request is, with which certificate, or which URL it is really for.
fn is_statement(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("x-forwarded-")
        || matches!(name, "forwarded" | "x-real-ip" | "x-original-url" | "x-rewrite-url")
        || name.contains('_')
        || is_about_certificates(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_of(trusted: &[&str], lines: &[&str]) -> Option<IpAddr> {
        let proxies = |text: &&str| TrustedProxies {
            addresses: text.parse().unwrap(),
            proxy_protocol: false,
        };
        let trusted: Vec<_> = trusted.iter().map(proxies).collect();
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED_FOR, line.parse().unwrap());
        }
        TrustBoundary::new(&trusted).forwarded_for(&headers)
    }

    #[test]
    fn client_is_the_last_address_that_is_not_trusted() {
        let trusted = ["10.0.0.0/8"];
        let client = Some("192.0.2.1".parse().unwrap());
        assert_eq!(client_of(&trusted, &["192.0.2.1"]), client);
        assert_eq!(client_of(&trusted, &["198.51.100.1, 192.0.2.1, 10.0.0.1,10.0.0.2"]), client);
        assert_eq!(client_of(&trusted, &["198.51.100.1", "192.0.2.1:443", "10.0.0.1"]), client);
        assert_eq!(client_of(&trusted, &["::ffff:192.0.2.1"]), client);
        assert_eq!(client_of(&[], &["10.0.0.1, 192.0.2.1"]), client);
    }

    #[test]
    fn proxy_protocol_is_read_from_proxies_that_are_said_to_speak_it() {
        let proxies = [("10.0.0.0/8", true), ("192.0.2.0/24", false)];
        let trusted = proxies.map(|(addresses, proxy_protocol)| TrustedProxies {
            addresses: addresses.parse().unwrap(),
            proxy_protocol,
        });
        let boundary = TrustBoundary::new(&trusted);
        for (address, announces) in
            [("10.0.0.1", true), ("192.0.2.1", false), ("198.51.100.1", false)]
        {
            assert_eq!(boundary.announces(address.parse().unwrap()), announces, "{address}");
        }
    }

    #[test]
    fn without_a_stranger_the_client_is_the_farthest_proxy() {
        let nearest = Some("10.0.0.2".parse().unwrap());
        assert_eq!(client_of(&["10.0.0.0/8"], &["10.0.0.2, 10.0.0.1"]), nearest);
        assert_eq!(client_of(&["10.0.0.0/8"], &["unknown, 10.0.0.2"]), nearest);
        assert_eq!(client_of(&["10.0.0.0/8"], &["unknown"]), None);
        assert_eq!(client_of(&["10.0.0.0/8"], &[]), None);
    }
}
