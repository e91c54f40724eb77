//! The client that a request counts for where clients take turns.

use std::net::{IpAddr, Ipv6Addr};

use http::{HeaderMap, HeaderValue};

use crate::client_connection::{ClientConnection, ListenerKind};

/// The network of the client behind a request. A peer says on whose behalf it asks.
pub(crate) fn of(connection: &ClientConnection, headers: &HeaderMap) -> IpAddr {
    let forwarded_for = || {
        let last = headers.get_all("x-forwarded-for").iter().next_back()?;
        HeaderValue::to_str(last).ok()?.rsplit(',').next()?.trim().parse().ok()
    };
    let address = match connection.listener {
        ListenerKind::Peer => forwarded_for(),
        ListenerKind::Client { .. } => None,
    };
    network(address.unwrap_or(connection.client))
}

/// An IPv6 client has a whole network of addresses to choose from: that network is the client.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_of_an_ipv6_client_is_one_client() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8:0:0:ffff::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), IpAddr::from([192, 0, 2, 1]));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
