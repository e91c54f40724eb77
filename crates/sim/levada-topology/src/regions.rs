//! Regions that are far from each other: their names, and the round trips between them.

use std::{collections::BTreeMap, time::Duration};

use levada_types::format_duration;

/// Regions by index, with the round trip between each two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionMap {
    names: Vec<String>,
    /// Row by row, each in nanoseconds.
    trips: Vec<u64>,
}

/// A region as a file states it. Of two regions one at least states the round trip.
#[derive(Clone, Copy, Debug)]
pub struct StatedRegion<'a> {
    /// Its name.
    pub name: &'a str,
    /// Round trips to other regions, by their names.
    pub round_trips: &'a BTreeMap<String, Duration>,
}

/// Why regions cannot be used: the index of the region, and the problem with its remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct RegionError {
    /// The region, by its place in the list.
    pub region: usize,
    /// The problem and the remedy.
    pub what: String,
}

impl RegionMap {
    /// Regions with these names and round trips.
    ///
    /// # Errors
    /// Every name that is empty or used twice, and every round trip that is missing, of no region, or stated
    /// differently by its two ends.
    pub fn new(stated: &[StatedRegion<'_>]) -> Result<Self, Vec<RegionError>> {
        let names: Vec<_> = stated.iter().map(|region| region.name.to_owned()).collect();
        let mut errors = Vec::new();
        let mut wrong = |region, what| errors.push(RegionError { region, what });
        for (at, StatedRegion { name, round_trips }) in stated.iter().enumerate() {
            if name.is_empty() || names[..at].iter().any(|other| other == name) {
                wrong(at, format!("`{name}` is no name of its own: give each region another one"));
            }
            for to in round_trips.keys() {
                if to == name {
                    wrong(at, format!("`{name}` is this region itself: leave its round trip out"));
                } else if !names.contains(to) {
                    let known = names.join(", ");
                    wrong(at, format!("there is no region `{to}`; there are {known}"));
                }
            }
        }
        let mut trips = vec![0; names.len() * names.len()];
        for (b, back_from) in stated.iter().enumerate() {
            for (a, from) in stated[..b].iter().enumerate() {
                let there = from.round_trips.get(back_from.name);
                let back = back_from.round_trips.get(from.name);
                let (one, other) = (from.name, back_from.name);
                match (there, back) {
                    (Some(there), Some(back)) if there != back => {
                        let [there, back] = [there, back].map(|trip| format_duration(*trip));
                        wrong(
                            b,
                            format!(
                                "the round trip between `{one}` and `{other}` is {there} at one end and {back} at the other: state it once"
                            ),
                        );
                    }
                    (None, None) => wrong(
                        b,
                        format!(
                            "the round trip between `{one}` and `{other}` is missing: write `round_trips = {{ {one} = \"80ms\" }}`"
                        ),
                    ),
                    (trip, other) => {
                        let trip = trip.or(other).map_or(0, |trip| trip.as_nanos() as u64);
                        trips[a * names.len() + b] = trip;
                        trips[b * names.len() + a] = trip;
                    }
                }
            }
        }
        if errors.is_empty() { Ok(Self { names, trips }) } else { Err(errors) }
    }

    /// The names, by index.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The region of this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    /// The round trip between two regions in nanoseconds, 0 within one.
    pub fn trip(&self, one: usize, other: usize) -> u64 {
        self.trips[one * self.names.len() + other]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(stated: &[(&str, &[(&str, u64)])]) -> Result<RegionMap, Vec<String>> {
        let trips: Vec<BTreeMap<_, _>> = stated
            .iter()
            .map(|(_, trips)| {
                let trip = |(to, ms): &(&str, u64)| ((*to).to_owned(), Duration::from_millis(*ms));
                trips.iter().map(trip).collect()
            })
            .collect();
        let stated: Vec<_> = stated
            .iter()
            .zip(&trips)
            .map(|((name, _), round_trips)| StatedRegion { name, round_trips })
            .collect();
        RegionMap::new(&stated)
            .map_err(|errors| errors.into_iter().map(|error| error.what).collect())
    }

    #[test]
    fn round_trip_is_stated_once_and_holds_both_ways() {
        let map = map(&[("eu", &[("us", 80), ("ap", 200)]), ("us", &[("ap", 150)]), ("ap", &[])]);
        let map = map.expect("it is right");
        let trips = [(0, 1), (1, 0), (0, 2), (2, 1), (1, 1)].map(|(a, b)| map.trip(a, b));
        assert_eq!(trips, [80, 80, 200, 150, 0].map(|ms| ms * 1_000_000));
        assert_eq!((map.find("ap"), map.find("sa")), (Some(2), None));
    }

    #[test]
    fn every_mistake_is_named() {
        let wrong = map(&[
            ("eu", &[("us", 80), ("sa", 1), ("eu", 1)]),
            ("us", &[("eu", 90)]),
            ("ap", &[("us", 1)]),
            ("ap", &[("eu", 1), ("us", 1), ("ap", 1)]),
        ]);
        let wrong = wrong.expect_err("much is wrong").join("\n");
        for part in [
            "there is no region `sa`; there are eu, us, ap, ap",
            "`eu` is this region itself",
            "between `eu` and `us` is 80ms at one end and 90ms at the other",
            "between `eu` and `ap` is missing: write `round_trips = { eu = \"80ms\" }`",
            "`ap` is no name of its own",
        ] {
            assert!(wrong.contains(part), "{part}\n{wrong}");
        }
    }
}
