//! The publishing side: reads a tree and writes its manifest, and the files that spare requests and bytes
//! next to it.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::{ffi::OsStrExt as _, fs::FileTypeExt as _},
    path::{Path, PathBuf},
};

use levada_fetch::{
    Algorithm, Digest,
    manifest::{Entry, Extras, Manifest, Metadata, RESERVED, encoded},
};
use rustix::fs::{FileType, Stat, fstat, lstat};
use serde::Serialize;

use super::{
    PathFilter, SyncError,
    accounts::Accounts,
    aids::ContentReader,
    attributes::{self, time_of},
    io_error, known, manifest_file,
    state::Stamp,
};
use crate::digest::digest_of;

/// The tree to publish, and how to publish it.
#[derive(Clone, Debug)]
pub struct Publication {
    /// The directory of the tree.
    pub directory: PathBuf,
    /// The path of the manifest.
    pub manifest: PathBuf,
    /// The URL of the files, relative to the manifest's URL or absolute.
    pub root: String,
    /// The longest files that are also in the pack next to the manifest. Without any there is no pack.
    pub pack_limit: u64,
    /// The digest algorithm.
    pub algorithm: Algorithm,
    /// The paths to publish.
    pub filter: PathFilter,
    /// The extras recorded beyond content, permissions and time.
    pub extras: Extras,
    /// Whether owners and groups are recorded without their names.
    pub numeric_ids: bool,
}

/// The result of publishing.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Published {
    /// The path of the manifest.
    pub manifest: PathBuf,
    /// The number of files.
    pub files: u64,
    /// The number of bytes of the files.
    pub bytes: u64,
    /// The number of bytes that were read, because the last publication did not know them.
    pub read: u64,
    /// The length of the manifest's file.
    pub manifest_bytes: u64,
    /// The length of the pack of small files.
    pub pack_bytes: u64,
    /// The length of the chunk lists of long files.
    pub chunks_bytes: u64,
    /// Entries that are neither file, directory nor link.
    pub skipped: Vec<Skipped>,
}

/// An entry that cannot be published.
#[derive(Clone, Debug, Serialize)]
pub struct Skipped {
    /// The path.
    pub path: PathBuf,
    /// The type.
    pub kind: &'static str,
}

impl Publication {
    /// Publishes everything in `directory`, with the manifest next to it. `None` if the directory has no
    /// name.
    pub fn new(directory: PathBuf) -> Option<Self> {
        let name = directory.file_name()?.to_owned();
        let mut file = name.clone();
        file.push(".manifest");
        Some(Self {
            manifest: directory.with_file_name(file),
            root: encoded(name.as_bytes()) + "/",
            directory,
            pack_limit: PACKED,
            algorithm: Algorithm::Sha256,
            filter: PathFilter::default(),
            extras: Extras::default(),
            numeric_ids: false,
        })
    }

