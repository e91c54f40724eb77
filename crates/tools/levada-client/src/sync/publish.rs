//! The publishing side: reads a tree and writes its manifest, and optionally a tar file next to it.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use levada_fetch::{
    Algorithm, Digest,
    manifest::{Archive, Entry, Manifest, encoded},
};
use serde::Serialize;

use super::{PathFilter, SyncError, io_error};
use crate::Hasher;

/// The tree to publish, and how to publish it.
#[derive(Clone, Debug)]
pub struct Publication {
    /// The directory of the tree.
    pub directory: PathBuf,
    /// The path of the manifest.
    pub manifest: PathBuf,
    /// The URL of the files, relative to the manifest's URL or absolute.
    pub root: String,
    /// Whether to also write all files into one tar file next to the manifest.
    pub tar: bool,
    /// The digest algorithm.
    pub algorithm: Algorithm,
    /// The paths to publish.
    pub filter: PathFilter,
}

/// The result of publishing.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Published {
    /// The path of the manifest.
    pub manifest: PathBuf,
    /// The path of the tar file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tar: Option<PathBuf>,
    /// The number of files.
    pub files: u64,
    /// The number of bytes of the files.
    pub bytes: u64,
    /// Entries that are neither file, directory nor link, and were left out.
    pub left_out: Vec<PathBuf>,
}

impl Publication {
    /// Reads the tree and writes the tar file and then the manifest, each replaced atomically.
    ///
    /// # Errors
    /// When an entry cannot be read, written, or described.
    pub fn publish(&self) -> Result<Published, SyncError> {
        let mut manifest = Manifest { root: self.root.clone(), ..Manifest::default() };
        let mut published = Published { manifest: self.manifest.clone(), ..Published::default() };
        let mut paths = Vec::new();
        self.walk(&self.directory, &mut Vec::new(), &mut paths, &mut published)?;
        paths.sort();
        for path in paths {
            let file = self.directory.join(Path::new(std::ffi::OsStr::from_bytes(&path)));
            let entry = self.entry(&file)?;
            if let Entry::File { size, .. } = &entry {
                published.files += 1;
                published.bytes += size;
            }
            let unfit = |why| SyncError::Unfit { path: file.clone(), why };
            manifest.insert(path, entry).map_err(unfit)?;
        }
        if self.tar {
            let tar = self.manifest.with_extension("tar");
            manifest.tar = Some(self.archive(&manifest, &tar)?);
            published.tar = Some(tar);
        }
        replace(&self.manifest, |file| file.write_all(manifest.write(sha256).as_bytes()))?;
        Ok(published)
    }

    fn walk(
        &self,
        directory: &Path,
        path: &mut Vec<u8>,
        paths: &mut Vec<Vec<u8>>,
        published: &mut Published,
    ) -> Result<(), SyncError> {
        for entry in fs::read_dir(directory).map_err(io_error(directory))? {
            let entry = entry.map_err(io_error(directory))?;
            let kind = entry.file_type().map_err(io_error(entry.path()))?;
            let length = path.len();
            if length > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(entry.file_name().as_bytes());
            if kind.is_dir() && !self.filter.excludes(path) {
                let before = paths.len();
                paths.push(path.clone());
                self.walk(&entry.path(), path, paths, published)?;
                // With --include, a directory is published only if it contains a published entry.
                if paths.len() == before + 1 && !self.filter.takes(path) {
                    paths.truncate(before);
                }
            } else if (kind.is_file() || kind.is_symlink()) && self.filter.takes(path) {
                paths.push(path.clone());
            } else if !kind.is_dir() && !kind.is_file() && !kind.is_symlink() {
                published.left_out.push(entry.path());
            }
            path.truncate(length);
        }
        Ok(())
    }

    fn entry(&self, path: &Path) -> Result<Entry, SyncError> {
        let there = fs::symlink_metadata(path).map_err(io_error(path))?;
        let mode = there.mode() & 0o777;
        if there.is_symlink() {
            let target = fs::read_link(path).map_err(io_error(path))?;
            return Ok(Entry::Link { target: target.into_os_string().as_bytes().to_vec() });
        }
        if there.is_dir() {
            return Ok(Entry::Directory { mode });
        }
        let file = File::open(path).map_err(io_error(path))?;
        let digest = Hasher::new(&[self.algorithm]).finish(&file, there.len());
        let digest = digest.map_err(io_error(path))?.pop();
        let after = file.metadata().map_err(io_error(path))?;
        let stamp = |at: &fs::Metadata| (at.len(), at.mtime(), at.mtime_nsec());
        let unfit = |why| SyncError::Unfit { path: path.to_owned(), why };
        if stamp(&there) != stamp(&after) {
            return Err(unfit(
                "it changed while it was read: do not change a tree while it is published",
            ));
        }
        let nanoseconds = u32::try_from(there.mtime_nsec()).unwrap_or(0);
        Ok(Entry::File {
            size: there.len(),
            mode,
            modified: (there.mtime(), nanoseconds),
            digest: digest.ok_or_else(|| unfit("it has no digest"))?,
        })
    }

    /// Writes all files into one tar file.
    fn archive(&self, manifest: &Manifest, tar: &Path) -> Result<Archive, SyncError> {
        replace(tar, |file| {
            let mut builder = tar::Builder::new(io::BufWriter::new(file));
            for (path, entry) in &manifest.entries {
                let Entry::File { size, mode, modified, .. } = entry else { continue };
                let mut header = tar::Header::new_gnu();
                header.set_size(*size);
                header.set_mode(*mode);
                header.set_mtime(u64::try_from(modified.0).unwrap_or(0));
                let path = Path::new(std::ffi::OsStr::from_bytes(path));
                let content = File::open(self.directory.join(path))?;
                builder.append_data(&mut header, path, content.take(*size))?;
            }
            builder.into_inner()?.flush()
        })?;
        let file = File::open(tar).map_err(io_error(tar))?;
        let size = file.metadata().map_err(io_error(tar))?.len();
        let digest = Hasher::new(&[Algorithm::Sha256]).finish(&file, size);
        let digest = digest.map_err(io_error(tar))?.pop();
        let name = tar.file_name().unwrap_or_default();
        let unfit = || SyncError::Unfit { path: tar.to_owned(), why: "it has no digest" };
        Ok(Archive { size, digest: digest.ok_or_else(unfit)?, reference: encoded(name.as_bytes()) })
    }
}

/// Writes a temporary file next to `path` and renames it to `path`.
fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), SyncError> {
    let mut name = path.as_os_str().to_owned();
    name.push("~");
    let new = PathBuf::from(name);
    let written = File::create(&new).and_then(|mut file| write(&mut file));
    written.and_then(|()| fs::rename(&new, path)).map_err(|why| {
        let _ = fs::remove_file(&new);
        io_error(path)(why)
    })
}

/// The SHA-256 digest of bytes in memory.
pub(super) fn sha256(bytes: &[u8]) -> Digest {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Digest::from_hex(Algorithm::Sha256, &hex).expect("a SHA-256 has 64 hexadecimal digits")
}
