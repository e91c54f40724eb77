//! A bundle: a file that many short records share, one behind the other.
//!
//! ```text
//! byte       0  mark       8   "bundle", format 1
//!           32  table          one entry of 32 bytes for each record, in their order
//!                 key        8
//!                 position   4   of the record in the file
//!                 length     4   of the record
//!                 stamp      4   when it was written, in seconds of Unix time
//!                 state      4   "live"; anything else when the record has gone
//!                 checksum   8   XXH3 of the 20 bytes before the state
//!       524288  records        as in files of their own
//! ```
//!
//! A record is written before its entry: a crash between the two loses it. Bytes of a bundle never change,
//! except the state. The table ends with the first entry of zeros, and the pages behind it take no room. A
//! bundle needs no other protection: an entry is a hint as the index is, and a record proves itself when it is
//! read.

use std::{fs::File, io, num::NonZeroU32, os::unix::fs::FileExt, path::Path};

pub(super) use levada_cache::disk_room::{
    BUNDLE_ENTRY as ENTRY, BUNDLE_FIXED as FIXED, LARGEST_BUNDLE as LARGEST,
    LONGEST_BUNDLED as LONGEST,
};
use levada_types::{Key, hash64};

use super::{
    files,
    record::{Damage, HEADER, ReadError, number},
};

/// The bytes of a table that are read at once: usually all of it.
const TABLE_READ: usize = 256 << 10;
/// The position of the first record.
const RECORDS: u32 = 512 << 10;

const MARK: &[u8; 8] = b"bundle\x01\x00";
const LIVE: &[u8; 4] = b"live";
const DEAD: &[u8; 4] = b"dead";
/// The position of the state within an entry.
const STATE: usize = 20;

/// A record's part of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) bundle: NonZeroU32,
    /// The position of the record.
    pub(super) at: u32,
    /// Its length.
    pub(super) length: u16,
    /// The number of its entry.
    pub(super) slot: u16,
}

impl Part {
    fn end(self) -> u32 {
        self.at + u32::from(self.length)
    }
}

/// A record that a table names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) key: u64,
    pub(super) part: Part,
    pub(super) stamp: u32,
}

/// The contents of a bundle, by its table.
pub(super) struct Table {
    /// The records that have not gone.
    pub(super) live: Vec<Listed>,
    /// The bytes of all records and entries.
    pub(super) bytes: u64,
    /// The next entry, and where its record begins, if all is as it was written. Otherwise more bytes could make
    /// entries count that have not.
    next: Option<(u16, u32)>,
}

/// The entry of a record.
fn entry(listed: &Listed) -> [u8; ENTRY as usize] {
    let mut bytes = [0; ENTRY as usize];
    bytes[..8].copy_from_slice(&listed.key.to_le_bytes());
    bytes[8..12].copy_from_slice(&listed.part.at.to_le_bytes());
    bytes[12..16].copy_from_slice(&u32::from(listed.part.length).to_le_bytes());
    bytes[16..STATE].copy_from_slice(&listed.stamp.to_le_bytes());
    bytes[STATE..24].copy_from_slice(LIVE);
    let checksum = hash64(&bytes[..STATE]);
    bytes[24..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Reads the table of a bundle, which has the length `total`.
pub(super) fn table(
    bundle: NonZeroU32,
    total: u64,
    mut read_at: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> Result<Table, ReadError> {
    if total > u64::from(RECORDS) + LARGEST {
        return Err(Damage::Length.into());
    }
    let mut table =
        Table { live: Vec::new(), bytes: total.saturating_sub(RECORDS.into()), next: None };
    let mut bytes = vec![0; TABLE_READ];
    let (mut end, mut slot, mut is_whole) = (RECORDS, 0, true);
    'table: for from in (0..RECORDS).step_by(bytes.len()) {
        let mut read = 0;
        while read < bytes.len() {
            match read_at(&mut bytes[read..], u64::from(from) + read as u64)? {
                0 => break,
                more => read += more,
            }
        }
        for entry in bytes[..read].as_chunks::<{ ENTRY as usize }>().0 {
            if slot == 0 {
                if !entry.starts_with(MARK) {
                    return Err(Damage::NotARecord.into());
                }
                slot = 1;
                continue;
            }
            if entry == &[0; ENTRY as usize] {
                break 'table;
            }
            match listed(entry, bundle, slot, end, total) {
                Some((listed, is_live)) => {
                    end = listed.part.end();
                    table.live.extend(is_live.then_some(listed));
                }
                None => is_whole = false,
            }
            slot += 1;
        }
        if read < bytes.len() {
            break;
        }
    }
    if slot == 0 {
        return Err(Damage::Length.into());
    }
    table.bytes += u64::from(slot) * ENTRY;
    is_whole &= u64::from(end) == total.max(RECORDS.into());
    table.next = is_whole.then_some((slot, end));
    Ok(table)
}

/// The records that a bundle of these bytes has, as far as its table can be read.
pub(super) fn listed_in(bundle: NonZeroU32, bytes: &[u8]) -> Vec<Listed> {
    let read = |into: &mut [u8], at: u64| {
        let there = bytes.get(at as usize..).unwrap_or_default();
        let length = into.len().min(there.len());
        into[..length].copy_from_slice(&there[..length]);
        Ok(length)
    };
    table(bundle, bytes.len() as u64, read).map_or_else(|_| Vec::new(), |table| table.live)
}

/// The bytes of a bundle with these records.
pub(super) fn bytes_of<'a>(records: impl Iterator<Item = (Key, &'a [u8])>) -> Vec<u8> {
    let mut bytes = MARK.to_vec();
    bytes.resize(RECORDS as usize, 0);
    for (slot, (key, record)) in (1..).zip(records) {
        let (at, length) = (bytes.len() as u32, record.len() as u16);
        let part = Part { bundle: NonZeroU32::MIN, at, length, slot };
        let entry = entry(&Listed { key: key.0, part, stamp: 0 });
        bytes[usize::from(slot) * ENTRY as usize..][..ENTRY as usize].copy_from_slice(&entry);
        bytes.extend_from_slice(record);
    }
    bytes
}

