//! Finding the file that a URL names: the path itself, an index, a fallback, a compressed sibling.

use crate::compress::{Accepts, Coding};
use bytes::Bytes;
use http::StatusCode;
use rustix::io::Errno;
use std::{io, sync::Arc};

use crate::files::{
    answer::{status_of, status_of_io},
    listing::{Listing, ListingForm},
    open::{Blocking, OpenFile, Opened, Root},
    path::FilePath,
    reader::{PIECE, read_whole, read_whole_now},
    remembered::Name,
    settings::{FilesSettings, suffix},
};

/// A search for the file of a request.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) settings: Arc<FilesSettings>,
    pub(crate) path: FilePath,
    /// The codings of siblings that the client accepts.
    pub(crate) accepts: Accepts,
    /// The form of a list of the directory, if there may be one.
    form: Option<ListingForm>,
    /// Whether a short file is to be read at once.
    reads: bool,
}

/// The result of a search.
pub(crate) enum Found {
    File(Box<FoundFile>),
    /// A directory whose URL lacks the `/`.
    DirectoryWithoutSlash,
    /// A directory without an index.
    Listing(Listing),
    Nothing,
    Failed(StatusCode),
}

/// A file that answers.
pub(crate) struct FoundFile {
    /// Its path below the root; of a compressed sibling that of the original.
    pub(crate) name: String,
    pub(crate) file: OpenFile,
    /// That of the sibling which this is.
    pub(crate) coding: Option<Coding>,
    /// All bytes, if there are few.
    pub(crate) bytes: Option<Bytes>,
}

/// The search would have to wait for a disk.
pub(crate) struct WouldWait;

impl Asked {
    pub(crate) fn new(settings: &Arc<FilesSettings>, (path, accepts): Name, reads: bool) -> Self {
        Self { settings: settings.clone(), path, accepts, form: None, reads }
    }

    /// The same where a directory without an index is listed in this form.
    pub(crate) fn or_listed(self, form: Option<ListingForm>) -> Self {
        Self { form, ..self }
    }

    /// A search in the directory that it has found.
    pub(crate) fn in_directory(&self) -> Self {
        Self { path: self.path.as_directory(), ..self.clone() }
    }

    /// Looks for it.
    ///
    /// # Errors
    /// If it may not block, when it would have to wait.
    pub(crate) fn find(&self, blocking: Blocking) -> Result<Found, WouldWait> {
        match self.search(blocking) {
            Err(Errno::AGAIN) if blocking == Blocking::Refused => Err(WouldWait),
            Err(error) => Ok(self.failed(error)),
            Ok(found) => self.read(found, blocking),
        }
    }

    fn search(&self, blocking: Blocking) -> Result<Found, Errno> {
        let FilesSettings { root, outside_links, index, fallback, .. } = &*self.settings;
        let root = Root::open(root, *outside_links, blocking)?;
        if self.path.is_directory() {
            for name in index {
                if let Some(found) = self.regular(&root, self.path.child(name))? {
                    return Ok(found);
                }
            }
            if let Some(form) = self.form
                && let Some(Opened::Directory) = there(root.look(self.path.or_dot()))?
            {
                // Each entry may have to be read from the disk.
                return match blocking {
                    Blocking::Refused => Err(Errno::AGAIN),
                    Blocking::Allowed => form.list(&root, &self.path).map(Found::Listing),
                };
            }
        } else {
            match there(root.look(self.path.relative()))? {
                Some(Opened::Directory) => return Ok(Found::DirectoryWithoutSlash),
                Some(Opened::File(file)) => {
                    return self.sibling_or(&root, self.path.relative().to_owned(), file);
                }
                Some(Opened::Other) | None => {}
            }
        }
        let fallback = fallback.as_ref().map(|path| self.regular(&root, path.clone()));
        Ok(fallback.transpose()?.flatten().unwrap_or(Found::Nothing))
    }

    /// A regular file, or its sibling.
    fn regular(&self, root: &Root, name: String) -> Result<Option<Found>, Errno> {
        match there(root.look(&name))? {
            Some(Opened::File(file)) => self.sibling_or(root, name, file).map(Some),
            Some(Opened::Directory | Opened::Other) | None => Ok(None),
        }
    }

    /// The compressed sibling of a file that the client likes best, or the file.
    fn sibling_or(&self, root: &Root, name: String, file: OpenFile) -> Result<Found, Errno> {
        for coding in self.accepts.codings() {
            let sibling = root.look(&format!("{name}{}", suffix(coding)));
            if sibling.as_ref().is_err_and(|error| *error == Errno::AGAIN) {
                return Err(Errno::AGAIN);
            }
            // One that cannot be read leaves the original.
            if let Ok(Opened::File(sibling)) = sibling
                && sibling.state.modified >= file.state.modified
            {
                let coding = Some(coding);
                return Ok(Found::File(Box::new(FoundFile {
                    name,
                    file: sibling,
                    coding,
                    bytes: None,
                })));
            }
        }
        Ok(Found::File(Box::new(FoundFile { name, file, coding: None, bytes: None })))
    }

    /// Reads a short file, so that one version of it leaves with its head.
    fn read(&self, found: Found, blocking: Blocking) -> Result<Found, WouldWait> {
        let Found::File(mut found) = found else { return Ok(found) };
        if !self.reads || found.file.state.size > PIECE {
            return Ok(Found::File(found));
        }
        let read = match blocking {
            Blocking::Refused => read_whole_now(&found.file),
            Blocking::Allowed => read_whole(&found.file),
        };
        match read {
            Ok(bytes) => found.bytes = Some(bytes),
            Err(_) if blocking == Blocking::Refused => return Err(WouldWait),
            // It has changed since it was opened: the next version is looked for.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(WouldWait),
            Err(error) => {
                tracing::warn!(file = found.name, %error, "a file cannot be read");
                return Ok(Found::Failed(status_of_io(&error)));
            }
        }
        Ok(Found::File(found))
    }

    fn failed(&self, error: Errno) -> Found {
        let status = status_of(error);
        if status == StatusCode::NOT_FOUND {
            return Found::Nothing;
        }
        let file = self.settings.root.join(self.path.relative());
        tracing::warn!(file = %file.display(), %error, "a file cannot be opened");
        Found::Failed(status)
    }
}

/// Nothing is there, and that is no failure.
fn there(opened: Result<Opened, Errno>) -> Result<Option<Opened>, Errno> {
    match opened {
        Err(error) if status_of(error) == StatusCode::NOT_FOUND => Ok(None),
        opened => opened.map(Some),
    }
}
