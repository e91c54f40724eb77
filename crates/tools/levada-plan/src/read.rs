//! From log lines to requests: 24 bytes each, with objects and clients as numbers.

use std::{
    collections::{HashMap, hash_map::Entry},
    io,
    path::{Path, PathBuf},
};

use levada_report::{is_hit, is_memory_hit};
use levada_trace::{
    LogRecord, OpenError, SkipReason, Skipped, StatedSize, TraceLimits, TraceReader, open,
};
use levada_types::Key;

/// A request that a cache could answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Seconds since 1970; NaN if not stated.
    pub(crate) time: f64,
    /// The index of its object.
    pub(crate) object: u32,
    /// The index of its client; [`NO_CLIENT`] if not stated.
    pub(crate) client: u32,
    /// The result of a cache, as logged.
    pub(crate) result: Option<LoggedResult>,
}

/// The result of a cache, as a log states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoggedResult {
    Miss,
    /// A hit in memory or on disk.
    Hit,
    /// A hit in memory, of a log that says so.
    MemoryHit,
}

impl LoggedResult {
    fn of(text: &str) -> Option<Self> {
        Some(match is_hit(text)? {
            false => Self::Miss,
            true if is_memory_hit(text) => Self::MemoryHit,
            true => Self::Hit,
        })
    }
}

/// The client of a request is not stated, or there are too many.
pub(crate) const NO_CLIENT: u32 = u32::MAX;

/// An object: its key, and its size as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    pub(crate) key: Key,
    pub(crate) size: StatedSize,
}

impl Object {
    pub(crate) fn bytes(self) -> u64 {
        self.size.bytes().unwrap_or(0)
    }
}

/// A request that the origin answered, as logged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Miss {
    pub(crate) seconds: f32,
    pub(crate) bytes: f32,
}

/// A client and all its requests, those that no cache could answer as well.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) requests: u64,
    /// Responses with 404.
    pub(crate) missing: u64,
}

/// All requests of some files.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) requests: Vec<Request>,
    pub(crate) objects: Vec<Object>,
    pub(crate) clients: Vec<Client>,
    pub(crate) skipped: Skipped,
    /// Bytes of the requests that a cache could answer, as logged.
    pub(crate) bytes: u64,
    /// Requests that no cache could answer, and their bytes.
    pub(crate) passed: u64,
    pub(crate) passed_bytes: u64,
    /// Requests that a node passed on to another one, whose line counts.
    pub(crate) relayed: u64,
    pub(crate) misses: Vec<Miss>,
    ids: HashMap<Key, u32>,
    client_ids: HashMap<String, u32>,
}

/// The result of a request that another node of the cluster answered. That node has a line of it, too, with its result.
const RELAYED: &str = "relayed";
/// Most requests that are kept: about 3 GB with their objects. The lines after them are not read.
const MOST_REQUESTS: usize = 100_000_000;
/// Most clients that are counted separately.
const MOST_CLIENTS: usize = 1_000_000;
/// Most times of misses that are kept.
const MOST_TIMES: usize = 1_000_000;

/// Reads the files; `watch` is called with the number of lines after each million. `-` is standard input.
pub(crate) fn read(files: &[PathBuf], watch: &mut dyn FnMut(u64)) -> Result<Log, OpenError> {
    let (mut log, mut lines) = (Log::default(), 0);
    for file in files {
        let reader = match file == Path::new("-") {
            true => TraceReader::new(io::stdin(), "standard input")?,
            false => open(file)?,
        };
        for line in reader {
            lines += 1;
            if lines % 1_000_000 == 0 {
                watch(lines);
            }
            match line {
                Ok(_) if log.requests.len() >= MOST_REQUESTS => {
                    log.skipped.cut = Some(levada_trace::CutReason::Requests);
                    break;
                }
                Ok(record) => log.take(&record),
                Err(error) => log.skipped.add_unreadable(error),
            }
        }
    }
    Ok(log)
}

impl Log {
    fn take(&mut self, record: &LogRecord) {
        let client = self.client(record);
        if record.cache.as_deref() == Some(RELAYED) {
            self.relayed += 1;
            return;
        }
        let bytes = record.bytes.unwrap_or(0);
        if let Some(reason) = TraceLimits::default().refuse(record) {
            self.skipped.add(reason, 1);
            self.passed += 1;
            self.passed_bytes = self.passed_bytes.saturating_add(bytes);
            return;
        }
        let result = record.cache.as_deref().and_then(LoggedResult::of);
        if let (Some(LoggedResult::Miss), Some(taken)) = (result, record.taken)
            && self.misses.len() < MOST_TIMES
        {
            self.misses.push(Miss { seconds: taken.seconds() as f32, bytes: bytes as f32 });
        }
        let object = self.object(record);
        self.bytes = self.bytes.saturating_add(bytes);
        let time = record.time.unwrap_or(f64::NAN);
        self.requests.push(Request { time, object, client, result });
    }

    fn object(&mut self, record: &LogRecord) -> u32 {
        let (key, next) = (record.object_key(), self.objects.len() as u32);
        let id = *self.ids.entry(key).or_insert(next);
        if id == next {
            self.objects.push(Object { key, size: StatedSize::Unknown });
        }
        let size = &mut self.objects[id as usize].size;
        *size = (*size).max(record.stated_size());
        id
    }

    fn client(&mut self, record: &LogRecord) -> u32 {
        let Some(name) = &record.client else { return NO_CLIENT };
        let (known, next) = (self.client_ids.get(name).copied(), self.clients.len());
        let id = match known {
            Some(id) => id,
            None if next >= MOST_CLIENTS => return NO_CLIENT,
            None => {
                if let Entry::Vacant(free) = self.client_ids.entry(name.clone()) {
                    free.insert(next as u32);
                }
                self.clients.push(Client { name: name.clone(), requests: 0, missing: 0 });
                next as u32
            }
        };
        let client = &mut self.clients[id as usize];
        client.requests += 1;
        client.missing += u64::from(record.status == Some(404));
        id
    }

    /// Leaves out the requests for which `keeps` is false; returns their number.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&Request) -> bool) -> u64 {
        let before = self.requests.len();
        self.requests.retain(|request| keeps(request));
        (before - self.requests.len()) as u64
    }

    /// Leaves out requests for objects of unknown size.
    pub(crate) fn drop_sizeless(&mut self) {
        let sizes: Vec<bool> =
            self.objects.iter().map(|object| object.size.bytes().is_some()).collect();
        let dropped = self.retain(|request| sizes[request.object as usize]);
        self.skipped.add(SkipReason::SizeUnknown, dropped);
    }
}
