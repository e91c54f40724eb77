//! A stored body: segments of its own.

use bytes::Bytes;

/// Segments of a stored body. Bodies of all sizes are then made of the same few kinds of allocations:
/// with segments of 256 KiB a full tier of mixed objects took half as much again from the system.
const SEGMENT: usize = 64 << 10;

/// Copies the pieces of a body of about `len` bytes together: pieces as they came from the network
/// hold on to much larger read buffers.
pub(super) fn gather<'a>(pieces: impl Iterator<Item = &'a Bytes>, len: u64) -> Box<[Bytes]> {
    let mut left = usize::try_from(len).unwrap_or(usize::MAX);
    let mut body = Vec::new();
    let mut segment = Vec::with_capacity(left.min(SEGMENT));
    for piece in pieces {
        let mut piece: &[u8] = piece;
        while !piece.is_empty() {
            let (now, later) = piece.split_at(piece.len().min(SEGMENT - segment.len()));
            segment.extend_from_slice(now);
            piece = later;
            if segment.len() == SEGMENT {
                left = left.saturating_sub(SEGMENT);
                let full = std::mem::replace(&mut segment, Vec::with_capacity(left.min(SEGMENT)));
                body.push(Bytes::from(full));
            }
        }
    }
    if !segment.is_empty() {
        body.push(Bytes::from(segment.into_boxed_slice()));
    }
    body.into()
}

/// What is at a position of a body, up to the end of a segment.
pub(super) fn at(body: &[Bytes], position: u64) -> Option<Bytes> {
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