    /// Reads the tree and writes the pack, the chunk lists and then the manifest, each replaced
    /// atomically.
    ///
    /// # Errors
    /// When an entry cannot be read, written, or described.
    pub fn publish(&self) -> Result<Published, SyncError> {
        let mut manifest = Manifest::new(self.root.clone(), self.extras);
        let accounts = Accounts::new(self.numeric_ids);
        // The first name of each file that has several.
        let mut names: HashMap<(u64, u64), Vec<u8>> = HashMap::new();
        let mut published = Published { manifest: self.manifest.clone(), ..Published::default() };
        let long = if self.pack_limit == 0 { SHORT } else { self.pack_limit };
        let mut reader = ContentReader::new(&self.manifest, self.algorithm, long);
        let mut paths = Vec::new();
        self.walk(&self.directory, &mut Vec::new(), &mut paths, &mut published)?;
        paths.sort();
        for path in paths {
            let file = self.directory.join(Path::new(std::ffi::OsStr::from_bytes(&path)));
            let unfit = |why| SyncError::Unfit { path: file.clone(), why };
            let stat = lstat(&file).map_err(|why| io_error(&file)(why.into()))?;
            let inode = (stat.st_dev, stat.st_ino);
            if let Some(first) = names.get(&inode) {
                published.files += 1;
                manifest.insert_name(path, first).map_err(unfit)?;
                continue;
            }
            let digest = |file: &File| reader.digest(&path, file, &stat);
            let entry = self.entry(&file, &stat, &accounts, digest)?;
            if let Entry::File { size, .. } = &entry {
                published.files += 1;
                published.bytes += size;
                if self.extras.hard_links && stat.st_nlink > 1 {
                    names.insert(inode, path.clone());
                }
            }
            manifest.insert(path, entry).map_err(unfit)?;
        }
        let pack = self.manifest.with_extension("pack");
        manifest.pack = reader.write_pack(&manifest, &self.directory, &pack, self.pack_limit)?;
        manifest.chunks = reader.write_lists(&manifest, &self.manifest.with_extension("chunks"))?;
        let bytes = manifest_file::packed(manifest.write(sha256));
        replace(&self.manifest, |file| file.write_all(&bytes))?;
        let state = reader.state(&bytes);
        replace(&known::state_path(&self.manifest), |file| file.write_all(state.as_bytes()))?;
        published.read = reader.read;
        published.manifest_bytes = bytes.len() as u64;
        published.pack_bytes = manifest.pack.map_or(0, |pack| pack.size);
        published.chunks_bytes = manifest.chunks.map_or(0, |chunks| chunks.size);
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
            // The tree may itself be a destination.
            let is_taken = path != RESERVED && self.filter.takes(path, kind.is_dir());
            if is_taken && (kind.is_dir() || kind.is_file() || kind.is_symlink()) {
                paths.push(path.clone());
                if kind.is_dir() {
                    self.walk(&entry.path(), path, paths, published)?;
                }
            } else if is_taken {
                published.skipped.push(Skipped { path: entry.path(), kind: name_of(kind) });
            }
            path.truncate(length);
        }
        Ok(())
    }

    fn entry(
        &self,
        path: &Path,
        stat: &Stat,
        accounts: &Accounts,
        digest: impl FnOnce(&File) -> io::Result<Digest>,
    ) -> Result<Entry, SyncError> {
        let mode = stat.st_mode & 0o777;
        let metadata = |file: Option<&File>| {
            let metadata = attributes::read(stat, file, self.extras, accounts);
            metadata.map_err(io_error(path))
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                let target = fs::read_link(path).map_err(io_error(path))?;
                let target = target.into_os_string().as_bytes().to_vec();
                let modified = Some(time_of(stat));
                return Ok(Entry::Link {
                    target,
                    metadata: Metadata { modified, ..metadata(None)? },
                });
            }
            FileType::Directory => {
                let directory = File::open(path).map_err(io_error(path))?;
                let modified = Some(time_of(stat));
                let metadata = Metadata { modified, ..metadata(Some(&directory))? };
                return Ok(Entry::Directory { mode, metadata });
            }
            _ => {}
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let file = File::open(path).map_err(io_error(path))?;
        let digest = digest(&file).map_err(io_error(path))?;
        let metadata = metadata(Some(&file))?;
        let after = fstat(&file).map_err(|why| io_error(path)(why.into()))?;
        let unfit = |why| SyncError::Unfit { path: path.to_owned(), why };
        if Stamp::of(stat) != Stamp::of(&after) {
            return Err(unfit(
                "it changed while it was read: do not change a tree while it is published",
            ));
        }
        Ok(Entry::File { size, mode, modified: time_of(stat), digest, metadata })
    }
}

fn name_of(kind: fs::FileType) -> &'static str {
    if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_block_device() || kind.is_char_device() {
        "a device"
    } else {
        "no file, directory or link"
    }
}

/// Writes a temporary file next to `path` and renames it to `path`.
pub(super) fn replace(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), SyncError> {
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
    digest_of(Algorithm::Sha256, bytes).expect("SHA-256 is computed")
}

/// Files up to this length have no chunk list.
const SHORT: u64 = 64 << 10;

/// The default of [`Publication::pack_limit`].
const PACKED: u64 = 64 << 10;
