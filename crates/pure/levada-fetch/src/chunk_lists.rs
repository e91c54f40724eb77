//! The chunks of a tree's long files, so that a destination fetches those that it does not have.
//!
//! ```text
//! "levada-chunks 1\n"
//! for each file: the number of its chunks (4 bytes, little-endian)
//! for each file: its chunks, 10 bytes each: length - 1 (2 bytes), the first 8 bytes of its SHA-256
//! ```
//!
//! The files are those of the manifest that are longer than its limit, each content once, in the order of
//! paths. The lists of single files can be fetched by range. Chunks are cut where FastCDC does (Xia et al.,
//! IEEE TPDS 2020; 4, 16 and 64 KiB, normalization 1), so that an insertion moves boundaries with the
//! content. The 8 bytes find a chunk; the file is verified by its own digest.

use std::ops::Range;

/// A chunk of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its length, of 1 to 65536 bytes.
    pub length: u32,
    /// The first 8 bytes of the SHA-256 of its bytes.
    pub key: [u8; 8],
}

/// The places of the lists in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkLists {
    /// The beginning of each list, and the end of the last one.
    starts: Vec<u64>,
}

/// Why chunk lists cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkListError {
    /// It is something else, or of another version.
    #[error("they do not begin with `levada-chunks 1`")]
    Foreign,
    /// The numbers of chunks do not fit the length of the file.
    #[error("their numbers of chunks do not fit their length")]
    Numbers,
    /// The chunks of a file do not have its length together.
    #[error("the chunks of a file do not have its length")]
    Length,
}

impl ChunkLists {
    /// The length of the part before the lists, for so many files.
    pub fn head_length(files: usize) -> u64 {
        (HEAD.len() + COUNT * files) as u64
    }

    /// Reads that part; `size` is the length of the whole.
    ///
    /// # Errors
    /// When it does not describe the lists of `files` files in `size` bytes.
    pub fn parse(head: &[u8], files: usize, size: u64) -> Result<Self, ChunkListError> {
        let counts = head.strip_prefix(HEAD.as_slice()).ok_or(ChunkListError::Foreign)?;
        let (counts, rest) = counts.as_chunks::<COUNT>();
        if counts.len() != files || !rest.is_empty() {
            return Err(ChunkListError::Numbers);
        }
        let mut starts = vec![Self::head_length(files)];
        let mut at = starts[0];
        for &count in counts {
            at += u64::from(u32::from_le_bytes(count)) * CHUNK as u64;
            starts.push(at);
        }
        if at == size { Ok(Self { starts }) } else { Err(ChunkListError::Numbers) }
    }

    /// The bytes with the list of the file with this number.
    pub fn range(&self, file: usize) -> Range<u64> {
        self.starts[file]..self.starts[file + 1]
    }

    /// Reads the list of a file of `size` bytes.
    ///
    /// # Errors
    /// When its chunks are not that long together.
    pub fn list(bytes: &[u8], size: u64) -> Result<Vec<Chunk>, ChunkListError> {
        let (chunks, rest) = bytes.as_chunks::<CHUNK>();
        let read = |chunk: &[u8; CHUNK]| {
            let [low, high, key @ ..] = *chunk;
            Chunk { length: u32::from(u16::from_le_bytes([low, high])) + 1, key }
        };
        let chunks: Vec<Chunk> = chunks.iter().map(read).collect();
        let length: u64 = chunks.iter().map(|chunk| u64::from(chunk.length)).sum();
        if length == size && rest.is_empty() { Ok(chunks) } else { Err(ChunkListError::Length) }
    }

    /// Writes the lists of these files.
    pub fn write(lists: &[&[Chunk]]) -> Vec<u8> {
        let mut bytes = HEAD.to_vec();
        for list in lists {
            let count = u32::try_from(list.len()).expect("a file has less than 2^32 chunks");
            bytes.extend(count.to_le_bytes());
        }
        for chunk in lists.iter().copied().flatten() {
            let length = u16::try_from(chunk.length - 1).expect("a chunk has up to 65536 bytes");
            bytes.extend(length.to_le_bytes());
            bytes.extend(chunk.key);
        }
        bytes
    }
}

const HEAD: [u8; 16] = *b"levada-chunks 1\n";
const COUNT: usize = 4;
const CHUNK: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(length: u32) -> Chunk {
        Chunk { length, key: [7; 8] }
    }

    #[test]
    fn lists_that_were_written_are_read() {
        let lists = [vec![chunk(1), chunk(65536)], vec![], vec![chunk(9)]];
        let bytes = ChunkLists::write(&lists.each_ref().map(Vec::as_slice));
        let head = usize::try_from(ChunkLists::head_length(3)).unwrap();
        let places = ChunkLists::parse(&bytes[..head], 3, bytes.len() as u64).unwrap();
        for (file, list) in lists.iter().enumerate() {
            let range = places.range(file);
            let part = &bytes[range.start as usize..range.end as usize];
            let size = list.iter().map(|chunk| u64::from(chunk.length)).sum();
            assert_eq!(ChunkLists::list(part, size).as_ref(), Ok(list));
            assert_eq!(ChunkLists::list(part, size + 1), Err(ChunkListError::Length));
        }
    }

    #[test]
    fn heads_that_do_not_fit_are_refused() {
        let bytes = ChunkLists::write(&[&[chunk(5)]]);
        let (head, size) = (&bytes[..20], bytes.len() as u64);
        assert!(ChunkLists::parse(head, 1, size).is_ok());
        assert_eq!(ChunkLists::parse(head, 1, size - 1), Err(ChunkListError::Numbers));
        assert_eq!(ChunkLists::parse(head, 2, size), Err(ChunkListError::Numbers));
        assert_eq!(ChunkLists::parse(&head[..18], 1, size), Err(ChunkListError::Numbers));
        assert_eq!(ChunkLists::parse(b"<html>", 0, 6), Err(ChunkListError::Foreign));
    }
}
