//! Short files that were read a moment ago, with the heads of their responses: they are answered without a look at
//! the directory. Only directories whose `recheck` allows it have some.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, Response};
use parking_lot::Mutex;

use crate::{
    compress::Accepts,
    files::{answer::FileBody, path::FilePath},
};

/// The most bytes of files that a directory remembers.
const MOST_BYTES: usize = 16 << 20;
/// Each file counts for so many bytes more: its head, and its place in the table.
const OVERHEAD: usize = 2 << 10;

/// The files of one directory.
#[derive(Debug)]
pub(crate) struct Remembered {
    recheck: Duration,
    files: Mutex<Files>,
}

#[derive(Debug, Default)]
struct Files {
    by_name: HashMap<Name, Arc<File>>,
    bytes: usize,
}

/// A path, and the codings of siblings that the client accepts.
pub(crate) type Name = (FilePath, Accepts);

#[derive(Debug)]
struct File {
    until: Instant,
    headers: HeaderMap,
    bytes: Bytes,
    /// The bytes that it counts for.
    size: usize,
}

impl Remembered {
    pub(crate) fn new(recheck: Duration) -> Self {
        Self { recheck, files: Mutex::default() }
    }

    /// The response with a file.
    pub(crate) fn get(&self, name: &Name) -> Option<Response<FileBody>> {
        if self.recheck.is_zero() {
            return None;
        }
        let found = self.files.lock().by_name.get(name)?.clone();
        if Instant::now() >= found.until {
            return None;
        }
        let mut response = Response::new(FileBody::Bytes(found.bytes.clone()));
        *response.headers_mut() = found.headers.clone();
        Some(response)
    }

    /// Remembers a response that was just made.
    pub(crate) fn put(&self, name: Name, headers: &HeaderMap, bytes: &Bytes) {
        if self.recheck.is_zero() {
            return;
        }
        let size = bytes.len() + name.0.relative().len() + OVERHEAD;
        let until = Instant::now() + self.recheck;
        let file = File { until, headers: headers.clone(), bytes: bytes.clone(), size };
        let mut files = self.files.lock();
        if files.bytes + size > MOST_BYTES {
            *files = Files::default();
        }
        files.bytes += size;
        if let Some(former) = files.by_name.insert(name, file.into()) {
            files.bytes -= former.size;
        }
    }
}
