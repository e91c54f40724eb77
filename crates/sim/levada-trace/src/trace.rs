//! A trace in memory: each object once, and requests as object numbers.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
};

use levada_types::{ByteSize, Key, Timestamp};

use crate::{
    reader::LineError,
    record::{LineProblem, LogRecord, StatedSize},
};

/// A requested object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceObject {
    /// Host and path with query, as far as the log has them, or the identifier of a trace.
    pub name: Box<str>,
    /// The size of the whole object in bytes.
    pub size: u64,
}

/// Requests in the order of the file, 4 bytes each (12 with times).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    objects: Vec<TraceObject>,
    requests: Vec<u32>,
    times: Option<Vec<Timestamp>>,
}

/// The records that are counted, and limits on their number.
#[derive(Clone, Debug)]
pub struct TraceLimits {
    /// The statuses that are counted; records without a status always are. Responses with 206 and
    /// 304 do not give the size of the whole object.
    pub statuses: Vec<u16>,
    /// Reading stops after this many requests.
    pub requests: usize,
    /// Reading stops when the trace is estimated to need more memory than this.
    pub memory: ByteSize,
}

impl TraceLimits {
    /// The reason why a record does not count, by its method and status.
    pub fn refuse(&self, record: &LogRecord) -> Option<SkipReason> {
        if record.method != "GET" {
            return Some(SkipReason::Method);
        }
        let status = record.status;
        // In a log, a record with a time but without a status is a request without a response.
        let counts = status.map_or(record.time.is_none() || record.bytes > Some(0), |status| {
            self.statuses.contains(&status)
        });
        (!counts).then_some(SkipReason::Status)
    }
}

impl Default for TraceLimits {
    fn default() -> Self {
        Self { statuses: vec![200, 206, 304], requests: usize::MAX, memory: ByteSize(4 << 30) }
    }
}

/// The reason why a line of the file is not a request of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// The line is in the wrong format.
    Unreadable,
    /// The method is not GET.
    Method,
    /// The status is not one of [`TraceLimits::statuses`].
    Status,
    /// No full response gives the size of the object.
    SizeUnknown,
}

impl SkipReason {
    /// All reasons, in the order in which a record is tested.
    pub const ALL: [Self; 4] = [Self::Unreadable, Self::Method, Self::Status, Self::SizeUnknown];

    /// The text in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable line",
            Self::Method => "method other than GET",
            Self::Status => "status that does not count",
            Self::SizeUnknown => "size of the object unknown",
        }
    }
}

/// The limit that ended reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutReason {
    /// [`TraceLimits::requests`].
    Requests,
    /// [`TraceLimits::memory`].
    Memory,
    /// The file is truncated or its compression is damaged.
    Broken,
}

/// The lines of a file that did not become part of the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    counts: [u64; SkipReason::ALL.len()],
    /// The first few unreadable lines.
    pub examples: Vec<LineError>,
    /// Set if the file was not read to its end.
    pub cut: Option<CutReason>,
}

impl Skipped {
    /// The lines skipped for one reason.
    pub fn count(&self, reason: SkipReason) -> u64 {
        self.counts[reason as usize]
    }

    /// The lines skipped for any reason.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Counts lines that are skipped for this reason.
    pub fn add(&mut self, reason: SkipReason, count: u64) {
        self.counts[reason as usize] += count;
    }

    /// Adds the lines of another part of the file.
    pub fn merge(&mut self, other: Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        let room = EXAMPLES.saturating_sub(self.examples.len());
        self.examples.extend(other.examples.into_iter().take(room));
        self.cut = self.cut.or(other.cut);
    }

    /// Counts an unreadable line, or notes that the file is damaged.
    pub fn add_unreadable(&mut self, error: LineError) {
        if matches!(error.problem, LineProblem::Broken(_)) {
            self.cut = Some(CutReason::Broken);
        } else {
            self.add(SkipReason::Unreadable, 1);
        }
        if self.examples.len() < EXAMPLES {
            self.examples.push(error);
        }
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = SkipReason::ALL
            .into_iter()
            .filter(|reason| self.count(*reason) > 0)
            .map(|reason| format!("{} ({})", self.count(reason), reason.as_str()))
            .collect();
        parts.extend(self.cut.map(|cut| match cut {
            CutReason::Requests => "the rest of the file (limit of requests)".to_owned(),
            CutReason::Memory => "the rest of the file (limit of memory)".to_owned(),
            CutReason::Broken => "the rest of the file (it is damaged)".to_owned(),
        }));
        if parts.is_empty() {
            return f.write_str("skipped nothing");
        }
        write!(f, "skipped {}", parts.join(", "))
    }
}

impl Trace {
    /// A trace of known objects.
    ///
    /// # Panics
    /// When a request is not a valid object number. Files are read by [`Trace::from_reader`]
    /// instead.
    pub fn new(objects: Vec<TraceObject>, requests: Vec<u32>) -> Self {
        let known = |id: &u32| (*id as usize) < objects.len();
        assert!(requests.iter().all(known), "a request is not a valid object number");
        Self { objects, requests, times: None }
    }

