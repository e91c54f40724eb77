//! Bodies whose bytes follow from the object's key alone, so that a client can verify each byte at any
//! offset.

use levada_types::{Key, weigh};

/// Writes the content from `offset` on.
pub fn write(key: Key, mut offset: u64, mut out: &mut [u8]) {
    while !out.is_empty() {
        let word = weigh(key, offset / WORD).to_le_bytes();
        let word = &word[(offset % WORD) as usize..];
        let (now, later) = out.split_at_mut(word.len().min(out.len()));
        now.copy_from_slice(&word[..now.len()]);
        offset += now.len() as u64;
        out = later;
    }
}

/// Verifies the pieces of a body. It keeps none of them, because objects may be larger than memory.
pub struct Verifier {
    key: Key,
    offset: u64,
    right: bool,
}

impl Verifier {
    /// A verifier before the first byte.
    pub fn new(key: Key) -> Self {
        Self { key, offset: 0, right: true }
    }

    /// Verifies the next piece.
    pub fn take(&mut self, piece: &[u8]) {
        let mut expected = [0; 4096];
        for part in piece.chunks(expected.len()) {
            let expected = &mut expected[..part.len()];
            write(self.key, self.offset, expected);
            self.right &= expected == part;
            self.offset += part.len() as u64;
        }
    }

    /// Bytes received so far.
    pub fn bytes(&self) -> u64 {
        self.offset
    }

    /// Whether all bytes received so far are those of the object.
    pub fn is_right(&self) -> bool {
        self.right
    }

    /// Whether the bytes received are the `size` bytes of the object.
    pub fn is_whole(&self, size: u64) -> bool {
        self.right && self.offset == size
    }
}

/// Size of a word of content.
const WORD: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_the_same_from_any_offset() {
        let mut whole = [0; 100];
        write(Key(7), 0, &mut whole);
        for offset in 0..30 {
            let mut part = [0; 33];
            write(Key(7), offset as u64, &mut part);
            assert_eq!(part, whole[offset..offset + 33]);
        }
    }

    #[test]
    fn a_wrong_byte_and_a_missing_one_are_found() {
        let mut body = [0; 10_000];
        write(Key(7), 0, &mut body);
        let verdict = |body: &[u8]| {
            let mut verifier = Verifier::new(Key(7));
            body.chunks(999).for_each(|piece| verifier.take(piece));
            verifier.is_whole(10_000)
        };
        assert!(verdict(&body));
        assert!(!verdict(&body[1..]) && !verdict(&body[..9_999]));
        body[5_000] ^= 1;
        assert!(!verdict(&body));
    }
}
