//! The access logs of a node: one for all requests, and others for single sites.

use std::{
    borrow::Cow,
    hash::{BuildHasher as _, RandomState},
    io,
    net::IpAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{metrics::Counter, otel::LogSender, redact::RedactedArguments};
use http::HeaderMap;
use parking_lot::Mutex;

use crate::log::{
    LineQueue, LogTarget, WeakLineQueue,
    entry::{CapturedFields, LogEntry},
    format::LogFormat,
};

/// The settings of an access log.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessLog {
    /// The place where lines go.
    pub target: LogTarget,
    /// The format of a line.
    pub format: LogFormat,
    /// The part of requests that is written; `None`: all.
    pub sampling: Option<Sampling>,
    /// The query arguments whose values lines leave out.
    pub redact: RedactedArguments,
    /// The name of the node.
    pub node: String,
}

/// Which requests are written when not all are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The part of requests that is chosen at random, at most 1.
    pub rate: f64,
    /// Requests that take this long are always written, as are failures.
    pub slow: Duration,
}

impl AccessLog {
    /// All requests, in a file.
    pub fn to_file(path: PathBuf, format: LogFormat) -> Self {
        let (target, redact) = (LogTarget::File(path), RedactedArguments::default());
        Self { target, format, sampling: None, redact, node: String::new() }
    }
}

/// The most time between a request and its line.
const DELAY: Duration = Duration::from_secs(1);

/// An open access log.
pub struct Log {
    lines: Lines,
    settings: AccessLog,
    /// The state from which the next random choice is made.
    chance: AtomicU64,
}

/// The way of lines to their target.
pub(crate) enum Lines {
    Queue(LineQueue),
    Collector(LogSender),
}

impl Log {
    /// The fields of a request that lines of this log have.
    pub fn capture(&self, request: &HeaderMap) -> CapturedFields {
        CapturedFields::of_request(&self.settings.format, &self.settings.redact, request)
    }

    /// A URL as lines show it.
    pub fn shown<'a>(&self, url: &'a str) -> Cow<'a, str> {
        self.settings.redact.without(url)
    }

    pub(crate) fn format(&self) -> &LogFormat {
        &self.settings.format
    }

    pub(crate) fn node(&self) -> &str {
        &self.settings.node
    }

    pub(crate) fn is_sampled(&self) -> bool {
        self.settings.sampling.is_some()
    }

    pub(crate) fn lines(&self) -> &Lines {
        &self.lines
    }

    /// Whether this request is written, and the part of requests like it that is.
    pub(crate) fn admit(&self, entry: &LogEntry<'_>) -> Option<f64> {
        let Some(Sampling { rate, slow }) = self.settings.sampling else { return Some(1.0) };
        let is_failure = entry.status.is_server_error() || !entry.complete;
        if is_failure || entry.request_time >= slow {
            return Some(1.0);
        }
        (self.draw() < rate).then_some(rate)
    }

    /// A number from 0 to 1, by SplitMix64 (Steele et al., OOPSLA'14).
    fn draw(&self) -> f64 {
        let state = self.chance.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// All access logs of a node. Logs with one target share its queue, also across reloads, so that changes
/// neither lose lines nor mix them.
pub struct Logs {
    queues: Mutex<Vec<(LogTarget, WeakLineQueue)>>,
    dropped: Counter,
    collector: Option<LogSender>,
}

impl Logs {
    /// No logs yet. `dropped` counts lines that could not be written. The collector gets records, if there is one.
    pub fn new(dropped: Counter, collector: Option<LogSender>) -> Self {
        Self { queues: Mutex::default(), dropped, collector }
    }

    /// Opens a log.
    ///
    /// # Errors
    /// When the file cannot be opened, no thread can be started, or there is no collector.
    pub fn open(&self, settings: &AccessLog) -> io::Result<Arc<Log>> {
        let lines = match (&settings.target, &self.collector) {
            (LogTarget::Collector, Some(collector)) => Lines::Collector(collector.clone()),
            (LogTarget::Collector, None) => {
                return Err(io::Error::other("the node has started without `[telemetry]`"));
            }
            _ => Lines::Queue(self.queue(settings)?),
        };
        let chance = AtomicU64::new(RandomState::new().hash_one(IpAddr::from([0, 0, 0, 0])));
        Ok(Arc::new(Log { lines, settings: settings.clone(), chance }))
    }

    /// The queue of this target, which may be there.
    fn queue(&self, settings: &AccessLog) -> io::Result<LineQueue> {
        let mut queues = self.queues.lock();
        queues.retain(|(_, queue)| queue.upgrade().is_some());
        let known = queues.iter().find(|(target, _)| *target == settings.target);
        if let Some(lines) = known.and_then(|(_, queue)| queue.upgrade()) {
            return Ok(lines);
        }
        let target = settings.target.clone();
        let lines = LineQueue::start(target.clone(), DELAY, self.dropped.clone())?;
        queues.push((target, lines.downgrade()));
        Ok(lines)
    }

    /// Opens all files again: they may have been renamed.
    pub fn reopen(&self) {
        self.running().for_each(|queue| queue.reopen());
    }

    /// Waits until all lines are written. Readers that do not read cost a second.
    pub async fn close(&self) {
        let queues: Vec<_> = self.running().collect();
        let flush = move || {
            std::thread::scope(|scope| {
                for queue in &queues {
                    scope.spawn(|| queue.flush(DELAY));
                }
            });
        };
        let _ = tokio::task::spawn_blocking(flush).await;
    }

    fn running(&self) -> impl Iterator<Item = LineQueue> {
        let queues: Vec<_> = self.queues.lock().iter().filter_map(|(_, q)| q.upgrade()).collect();
        queues.into_iter()
    }
}
