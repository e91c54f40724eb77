//! A directory as an origin: which file a URL names, and the response with it.
//!
//! ```text
//! target ──► FilePath        decoded once; hidden names and `..` end here
//!            Root            opens below the directory (openat2, RESOLVE_BENEATH)
//!            Remembered      a short file that was read a moment ago, if the directory has such
//!            find            the path itself, an index, the fallback, a compressed sibling
//!            listing         the entries of a directory without an index, if they may be seen
//!            answer          type, validators, conditions, ranges
//!            FileReader      sendfile, or reads that wait for no disk
//! ```
//!
//! A request whose file is in memory is answered at once. All that would wait for a disk is done again by a
//! thread that may wait (`openat2` with `RESOLVE_CACHED`, `preadv2` with `RWF_NOWAIT`).

mod answer;
mod find;
mod listing;
mod open;
mod path;
mod reader;
mod remembered;
mod settings;
mod stated;

use std::{sync::Arc, time::SystemTime};

use crate::compress::Accepts;
use http::{HeaderMap, Method, Response, StatusCode, header, request::Parts};
use levada_cache::has_condition;

pub use answer::{FileBody, FileDelivery, type_of_extension};
pub use path::{FilePath, PathError};
pub use reader::FileReader;
pub use settings::FilesSettings;
pub use stated::{Files, FilesOrRoot};

use answer::{not_allowed, of_found, plain};
use find::{Asked, Found, WouldWait};
use listing::ListingForm;
use open::Blocking;
use remembered::Remembered;

/// A directory that is served.
#[derive(Debug)]
pub struct FileDirectory {
    settings: Arc<FilesSettings>,
    remembered: Remembered,
}

impl FileDirectory {
    /// The directory of these settings.
    pub fn new(settings: &FilesSettings) -> Self {
        Self { settings: Arc::new(settings.clone()), remembered: Remembered::new(settings.recheck) }
    }

    /// The codings of siblings that the client accepts.
    pub fn siblings(&self, request: &HeaderMap) -> Accepts {
        match self.settings.precompressed.is_empty() {
            true => Accepts::default(),
            false => Accepts::of(request, &self.settings.precompressed),
        }
    }

    /// The response to a request for `target`, a path with its query.
    pub async fn answer(
        &self,
        target: &str,
        request: &Parts,
        delivery: &FileDelivery<'_>,
    ) -> Response<FileBody> {
        if request.method != Method::GET && request.method != Method::HEAD {
            return not_allowed();
        }
        let name = match FilePath::of(target) {
            Ok(path) => (path, delivery.siblings),
            Err(error) => return plain(error.status()),
        };
        let reads = request.method == Method::GET;
        // A body that is compressed on its way has another head for each client.
        let is_whole = reads && delivery.compress.is_none() && !has_condition(&request.headers);
        if is_whole && let Some(response) = self.remembered.get(&name) {
            return response;
        }
        let form = self.settings.listing.then(|| ListingForm::of(target, &request.headers));
        let asked = Asked::new(&self.settings, name, reads).or_listed(form);
        let found = match asked.find(Blocking::Refused) {
            Ok(found) => found,
            Err(WouldWait) => Box::pin(find_blocking(&asked)).await,
        };
        let response = of_found(found, (&asked, target), request, delivery, SystemTime::now());
        if is_whole && let (FileBody::Bytes(bytes), true) = (response.body(), is_settled(&response))
        {
            self.remembered.put((asked.path, asked.accepts), response.headers(), bytes);
        }
        response
    }

    /// Whether there is a file for `target`, or a directory with an index.
    pub async fn has(&self, target: &str) -> bool {
        let Ok(path) = FilePath::of(target) else { return false };
        let name = (path, Accepts::default());
        if self.remembered.get(&name).is_some() {
            return true;
        }
        let mut asked = Asked::new(&self.settings, name, false);
        loop {
            let found = match asked.find(Blocking::Refused) {
                Ok(found) => found,
                Err(WouldWait) => Box::pin(find_blocking(&asked)).await,
            };
            match found {
                Found::DirectoryWithoutSlash if self.settings.listing => return true,
                Found::DirectoryWithoutSlash => asked = asked.in_directory(),
                found => return !matches!(found, Found::Nothing),
            }
        }
    }

    /// The same, which may wait for a disk.
    pub fn has_now(&self, target: &str) -> bool {
        let Ok(path) = FilePath::of(target) else { return false };
        let mut asked = Asked::new(&self.settings, (path, Accepts::default()), false);
        loop {
            match asked.find(Blocking::Allowed) {
                Ok(Found::DirectoryWithoutSlash) if self.settings.listing => return true,
                Ok(Found::DirectoryWithoutSlash) => asked = asked.in_directory(),
                found => return !matches!(found, Ok(Found::Nothing)),
            }
        }
    }

    /// The file that answers a GET of `target`, or why none does, for operators. It may wait for a disk.
    pub fn explain(&self, target: &str) -> String {
        let root = self.settings.root.display();
        let path = match FilePath::of(target) {
            Ok(path) => path,
            Err(error) => return format!("none: {} ({})", error.as_str(), error.status().as_u16()),
        };
        let form = self.settings.listing.then(|| ListingForm::of(target, &HeaderMap::new()));
        let asked = Asked::new(&self.settings, (path, Accepts::default()), false).or_listed(form);
        match asked.find(Blocking::Allowed) {
            Ok(Found::File(found)) => format!("{root}/{}", found.name),
            Ok(Found::DirectoryWithoutSlash) => {
                format!("{root}/{} is a directory: 301 to the URL with a slash", asked.path)
            }
            Ok(Found::Listing(_)) => format!("the list of {root}/{}", asked.path),
            Ok(Found::Failed(status)) => format!("{root}/{} cannot be read ({status})", asked.path),
            Ok(Found::Nothing) | Err(WouldWait) => {
                format!("none: {root}/{} is no file (404)", asked.path)
            }
        }
    }
}

/// Whether the response has a file that has not changed for a while.
fn is_settled(response: &Response<FileBody>) -> bool {
    let tag = response.headers().get(header::ETAG);
    response.status() == StatusCode::OK && tag.is_some_and(|tag| tag.as_bytes().starts_with(b"\""))
}

impl PathError {
    fn status(self) -> StatusCode {
        match self {
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::Hidden => StatusCode::NOT_FOUND,
        }
    }

    /// A few words for operators.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "the path cannot be that of a file",
            Self::Hidden => "names that begin with a dot are not served",
        }
    }
}

/// Looks again in a thread that may wait.
async fn find_blocking(asked: &Asked) -> Found {
    for _ in 0..VERSIONS {
        let asked = asked.clone();
        match tokio::task::spawn_blocking(move || asked.find(Blocking::Allowed)).await {
            Ok(Ok(found)) => return found,
            Ok(Err(WouldWait)) => {}
            Err(_) => break,
        }
    }
    Found::Failed(StatusCode::SERVICE_UNAVAILABLE)
}

/// The most versions of a file that are looked at, while each changes before it has been read.
const VERSIONS: u32 = 4;
