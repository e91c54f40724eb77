//! Faults of disks: file systems that are full, and files whose bits flip.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use levada_types::Rng;
use tokio::time::sleep;

use super::{cluster::Cluster, network::NODES, stage::Stage};

/// Fills the file systems of all nodes to the last byte, every other time, and empties them of that.
pub(super) async fn fill(cluster: &mut Cluster<'_>, stage: &Stage<'_>) -> anyhow::Result<()> {
    for turn in 0_u64.. {
        if !stage.next(TURN).await {
            break;
        }
        for at in 0..NODES {
            let file = cluster.cache(at).with_file_name("filling");
            if turn.is_multiple_of(2) {
                fill_up(&file)?;
            } else {
                fs::remove_file(&file)?;
            }
        }
    }
    Ok(())
}

/// Writes until there is no room.
fn fill_up(file: &Path) -> io::Result<()> {
    let mut file = File::create(file)?;
    for size in [64 << 10, 4 << 10, 1] {
        let piece = vec![b'x'; size];
        loop {
            match file.write_all(&piece) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Flips bits in files of caches, and kills a node from time to time, which has what it reads in memory.
pub(super) async fn flip(cluster: &mut Cluster<'_>, stage: &Stage<'_>) -> anyhow::Result<()> {
    while !stage.is_over() {
        for _ in 0..FLIPS {
            sleep(TURN / FLIPS).await;
            let files = files(&cluster.cache(stage.any_node()));
            flip_in(&files, &mut stage.rng.borrow_mut());
        }
        let at = stage.any_node();
        cluster.kill(at).await;
        let files = files(&cluster.cache(at));
        (0..FLIPS).for_each(|_| flip_in(&files, &mut stage.rng.borrow_mut()));
        cluster.restart(at).await?;
    }
    Ok(())
}

/// Flips one bit in one of the files; a file may be gone.
fn flip_in(files: &[PathBuf], rng: &mut Rng) {
    let mut flip = || -> io::Result<()> {
        let Some(path) = files.get(rng.below(files.len().max(1))) else { return Ok(()) };
        let file = File::options().read(true).write(true).open(path)?;
        let size = file.metadata()?.len();
        let (at, mut byte) = ((rng.unit() * size as f64) as u64, [0]);
        file.read_exact_at(&mut byte, at)?;
        byte[0] ^= 1 << rng.below(8);
        file.write_all_at(&byte, at)
    };
    let _ = flip();
}

/// All files below a directory.
pub(super) fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        for entry in entries {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                Ok(_) => found.push(entry.path()),
                Err(_) => {}
            }
        }
    }
    found.sort_unstable();
    found
}

const TURN: Duration = Duration::from_secs(2);
/// Flips in each turn.
const FLIPS: u32 = 20;
