//! The client that a request counts for where clients take turns.

use std::net::{IpAddr, Ipv6Addr};

/// The network of a client. An IPv6 client has a whole network of addresses to choose from: that network is
/// the client.
pub fn of(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
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
        let of = |text: &str| of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8:0:0:ffff::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), IpAddr::from([192, 0, 2, 1]));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
