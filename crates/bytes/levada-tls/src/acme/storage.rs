//! Accounts and certificates on disk, readable by the node's user only.
//!
//! ```text
//! certificates/www.example.com.pem   key and chain of a certificate, by its first name
//! accounts/0123456789abcdef.json     the account at a server, by the hash of the server's URL
//! lock                               held by the process that orders
//! ```
//!
//! A file is written next to its place and moved there, so that a reader sees one version or the other.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    process,
    sync::{Arc, Weak},
};

use levada_types::hash64;
use parking_lot::Mutex;

/// See the module.
#[derive(Debug)]
pub(crate) struct Storage {
    directory: PathBuf,
    /// The lock while it is held: the orders of this process share it.
    lock: Mutex<Weak<File>>,
}

/// Why the storage cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {error}{}", path.display(), remedy(error))]
pub(crate) struct StorageError {
    action: &'static str,
    path: PathBuf,
    error: io::Error,
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => "; give it to the user of the node",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; make room there",
        ErrorKind::ReadOnlyFilesystem => "; `acme.storage` must be a directory that can be written",
        _ => "",
    }
}

/// The largest file that is read.
const LARGEST: u64 = 1 << 20;
/// The content of a probe: about the size of a certificate with its key.
const PROBE: [u8; 16 << 10] = [b'.'; 16 << 10];

impl Storage {
    pub(crate) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), lock: Mutex::default() }
    }

    /// A stored certificate with its key; `None`: there is none.
    pub(crate) fn certificate(&self, name: &str) -> Result<Option<String>, StorageError> {
        read(&self.certificate_path(name))
    }

    pub(crate) fn store_certificate(&self, name: &str, pem: &str) -> Result<(), StorageError> {
        self.write(&self.certificate_path(name), pem.as_bytes())
    }

    /// The file of a certificate.
    pub(crate) fn certificate_path(&self, name: &str) -> PathBuf {
        let name = name.replace('*', "_wildcard").replace('/', "_");
        self.directory.join("certificates").join(format!("{name}.pem"))
    }

    /// The account at a server; `None`: there is none.
    pub(crate) fn account(&self, directory: &str) -> Result<Option<String>, StorageError> {
        read(&self.account_path(directory))
    }

    pub(crate) fn store_account(&self, directory: &str, text: &str) -> Result<(), StorageError> {
        self.write(&self.account_path(directory), text.as_bytes())
    }

    /// Moves an account that cannot be used out of the way. An operator may still want to look at it.
    pub(crate) fn set_account_aside(&self, directory: &str) -> Result<PathBuf, StorageError> {
        let path = self.account_path(directory);
        let aside = path.with_extension("json.lost");
        fs::rename(&path, &aside).map_err(failed("rename", &path))?;
        Ok(aside)
    }

    /// The file of an account.
    pub(crate) fn account_path(&self, directory: &str) -> PathBuf {
        let hash = hash64(directory.as_bytes());
        self.directory.join("accounts").join(format!("{hash:016x}.json"))
    }

    /// Checks that there is room for what an order brings.
    pub(crate) fn check(&self) -> Result<(), StorageError> {
        let probe = self.directory.join("certificates").join(format!(".probe-{}", process::id()));
        let checked = self.write_new(&probe, &PROBE);
        let _ = fs::remove_file(&probe);
        checked
    }

    /// Keeps other processes with the same storage from ordering; `None`: one of them orders now.
    pub(crate) fn lock(&self) -> Result<Option<Arc<File>>, StorageError> {
        let mut lock = self.lock.lock();
        if let Some(held) = lock.upgrade() {
            return Ok(Some(held));
        }
        let path = self.directory.join("lock");
        self.make_parent(&path)?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(&path).map_err(failed("open", &path))?;
        match file.try_lock() {
            Ok(()) => {
                let held = Arc::new(file);
                *lock = Arc::downgrade(&held);
                Ok(Some(held))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed("lock", &path)(error)),
        }
    }

    fn write(&self, path: &Path, content: &[u8]) -> Result<(), StorageError> {
        let beside = path.with_extension(format!("new-{}", process::id()));
        let written = self
            .write_new(&beside, content)
            .and_then(|()| fs::rename(&beside, path).map_err(failed("write", path)));
        if written.is_err() {
            let _ = fs::remove_file(&beside);
            return written;
        }
        let directory = path.parent().unwrap_or(path);
        File::open(directory).and_then(|file| file.sync_all()).map_err(failed("write", directory))
    }

    fn write_new(&self, path: &Path, content: &[u8]) -> Result<(), StorageError> {
        self.make_parent(path)?;
        let mut options = OpenOptions::new();
        let opened = options.create(true).truncate(true).write(true).mode(0o600).open(path);
        let written = opened.and_then(|mut file| {
            file.write_all(content)?;
            file.sync_all()
        });
        written.map_err(failed("write", path))
    }

    fn make_parent(&self, path: &Path) -> Result<(), StorageError> {
        let parent = path.parent().unwrap_or(&self.directory);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(parent);
        made.map_err(failed("create", parent))
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StorageError {
    let path = path.to_owned();
    move |error| StorageError { action, path, error }
}

fn read(path: &Path) -> Result<Option<String>, StorageError> {
    let text = File::open(path).and_then(|file| io::read_to_string(io::Read::take(file, LARGEST)));
    match text {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_the_user_of_the_node_can_read_what_is_stored() {
        let directory = tempfile::tempdir().unwrap();
        let storage = Storage::new(&directory.path().join("acme"));
        assert!(storage.certificate("*.a.example").unwrap().is_none());
        storage.store_certificate("*.a.example", "one").unwrap();
        storage.store_certificate("*.a.example", "two").unwrap();
        storage.store_account("https://ca.example", "{}").unwrap();
        assert_eq!(storage.certificate("*.a.example").unwrap().unwrap(), "two");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let file = storage.certificate_path("*.a.example");
        assert_eq!(
            (mode(&file), mode(&storage.account_path("https://ca.example"))),
            (0o600, 0o600)
        );
        assert_eq!(mode(file.parent().unwrap()), 0o700);
        let files = fs::read_dir(file.parent().unwrap()).unwrap();
        assert_eq!(files.count(), 1, "nothing is left beside the certificate");
    }

    #[test]
    fn name_of_a_certificate_cannot_leave_the_directory() {
        let path = Storage::new(Path::new("/acme")).certificate_path("../../etc/passwd");
        assert_eq!(path, Path::new("/acme/certificates/.._.._etc_passwd.pem"));
    }

    #[test]
    fn one_process_at_a_time_orders_as_many_certificates_as_it_wants() {
        let directory = tempfile::tempdir().unwrap();
        let [storage, other] = [(); 2].map(|()| Storage::new(directory.path()));
        let held = [(); 2].map(|()| storage.lock().unwrap());
        assert!(held.iter().all(Option::is_some));
        assert!(other.lock().unwrap().is_none());
        drop(held);
        let held = other.lock().unwrap();
        assert!(held.is_some() && storage.lock().unwrap().is_none());
    }

    #[test]
    fn storage_that_cannot_be_written_says_why() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("certificates"), "a file in the place of the directory")
            .unwrap();
        let storage = Storage::new(directory.path());
        let error = storage.check().unwrap_err().to_string();
        assert!(error.contains("certificates"), "{error}");
        let full = StorageError {
            action: "write",
            path: "/x".into(),
            error: io::Error::from(ErrorKind::StorageFull),
        };
        assert!(full.to_string().ends_with("make room there"), "{full}");
    }
}