    /// The same requests at these times.
    ///
    /// # Panics
    /// When there is not one time for each request, or one is before the last.
    pub fn at(self, times: Vec<Timestamp>) -> Self {
        assert!(times.len() == self.requests.len() && times.is_sorted(), "one ascending time each");
        Self { times: Some(times), ..self }
    }

    /// Collects the records that count.
    ///
    /// A record counts if its method is GET and its status is one of [`TraceLimits::statuses`]. The size
    /// of an object is the largest number of bytes of a full response (neither 206 nor 304),
    /// because aborted transfers are shorter. An object that appears only in 206 responses gets the
    /// largest of their sizes, which is a lower bound. An object that appears only in 304 responses
    /// has no size and is skipped.
    ///
    /// Times are kept if every counted record has one. They start at zero and never decrease: a
    /// server writes a line when the response ends, so lines may be out of order.
    pub fn from_reader(
        records: impl IntoIterator<Item = Result<LogRecord, LineError>>,
        limits: &TraceLimits,
    ) -> (Self, Skipped) {
        let mut collector = TraceCollector::default();
        let mut skipped = Skipped::default();
        for record in records {
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    skipped.add_unreadable(error);
                    continue;
                }
            };
            if let Some(reason) = limits.refuse(&record) {
                skipped.add(reason, 1);
                continue;
            }
            skipped.cut = collector.full(limits);
            if skipped.cut.is_some() {
                break;
            }
            collector.take(&record);
        }
        let (trace, sizeless) = collector.finish();
        skipped.add(SkipReason::SizeUnknown, sizeless);
        (trace, skipped)
    }

    /// The requested objects.
    pub fn objects(&self) -> &[TraceObject] {
        &self.objects
    }

    /// The requests: indices into [`Trace::objects`].
    pub fn requests(&self) -> &[u32] {
        &self.requests
    }

    /// The time of each request, if the file has times.
    pub fn times(&self) -> Option<&[Timestamp]> {
        self.times.as_deref()
    }

    /// The number of requests of each object.
    pub fn counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.objects.len()];
        for &id in &self.requests {
            counts[id as usize] += 1;
        }
        counts
    }
}

#[derive(Default)]
struct TraceCollector {
    /// Names are looked up by their 64-bit key, so that each is stored once.
    ids: HashMap<Key, u32>,
    names: Vec<Box<str>>,
    sizes: Vec<StatedSize>,
    requests: Vec<u32>,
    times: Vec<f64>,
    name_bytes: u64,
}

impl TraceCollector {
    fn full(&self, limits: &TraceLimits) -> Option<CutReason> {
        let memory = self.name_bytes
            + self.names.len() as u64 * OBJECT_MEMORY
            + self.requests.len() as u64 * REQUEST_MEMORY;
        let objects_full = self.names.len() >= u32::MAX as usize;
        if self.requests.len() >= limits.requests {
            Some(CutReason::Requests)
        } else if memory > limits.memory.0 || objects_full {
            Some(CutReason::Memory)
        } else {
            None
        }
    }

    fn take(&mut self, record: &LogRecord) {
        let name = record.object_name();
        let next = self.names.len() as u32;
        let id = match self.ids.entry(Key::of(name.as_bytes())) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(free) => {
                free.insert(next);
                self.name_bytes += name.len() as u64;
                self.names.push(name.into_boxed_str());
                self.sizes.push(StatedSize::Unknown);
                next
            }
        };
        let size = &mut self.sizes[id as usize];
        *size = (*size).max(record.stated_size());
        self.requests.push(id);
        // If one record has no time, `times` is shorter than `requests` and is not used.
        self.times.extend(record.time);
    }

    /// The trace, and the number of requests that were removed because the size of their object is
    /// unknown.
    fn finish(self) -> (Trace, u64) {
        let mut objects = Vec::new();
        let new_ids: Vec<Option<u32>> = (self.names.into_iter().zip(self.sizes))
            .map(|(name, known)| {
                objects.push(TraceObject { name, size: known.bytes()? });
                Some(objects.len() as u32 - 1)
            })
            .collect();
        let new_id = |id: &u32| new_ids[*id as usize];
        let requests: Vec<u32> = self.requests.iter().filter_map(new_id).collect();
        let sizeless = (self.requests.len() - requests.len()) as u64;
        let timed = self.times.len() == self.requests.len() && !requests.is_empty();
        let times = timed.then(|| {
            let kept = self.requests.iter().zip(self.times);
            since_first(kept.filter(|(id, _)| new_id(id).is_some()).map(|(_, time)| time))
        });
        (Trace { objects, requests, times }, sizeless)
    }
}

/// Times relative to the first one, adjusted so that they never decrease.
fn since_first(times: impl Iterator<Item = f64>) -> Vec<Timestamp> {
    let (mut first, mut latest) = (None, Timestamp::ZERO);
    times
        .map(|time| {
            let seconds = time - *first.get_or_insert(time);
            // The cast saturates, so an invalid year cannot overflow.
            latest = latest.max(Timestamp((seconds * 1e9) as u64));
            latest
        })
        .collect()
}

