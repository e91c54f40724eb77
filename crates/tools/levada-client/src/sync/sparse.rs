//! `--sparse`: the zero blocks of a file become holes, which take no space.

use std::{fs::File, io, os::unix::fs::FileExt as _};

use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};

/// Makes holes of the zero blocks of `file`, whose bytes stay the same. A file system without holes is
/// not an error.
pub(super) fn punch(file: &File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut buffer = vec![0; READ];
    let (mut at, mut zeros) = (0, 0);
    while at < length {
        let most = usize::try_from(length - at).unwrap_or(READ).min(READ);
        file.read_exact_at(&mut buffer[..most], at)?;
        for block in buffer[..most].chunks(BLOCK) {
            if block.iter().all(|byte| *byte == 0) {
                zeros += block.len() as u64;
            } else {
                hole(file, at - zeros, zeros)?;
                zeros = 0;
            }
            at += block.len() as u64;
        }
    }
    hole(file, at - zeros, zeros)
}

fn hole(file: &File, start: u64, length: u64) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match fallocate(file, mode, start, length) {
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(why) => Err(why.into()),
    }
}

const READ: usize = 256 << 10;
const BLOCK: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn zero_blocks_take_no_space_and_are_zeros_still() {
        let file = tempfile::tempfile().unwrap();
        let mut bytes = vec![0; 1 << 20];
        bytes[0] = 1;
        bytes[700_000] = 1;
        file.write_all_at(&bytes, 0).unwrap();
        file.sync_all().unwrap();
        let before = file.metadata().unwrap().blocks();
        punch(&file).unwrap();
        let mut after = vec![1; bytes.len()];
        file.read_exact_at(&mut after, 0).unwrap();
        assert!(after == bytes);
        let blocks = file.metadata().unwrap().blocks();
        // A file system without holes keeps all blocks.
        assert!(blocks <= before, "{blocks} of {before} blocks");
        file.set_len(0).unwrap();
        punch(&file).unwrap();
    }
}
