//! A record as it lies in its file.
//!
//! ```text
//! byte  0  mark             6   "levada"
//!       6  format           2   1
//!       8  head checksum    8   XXH3 of bytes 16 to the end of the head
//!      16  key              8
//!      24  head length      4
//!      28  body length      4
//!      32  body checksum    8   XXH3 of the body
//!      40  head
//!          body, to the end of the file
//! ```
//!
//! Numbers are little-endian. Whatever happens to the bytes, reading them gives the record as it was
//! written or says what is wrong: every byte is under a checksum, or is one, or is compared.

use bytes::{Bytes, BytesMut};
use levada_types::{Key, hash64};
use xxhash_rust::xxh3::Xxh3;

/// A record read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What the owner wrote about the body.
    pub head: Bytes,
    /// The body in segments.
    pub body: Box<[Bytes]>,
}

/// The longest head.
pub(super) const MAX_HEAD: usize = 1 << 20;
/// The longest body.
pub(super) const MAX_BODY: usize = 64 << 20;
/// The longest segment of a body read back.
const SEGMENT: usize = 256 << 10;

const MARK: &[u8; 6] = b"levada";
const FORMAT: u16 = 1;
/// The bytes before the head.
pub(super) const HEADER: usize = 40;
/// From here on the head checksum counts.
const CHECKED: usize = 16;

/// What is wrong with the bytes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Damage {
    #[error("it is not a record")]
    NotARecord,
    #[error("it has the format of another version")]
    Format,
    #[error("it is too short or too long")]
    Length,
    #[error("the checksum of its head does not hold")]
    Head,
    #[error("the checksum of its body does not hold")]
    Body,
    #[error("it belongs to another key")]
    Key,
}

/// What stands before a head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    key: u64,
    head: u32,
    body: u32,
    body_checksum: u64,
}

impl Header {
    /// The header that `bytes` begin with; its checksum is not looked at, its lengths are possible.
    pub(super) fn read(bytes: &[u8]) -> Result<(Self, u64), Damage> {
        let header = bytes.first_chunk::<HEADER>().ok_or(Damage::Length)?;
        if !header.starts_with(MARK) {
            return Err(Damage::NotARecord);
        }
        if header[6..8] != FORMAT.to_le_bytes() {
            return Err(Damage::Format);
        }
        let checksum = number(&header[8..16]);
        let lengths = number(&header[24..32]);
        let (head, body) = (lengths as u32, (lengths >> 32) as u32);
        if head as usize > MAX_HEAD || body as usize > MAX_BODY {
            return Err(Damage::Length);
        }
        let key = number(&header[16..24]);
        Ok((Self { key, head, body, body_checksum: number(&header[32..40]) }, checksum))
    }

    /// The bytes of header and head.
    pub(super) fn front(&self) -> usize {
        HEADER + self.head as usize
    }

    /// The bytes of the whole record.
    pub(super) fn total(&self) -> u64 {
        (self.front() + self.body as usize) as u64
    }
}

/// The header of the record of `key`, once `bytes` have proved to begin with its undamaged header and
/// head; `total` is the length of the file.
pub(super) fn check_front(bytes: &[u8], key: Key, total: u64) -> Result<Header, Damage> {
    let (header, checksum) = Header::read(bytes)?;
    if header.total() != total {
        return Err(Damage::Length);
    }
    let checked = bytes.get(CHECKED..header.front()).ok_or(Damage::Length)?;
    if hash64(checked) != checksum {
        return Err(Damage::Head);
    }
    if header.key != key.0 {
        return Err(Damage::Key);
    }
    Ok(header)
}

/// The record of `key` that `bytes` are, whole and undamaged. It shares their memory.
pub(super) fn parse(bytes: &Bytes, key: Key) -> Result<Record, Damage> {
    let header = check_front(bytes, key, bytes.len() as u64)?;
    let body = bytes.slice(header.front()..);
    if hash64(&body) != header.body_checksum {
        return Err(Damage::Body);
    }
    let segments = (0..body.len()).step_by(SEGMENT);
    Ok(Record {
        head: bytes.slice(HEADER..header.front()),
        body: segments.map(|at| body.slice(at..body.len().min(at + SEGMENT))).collect(),
    })
}

/// Header and head of a record, to be followed by its body.
pub(super) fn front(key: Key, head: &[u8], body: &[Bytes]) -> BytesMut {
    let mut checksum = Xxh3::new();
    for piece in body {
        checksum.update(piece);
    }
    let mut bytes = BytesMut::with_capacity(HEADER + head.len());
    bytes.extend_from_slice(MARK);
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&key.0.to_le_bytes());
    bytes.extend_from_slice(&(head.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(length(body) as u32).to_le_bytes());
    bytes.extend_from_slice(&checksum.digest().to_le_bytes());
    bytes.extend_from_slice(head);
    let checksum = hash64(&bytes[CHECKED..]);
    bytes[8..16].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The bytes of a body in pieces.
pub(super) fn length(body: &[Bytes]) -> usize {
    body.iter().map(Bytes::len).sum()
}

/// Up to eight bytes as a little-endian number.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(key: u64, head: &[u8], body: &[u8]) -> Vec<u8> {
        let body: Vec<Bytes> = body.chunks(100).map(Bytes::copy_from_slice).collect();
        let mut bytes = front(Key(key), head, &body).to_vec();
        body.iter().for_each(|piece| bytes.extend_from_slice(piece));
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Record, Damage> {
        parse(&Bytes::copy_from_slice(bytes), Key(7))
    }

    #[test]
    fn records_come_back_whatever_their_size() {
        for size in [0, 1, 99, 100, 4096, SEGMENT - 1, SEGMENT, SEGMENT + 1, 1 << 20] {
            let body: Vec<u8> = (0..size).map(|n| (n * 7) as u8).collect();
            let record = read(&written(7, b"head", &body)).unwrap();
            assert_eq!(record.head, b"head"[..]);
            assert_eq!(record.body.concat(), body);
            assert!(record.body.iter().all(|piece| (1..=SEGMENT).contains(&piece.len())));
        }
        assert_eq!(read(&written(7, b"", b"")).unwrap().head, b""[..]);
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let good = written(7, b"some head", b"and some body");
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                let damage = read(&bytes).unwrap_err();
                let expected = match at {
                    0..6 => Damage::NotARecord,
                    6..8 => Damage::Format,
                    8..16 | 40..49 => Damage::Head,
                    49.. => Damage::Body,
                    // A length that is wrong is noticed before its checksum.
                    24..32 => Damage::Length,
                    _ => Damage::Head,
                };
                assert_eq!(damage, expected, "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn any_other_length_is_noticed() {
        let good = written(7, b"some head", b"and some body");
        for length in 0..good.len() {
            assert_eq!(read(&good[..length]), Err(Damage::Length), "{length} bytes");
        }
        let longer = [&good[..], b"x"].concat();
        assert_eq!(read(&longer), Err(Damage::Length));
    }

    #[test]
    fn record_of_another_key_is_refused() {
        assert_eq!(read(&written(8, b"head", b"body")), Err(Damage::Key));
    }
}
