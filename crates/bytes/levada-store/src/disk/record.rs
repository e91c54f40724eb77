//! A record as it lies in a file of its own or in a bundle.
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
//!          body, to the end of the record
//! ```
//!
//! Numbers are little-endian. Whatever happens to the bytes, reading them gives the record as it was
//! written or says what is wrong: every byte is under a checksum, or is one, or is compared.

use std::io;

use bytes::{Bytes, BytesMut};
use levada_types::{Key, hash64};
use xxhash_rust::xxh3::Xxh3;

use crate::segments::Buffer;

/// A record read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The owner's description of the body.
    pub head: Bytes,
    /// The body in segments.
    pub body: Box<[Bytes]>,
}

/// The longest head.
pub(super) const MAX_HEAD: usize = 1 << 20;
/// The longest body.
pub(super) const MAX_BODY: usize = 64 << 20;
/// The bytes that are read first: usually all that stands before the body, or the whole of a short
/// record.
const FRONT: usize = 4096;

const MARK: &[u8; 6] = b"levada";

/// The format of entries, on disk and on their way to another process, with what their identities say: those of
/// format 1 do not tell routes apart. A tier drops what has another format.
pub const FORMAT: u16 = 2;
/// The bytes before the head.
pub(super) const HEADER: usize = 40;
/// From here on the head checksum counts.
const CHECKED: usize = 16;

/// The damage to the bytes of a record.
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

/// The header before a head.
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
/// head; `total` is the length of the record.
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

/// Why a record could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Damaged(#[from] Damage),
}

/// The bytes of a record from a position on, as many as there are or fit.
pub(super) type ReadAt<'a> = &'a mut dyn FnMut(&mut [u8], u64) -> io::Result<usize>;

/// The record of `key`, of `total` bytes, whole and undamaged.
///
/// The body is read segment by segment, and each is hashed while the processor still has it at hand.
pub(super) fn read(total: u64, key: Key, read_at: ReadAt<'_>) -> Result<Record, ReadError> {
    let (front, header) = read_front(total, key, read_at)?;
    let mut body = Vec::new();
    let mut checksum = Xxh3::new();
    let mut at = header.front();
    while at < total as usize {
        let mut segment = Buffer::of(total as usize - at);
        let bytes = segment.bytes();
        match front.get(at..at + bytes.len()) {
            Some(there) => bytes.copy_from_slice(there),
            None => fill(bytes, at as u64, read_at)?,
        }
        checksum.update(bytes);
        let len = bytes.len();
        body.push(segment.share(len));
        at += len;
    }
    if checksum.digest() != header.body_checksum {
        return Err(Damage::Body.into());
    }
    let head = Bytes::from(front).slice(HEADER..header.front());
    Ok(Record { head, body: body.into() })
}

/// The first bytes of the record of `key`: header, head, and perhaps more.
pub(super) fn read_front(
    total: u64,
    key: Key,
    read_at: ReadAt<'_>,
) -> Result<(Vec<u8>, Header), ReadError> {
    if total > (HEADER + MAX_HEAD + MAX_BODY) as u64 {
        return Err(Damage::Length.into());
    }
    let mut front = vec![0; FRONT.min(total as usize)];
    fill(&mut front, 0, read_at)?;
    let read = front.len();
    front.resize(Header::read(&front)?.0.front().max(read), 0);
    fill(&mut front[read..], read as u64, read_at)?;
    let header = check_front(&front, key, total)?;
    Ok((front, header))
}

/// Fills `bytes` with what is at a position; a file that ends before it has been cut.
pub(super) fn fill(
    mut bytes: &mut [u8],
    mut at: u64,
    read_at: ReadAt<'_>,
) -> Result<(), ReadError> {
    while !bytes.is_empty() {
        match read_at(bytes, at) {
            Ok(0) => return Err(Damage::Length.into()),
            Ok(read) => {
                bytes = &mut bytes[read..];
                at += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The record of `key` that `bytes` are, whole and undamaged.
pub(super) fn parse(bytes: &[u8], key: Key) -> Result<Record, ReadError> {
    read(bytes.len() as u64, key, &mut |into, at| {
        let there = &bytes[at as usize..];
        let len = into.len().min(there.len());
        into[..len].copy_from_slice(&there[..len]);
        Ok(len)
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

/// A record in one piece.
pub(super) fn whole(key: Key, head: &[u8], body: &[Bytes]) -> BytesMut {
    let mut bytes = front(key, head, body);
    bytes.reserve(length(body));
    body.iter().for_each(|piece| bytes.extend_from_slice(piece));
    bytes
}

/// The bytes of a body in pieces.
pub(super) fn length(body: &[Bytes]) -> usize {
    body.iter().map(Bytes::len).sum()
}

/// Up to eight bytes as a little-endian number.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use crate::segments::SEGMENT;

    use super::*;

    fn written(key: u64, head: &[u8], body: &[u8]) -> Vec<u8> {
        let body: Vec<Bytes> = body.chunks(100).map(Bytes::copy_from_slice).collect();
        let mut bytes = front(Key(key), head, &body).to_vec();
        body.iter().for_each(|piece| bytes.extend_from_slice(piece));
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Record, Damage> {
        parse(bytes, Key(7)).map_err(|error| match error {
            ReadError::Damaged(damage) => damage,
            ReadError::Io(error) => panic!("{error}"),
        })
    }

    #[test]
    fn records_come_back_whatever_their_size() {
        let front = FRONT - HEADER - 4;
        for size in
            [0, 1, 99, front - 1, front, front + 1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 1 << 20]
        {
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

    #[test]
    fn head_longer_than_what_is_read_first_comes_back() {
        let head = vec![b'h'; 3 * FRONT];
        let record = read(&written(7, &head, b"body")).unwrap();
        assert_eq!((&record.head[..], &record.body.concat()[..]), (&head[..], &b"body"[..]));
    }

    #[test]
    fn file_that_is_cut_while_it_is_read_is_damaged() {
        let bytes = written(7, b"head", &[1; 100_000]);
        for cut in [10, FRONT, FRONT + 1, 70_000] {
            let read = super::read(bytes.len() as u64, Key(7), &mut |into, at| {
                let there = bytes[..cut].get(at as usize..).unwrap_or_default();
                // In pieces, as a signal would have it.
                let len = into.len().min(there.len()).min(5000);
                into[..len].copy_from_slice(&there[..len]);
                Ok(len)
            });
            assert!(matches!(read, Err(ReadError::Damaged(Damage::Length))), "{cut}");
        }
    }
}
