//! Networks of addresses, and what is left of one without others.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// A network. Bits beyond its length are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Network {
    /// Whether it is of IPv6.
    pub(super) is_v6: bool,
    /// From the highest bit on, also those of IPv4.
    bits: u128,
    length: u8,
}

impl Network {
    fn new(is_v6: bool, bits: u128, length: u8) -> Self {
        Self { is_v6, bits: bits & mask(length), length }
    }

    fn last(self) -> u128 {
        self.bits | !mask(self.length)
    }

    /// Whether all addresses of the other one are in it.
    pub(super) fn contains(self, other: Self) -> bool {
        self.is_v6 == other.is_v6
            && self.length <= other.length
            && other.bits & mask(self.length) == self.bits
    }

    fn halves(self) -> [Self; 2] {
        let length = self.length + 1;
        let high = 1 << (128 - u32::from(length));
        [self.bits, self.bits | high].map(|bits| Self::new(self.is_v6, bits, length))
    }

    /// Adds the networks to `found` that have all addresses of this one but those in `holes`, which are sorted.
    pub(super) fn without(self, holes: &[Self], found: &mut Vec<Self>) {
        let start = holes.partition_point(|hole| *hole < self);
        let ends = |hole: &Self| (hole.is_v6, hole.bits) <= (self.is_v6, self.last());
        let inside = &holes[start..start.max(holes.partition_point(ends))];
        match inside.first() {
            None => found.push(self),
            Some(first) if *first == self => {}
            Some(_) => self.halves().into_iter().for_each(|half| half.without(inside, found)),
        }
    }
}

const fn mask(length: u8) -> u128 {
    if length == 0 { 0 } else { u128::MAX << (128 - length) }
}

/// Traffic Router takes an address for the network of itself alone.
impl FromStr for Network {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, length) = text.split_once('/').unwrap_or((text, ""));
        let address: IpAddr = address.trim().parse().map_err(|_| "is no network")?;
        let (bits, most) = match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
            IpAddr::V6(address) => (address.to_bits(), 128),
        };
        let length = match length.trim() {
            "" => most,
            length => length.parse().ok().filter(|own| *own <= most).ok_or("is no network")?,
        };
        Ok(Self::new(address.is_ipv6(), bits, length))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_v6 {
            true => write!(f, "{}/{}", Ipv6Addr::from_bits(self.bits), self.length),
            false => write!(f, "{}/{}", Ipv4Addr::from_bits((self.bits >> 96) as u32), self.length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Network;

    #[test]
    fn a_network_without_a_part_is_the_rest_of_it() {
        let network = |text: &str| text.parse::<Network>().unwrap();
        let rest = |whole: &str, holes: &[&str]| {
            let mut holes: Vec<_> = holes.iter().map(|hole| network(hole)).collect();
            holes.sort();
            let mut found = Vec::new();
            network(whole).without(&holes, &mut found);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(rest("10.0.0.7/8", &["11.0.0.0/8", "0.0.0.0/0"]), ["10.0.0.0/8"]);
        assert_eq!(rest("10.0.0.0/8", &["10.0.0.0/8", "10.1.0.0/16"]), [""; 0]);
        assert_eq!(rest("10.0.0.0/22", &["10.0.1.0/24"]), ["10.0.0.0/24", "10.0.2.0/23"]);
        assert_eq!(rest("0.0.0.0/0", &["2001:db8::/32"]), ["0.0.0.0/0"]);
        assert_eq!(rest("::/0", &["8000::/1", "10.0.0.0/8"]), ["::/1"]);
        assert_eq!(rest("192.0.2.0/31", &["192.0.2.1"]), ["192.0.2.0/32"]);
        assert!("10.0.0.0/33".parse::<Network>().is_err());
        assert!("10.0.0".parse::<Network>().is_err());
    }
}
