//! The chunks of files, cut where their content says.

use std::io::{self, Read};

use fastcdc::v2020::StreamCDC;
use levada_fetch::{Algorithm, Chunk};

use crate::digest::digest_of;

/// Cuts `source` into chunks, as `levada_fetch::ChunkLists` has them, and passes each with its bytes.
///
/// # Errors
/// When it cannot be read, or by `each`.
pub(super) fn cut(
    source: impl Read,
    mut each: impl FnMut(Chunk, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    for found in StreamCDC::new(source, SHORTEST, AVERAGE, LONGEST) {
        let bytes = found?.data;
        each(chunk(&bytes), &bytes)?;
    }
    Ok(())
}

/// The chunk of these bytes, of 1 to 65536.
pub(super) fn chunk(bytes: &[u8]) -> Chunk {
    let digest = digest_of(Algorithm::Sha256, bytes).expect("SHA-256 is computed");
    let key = *digest.bytes().first_chunk().expect("it has 32 bytes");
    Chunk { length: bytes.len() as u32, key }
}

const SHORTEST: usize = 4 << 10;
const AVERAGE: usize = 16 << 10;
const LONGEST: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(bytes: &[u8]) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        cut(bytes, |chunk, _| {
            chunks.push(chunk);
            Ok(())
        })
        .unwrap();
        chunks
    }

    #[test]
    fn an_insertion_changes_few_chunks() {
        let mut state = 1_u64;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let mut bytes: Vec<u8> = std::iter::repeat_with(next).take(1 << 20).collect();
        let before = chunks(&bytes);
        assert_eq!(before.iter().map(|chunk| chunk.length).sum::<u32>(), 1 << 20);
        assert!((30..130).contains(&before.len()), "{} chunks", before.len());
        bytes.insert(1 << 19, 7);
        let after = chunks(&bytes);
        let new = after.iter().filter(|chunk| !before.contains(chunk)).count();
        assert!((1..=3).contains(&new), "{new} chunks are new");
    }
}
