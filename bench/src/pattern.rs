//! The bytes of every body: known by their offset, so that a receiver can tell that it is right.

use std::ops::Range;

pub(crate) struct Pattern {
    bytes: Vec<u8>,
}

/// A prime, so that no block of a power of two looks like another.
const PERIOD: u64 = 65_521;
/// The longest piece.
const PIECE: u64 = 64 << 10;

impl Default for Pattern {
    fn default() -> Self {
        let mut state = 1_u32;
        let period: Vec<u8> = (0..PERIOD)
            .map(|_| {
                // Marsaglia's xorshift of 32 bits.
                state ^= state << 13;
                state ^= state >> 17;
                state ^= state << 5;
                state as u8
            })
            .collect();
        Self { bytes: period.into_iter().cycle().take((PERIOD + PIECE) as usize).collect() }
    }
}

impl Pattern {
    /// These bytes of a body, piece by piece.
    pub(crate) fn pieces(&self, body: Range<u64>) -> impl Iterator<Item = &[u8]> {
        body.clone().step_by(PIECE as usize).map(move |offset| {
            let start = (offset % PERIOD) as usize;
            &self.bytes[start..start + PIECE.min(body.end - offset) as usize]
        })
    }

    /// Whether these are the bytes from an offset on.
    pub(crate) fn holds(&self, offset: u64, bytes: &[u8]) -> bool {
        self.pieces(offset..offset + bytes.len() as u64)
            .zip(bytes.chunks(PIECE as usize))
            .all(|(right, received)| right == received)
    }
}
