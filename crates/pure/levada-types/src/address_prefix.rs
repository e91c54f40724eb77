//! Prefixes of IP addresses, such as `10.0.0.0/8`.

use std::{fmt, net::IpAddr, str::FromStr};

/// A prefix of addresses. An IPv4 address that is mapped into IPv6 counts as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPrefix {
    address: IpAddr,
    length: u8,
}

/// The text is no prefix: an address, or an address without bits beyond the prefix, `/` and a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an address, or an address and the length of a prefix such as 10.0.0.0/8")]
pub struct NoPrefix;

impl AddressPrefix {
    /// Whether the address begins with this prefix.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4()
            && masked(address, self.length) == masked(self.address, self.length)
    }

    /// Whether it contains all addresses of its version.
    pub fn is_all(&self) -> bool {
        self.length == 0
    }
}

/// The first bits of an address, at the upper end of the number.
fn masked(address: IpAddr, length: u8) -> u128 {
    let bits = match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)) << 96,
        IpAddr::V6(v6) => u128::from(v6),
    };
    bits & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

impl FromStr for AddressPrefix {
    type Err = NoPrefix;

    fn from_str(text: &str) -> Result<Self, NoPrefix> {
        let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
        let address: IpAddr = address.parse().map_err(|_| NoPrefix)?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => longest,
            Some(length) => length.parse().map_err(|_| NoPrefix)?,
        };
        let prefix = Self { address, length };
        let is_good = length <= longest && masked(address, length) == masked(address, longest);
        if is_good { Ok(prefix) } else { Err(NoPrefix) }
    }
}

impl fmt::Display for AddressPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_contains_the_addresses_that_begin_with_it() {
        for (prefix, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
            ("192.0.2.128/25", "::ffff:192.0.2.200", "192.0.2.1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
            ("::1", "::1", "127.0.0.1"),
            ("0.0.0.0/0", "203.0.113.9", "::1"),
        ] {
            let prefix: AddressPrefix = prefix.parse().unwrap();
            assert!(prefix.contains(inside.parse().unwrap()), "{prefix} {inside}");
            assert!(!prefix.contains(outside.parse().unwrap()), "{prefix} {outside}");
        }
        for text in ["", "10.0.0.0/33", "10.0.0.1/8", "a/8", "10.0.0.0/", "::/129", "10.0.0.0/-1"] {
            assert_eq!(text.parse::<AddressPrefix>(), Err(NoPrefix), "{text}");
        }
    }
}
