//! Requests over time, in intervals that become longer when there are many.

use std::collections::BTreeMap;

/// The counts of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    /// Requests with a status of 500 or above.
    pub(crate) errors: u64,
    /// Requests that the cache answered.
    pub(crate) hits: u64,
    /// Requests of which it is known whether the cache answered.
    pub(crate) decided: u64,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.errors += other.errors;
        self.hits += other.hits;
        self.decided += other.decided;
    }
}

/// Lengths in seconds; each divides the next.
const LENGTHS: [u64; 13] =
    [1, 5, 15, 60, 300, 900, 3600, 10_800, 43_200, 86_400, 604_800, 2_419_200, 31_449_600];

/// The most intervals. They are those with requests, so that one wrong date does not make all of them long.
const MOST: usize = 400;

/// Intervals with requests, by their numbers since 1970.
#[derive(Clone, Default)]
pub(crate) struct Timeline {
    /// The position in [`LENGTHS`].
    length: usize,
    intervals: BTreeMap<u64, Counts>,
}

impl Timeline {
    /// Adds counts of a second since 1970.
    pub(crate) fn add(&mut self, second: f64, counts: Counts) {
        if (0.0..1e12).contains(&second) {
            self.add_to(second as u64 / self.seconds(), counts);
        }
    }

    fn add_to(&mut self, number: u64, counts: Counts) {
        self.intervals.entry(number).or_default().add(counts);
        while self.intervals.len() > MOST && self.length + 1 < LENGTHS.len() {
            self.lengthen();
        }
        // Only a file without sense has this many years.
        if self.intervals.len() > MOST {
            self.intervals.pop_last();
        }
    }

    fn lengthen(&mut self) {
        let factor = LENGTHS[self.length + 1] / LENGTHS[self.length];
        self.length += 1;
        for (number, counts) in std::mem::take(&mut self.intervals) {
            self.intervals.entry(number / factor).or_default().add(counts);
        }
    }

    pub(crate) fn merge(&mut self, mut other: Self) {
        while other.length < self.length {
            other.lengthen();
        }
        while self.length < other.length {
            self.lengthen();
        }
        for (number, counts) in other.intervals {
            let number = number * LENGTHS[other.length] / self.seconds();
            self.add_to(number, counts);
        }
    }

    /// The length of an interval in seconds.
    pub(crate) fn seconds(&self) -> u64 {
        LENGTHS[self.length]
    }

    /// The intervals with requests, by their first second.
    pub(crate) fn intervals(&self) -> impl Iterator<Item = (u64, Counts)> {
        self.intervals.iter().map(|(number, counts)| (number * self.seconds(), *counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Counts = Counts { requests: 1, bytes: 10, errors: 0, hits: 1, decided: 1 };

    #[test]
    fn intervals_become_longer_and_lose_nothing() {
        let mut parts = [Timeline::default(), Timeline::default()];
        for second in 0..100_000 {
            parts[usize::from(second % 7 == 0)].add(f64::from(second) + 1e9, ONE);
        }
        let [mut all, other] = parts;
        all.merge(other);
        assert!(all.intervals.len() <= MOST);
        assert_eq!(all.seconds(), 300);
        assert_eq!(all.intervals().map(|(_, counts)| counts.requests).sum::<u64>(), 100_000);
        let places: Vec<_> = all.intervals().map(|(second, _)| second).collect();
        assert!(places.windows(2).all(|pair| pair[1] == pair[0] + 300));
    }

    #[test]
    fn senseless_times_are_bounded() {
        let mut timeline = Timeline::default();
        for number in 0..10_000 {
            timeline.add(f64::from(number) * 1e8, ONE);
        }
        for time in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            timeline.add(time, ONE);
        }
        assert!(timeline.intervals.len() <= MOST);
    }
}