/// The number of unreadable lines that a report shows.
const EXAMPLES: usize = 5;

/// The memory of an object while it is collected, without its name: its entries in the map and in
/// two vectors, which may be half empty after they have grown.
const OBJECT_MEMORY: u64 = 2 * (17 + 16 + 16);

/// The memory of a request: id and time, with the same factor.
const REQUEST_MEMORY: u64 = 2 * (4 + 8);

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::TraceReader;

    fn log(lines: &[(&str, &str, u16, &str)]) -> TraceReader {
        let line = |(second, (method, target, status, bytes)): (
            usize,
            &(&str, &str, u16, &str),
        )| {
            format!(
                "::1 - - [10/Oct/2000:13:55:{second:02} +0000] \"{method} {target} HTTP/1.1\" {status} {bytes}\n"
            )
        };
        let text: String = lines.iter().enumerate().map(line).collect();
        TraceReader::new(Cursor::new(text.into_bytes()), "access.log").unwrap()
    }

    #[test]
    fn gets_of_known_size_count_and_the_rest_is_reported() {
        let reader = log(&[
            ("GET", "/a", 200, "70"),
            ("HEAD", "/a", 200, "0"),
            ("GET", "/gone", 404, "12"),
            ("GET", "/a", 304, "-"),
            ("GET", "/only-304", 304, "-"),
            ("GET", "/part", 206, "30"),
            ("GET", "/a", 200, "100"),
            ("GET", "/part", 206, "40"),
        ]);
        let (trace, skipped) = Trace::from_reader(reader, &TraceLimits::default());
        let objects: Vec<_> = trace.objects().iter().map(|o| (&*o.name, o.size)).collect();
        assert_eq!(objects, [("/a", 100), ("/part", 40)]);
        assert_eq!(trace.requests(), [0, 0, 1, 0, 1]);
        let seconds: Vec<_> = trace.times().unwrap().iter().map(|t| t.as_secs_f64()).collect();
        assert_eq!(seconds, [0.0, 3.0, 5.0, 6.0, 7.0]);
        assert_eq!(SkipReason::ALL.map(|reason| skipped.count(reason)), [0, 1, 1, 1]);
        assert_eq!(
            skipped.to_string(),
            "skipped 1 (method other than GET), 1 (status that does not count), 1 (size of the object unknown)"
        );
    }

    #[test]
    fn a_partial_response_never_outgrows_a_whole_one() {
        let reader = log(&[("GET", "/a", 206, "900"), ("GET", "/a", 200, "100")]);
        assert_eq!(Trace::from_reader(reader, &TraceLimits::default()).0.objects()[0].size, 100);
    }

    #[test]
    fn a_limit_cuts_and_says_so() {
        let lines =
            || log(&[("GET", "/a", 200, "1"), ("GET", "/b", 200, "1"), ("GET", "/c", 200, "1")]);
        let limits = TraceLimits { requests: 2, ..TraceLimits::default() };
        let (trace, skipped) = Trace::from_reader(lines(), &limits);
        assert_eq!((trace.requests().len(), skipped.cut), (2, Some(CutReason::Requests)));
        let limits = TraceLimits { memory: ByteSize(150), ..TraceLimits::default() };
        let (trace, skipped) = Trace::from_reader(lines(), &limits);
        assert_eq!((trace.requests().len(), skipped.cut), (2, Some(CutReason::Memory)));
        let (_, skipped) =
            Trace::from_reader(lines(), &TraceLimits { requests: 3, ..TraceLimits::default() });
        assert_eq!(skipped, Skipped::default());
    }

    #[test]
    fn unreadable_lines_are_counted_and_a_few_are_shown() {
        let mut text = "1 a 10\n".repeat(16);
        text.push_str(&"nonsense\n".repeat(9));
        let reader = TraceReader::new(Cursor::new(text.into_bytes()), "trace").unwrap();
        let (trace, skipped) = Trace::from_reader(reader, &TraceLimits::default());
        assert_eq!((trace.requests().len(), trace.objects().len()), (16, 1));
        assert_eq!((skipped.count(SkipReason::Unreadable), skipped.examples.len()), (9, EXAMPLES));
        assert!(trace.times().is_none());
    }

    #[test]
    fn hosts_keep_objects_apart() {
        let record = |host: Option<&str>| {
            Ok(LogRecord {
                method: "GET".to_owned(),
                host: host.map(str::to_owned),
                target: "/a".to_owned(),
                bytes: Some(1),
                ..LogRecord::default()
            })
        };
        let records = [record(Some("x.example")), record(Some("y.example")), record(None)];
        let (trace, _) = Trace::from_reader(records, &TraceLimits::default());
        assert_eq!(trace.objects().len(), 3);
        assert_eq!(&*trace.objects()[0].name, "x.example/a");
    }

    #[test]
    fn times_never_run_backwards() {
        let times = since_first([10.0, 12.0, 11.0, f64::MAX, 5.0].into_iter());
        assert!(times.is_sorted());
        assert_eq!(times[2], Timestamp::from_secs(2));
    }
}
