//! The room of a disk tier: what it has for records, and what a record takes. A node's tier keeps to these numbers,
//! and a simulated one reckons with them.

use std::ops::RangeInclusive;

/// The smallest tier, in bytes.
pub const LEAST: u64 = 16 << 20;
/// The unit in which the file system gives out room.
pub const PAGE: u64 = 4096;
/// The room of a file in addition to its pages: an inode and a name in a directory that is half empty.
pub const FILE: u64 = 512;
/// The directory itself, the lock, and rounding.
pub const FIXED: u64 = 64 << 10;
/// Directories of records, a page each. A record is in one of them by its key.
pub const DIRECTORIES: u16 = 1024;
/// The longest record that shares a file, a bundle, with others. Longer ones have files of their own: there, the
/// room that is lost to whole pages is small, and nothing has to be copied to give room back.
pub const LONGEST_BUNDLED: u64 = 16 << 10;
/// The bytes that a bundle has for each record in addition to the record.
pub const BUNDLE_ENTRY: u64 = 32;
/// The room of a bundle in addition to its entries and records: the ends of both, and what the file system wants.
pub const BUNDLE_FIXED: u64 = 3 * PAGE + FILE;
/// The most bytes of records in a bundle.
pub const LARGEST_BUNDLE: u64 = 8 << 20;

/// Records that wait to be written: an eighth of the memory tier within these bounds, in bytes.
const QUEUE: RangeInclusive<u64> = 8 << 20..=64 << 20;

/// The room of a file of so many pages.
pub const fn file_room(pages: u32) -> u64 {
    pages as u64 * PAGE + FILE
}

/// The room of a record of so many bytes.
pub fn record_room(length: u64) -> u64 {
    match length {
        ..=LONGEST_BUNDLED => length + BUNDLE_ENTRY,
        _ => file_room(u32::try_from(length.div_ceil(PAGE)).unwrap_or(u32::MAX)),
    }
}

/// The bytes of records in a bundle of a tier of so many bytes: some dozens of bundles share a small tier.
pub fn bundle_bytes(tier: u64) -> u64 {
    (tier / 64).clamp(64 << 10, LARGEST_BUNDLE)
}

/// The room that records have in a tier of so many bytes: without its directories, one bundle, and the room that is
/// kept to copy another. A directory exists when a file is in it; files are taken to have 64 KiB.
pub fn room_for_records(tier: u64) -> u64 {
    let directories = (tier >> 16).min(u64::from(DIRECTORIES)) * PAGE;
    tier.saturating_sub(FIXED + directories + bundle_bytes(tier) + 2 * BUNDLE_FIXED)
}

/// The bytes that may wait to be written to the disk tier of a node with so many bytes of memory.
pub fn write_queue(memory: u64) -> u64 {
    (memory / 8).clamp(*QUEUE.start(), *QUEUE.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_records_share_files_and_long_ones_take_whole_pages() {
        assert_eq!(record_room(1000), 1032);
        assert_eq!(record_room(LONGEST_BUNDLED), LONGEST_BUNDLED + 32);
        assert_eq!(record_room(LONGEST_BUNDLED + 1), 5 * PAGE + FILE);
        let (small, large) = (16 << 20, 100 << 30);
        assert!(room_for_records(small) > small * 9 / 10 && room_for_records(1) == 0);
        assert!(room_for_records(large) > large / 1000 * 999);
    }
}
