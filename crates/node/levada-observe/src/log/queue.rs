//! Lines that wait, and the thread that writes them.
//!
//! ```text
//!   requests ── push ──> buffer of 1 MiB ── a thread ──> file, standard output, syslog
//! ```
//!
//! A request never waits for the reader of a log: the thread alone writes. When the reader is slower than
//! the lines come, the buffer fills, and further lines are dropped and counted. So are lines whose write to a
//! file fails: a line that was written in part counts as well. Lines for a syslog daemon that cannot be
//! reached are sent again.

use std::{
    io,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use crate::{
    log::output::{LogTarget, Output, Written, count},
    metrics::Counter,
};

/// The most bytes that wait to be written.
const BOUND: usize = 1 << 20;
/// The thread writes at once when this many bytes wait.
const BATCH: usize = 64 << 10;
/// The wait before a syslog daemon that took nothing is tried again.
const RETRY_BACKOFF: Duration = Duration::from_secs(1);
/// The thread waits for lines this long at most.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The thread needs little.
const STACK: usize = 256 << 10;

/// Lines that wait, and the thread that writes them.
#[derive(Clone)]
pub struct LineQueue(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// There is something to do.
    wake: Condvar,
    /// Everything has been written.
    idle: Condvar,
    delay: Duration,
    dropped: Counter,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    is_writing: bool,
    is_urgent: bool,
    reopens: bool,
    /// The last queue is being dropped: the thread looks soon whether one is left.
    may_end: bool,
    /// The thread has ended: no queue was left.
    has_ended: bool,
}

/// A queue that may have ended.
pub struct WeakLineQueue(Weak<Shared>);

impl WeakLineQueue {
    /// The queue, if its thread runs. It goes on then.
    pub fn upgrade(&self) -> Option<LineQueue> {
        let shared = self.0.upgrade()?;
        let has_ended = shared.state.lock().has_ended;
        (!has_ended).then_some(LineQueue(shared))
    }
}

impl LineQueue {
    /// Opens `target` and starts the thread that writes. A line is written after `delay` at the latest,
    /// unless lines before it are still being written. `dropped` counts lines that found the buffer
    /// full, or whose write failed.
    ///
    /// # Errors
    /// When the file cannot be opened, or no thread can be started.
    pub fn start(target: LogTarget, delay: Duration, dropped: Counter) -> io::Result<Self> {
        let out = Output::open(&target)?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            wake: Condvar::new(),
            idle: Condvar::new(),
            delay,
            dropped,
        });
        let writer = Writer { shared: shared.clone(), target, out, failed: false };
        std::thread::Builder::new()
            .name("log".to_owned())
            .stack_size(STACK)
            .spawn(move || writer.run())?;
        Ok(Self(shared))
    }

    /// The queue, without keeping its thread.
    pub fn downgrade(&self) -> WeakLineQueue {
        WeakLineQueue(Arc::downgrade(&self.0))
    }

    /// Adds a line. It is dropped when too much waits already.
    pub fn push(&self, line: &str) {
        let Shared { state, wake, delay, dropped, .. } = &*self.0;
        let mut state = state.lock();
        let before = state.waiting.len();
        if before + line.len() >= BOUND {
            dropped.inc();
            return;
        }
        state.waiting.extend_from_slice(line.as_bytes());
        state.waiting.push(b'\n');
        let is_due = before < BATCH && state.waiting.len() >= BATCH;
        let is_urgent = is_due || delay.is_zero();
        state.is_urgent |= is_urgent;
        if is_urgent || before == 0 {
            wake.notify_one();
        }
    }

    /// Waits until all lines are written, at most this long. Returns whether they are.
    pub fn flush(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        let mut state = self.0.state.lock();
        while state.is_writing || !state.waiting.is_empty() {
            state.is_urgent = true;
            self.0.wake.notify_one();
            if self.0.idle.wait_until(&mut state, until).timed_out() {
                return false;
            }
        }
        true
    }

    /// Opens the file again before the next line is written: it may have been renamed.
    pub fn reopen(&self) {
        self.0.state.lock().reopens = true;
    }
}

impl Drop for LineQueue {
    fn drop(&mut self) {
        // This queue has a reference, and the thread has two.
        if Arc::strong_count(&self.0) <= 3 {
            self.0.state.lock().may_end = true;
            self.0.wake.notify_one();
        }
    }
}

/// The thread that writes. It ends with the process, or when no queue is left.
struct Writer {
    shared: Arc<Shared>,
    target: LogTarget,
    out: Output,
    /// The last write failed.
    failed: bool,
}

