//! A stored body: segments of its own.
//!
//! Whole segments come from buffers that are used again. The buffer of a body goes back when its
//! last reader drops it, so that short-lived bodies cost no fresh pages of the system.

use bytes::Bytes;
use parking_lot::Mutex;

/// Segments of a stored body. Bodies of all sizes are then made of the same few kinds of allocations:
/// with segments of 256 KiB a full tier of mixed objects took half as much again from the system.
pub(crate) const SEGMENT: usize = 64 << 10;

/// Buffers that wait to be used again, at most.
const SPARE: usize = 32;

/// All buffers are alike, so that one list does for all nodes of a process.
static SPARES: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

/// A segment that is being filled.
pub(crate) struct Buffer(Box<[u8]>);

impl Buffer {
    /// The next segment of a body of which so much is left. Its content is undefined.
    pub(crate) fn of(left: usize) -> Self {
        let spare = if left >= SEGMENT { SPARES.lock().pop() } else { None };
        Self(spare.unwrap_or_else(|| vec![0; left.min(SEGMENT)].into_boxed_slice()))
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// Its first `len` bytes, to be shared from now on. They take no more room than they are.
    pub(crate) fn share(mut self, len: usize) -> Bytes {
        match self.0.len() {
            all if len < all => Bytes::copy_from_slice(&self.0[..len]),
            SEGMENT => Bytes::from_owner(self),
            _ => Bytes::from(std::mem::take(&mut self.0)),
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.0.len() == SEGMENT {
            let mut spares = SPARES.lock();
            if spares.len() < SPARE {
                spares.push(std::mem::take(&mut self.0));
            }
        }
    }
}

/// A body that is being copied together: pieces as they came from the network hold on to much larger
/// read buffers.
pub struct Gathering {
    body: Vec<Bytes>,
    segment: Buffer,
    filled: usize,
    left: usize,
}

impl Gathering {
    /// Of about so many bytes.
    pub fn of(length: usize) -> Self {
        Self { body: Vec::new(), segment: Buffer::of(length), filled: 0, left: length }
    }

    /// Copies a piece to the end.
    pub fn push(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            if self.filled == self.segment.bytes().len() {
                self.left = self.left.saturating_sub(self.filled);
                // There may be more than was said.
                let next = Buffer::of(if self.left == 0 { SEGMENT } else { self.left });
                self.body.extend(shared(std::mem::replace(&mut self.segment, next), self.filled));
                self.filled = 0;
            }
            let room = &mut self.segment.bytes()[self.filled..];
            let (now, later) = piece.split_at(piece.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            self.filled += now.len();
            piece = later;
        }
    }

    /// Its segments.
    pub fn finish(mut self) -> Vec<Bytes> {
        self.body.extend(shared(self.segment, self.filled));
        self.body
    }
}

/// Copies the pieces of a body of about `len` bytes together.
pub(crate) fn gather<'a>(pieces: impl Iterator<Item = &'a Bytes>, len: u64) -> Vec<Bytes> {
    let mut gathering = Gathering::of(usize::try_from(len).unwrap_or(usize::MAX));
    pieces.for_each(|piece| gathering.push(piece));
    gathering.finish()
}

fn shared(segment: Buffer, filled: usize) -> Option<Bytes> {
    (filled > 0).then(|| segment.share(filled))
}

/// The bytes at a position of a body, up to the end of a segment.
pub(crate) fn at(body: &[Bytes], position: u64) -> Option<Bytes> {
    let mut position = usize::try_from(position).ok()?;
    for segment in body {
        if position < segment.len() {
            return Some(segment.slice(position..));
        }
        position -= segment.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_joined_and_cut_into_segments() {
        let pieces: Vec<Bytes> =
            (0..700u32).map(|n| Bytes::from(vec![n as u8; 1000 + n as usize])).collect();
        let whole: Vec<u8> = pieces.concat();
        for len in [0, whole.len() as u64, 5 * whole.len() as u64] {
            let body = gather(pieces.iter(), len);
            assert_eq!(body.concat(), whole);
            assert!(body[..body.len() - 1].iter().all(|segment| segment.len() == SEGMENT));
        }
        assert!(gather([].iter(), 0).is_empty());
    }

    #[test]
    fn every_position_is_in_its_segment() {
        let body = ["ab", "c", "", "def"].map(|text| Bytes::from_static(text.as_bytes()));
        for (position, expected) in [(0, "ab"), (1, "b"), (2, "c"), (3, "def"), (5, "f")] {
            assert_eq!(at(&body, position).unwrap(), expected);
        }
        assert_eq!((at(&body, 6), at(&body, u64::MAX)), (None, None));
    }
}
