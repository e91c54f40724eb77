//! The bytes of a file that are here.

use std::{collections::BTreeMap, ops::Range};

/// Ranges of bytes that neither touch nor overlap, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// End by start.
    ranges: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Held {
    /// Adds `range`, which may overlap what is held.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        // A range that touches the new one becomes part of it. Ranges that begin later than its end
        // cannot touch it, and of those that begin before its start only the last can.
        while let Some((&from, &to)) = self.ranges.range(..=end).next_back() {
            if to < start {
                break;
            }
            self.ranges.remove(&from);
            self.bytes -= to - from;
            start = start.min(from);
            end = end.max(to);
        }
        self.ranges.insert(start, end);
        self.bytes += end - start;
    }

    /// Forgets everything from `offset` on.
    pub fn truncate(&mut self, offset: u64) {
        self.ranges.split_off(&offset);
        if let Some(mut last) = self.ranges.last_entry() {
            let end = last.get_mut();
            *end = offset.min(*end);
        }
        self.bytes = self.iter().map(|range| range.end - range.start).sum();
    }

    /// The held range that `offset` lies in.
    pub fn around(&self, offset: u64) -> Option<Range<u64>> {
        let (&start, &end) = self.ranges.range(..=offset).next_back()?;
        (offset < end).then_some(start..end)
    }

    /// The held range that ends at `offset`.
    pub fn ending_at(&self, offset: u64) -> Option<Range<u64>> {
        let (&start, &end) = self.ranges.range(..offset).next_back()?;
        (end == offset).then_some(start..end)
    }

    /// Where the first held range after `offset` begins.
    pub fn next_after(&self, offset: u64) -> Option<u64> {
        self.ranges.range(offset..).next().map(|(&start, _)| start)
    }

    /// The missing ranges of the first `total` bytes, in order.
    pub fn gaps(&self, total: u64) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = 0;
        for range in self.iter().take_while(|range| range.start < total) {
            if at < range.start {
                gaps.push(at..range.start);
            }
            at = range.end;
        }
        if at < total {
            gaps.push(at..total);
        }
        gaps
    }

    /// How many bytes are held without a gap from the beginning.
    pub fn prefix(&self) -> u64 {
        self.ranges.get(&0).copied().unwrap_or(0)
    }

    /// Behind the last byte that is held.
    pub fn end(&self) -> u64 {
        self.ranges.last_key_value().map_or(0, |(_, &end)| end)
    }

    /// How many bytes are held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether these are exactly the first `total` bytes.
    pub fn is_whole(&self, total: u64) -> bool {
        self.prefix() == total && self.bytes == total
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }
}

impl FromIterator<Range<u64>> for Held {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut held = Self::default();
        for range in ranges {
            held.insert(range);
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_are_held_as_bytes_would_be(
            steps in prop::collection::vec((0u64..64, 0u64..16, any::<bool>()), 0..40),
        ) {
            let mut held = Held::default();
            let mut bytes = [false; 100];
            for (start, length, cut) in steps {
                if cut && length == 0 {
                    held.truncate(start);
                    bytes[start as usize..].fill(false);
                } else {
                    held.insert(start..start + length);
                    bytes[start as usize..(start + length) as usize].fill(true);
                }
                prop_assert_eq!(held.bytes(), bytes.iter().filter(|&&b| b).count() as u64);
                for (at, &is) in bytes.iter().enumerate() {
                    prop_assert_eq!(held.around(at as u64).is_some(), is);
                }
                let ranges: Vec<_> = held.iter().collect();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
                let missing: u64 = held.gaps(100).iter().map(|gap| gap.end - gap.start).sum();
                prop_assert_eq!(missing, 100 - held.bytes());
            }
        }
    }
}