/// The content of an entry, and whether its record has not gone; `None` when it is damaged.
fn listed(
    entry: &[u8; ENTRY as usize],
    bundle: NonZeroU32,
    slot: u16,
    end: u32,
    total: u64,
) -> Option<(Listed, bool)> {
    if hash64(&entry[..STATE]) != number(&entry[24..]) {
        return None;
    }
    let at = number(&entry[8..12]) as u32;
    let length = number(&entry[12..16]);
    let fits = at >= end && u64::from(at) + length <= total;
    if !fits || !(HEADER as u64..=LONGEST).contains(&length) {
        return None;
    }
    let part = Part { bundle, at, length: length as u16, slot };
    let listed = Listed { key: number(&entry[..8]), part, stamp: number(&entry[16..STATE]) as u32 };
    Some((listed, entry[STATE..24] == *LIVE))
}

/// Notes in the table of the bundle at `path` that a record has gone; that there is no bundle is as good.
pub(super) fn bury(path: &Path, part: Part) -> io::Result<()> {
    let state = u64::from(part.slot) * ENTRY + STATE as u64;
    match File::options().write(true).open(path).and_then(|file| file.write_all_at(DEAD, state)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// The bundle that records are appended to. Its file is open only meanwhile: nothing hinders the file system from
/// becoming read-only.
pub(super) struct OpenBundle {
    pub(super) number: NonZeroU32,
    /// The next entry, and where the next record begins.
    slot: u16,
    end: u32,
}

impl OpenBundle {
    /// Makes a bundle at `path`.
    pub(super) fn create(number: NonZeroU32, path: &Path) -> io::Result<Self> {
        let mark = [MARK.as_slice(), &[0; ENTRY as usize - MARK.len()]].concat();
        files::create(path)?.write_all_at(&mark, 0)?;
        Ok(Self { number, slot: 1, end: RECORDS })
    }

    /// Goes on with a bundle, unless it is damaged or a crash has left bytes behind its last record.
    pub(super) fn resume(number: NonZeroU32, table: &Table) -> Option<Self> {
        table.next.map(|(slot, end)| Self { number, slot, end })
    }

    /// Whether a record of so many bytes has room, where a bundle is to have `most` bytes of records.
    pub(super) fn has_room(&self, length: u64, most: u64) -> bool {
        u64::from(self.end - RECORDS) + length <= most
            && u64::from(self.slot) < u64::from(RECORDS) / ENTRY
    }

    /// Appends a record to the bundle, which is at `path`.
    pub(super) fn append(
        &mut self,
        path: &Path,
        key: Key,
        stamp: u32,
        record: &[u8],
    ) -> io::Result<Part> {
        let length = u16::try_from(record.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let part = Part { bundle: self.number, at: self.end, length, slot: self.slot };
        let entry = entry(&Listed { key: key.0, part, stamp });
        let file = File::options().write(true).open(path)?;
        let written = file
            .write_all_at(record, self.end.into())
            .and_then(|()| file.write_all_at(&entry, u64::from(self.slot) * ENTRY));
        if let Err(error) = written {
            // A full disk gets its room back. If this fails, the next record is written over it.
            let _ = file.set_len(self.end.into());
            return Err(error);
        }
        (self.slot, self.end) = (self.slot + 1, part.end());
        Ok(part)
    }
}
