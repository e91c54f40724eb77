//! The publisher's files next to a manifest: the pack and the chunk lists.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, BufWriter, Read as _, Write as _},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    time::SystemTime,
};

use levada_fetch::{
    Algorithm, ChunkLists, Digest,
    manifest::{ChunkFile, Content, Manifest, Pack, encoded},
};

use rustix::fs::Stat;

use super::{
    SyncError, chunker,
    known::KnownFiles,
    publish::{replace, sha256},
    state::Stamp,
};
use crate::Hasher;

/// Reads the files of a tree, except those that an earlier publication knows.
pub(super) struct ContentReader {
    algorithm: Algorithm,
    /// Files up to this length have no chunk list.
    limit: u64,
    known: KnownFiles,
    stamps: Vec<(Vec<u8>, Stamp)>,
    began: SystemTime,
    /// The bytes that were read.
    pub(super) read: u64,
}

impl ContentReader {
    pub(super) fn new(manifest: &Path, algorithm: Algorithm, limit: u64) -> Self {
        Self {
            algorithm,
            limit,
            known: KnownFiles::load(manifest, algorithm),
            stamps: Vec::new(),
            began: SystemTime::now(),
            read: 0,
        }
    }

    /// The digest of the file at `path` of the tree.
    pub(super) fn digest(&mut self, path: &[u8], file: &File, stat: &Stat) -> io::Result<Digest> {
        let stamp = Stamp::of(stat);
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        self.stamps.push((path.to_vec(), stamp));
        let is_long = size > self.limit;
        if let Some(digest) = self.known.digest(path, stamp)
            && (!is_long || self.known.lists.contains_key(&(digest, size)))
        {
            return Ok(digest);
        }
        self.read += size;
        let mut hasher = Hasher::new(&[self.algorithm]);
        let mut list = Vec::new();
        if is_long {
            let mut at = 0;
            chunker::cut(file.take(size), |chunk, bytes| {
                hasher.offer(at, bytes);
                at += bytes.len() as u64;
                list.push(chunk);
                Ok(())
            })?;
        }
        let digest = hasher.finish(file, size)?.pop().ok_or(io::ErrorKind::Unsupported)?;
        if is_long {
            self.known.lists.insert((digest, size), list);
        }
        Ok(digest)
    }

    /// The state for the next publication, if the manifest has these bytes.
    pub(super) fn state(&self, manifest: &[u8]) -> String {
        KnownFiles::written(manifest, &self.stamps, self.began)
    }

    /// Writes the chunk lists of the long files of the manifest.
    pub(super) fn write_lists(
        &self,
        manifest: &Manifest,
        path: &Path,
    ) -> Result<Option<ChunkFile>, SyncError> {
        let contents = manifest.contents(self.limit + 1..u64::MAX);
        let lists = contents.iter().map(|content| {
            let list = self.known.lists.get(&(content.digest, content.size));
            list.map_or(&[][..], Vec::as_slice)
        });
        let lists: Vec<_> = lists.collect();
        if lists.is_empty() {
            return Ok(None);
        }
        let bytes = ChunkLists::write(&lists);
        let digest = sha256(&bytes);
        replace(path, |file| file.write_all(&bytes))?;
        let reference = reference(path, &digest);
        Ok(Some(ChunkFile { size: bytes.len() as u64, digest, limit: self.limit, reference }))
    }

    /// Writes the pack of files up to `limit`, unless the last publication has left the same. Returns `None`
    /// if it would spare no request.
    pub(super) fn write_pack(
        &self,
        manifest: &Manifest,
        directory: &Path,
        path: &Path,
        limit: u64,
    ) -> Result<Option<Pack>, SyncError> {
        let mut pack = Pack { size: 0, limit, reference: String::new() };
        let contents = manifest.contents(pack.sizes());
        if contents.len() < 2 {
            return Ok(None);
        }
        let mut digests = Vec::new();
        for content in &contents {
            digests.extend_from_slice(content.digest.bytes());
            pack.size += content.size;
        }
        pack.reference = reference(path, &sha256(&digests));
        if self.known.pack.as_ref() != Some(&pack) {
            replace(path, |file| {
                let mut writer = BufWriter::with_capacity(1 << 20, file);
                contents.iter().try_for_each(|content| append(content, directory, &mut writer))?;
                writer.flush()
            })?;
        }
        Ok(Some(pack))
    }
}

fn append(content: &Content<'_>, directory: &Path, pack: &mut impl io::Write) -> io::Result<()> {
    let path = directory.join(Path::new(OsStr::from_bytes(content.path)));
    let copied = io::copy(&mut File::open(&path)?.take(content.size), pack)?;
    if copied == content.size {
        Ok(())
    } else {
        Err(io::Error::other(format!("{} changed while it was read", path.display())))
    }
}

/// The URL of a file next to the manifest. The query is for caches, which so do not take the file of an
/// earlier publication for this one; servers of files ignore it.
fn reference(path: &Path, digest: &Digest) -> String {
    let name = path.file_name().unwrap_or_default();
    format!("{}?v={}", encoded(name.as_bytes()), &digest.hex()[..16])
}
