//! The kernel's account of threads: how long each has run, and how long it has waited for a processor.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::FileExt as _,
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use crate::clients::Wait;

/// The interval at which the account is read.
const ACCOUNT_INTERVAL: Duration = Duration::from_millis(2);
/// New threads are looked for after so many readings.
const ROUNDS: u32 = 10;

/// The time that a thread has used until now.
#[derive(Clone, Copy, Default)]
pub(crate) struct Used {
    pub(crate) ran: Duration,
    /// The time in which it could have run, and another one did.
    pub(crate) waited: Duration,
}

impl Used {
    /// Reads an open `schedstat`. A thread that has ended has used nothing.
    pub(crate) fn read(file: &File) -> Option<Self> {
        let mut text = [0; 80];
        let length = file.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        let mut numbers = text.split_whitespace().map(|n| n.parse().map(Duration::from_nanos));
        Some(Self { ran: numbers.next()?.ok()?, waited: numbers.next()?.ok()? })
    }
}

/// The threads of a process, and what they have used at many moments.
pub(crate) struct Threads {
    looks: Receiver<(Instant, Vec<(u32, Used)>)>,
    seen: BTreeMap<u32, Vec<(Instant, Used)>>,
}

impl Threads {
    /// Begins to look at the threads of a process.
    pub(crate) fn watch(pid: u32) -> Self {
        let (sender, looks) = mpsc::channel();
        thread::spawn(move || {
            let mut files = BTreeMap::new();
            loop {
                for thread in of(pid) {
                    let path = format!("/proc/{pid}/task/{thread}/schedstat");
                    files.entry(thread).or_insert_with(|| File::open(path).ok());
                }
                for _ in 0..ROUNDS {
                    let read = |(thread, file): (&u32, &Option<File>)| {
                        Some((*thread, Used::read(file.as_ref()?)?))
                    };
                    let now = Instant::now();
                    if sender.send((now, files.iter().filter_map(read).collect())).is_err() {
                        return;
                    }
                    thread::sleep(ACCOUNT_INTERVAL);
                }
            }
        });
        Self { looks, seen: BTreeMap::new() }
    }

    fn catch_up(&mut self) {
        for (at, all) in self.looks.try_iter() {
            for (thread, used) in all {
                self.seen.entry(thread).or_default().push((at, used));
            }
        }
    }

    /// The part of a wait that the client and its serving thread did not spend in a queue for a processor.
    pub(crate) fn own_part(&mut self, wait: &Wait) -> Duration {
        self.catch_up();
        let queued = |thread: &u32| self.used(*thread, wait.from, wait.to).waited;
        let longest = wait.served_by.iter().map(queued).max().unwrap_or_default();
        (wait.to - wait.from).saturating_sub(wait.queued + longest)
    }

    /// The time that all other threads have run in.
    pub(crate) fn others(&mut self, from: Instant, to: Instant, serving: &[u32]) -> Duration {
        self.catch_up();
        let others: Vec<_> = self.seen.keys().copied().filter(|t| !serving.contains(t)).collect();
        let ran = others.into_iter().map(|thread| self.used(thread, from, to).ran).sum();
        // Each round is looked at once.
        self.seen.values_mut().for_each(|looks| {
            looks.drain(..looks.len().saturating_sub(1));
        });
        ran
    }

    fn used(&self, thread: u32, from: Instant, to: Instant) -> Used {
        let looks = self.seen.get(&thread).map_or(&[][..], Vec::as_slice);
        let first = looks.partition_point(|(at, _)| *at <= from).saturating_sub(1);
        let last = looks.partition_point(|(at, _)| *at < to).min(looks.len().saturating_sub(1));
        match (looks.get(first), looks.get(last)) {
            // One that is new has used all of it since then.
            (Some((at, _)), Some((_, after))) if *at > from => *after,
            (Some((_, before)), Some((_, after))) => Used {
                ran: after.ran.saturating_sub(before.ran),
                waited: after.waited.saturating_sub(before.waited),
            },
            _ => Used::default(),
        }
    }
}

/// The threads of a process.
pub(crate) fn of(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The name of a thread.
pub(crate) fn name(pid: u32, thread: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/task/{thread}/comm")).ok()
}
