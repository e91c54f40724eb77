//! Stored entries on their way from one process to the other.
//!
//! ```text
//! key:8 head:4 body:4, the bytes of the head, those of the body
//! ```

use std::io::{self, Read, Write};

use bytes::Bytes;

/// Bodies arrive in segments of so many bytes.
const SEGMENT: usize = 64 << 10;
/// The most bytes of a head.
const MAX_HEAD: u32 = 64 << 20;

/// An entry as the store writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryRecord {
    /// Its key.
    pub key: u64,
    /// All but its body.
    pub head: Bytes,
    /// Its body, in segments.
    pub body: Vec<Bytes>,
}

/// Sends an entry.
///
/// # Errors
/// When the other process is gone.
pub(crate) fn write(out: &mut impl Write, key: u64, head: &[u8], body: &[Bytes]) -> io::Result<()> {
    let length = |bytes: usize| u32::try_from(bytes).map_err(io::Error::other);
    let size = body.iter().map(Bytes::len).sum();
    out.write_all(&key.to_le_bytes())?;
    out.write_all(&length(head.len())?.to_le_bytes())?;
    out.write_all(&length(size)?.to_le_bytes())?;
    out.write_all(head)?;
    body.iter().try_for_each(|segment| out.write_all(segment))
}

/// Receives the next entry; `None` after the last.
///
/// # Errors
/// When the other process breaks off.
pub(crate) fn read(from: &mut impl Read) -> io::Result<Option<EntryRecord>> {
    let mut front = [0; 16];
    if from.read(&mut front[..1])? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut front[1..])?;
    let (key, lengths) = front.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
    let length = |at: usize| {
        let bytes = lengths[at..].first_chunk::<4>();
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    let (head, mut body) = (length(0), length(4) as usize);
    if head > MAX_HEAD {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let head = segment(from, head as usize)?;
    let mut segments = Vec::new();
    while body > 0 {
        let next = segment(from, body.min(SEGMENT))?;
        body -= next.len();
        segments.push(next);
    }
    Ok(Some(EntryRecord { key: u64::from_le_bytes(*key), head, body: segments }))
}

/// So many bytes. Takes no more memory than has come, up to a segment.
fn segment(from: &mut impl Read, length: usize) -> io::Result<Bytes> {
    let mut bytes = Vec::with_capacity(length.min(SEGMENT));
    from.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_arrive_as_they_were_sent() {
        let long: Vec<Bytes> = (0..5).map(|n| Bytes::from(vec![n; 50_000])).collect();
        let mut sent = Vec::new();
        write(&mut sent, 7, b"head", &long).unwrap();
        write(&mut sent, u64::MAX, b"", &[]).unwrap();
        let mut from = &sent[..];
        let first = read(&mut from).unwrap().unwrap();
        assert_eq!((first.key, &first.head[..]), (7, &b"head"[..]));
        assert_eq!(first.body.concat(), long.concat());
        let second = read(&mut from).unwrap().unwrap();
        assert_eq!((second.key, second.head.len(), second.body.len()), (u64::MAX, 0, 0));
        assert_eq!(read(&mut from).unwrap(), None);
    }

    #[test]
    fn entries_that_break_off_are_errors() {
        let mut sent = Vec::new();
        write(&mut sent, 7, b"head", &[Bytes::from_static(b"body")]).unwrap();
        for end in 1..sent.len() {
            assert!(read(&mut &sent[..end]).is_err(), "{end}");
        }
        assert!(read(&mut &[0xff; 64][..]).is_err());
    }
}
