//! Distances that nodes have measured: which region is near a network of clients.

use std::{collections::HashMap, sync::Arc};

use super::Prefix;

/// A round trip to a network of clients, in microseconds.
pub type RoundTrip = (Prefix, u32);

/// The most round trips of one node.
const MOST: usize = 1024;
/// A round trip of one region alone tells that the region is near only below this, in microseconds.
const NEAR: u32 = 80_000;

/// Reads the lines of a node, each a network and its microseconds. Other lines say nothing, nor do networks of other
/// sizes than IPv4 /24 and IPv6 /48: no node can speak for the whole Internet.
pub fn round_trips(text: &str) -> Vec<RoundTrip> {
    let line = |line: &str| {
        let (network, time) = line.split_once(' ')?;
        let network: Prefix = network.parse().ok()?;
        let length = if network.is_v6() { 48 } else { 24 };
        (network.length() == length).then_some((network, time.trim().parse().ok()?))
    };
    text.lines().filter_map(line).take(MOST).collect()
}

/// The region of each network from which the shortest round trip was measured. A network that one region alone has seen
/// is of that region only if it is near.
pub fn nearest<'a>(
    told: impl Iterator<Item = (&'a Arc<str>, &'a [RoundTrip])>,
) -> Vec<(Prefix, Arc<str>)> {
    // For each network its nearest region, and whether another one has seen it too.
    let mut best: HashMap<Prefix, (u32, &Arc<str>, bool)> = HashMap::new();
    for (region, trips) in told {
        for (network, time) in trips {
            let known = best.entry(*network).or_insert((*time, region, false));
            known.2 |= known.1 != region;
            if *time < known.0 {
                (known.0, known.1) = (*time, region);
            }
        }
    }
    let is_told =
        |(_, (time, _, compared)): &(Prefix, (u32, &Arc<str>, bool))| *compared || *time < NEAR;
    let mut all: Vec<_> = best
        .into_iter()
        .filter(is_told)
        .map(|(network, (_, region, _))| (network, region.clone()))
        .collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_region_is_that_of_the_shortest_trip_and_one_alone_must_be_near() {
        let [eu, us]: [Arc<str>; 2] = ["eu".into(), "us".into()];
        let of_eu = round_trips(
            "192.0.2.0/24 90000\n198.51.100.0/24 20000\n203.0.113.0/24 150000\n\
             0.0.0.0/0 1\n10.0.0.0/24\nx 1\n10.1.0.0/24 -1\n2001:db8::/48 100000\n",
        );
        let of_us = round_trips("192.0.2.0/24 30000\n2001:db8::/48 200000\n");
        assert_eq!((of_eu.len(), of_us.len()), (4, 2));
        let told = [(&eu, &of_eu[..]), (&us, &of_us[..])];
        let near = nearest(told.into_iter());
        let near: Vec<_> = near.iter().map(|(one, region)| format!("{one} {region}")).collect();
        assert_eq!(near, ["192.0.2.0/24 us", "198.51.100.0/24 eu", "2001:db8::/48 eu"]);
    }
}