impl Writer {
    fn run(mut self) {
        let mut lines = Vec::new();
        while self.next(&mut lines) {
            self.write(&lines);
            lines.clear();
            lines.shrink_to(2 * BATCH);
        }
    }

    /// Writes lines. Those that a syslog daemon did not take wait for it, as long as there is a queue.
    fn write(&mut self, lines: &[u8]) {
        let mut done = 0;
        while done < lines.len() {
            let Written { bytes, lost, result } = self.out.write(&lines[done..]);
            done += bytes;
            self.shared.dropped.inc_by(lost);
            self.report(result);
            if done < lines.len() && self.failed {
                if Arc::strong_count(&self.shared) == 1 {
                    self.shared.dropped.inc_by(count(&lines[done..]));
                    return;
                }
                std::thread::sleep(RETRY_BACKOFF);
            }
        }
    }

    /// Takes the lines that wait. Returns false when no more can come.
    fn next(&mut self, lines: &mut Vec<u8>) -> bool {
        let shared = self.shared.clone();
        let mut state = shared.state.lock();
        state.is_writing = false;
        if state.waiting.is_empty() {
            shared.idle.notify_all();
        }
        while !std::mem::take(&mut state.is_urgent) {
            let rests = state.waiting.is_empty() && !std::mem::take(&mut state.may_end);
            let delay = if rests { LONGEST_WAIT } else { shared.delay.max(Duration::from_secs(1)) };
            let is_late = shared.wake.wait_for(&mut state, delay).timed_out();
            // This thread has two of the references.
            if state.waiting.is_empty() && Arc::strong_count(&shared) == 2 {
                state.has_ended = true;
                return false;
            }
            if is_late && !state.waiting.is_empty() {
                break;
            }
        }
        std::mem::swap(&mut state.waiting, lines);
        state.is_writing = true;
        if std::mem::take(&mut state.reopens) {
            drop(state);
            match Output::open(&self.target) {
                Ok(out) => self.out = out,
                Err(error) => self.report(Err(error)),
            }
        }
        true
    }

    /// Reports the first of several failures. A failure of the event log cannot be reported in it.
    fn report(&mut self, result: io::Result<()>) {
        if let Err(error) = &result
            && !self.failed
            && self.target != LogTarget::Stderr
        {
            tracing::error!(%error, target = %self.target, "the access log cannot be written");
        }
        self.failed = result.is_err();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn lines_are_written_in_order_and_the_file_is_opened_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("access.log"), dir.path().join("access.log.1"));
        let target = LogTarget::File(path.clone());
        let queue =
            LineQueue::start(target, Duration::from_secs(3600), Counter::default()).unwrap();
        queue.push("one");
        queue.push("two");
        assert!(queue.flush(SOON));
        std::fs::rename(&path, &moved).unwrap();
        queue.push("three");
        assert!(queue.flush(SOON));
        queue.reopen();
        queue.push("four");
        assert!(queue.flush(SOON));
        assert_eq!(std::fs::read_to_string(moved).unwrap(), "one\ntwo\nthree\n");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "four\n");
    }

    #[test]
    fn reader_that_stands_still_costs_lines_and_no_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        make_pipe(&path);
        // Open for reading as well, so that opening does not wait, and nothing is read.
        let _reader = File::options().read(true).write(true).open(&path).unwrap();
        let dropped = Counter::default();
        let target = LogTarget::File(path);
        let queue = LineQueue::start(target, Duration::ZERO, dropped.clone()).unwrap();
        let line = "x".repeat(1000);
        (0..5000).for_each(|_| queue.push(&line));
        assert!(dropped.get() > 1000, "{} dropped", dropped.get());
        assert!(!queue.flush(Duration::from_millis(1)));
    }

    #[test]
    fn pipe_without_a_reader_opens_and_keeps_its_lines() {
        use std::io::{BufRead as _, BufReader};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        make_pipe(&path);
        let target = LogTarget::File(path.clone());
        let queue = LineQueue::start(target, Duration::ZERO, Counter::default()).unwrap();
        queue.push("one");
        assert!(queue.flush(SOON));
        let reader = BufReader::new(File::open(&path).unwrap());
        queue.push("two");
        let lines: Vec<_> = reader.lines().take(2).map(Result::unwrap).collect();
        assert_eq!(lines, ["one", "two"]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn lines_that_a_full_disk_refuses_are_counted() {
        let dropped = Counter::default();
        let target = LogTarget::File("/dev/full".into());
        let queue = LineQueue::start(target, Duration::ZERO, dropped.clone()).unwrap();
        queue.push("one");
        queue.push("two");
        assert!(queue.flush(SOON), "nothing waits for room");
        assert_eq!(dropped.get(), 2);
    }

    fn make_pipe(path: &std::path::Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }
}
