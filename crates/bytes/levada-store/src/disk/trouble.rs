//! A disk that fails to read or write: what is counted, what is logged, and how long it is then
//! left alone.

use std::{
    io,
    time::{Duration, Instant},
};

use levada_types::Backoff;

/// The kind of a fault, as metrics and log name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Full,
    ReadOnly,
    Permission,
    Missing,
    InUse,
    Timeout,
    Io,
}

impl Kind {
    pub(super) const COUNT: usize = Self::Io as usize + 1;

    pub(super) fn of(error: &io::Error) -> Self {
        use io::ErrorKind::{
            NotADirectory, NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem,
            ResourceBusy, StorageFull, TimedOut,
        };
        match error.kind() {
            StorageFull | QuotaExceeded => Self::Full,
            ReadOnlyFilesystem => Self::ReadOnly,
            PermissionDenied => Self::Permission,
            NotFound | NotADirectory => Self::Missing,
            ResourceBusy => Self::InUse,
            TimedOut => Self::Timeout,
            _ => Self::Io,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::ReadOnly => "read_only",
            Self::Permission => "permission",
            Self::Missing => "missing",
            Self::InUse => "in_use",
            Self::Timeout => "timeout",
            Self::Io => "io",
        }
    }
}

/// The wait after the first failure, which doubles: one failure costs little, and a dead disk is tried each minute.
const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(60));

/// How long something that fails is left alone: twice as long every time, until it works again.
#[derive(Debug, Default)]
pub(super) struct Pause {
    failures: u32,
    until: Option<Instant>,
}

impl Pause {
    /// Whether to try at all.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    /// When to try again.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    pub(super) fn failed(&mut self, now: Instant) {
        // Faults at the same time count as one.
        if self.is_over(now) {
            self.failures = self.failures.saturating_add(1);
            self.until = Some(now + RETRY_BACKOFF.after(self.failures));
        }
    }

    pub(super) fn worked(&mut self) {
        *self = Self::default();
    }
}

/// The time between two lines of the log about one kind of trouble, which may come with every request.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// One log line per while; the lines left out are counted in the next.
#[derive(Debug, Default)]
pub(super) struct Hush {
    last: Option<Instant>,
    left_out: u64,
}

impl Hush {
    /// How many lines were left out since the last one; `None` when this one is, too.
    pub(super) fn speak(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now < last + LOG_INTERVAL) {
            self.left_out += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_minute_and_end_with_success() {
        let mut pause = Pause::default();
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..12 {
            assert!(pause.is_over(now));
            pause.failed(now);
            pause.failed(now);
            pauses.push((pause.until().unwrap() - now).as_millis());
            now = pause.until().unwrap();
        }
        assert_eq!(pauses[..4], [100, 200, 400, 800]);
        assert_eq!(pauses[11], 60_000);
        pause.worked();
        pause.failed(now);
        assert_eq!(pause.until(), Some(now + RETRY_BACKOFF.after(1)));
    }

    #[test]
    fn repeated_trouble_is_one_line_per_while() {
        let (mut hush, now) = (Hush::default(), Instant::now());
        assert_eq!(hush.speak(now), Some(0));
        assert_eq!(hush.speak(now), None);
        assert_eq!(hush.speak(now + LOG_INTERVAL / 2), None);
        assert_eq!(hush.speak(now + LOG_INTERVAL), Some(2));
    }
}
