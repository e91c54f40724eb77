//! The directory of a fleet as a tar, plain or compressed with gzip: the form in which it goes over HTTP.

use std::{
    collections::BTreeMap,
    io::{self, Read},
    path::Component,
};

use flate2::read::MultiGzDecoder;
use tar::Archive;

use crate::directory::{Directory, DirectoryError, LARGEST, has_place, is_hidden};

/// Why an archive is no directory of a fleet.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It is no tar, or one that was cut.
    #[error("the body is no tar of the fleet's directory (tar -C DIRECTORY -cz .): {0}")]
    Damaged(#[from] io::Error),
    /// It has something that is no file.
    #[error("{0}: only files and directories have a place in it, and no links")]
    Kind(String),
    /// A file leads out of the directory.
    #[error("{0}: paths are relative to the directory and stay within it")]
    Outside(String),
    /// It is too large when it is unpacked.
    #[error("the archive has more than {} MiB", LARGEST >> 20)]
    Large,
    /// A file has no place in a fleet.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
}

/// Reads an archive. It leaves out what [`Directory::read`] leaves out.
///
/// # Errors
/// If it is no archive, or something in it has no place in a fleet.
pub fn unpack(bytes: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, ArchiveError> {
    match bytes {
        [0x1f, 0x8b, ..] => unpack_tar(MultiGzDecoder::new(bytes)),
        _ => unpack_tar(bytes),
    }
}

/// Reads the archive of a whole directory.
///
/// # Errors
/// As [`unpack`], or if it has no usable `fleet.toml`.
pub fn unpack_directory(bytes: &[u8]) -> Result<Directory, ArchiveError> {
    let directory = Directory::of(unpack(bytes)?);
    directory.fleet()?;
    Ok(directory)
}

fn unpack_tar(tar: impl Read) -> Result<BTreeMap<String, Vec<u8>>, ArchiveError> {
    // Twice the room: each file has a head and is filled up to 512 bytes.
    let mut archive = Archive::new(tar.take(2 * LARGEST as u64));
    let (mut files, mut room) = (BTreeMap::new(), LARGEST as u64);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let Some(path) = path_of(&entry.path()?)? else { continue };
        if entry.header().entry_type().is_dir() {
            continue;
        }
        if !entry.header().entry_type().is_file() {
            return Err(ArchiveError::Kind(path));
        }
        if !has_place(&path)? {
            continue;
        }
        let mut content = Vec::new();
        let length = entry.by_ref().take(room + 1).read_to_end(&mut content)? as u64;
        room = room.checked_sub(length).ok_or(ArchiveError::Large)?;
        if length != entry.header().size()? {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        files.insert(path, content);
    }
    Ok(files)
}

/// The path within the directory, with `/` between its parts; `None` for what is left out.
fn path_of(path: &std::path::Path) -> Result<Option<String>, ArchiveError> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => match name.to_str() {
                Some(name) if !is_hidden(name) => parts.push(name),
                _ => return Ok(None),
            },
            _ => return Err(ArchiveError::Outside(path.display().to_string())),
        }
    }
    Ok((!parts.is_empty()).then(|| parts.join("/")))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};
    use tar::{Builder, EntryType, Header};

    use super::*;

    fn tar(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (path, kind, text) in entries {
            let mut header = Header::new_gnu();
            header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
            header.set_entry_type(*kind);
            header.set_size(text.len() as u64);
            header.set_cksum();
            builder.append(&header, text.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn archive_is_the_directory_that_was_packed() {
        let fleet = "[fleet]\nname = \"web\"\n";
        let packed = tar(&[
            ("./", EntryType::Directory, ""),
            ("./fleet.toml", EntryType::Regular, fleet),
            ("./.git/config", EntryType::Regular, "x"),
            ("./README.md", EntryType::Regular, "x"),
            ("sites/www.toml", EntryType::Regular, "[[site]]\n"),
        ]);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&packed).unwrap();
        for bytes in [packed.clone(), gzip.finish().unwrap()] {
            let directory = unpack_directory(&bytes).unwrap();
            let files: Vec<_> = directory.files().keys().collect();
            assert_eq!(files, ["fleet.toml", "sites/www.toml"]);
        }
        let cut = unpack(&packed[..packed.len() - 1500]);
        assert!(cut.is_err() || cut.unwrap().len() < 2);
    }

    #[test]
    fn archive_that_leads_elsewhere_is_refused() {
        let error = |path, kind| unpack(&tar(&[(path, kind, "")])).unwrap_err().to_string();
        assert!(error("../fleet.toml", EntryType::Regular).contains("stay within it"));
        assert!(error("/etc/passwd", EntryType::Regular).contains("stay within it"));
        assert!(error("files/x", EntryType::Symlink).contains("no links"));
        assert!(error("site/x.toml", EntryType::Regular).contains("nothing reads it"));
        assert!(unpack_directory(b"[fleet]").is_err());
        let none = unpack_directory(&tar(&[])).unwrap_err().to_string();
        assert!(none.contains("fleet.toml: is missing"), "{none}");
    }
}
