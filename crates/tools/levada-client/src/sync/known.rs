//! Facts that an earlier publication of the same tree found, so that only changed files are read again.
//!
//! `TREE.manifest.state` has the inode and the change time of each file, which a destination has no use
//! for; digests and chunk lists are in the manifest and the chunk file of that publication. The state names the
//! manifest that it belongs to.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    fs::{self, Metadata},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use levada_fetch::{
    Algorithm, Chunk, ChunkLists, Digest,
    manifest::{Entry, Manifest, Pack, encoded},
};

use super::{manifest_file, publish::sha256, state::Stamp};

/// Digests and chunk lists of an earlier publication.
#[derive(Default)]
pub(super) struct KnownFiles {
    /// By percent-encoded path.
    files: HashMap<String, (Stamp, Digest)>,
    pub(super) lists: BTreeMap<(Digest, u64), Vec<Chunk>>,
    /// The pack, if it is there.
    pub(super) pack: Option<Pack>,
}

impl KnownFiles {
    /// The facts of the publication whose manifest is at `path`. Nothing is known if its files do not
    /// fit together.
    pub(super) fn load(path: &Path, algorithm: Algorithm) -> Self {
        Self::read(path, algorithm).unwrap_or_default()
    }

    fn read(path: &Path, algorithm: Algorithm) -> Option<Self> {
        let bytes = fs::read(path).ok()?;
        let state = fs::read_to_string(state_path(path)).ok()?;
        let (head, lines) = state.split_once('\n')?;
        if head.strip_prefix(HEAD)? != sha256(&bytes).hex() {
            return None;
        }
        let manifest = Manifest::parse(&manifest_file::unpacked(bytes).ok()?, sha256).ok()?;
        let stamps: HashMap<&str, Stamp> = lines.lines().filter_map(stamp).collect();
        let mut files = HashMap::new();
        for (path, entry) in &manifest.entries {
            let path = encoded(path);
            if let (Entry::File { digest, .. }, Some(&stamp)) = (entry, stamps.get(&*path))
                && digest.algorithm() == algorithm
            {
                files.insert(path, (stamp, *digest));
            }
        }
        let lists = lists(path, &manifest).unwrap_or_default();
        let pack = manifest.pack.filter(|pack| is_there(pack, path));
        Some(Self { files, lists, pack })
    }

    /// The digest of the file at `path`, if it is the same file and has not changed.
    pub(super) fn digest(&self, path: &[u8], stamp: Stamp) -> Option<Digest> {
        let (before, digest) = self.files.get(&encoded(path))?;
        (*before == stamp).then_some(*digest)
    }

    /// Writes the state of the publication whose manifest has these bytes.
    pub(super) fn written(
        manifest: &[u8],
        stamps: &[(Vec<u8>, Stamp)],
        read: SystemTime,
    ) -> String {
        let mut text = format!("{HEAD}{}\n", sha256(manifest).hex());
        let read = read.duration_since(UNIX_EPOCH).map_or(0, |read| read.as_secs().cast_signed());
        for (path, stamp) in stamps.iter().filter(|(_, stamp)| stamp.is_before(read - SETTLED)) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{stamp} {}", encoded(path));
        }
        text
    }
}

pub(super) fn state_path(manifest: &Path) -> PathBuf {
    let mut name = manifest.as_os_str().to_owned();
    name.push(".state");
    PathBuf::from(name)
}

fn stamp(line: &str) -> Option<(&str, Stamp)> {
    let mut words = line.split(' ');
    let stamp = Stamp::read(&mut words)?;
    Some((words.next()?, stamp))
}

/// The chunk lists of the publication, if they are those that its manifest names.
fn lists(path: &Path, manifest: &Manifest) -> Option<BTreeMap<(Digest, u64), Vec<Chunk>>> {
    let file = manifest.chunks.as_ref()?;
    let bytes = fs::read(path.with_extension("chunks")).ok()?;
    if sha256(&bytes) != file.digest {
        return None;
    }
    let contents = manifest.contents(file.sizes());
    let head = bytes.get(..usize::try_from(ChunkLists::head_length(contents.len())).ok()?)?;
    let places = ChunkLists::parse(head, contents.len(), bytes.len() as u64).ok()?;
    let mut lists = BTreeMap::new();
    for (number, content) in contents.iter().enumerate() {
        let range = places.range(number);
        let list = &bytes[usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?];
        let list = ChunkLists::list(list, content.size).ok()?;
        lists.insert((content.digest, content.size), list);
    }
    Some(lists)
}

/// Whether the pack was left by the publication with the manifest at `path`, not by a later one that did
/// not come to its manifest.
fn is_there(pack: &Pack, path: &Path) -> bool {
    let (Ok(there), Ok(manifest)) = (path.with_extension("pack").metadata(), path.metadata())
    else {
        return false;
    };
    let written = |there: &Metadata| (there.mtime(), there.mtime_nsec());
    there.len() == pack.size && written(&there) <= written(&manifest)
}

const HEAD: &str = "levada-publication 1 ";
/// In seconds: clocks of file systems are coarse, up to two seconds.
const SETTLED: i64 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{PathFilter, Publication};
    use rustix::fs::lstat;
    use std::time::Duration;

    #[test]
    fn only_files_that_have_rested_are_known() {
        let directory = tempfile::tempdir().unwrap();
        let (tree, manifest) =
            (directory.path().join("tree"), directory.path().join("tree.manifest"));
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("long"), vec![1; 100_000]).unwrap();
        fs::write(tree.join("short"), "short").unwrap();
        let publication = Publication {
            directory: tree.clone(),
            manifest: manifest.clone(),
            root: "tree/".to_owned(),
            pack_limit: 1 << 16,
            algorithm: Algorithm::Sha256,
            filter: PathFilter::default(),
            extras: levada_fetch::manifest::Extras::default(),
            numeric_ids: false,
        };
        assert_eq!(publication.publish().unwrap().read, 100_005);
        // The clock of a file system may not have moved since.
        assert_eq!(publication.publish().unwrap().read, 100_005);
        let stamps = ["long", "short"]
            .map(|name| (name.as_bytes().to_vec(), Stamp::of(&lstat(tree.join(name)).unwrap())));
        let later = SystemTime::now() + Duration::from_secs(10);
        let state = KnownFiles::written(&fs::read(&manifest).unwrap(), &stamps, later);
        fs::write(state_path(&manifest), &state).unwrap();
        assert_eq!(publication.publish().unwrap().read, 0);
        fs::write(state_path(&manifest), &state).unwrap();
        fs::write(tree.join("short"), "other").unwrap();
        assert_eq!(publication.publish().unwrap().read, 5);
        // Without the chunk lists, a long file is read again.
        fs::write(state_path(&manifest), "levada-publication 1 of another manifest").unwrap();
        assert_eq!(publication.publish().unwrap().read, 100_005);
    }
}
