//! Values by network: the longest prefix of an address decides.
//!
//! The prefixes become ranges that do not overlap, so that a look-up is one binary search, and shows how far around an
//! address the value stays the same: that is the scope of an answer (RFC 7871 Sec. 7.2.1).

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// The first bits of addresses, at the upper end of the number. Bits beyond the prefix are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    is_v6: bool,
    bits: u128,
    length: u8,
}

/// The text is no prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no network: an address, or an address, `/` and the length of a prefix")]
pub struct NoPrefix(String);

/// One network has two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The network.
    pub network: Prefix,
    /// The values.
    pub values: [u16; 2],
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

/// Prefixes that become [`Networks`].
#[derive(Debug, Default)]
pub struct NetworksBuilder {
    v4: Vec<(u32, u8, u16)>,
    v6: Vec<(u128, u8, u16)>,
}

/// Each range begins at its `start` and ends before the next one. The value `NONE` marks one without a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ranges<A> {
    starts: Box<[A]>,
    values: Box<[u16]>,
}

const NONE: u16 = u16::MAX;

impl Prefix {
    /// Its length.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Whether it is of IPv6.
    pub fn is_v6(&self) -> bool {
        self.is_v6
    }

    /// The prefix of this length.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let (is_v6, bits, longest) = match address {
            IpAddr::V4(v4) => (false, u128::from(u32::from(v4)) << 96, 32),
            IpAddr::V6(v6) => (true, u128::from(v6), 128),
        };
        (length <= longest).then(|| Self { is_v6, bits: bits & mask(length), length })
    }
}

fn mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

impl FromStr for Prefix {
    type Err = NoPrefix;

    fn from_str(text: &str) -> Result<Self, NoPrefix> {
        let wrong = || NoPrefix(text.to_owned());
        let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
        let address: IpAddr = address.trim().parse().map_err(|_| wrong())?;
        let length = match length {
            Some(length) => length.trim().parse().map_err(|_| wrong())?,
            None => {
                if address.is_ipv4() {
                    32
                } else {
                    128
                }
            }
        };
        Self::new(address, length).ok_or_else(wrong)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = match self.is_v6 {
            true => IpAddr::V6(Ipv6Addr::from(self.bits)),
            false => IpAddr::V4(Ipv4Addr::from((self.bits >> 96) as u32)),
        };
        write!(f, "{address}/{}", self.length)
    }
}

impl NetworksBuilder {
    /// Adds a network with its value, below 65,535.
    pub fn add(&mut self, network: Prefix, value: u16) {
        match network.is_v6 {
            true => self.v6.push((network.bits, network.length, value)),
            false => self.v4.push(((network.bits >> 96) as u32, network.length, value)),
        }
    }

    /// The networks, with those that have two values: the first one counts there.
    pub fn build(self) -> (Networks, Vec<Overlap>) {
        let mut overlaps = Vec::new();
        let mut overlap = |is_v6, bits: u128, length, values| {
            overlaps.push(Overlap { network: Prefix { is_v6, bits, length }, values });
        };
        let v4 = ranges(self.v4, |start, length, values| {
            overlap(false, u128::from(start) << 96, length, values)
        });
        let v6 = ranges(self.v6, |start, length, values| overlap(true, start, length, values));
        (Networks { v4, v6 }, overlaps)
    }
}

impl Networks {
    /// The value of an address, and the length of the longest prefix around it with no other value.
    pub fn find(&self, address: IpAddr) -> (Option<u16>, u8) {
        match address {
            IpAddr::V4(v4) => self.v4.find(v4.into()),
            IpAddr::V6(v6) => self.v6.find(v6.into()),
        }
    }

    /// The number of ranges.
    pub fn ranges(&self) -> usize {
        self.v4.starts.len() + self.v6.starts.len()
    }

    /// All values that occur.
    pub fn values(&self) -> impl Iterator<Item = u16> {
        let all = self.v4.values.iter().chain(&self.v6.values);
        all.copied().filter(|value| *value != NONE)
    }
}

/// Addresses as numbers.
trait Number: Copy + Ord + Default + std::ops::BitXor<Output = Self> {
    const BITS: u8;
    fn leading_zeros(self) -> u8;
    /// The number after the last one of a block that begins here; `None` after the end of all.
    fn after(self, length: u8) -> Option<Self>;
    fn before(self) -> Option<Self>;
}

macro_rules! number {
    ($type:ty) => {
        impl Number for $type {
            const BITS: u8 = <$type>::BITS as u8;

            fn leading_zeros(self) -> u8 {
                <$type>::leading_zeros(self) as u8
            }

            fn after(self, length: u8) -> Option<Self> {
                let rest = <$type>::MAX.checked_shr(length.into()).unwrap_or(0);
                (self | rest).checked_add(1)
            }

            fn before(self) -> Option<Self> {
                self.checked_sub(1)
            }
        }
    };
}

number!(u32);
number!(u128);

impl<A: Number> Ranges<A> {
    fn find(&self, address: A) -> (Option<u16>, u8) {
        let after = self.starts.partition_point(|start| *start <= address);
        let Some(at) = after.checked_sub(1) else { return (None, 0) };
        // A block around the address is inside when it contains neither neighbour of the range.
        let beyond =
            |other: Option<A>| other.map_or(0, |other| (address ^ other).leading_zeros() + 1);
        let before = beyond(self.starts[at].before());
        let next = beyond(self.starts.get(after).copied());
        let value = Some(self.values[at]).filter(|value| *value != NONE);
        (value, before.max(next).min(A::BITS))
    }
}

