//! From log lines to requests: 9 bytes each, with objects and clients as numbers.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
};

use levada_report::{is_hit, is_memory_hit};
use levada_trace::{LogRecord, SkipReason, Skipped, StatedSize, TraceLimits, TraceReader, open};
use levada_types::Key;

/// A request that a cache could answer. A log has many of them: this is all that is kept of a line.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed)]
pub(crate) struct Request {
    /// Whole seconds since 1970, until 2106; [`NO_TIME`] if not stated.
    second: u32,
    /// The index of its object.
    pub(crate) object: u32,
    /// The 32nd part of the second, and the result in the lowest bits.
    rest: u8,
}

/// The time is not stated.
const NO_TIME: u32 = u32::MAX;
/// Times are exact to one part of so many of a second, which is enough to sort lines.
const PARTS: f64 = 32.0;
const RESULT_BITS: u32 = 3;

impl Request {
    fn new(time: Option<f64>, object: u32, result: Option<LoggedResult>) -> Self {
        // Casts saturate: a year that is not valid is the first or the last one.
        let second = time.map_or(NO_TIME, |time| (time as u32).min(NO_TIME - 1));
        let part = time.map_or(0, |time| (time.fract().max(0.0) * PARTS) as u8);
        Self { second, object, rest: part << RESULT_BITS | result.map_or(0, |result| result as u8) }
    }

    /// Seconds since 1970, if stated.
    pub(crate) fn time(self) -> Option<f64> {
        let part = f64::from(self.rest >> RESULT_BITS) / PARTS;
        (self.second != NO_TIME).then_some(f64::from(self.second) + part)
    }

    /// Seconds since 1970 where all requests have a time.
    pub(crate) fn seconds(self) -> f64 {
        self.time().unwrap_or(0.0)
    }

    /// A number that ascends with the time.
    pub(crate) fn order(self) -> u64 {
        u64::from(self.second) << 8 | u64::from(self.rest >> RESULT_BITS)
    }

    /// The result of a cache, as logged.
    pub(crate) fn result(self) -> Option<LoggedResult> {
        let number = self.rest & ((1 << RESULT_BITS) - 1);
        LoggedResult::ALL.into_iter().find(|result| *result as u8 == number)
    }
}

/// The result of a cache, as a log states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoggedResult {
    Miss = 1,
    /// A hit in memory or on disk.
    Hit,
    /// A hit in memory, of a log that says so.
    MemoryHit,
    /// A copy that had expired, and was fetched again.
    Expired,
    /// A copy that had expired, and was confirmed: it counts as a hit.
    Revalidated,
}

impl LoggedResult {
    const ALL: [Self; 5] =
        [Self::Miss, Self::Hit, Self::MemoryHit, Self::Expired, Self::Revalidated];

    /// Whether a copy was there, fresh or not.
    pub(crate) fn is_found(self) -> bool {
        self != Self::Miss
    }

    /// Whether that copy had expired.
    pub(crate) fn is_expired(self) -> bool {
        matches!(self, Self::Expired | Self::Revalidated)
    }

    /// Whether the body came from the cache.
    pub(crate) fn is_hit(self) -> bool {
        !matches!(self, Self::Miss | Self::Expired)
    }

    fn of(text: &str) -> Option<Self> {
        // Results of nginx and Levada, and of Squid and Traffic Server.
        let expired = match text.to_ascii_lowercase().as_str() {
            "expired" | "tcp_refresh_modified" | "tcp_refresh_miss" => Some(Self::Expired),
            "revalidated" | "tcp_refresh_unmodified" | "tcp_refresh_hit" => Some(Self::Revalidated),
            _ => None,
        };
        if expired.is_some() {
            return expired;
        }
        Some(match is_hit(text)? {
            false => Self::Miss,
            true if is_memory_hit(text) => Self::MemoryHit,
            true => Self::Hit,
        })
    }
}

/// The client of a request is not stated, or there are too many.
pub(crate) const NO_CLIENT: u32 = u32::MAX;

/// Several clients have requested an object.
const SEVERAL_CLIENTS: u32 = u32::MAX - 1;

/// An object: its key, its size as far as it is known, and the client that alone requested it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    pub(crate) key: Key,
    pub(crate) size: StatedSize,
    /// Its only client; [`NO_CLIENT`] or [`SEVERAL_CLIENTS`] if there is none.
    pub(crate) client: u32,
}

impl Object {
    pub(crate) fn bytes(self) -> u64 {
        self.size.bytes().unwrap_or(0)
    }

    fn requested_by(&mut self, client: u32) {
        self.client = match self.client {
            NO_CLIENT => client,
            same if same == client => same,
            _ => SEVERAL_CLIENTS,
        };
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
    pub(crate) name: Box<str>,
    pub(crate) requests: u64,
    /// Responses with 404.
    pub(crate) missing: u64,
}

/// All requests of some files.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) requests: Vec<Request>,
    /// The client of each request, if they are wanted: its index, or [`NO_CLIENT`].
    request_clients: Option<Vec<u32>>,
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
    client_ids: HashMap<Key, u32>,
}

