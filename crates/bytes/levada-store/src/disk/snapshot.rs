//! The index as it survives the process: a hint that spares the scan most of its work.
//!
//! ```text
//! byte  0  mark             6   "lindex"
//!       6  format           2   1
//!       8  checksum         8   XXH3 of the entries
//!      16  entries              key 8, pages 4, stamp 4; in the order in which they go. Records in
//!                              bundles have no pages: the bundles say where they are
//! ```
//!
//! `index.clean` has been written at an orderly end and says all; it is renamed to `index` as soon as it
//! has been read. `index` may be older than the files.

use levada_types::hash64;

use super::index::{IndexEntry, Spot};

const MARK: &[u8; 8] = b"lindex\x01\x00";
const HEADER: usize = 16;
const ENTRY: usize = 16;

/// The bytes of the snapshot of so many entries.
pub(super) fn length(entries: usize) -> u64 {
    (HEADER + entries * ENTRY) as u64
}

/// The snapshot of these entries.
pub(super) fn encode(entries: &mut [IndexEntry]) -> Vec<u8> {
    entries.sort_unstable_by_key(|entry| (entry.stamp, entry.key));
    let mut bytes = Vec::with_capacity(HEADER + entries.len() * ENTRY);
    bytes.extend_from_slice(MARK);
    bytes.extend_from_slice(&[0; 8]);
    for entry in entries {
        let pages = match entry.spot {
            Spot::File { pages } => pages,
            Spot::Bundle(_) => 0,
        };
        bytes.extend_from_slice(&entry.key.to_le_bytes());
        bytes.extend_from_slice(&pages.to_le_bytes());
        bytes.extend_from_slice(&entry.stamp.to_le_bytes());
    }
    let checksum = hash64(&bytes[HEADER..]);
    bytes[8..16].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The entries of a snapshot; `None` when it is damaged.
pub(super) fn parse(bytes: &[u8]) -> Option<Vec<IndexEntry>> {
    let (header, entries) = bytes.split_first_chunk::<HEADER>()?;
    let (mark, checksum) = header.split_first_chunk::<8>()?;
    let (entries, rest) = entries.as_chunks::<ENTRY>();
    if mark != MARK || hash64(&bytes[HEADER..]).to_le_bytes() != *checksum || !rest.is_empty() {
        return None;
    }
    Some(entries.iter().map(entry).collect())
}

fn entry(bytes: &[u8; ENTRY]) -> IndexEntry {
    let number = u128::from_le_bytes(*bytes);
    let spot = Spot::File { pages: (number >> 64) as u32 };
    IndexEntry { key: number as u64, spot, stamp: (number >> 96) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_in_the_order_in_which_they_go() {
        let spot = |key: u64| Spot::File { pages: !key as u32 };
        let entry = |key, stamp| IndexEntry { key, spot: spot(key), stamp };
        let mut entries = [entry(u64::MAX, 3), entry(1, u32::MAX), entry(2, 0)];
        let bytes = encode(&mut entries);
        assert_eq!(bytes.len() as u64, length(3));
        assert_eq!(parse(&bytes).unwrap(), [entry(2, 0), entry(u64::MAX, 3), entry(1, u32::MAX)]);
        assert_eq!(parse(&encode(&mut [])).unwrap(), []);
    }

    #[test]
    fn damaged_snapshot_says_nothing() {
        let good = encode(&mut [IndexEntry { key: 1, spot: Spot::File { pages: 2 }, stamp: 3 }]);
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 4;
            assert_eq!(parse(&bytes), None, "byte {at}");
            assert_eq!(parse(&good[..at]), None, "{at} bytes");
        }
    }
}