/// Ranges of prefixes: `overlap` gets the prefixes that have two values.
fn ranges<A: Number>(
    mut prefixes: Vec<(A, u8, u16)>,
    mut overlap: impl FnMut(A, u8, [u16; 2]),
) -> Ranges<A> {
    if prefixes.is_empty() {
        return Ranges::default();
    }
    // Stable: of equal prefixes the first one stays first.
    prefixes.sort_by_key(|(start, length, _)| (*start, *length));
    prefixes.dedup_by(|later, first| {
        let same = (later.0, later.1) == (first.0, first.1);
        if same && later.2 != first.2 {
            overlap(first.0, first.1, [first.2, later.2]);
        }
        same
    });
    let mut ranges = RangesBuilder { starts: Vec::new(), values: Vec::new() };
    ranges.begin(A::default(), NONE);
    // The prefixes around the present one, with the address after each.
    let mut around: Vec<(Option<A>, u16)> = Vec::new();
    for (start, length, value) in prefixes {
        ranges.leave(&mut around, |end| end <= start);
        ranges.begin(start, value);
        around.push((start.after(length), value));
    }
    ranges.leave(&mut around, |_| true);
    Ranges { starts: ranges.starts.into(), values: ranges.values.into() }
}

struct RangesBuilder<A> {
    starts: Vec<A>,
    values: Vec<u16>,
}

impl<A: Number> RangesBuilder<A> {
    /// Begins a range, in the place of one that begins there too. Neighbours with one value are one range.
    fn begin(&mut self, start: A, value: u16) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.values.pop();
        }
        if self.values.last() != Some(&value) {
            self.starts.push(start);
            self.values.push(value);
        }
    }

    /// Ends the innermost prefixes as long as they are `over`.
    fn leave(&mut self, around: &mut Vec<(Option<A>, u16)>, over: impl Fn(A) -> bool) {
        while let Some((Some(end), _)) =
            around.last().copied().filter(|(end, _)| end.is_some_and(&over))
        {
            around.pop();
            self.begin(end, around.last().map_or(NONE, |(_, value)| *value));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn networks(list: &[(&str, u16)]) -> (Networks, Vec<Overlap>) {
        let mut builder = NetworksBuilder::default();
        list.iter().for_each(|(network, value)| builder.add(network.parse().unwrap(), *value));
        builder.build()
    }

    #[test]
    fn longest_prefix_decides_and_the_scope_leaves_other_values_out() {
        let (networks, overlaps) = networks(&[
            ("10.0.0.0/8", 1),
            ("10.1.0.0/16", 2),
            ("192.0.2.7", 3),
            ("2001:db8::/32", 4),
            ("0.0.0.0/1", 9),
        ]);
        assert!(overlaps.is_empty());
        for (address, expected) in [
            ("10.2.3.4", (Some(1), 15)),
            ("10.128.0.1", (Some(1), 9)),
            ("10.1.2.3", (Some(2), 16)),
            ("11.0.0.1", (Some(9), 8)),
            ("64.0.0.1", (Some(9), 2)),
            ("192.0.2.7", (Some(3), 32)),
            ("192.0.2.6", (None, 32)),
            ("200.0.0.1", (None, 5)),
            ("2001:db8::1", (Some(4), 32)),
            ("2001:db9::1", (None, 32)),
            ("::1", (None, 3)),
        ] {
            assert_eq!(networks.find(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn empty_table_has_one_answer_for_all() {
        assert_eq!(Networks::default().find("192.0.2.1".parse().unwrap()), (None, 0));
    }

    #[test]
    fn network_with_two_values_is_said_and_keeps_the_first() {
        let (networks, overlaps) =
            networks(&[("10.0.0.0/8", 1), ("10.0.0.1/8", 2), ("10.0.0.0/8", 1)]);
        let network = "10.0.0.0/8".parse().unwrap();
        assert_eq!(overlaps, [Overlap { network, values: [1, 2] }]);
        assert_eq!(networks.find("10.0.0.1".parse().unwrap()), (Some(1), 8));
    }

    proptest! {
        #[test]
        fn look_up_agrees_with_a_walk_over_all_prefixes(
            prefixes in proptest::collection::vec((any::<u8>(), 0u8..=8, 0u16..4), 0..20),
            address in any::<u8>(),
        ) {
            // Eight bits of an address are enough for all shapes.
            let prefixes: Vec<_> = prefixes.iter().map(|(bits, length, value)| {
                let address = IpAddr::from([*bits, 0, 0, 0]);
                (Prefix::new(address, *length).unwrap(), *value)
            }).collect();
            let mut builder = NetworksBuilder::default();
            prefixes.iter().for_each(|(prefix, value)| builder.add(*prefix, *value));
            let (networks, _) = builder.build();
            let walk = |address: IpAddr| {
                let whole = Prefix::new(address, 32).unwrap().bits;
                let fits = prefixes.iter().filter(|(prefix, _)| whole & mask(prefix.length) == prefix.bits);
                // The first one of the longest.
                fits.rev().max_by_key(|(prefix, _)| prefix.length).map(|(_, value)| *value)
            };
            let of = |bits: u8| IpAddr::from([bits, 0, 0, 0]);
            let (found, scope) = networks.find(of(address));
            prop_assert_eq!(found, walk(of(address)));
            let block = |bits: u8| u32::from(bits) >> (8 - scope.min(8));
            for other in (0..=255).filter(|other| block(*other) == block(address)) {
                prop_assert_eq!(walk(of(other)), found, "{} of {}/{}", other, address, scope);
            }
        }
    }
}