/// The result of a request that another node of the cluster answered. That node has a line of it, too, with its result.
const RELAYED: &str = "relayed";
/// Most requests that are kept: 0.9 GB, and half as much to sort them, without their objects. The
/// lines after them are not read.
const MOST_REQUESTS: usize = 100_000_000;
/// Most clients that are counted separately.
const MOST_CLIENTS: usize = 1_000_000;
/// Most times of misses that are kept.
const MOST_TIMES: usize = 1_000_000;

/// Reads the files; `watch` is called with the number of lines after each million. `-` is standard input. The client
/// of each request is kept if there is a use for it.
pub(crate) fn read(
    files: &[PathBuf],
    with_clients: bool,
    watch: &mut dyn FnMut(u64) -> anyhow::Result<()>,
) -> anyhow::Result<Log> {
    let (mut log, mut lines) = (Log::default(), 0);
    log.request_clients = with_clients.then(Vec::new);
    for file in files {
        let reader = match file == Path::new("-") {
            true => TraceReader::new(io::stdin(), "standard input")?,
            false => open(file)?,
        };
        for line in reader {
            lines += 1;
            if lines % 1_000_000 == 0 {
                watch(lines)?;
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
    (log.ids, log.client_ids) = Default::default();
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
        if let (Some(LoggedResult::Miss | LoggedResult::Expired), Some(taken)) =
            (result, record.taken)
            && self.misses.len() < MOST_TIMES
        {
            self.misses.push(Miss { seconds: taken.seconds() as f32, bytes: bytes as f32 });
        }
        let object = self.object(record);
        self.bytes = self.bytes.saturating_add(bytes);
        self.objects[object as usize].requested_by(client);
        self.requests.push(Request::new(record.time, object, result));
        if let Some(clients) = &mut self.request_clients {
            clients.push(client);
        }
    }

    fn object(&mut self, record: &LogRecord) -> u32 {
        let (key, next) = (record.object_key(), self.objects.len() as u32);
        let id = *self.ids.entry(key).or_insert(next);
        if id == next {
            self.objects.push(Object { key, size: StatedSize::Unknown, client: NO_CLIENT });
        }
        let size = &mut self.objects[id as usize].size;
        *size = (*size).max(record.stated_size());
        id
    }

    fn client(&mut self, record: &LogRecord) -> u32 {
        let Some(name) = &record.client else { return NO_CLIENT };
        let (key, next) = (Key::of(name.as_bytes()), self.clients.len());
        let id = match self.client_ids.get(&key) {
            Some(id) => *id,
            None if next >= MOST_CLIENTS => return NO_CLIENT,
            None => {
                self.client_ids.insert(key, next as u32);
                let name = name.as_str().into();
                self.clients.push(Client { name, requests: 0, missing: 0 });
                next as u32
            }
        };
        let client = &mut self.clients[id as usize];
        client.requests += 1;
        client.missing += u64::from(record.status == Some(404));
        id
    }

    /// Leaves out the requests for which `keeps` is false, by their objects and clients; returns their number. A
    /// request has a client if the log was read with clients.
    fn retain(&mut self, keeps: impl Fn(u32, u32) -> bool) -> u64 {
        let (before, mut kept) = (self.requests.len(), 0);
        for at in 0..before {
            let clients = self.request_clients.as_mut();
            let client = clients.as_ref().map_or(NO_CLIENT, |clients| clients[at]);
            if keeps(self.requests[at].object, client) {
                self.requests[kept] = self.requests[at];
                if let Some(clients) = clients {
                    clients[kept] = client;
                }
                kept += 1;
            }
        }
        self.requests.truncate(kept);
        (before - kept) as u64
    }

    /// Leaves out requests for objects of unknown size.
    pub(crate) fn drop_sizeless(&mut self) {
        let sizes: Vec<bool> =
            self.objects.iter().map(|object| object.size.bytes().is_some()).collect();
        let dropped = self.retain(|object, _| sizes[object as usize]);
        self.skipped.add(SkipReason::SizeUnknown, dropped);
    }

    /// Leaves out the requests of these clients, and then forgets the clients of the others.
    pub(crate) fn drop_clients(&mut self, dropped: &[bool]) {
        self.retain(|_, client| client == NO_CLIENT || !dropped[client as usize]);
        self.request_clients = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_takes_nine_bytes_and_knows_its_moment_and_result() {
        assert_eq!(size_of::<Request>(), 9);
        let at = |time, result| Request::new(time, 7, result);
        for result in LoggedResult::ALL.map(Some).into_iter().chain([None]) {
            let request = at(Some(1_700_000_000.75), result);
            assert_eq!((request.time(), request.result()), (Some(1_700_000_000.75), result));
        }
        assert_eq!(at(None, None).time(), None);
        let times = [-5.0, 0.0, 1e9, 1e9 + 0.04, 4_000_000_000.0, f64::MAX];
        let orders = times.map(|time| at(Some(time), Some(LoggedResult::Hit)).order());
        assert!(orders.is_sorted() && orders[2] < orders[3], "{orders:?}");
        assert!(at(Some(f64::MAX), None).time().is_some());
    }
}
