//! Cookies (RFC 7873), which all servers with one secret make alike (RFC 9018): a client that returns one has shown
//! that its address is its own.

use std::{hash::Hasher as _, net::IpAddr};

use siphasher::sip::SipHasher24;

use crate::wire::ClientCookie;

/// The bytes of a secret.
pub const SECRET: usize = 16;
/// A cookie is valid for an hour, and up to five minutes ahead for clocks that differ (RFC 9018 Sec. 4.3).
const OLDEST: u32 = 3600;
const NEWEST: u32 = 300;
const VERSION: u8 = 1;

/// Makes and checks cookies.
#[derive(Clone, PartialEq, Eq)]
pub struct Cookies([u8; SECRET]);

impl std::fmt::Debug for Cookies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cookies")
    }
}

impl Cookies {
    /// By this secret.
    pub fn new(secret: [u8; SECRET]) -> Self {
        Self(secret)
    }

    /// The server's part for a client; `now` is in seconds since 1970.
    pub fn make(&self, client: [u8; 8], address: IpAddr, now: u64) -> [u8; 16] {
        self.at(client, address, now as u32)
    }

    /// Whether a client has got its cookie from a server with this secret, at this address, not long ago.
    pub fn is_valid(&self, cookie: &ClientCookie<'_>, address: IpAddr, now: u64) -> bool {
        let Ok(server) = <[u8; 16]>::try_from(cookie.server) else { return false };
        let [version, _, _, _, a, b, c, d, ..] = server;
        let made = u32::from_be_bytes([a, b, c, d]);
        // Serial numbers (RFC 1982): the difference counts.
        let age = (now as u32).wrapping_sub(made);
        let is_fresh = age <= OLDEST || age >= u32::MAX - NEWEST;
        version == VERSION && is_fresh && self.at(cookie.client, address, made) == server
    }

    fn at(&self, client: [u8; 8], address: IpAddr, time: u32) -> [u8; 16] {
        let mut server = [0; 16];
        server[0] = VERSION;
        server[4..8].copy_from_slice(&time.to_be_bytes());
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(&client);
        hasher.write(&server[..8]);
        match address.to_canonical() {
            IpAddr::V4(v4) => hasher.write(&v4.octets()),
            IpAddr::V6(v6) => hasher.write(&v6.octets()),
        }
        server[8..].copy_from_slice(&hasher.finish().to_le_bytes());
        server
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
    }

    #[test]
    fn cookie_is_that_of_the_standard_and_valid_for_an_hour() {
        // RFC 9018 Appendix A.1.
        let cookies = Cookies::new(bytes("e5e973e5a6b2a43f48e7dc849e37bfcf"));
        let (client, address, now) =
            (bytes("2464c4abcf10c957"), IpAddr::from([198, 51, 100, 100]), 1_559_731_985);
        let server: [u8; 16] = bytes("010000005cf79f111f8130c3eee29480");
        assert_eq!(cookies.make(client, address, now), server);
        let valid =
            |cookie: &ClientCookie<'_>, address, now| cookies.is_valid(cookie, address, now);
        let cookie = ClientCookie { client, server: &server };
        assert!(valid(&cookie, address, now + 3600) && valid(&cookie, address, now - 300));
        assert!(!valid(&cookie, address, now + 3601) && !valid(&cookie, address, now - 302));
        assert!(!valid(&cookie, IpAddr::from([198, 51, 100, 101]), now));
        assert!(!valid(&ClientCookie { server: &server[..8], ..cookie }, address, now));
    }
}
