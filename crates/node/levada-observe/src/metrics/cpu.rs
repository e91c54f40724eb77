//! CPU seconds by kind of work.
//!
//! ```text
//!   a task is polled ── 1 poll of 256, at random: the thread's CPU clock before and after
//!        │                     └─> the kind that the poll has worked for, times 256
//!        └─ a request begins, its body is sent, it ends: `did` notes the kind of work
//! ```
//!
//! The kernel tells a thread's CPU time by a system call, which takes as long as a tenth of a hit. Random polls are
//! measured therefore, and each counts for all. Handshakes are rare and dear: every poll of one is measured.

use std::{
    cell::Cell,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

use crate::metrics::{CacheResult, Family, Registry, TimeCounter};

/// One poll of so many is measured.
const SAMPLE: u32 = 256;

/// The kind of work of a poll. Of several kinds the last one in this list counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Connections that begin, rest and end.
    Connection,
    /// Bodies beyond the part that is sent with the head.
    Bytes,
    /// Requests that origins answer, and the fetches of objects.
    Miss,
    /// Requests that pass the cache by: to peers, to servers, without being stored, and answers of the node itself.
    Pass,
    /// Requests that memory or disk answer.
    Hit,
    /// Handshakes of TLS.
    Handshake,
}

impl Work {
    const ALL: [Self; 6] =
        [Self::Connection, Self::Bytes, Self::Miss, Self::Pass, Self::Hit, Self::Handshake];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Bytes => "bytes",
            Self::Miss => "miss",
            Self::Pass => "pass",
            Self::Hit => "hit",
            Self::Handshake => "tls_handshake",
        }
    }
}

impl From<CacheResult> for Work {
    fn from(result: CacheResult) -> Self {
        match result {
            CacheResult::Hit => Self::Hit,
            CacheResult::Miss
            | CacheResult::Expired
            | CacheResult::Revalidated
            | CacheResult::Collapsed => Self::Miss,
            CacheResult::Bypass
            | CacheResult::Pieces
            | CacheResult::Relayed
            | CacheResult::None => Self::Pass,
        }
    }
}

/// Notes the kind of work that the present poll does.
pub fn did(work: Work) {
    WORK.set(WORK.get().max(work));
}

thread_local! {
    /// The kind of work of the present poll.
    static WORK: Cell<Work> = const { Cell::new(Work::Connection) };
    /// Whether a poll is in progress, which counts for what it polls.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// The time in the present poll that is measured already.
    static COUNTED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    /// Polls until the next one that is measured.
    static AHEAD: Cell<u32> = const { Cell::new(SAMPLE) };
    /// The state of the random numbers.
    static RANDOM: Cell<u32> = const { Cell::new(0x9E37_79B9) };
}

/// The CPU seconds of each kind of work.
#[derive(Clone)]
pub struct CpuMetrics(Arc<[TimeCounter; Work::ALL.len()]>);

impl CpuMetrics {
    /// The times, which `registry` shows.
    pub fn registered(registry: &mut Registry) -> Self {
        let family: Family<[&str; 1], TimeCounter> = registry.family(
            "cpu_seconds",
            "CPU time by kind of work, estimated from a sample; other threads and tasks are not in it",
            ["work"],
        );
        Self(Arc::new(Work::ALL.map(|work| family.get_or_create(&[work.as_str()]).clone())))
    }

    /// A task whose work is counted; `least` is the kind of polls that note none.
    pub fn timed<F>(&self, least: Work, task: F) -> Timed<F> {
        Timed { task, least, every: false, cpu: self.clone() }
    }

    /// A handshake, of which every poll is measured.
    pub fn handshake<F>(&self, task: F) -> Timed<F> {
        Timed { task, least: Work::Handshake, every: true, cpu: self.clone() }
    }

    fn add(&self, work: Work, time: Duration) {
        self.0[work as usize].add(time);
    }
}

pin_project_lite::pin_project! {
    /// A task whose CPU time is counted.
    pub struct Timed<F> {
        #[pin]
        task: F,
        least: Work,
        every: bool,
        cpu: CpuMetrics,
    }
}

impl<F: Future> Future for Timed<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        if *this.every {
            let (polled, spent) = measured(|| this.task.poll(context));
            this.cpu.add(*this.least, spent);
            COUNTED.set(COUNTED.get() + spent);
            return polled;
        }
        if INSIDE.get() {
            return this.task.poll(context);
        }
        let _inside = Inside::begin(*this.least);
        if !is_measured() {
            return this.task.poll(context);
        }
        COUNTED.set(Duration::ZERO);
        let (polled, spent) = measured(|| this.task.poll(context));
        this.cpu.add(WORK.get(), spent.saturating_sub(COUNTED.get()) * SAMPLE);
        polled
    }
}

/// Ends with the poll, also when it panics.
struct Inside;

impl Inside {
    fn begin(least: Work) -> Self {
        INSIDE.set(true);
        WORK.set(least);
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// Whether this poll is one of the sample. The next one is at random, so that no rhythm of the load meets one of
/// the sample.
fn is_measured() -> bool {
    let ahead = AHEAD.get();
    if ahead > 1 {
        AHEAD.set(ahead - 1);
        return false;
    }
    let mut random = RANDOM.get();
    random ^= random << 13;
    random ^= random >> 17;
    random ^= random << 5;
    RANDOM.set(random);
    // From 1 to 2 n - 1, each as likely: n on average.
    AHEAD.set(random % (2 * SAMPLE - 1) + 1);
    true
}

fn measured<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    static COST: OnceLock<Duration> = OnceLock::new();
    // The time between two looks at the clock that have nothing between them.
    let empty = || (0..16).map(|_| spent(|| ()).1).min().unwrap_or_default();
    let cost = *COST.get_or_init(empty);
    let (done, time) = spent(work);
    (done, time.saturating_sub(cost))
}

fn spent<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = now();
    let done = work();
    (done, now().saturating_sub(before))
}

fn now() -> Duration {
    cpu_time_of(ClockId::ThreadCPUTime)
}

/// The CPU time of this process, user and system.
pub fn cpu_time() -> Duration {
    cpu_time_of(ClockId::ProcessCPUTime)
}

fn cpu_time_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, hint::black_box, task::Waker};

    use super::*;

    fn poll(cpu: &CpuMetrics, least: Work, poll: impl Fn()) {
        let task = cpu.timed(
            least,
            poll_fn(|_| {
                poll();
                Poll::Ready(())
            }),
        );
        let mut task = Box::pin(task);
        assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }

    fn burn(rounds: u64) {
        for round in 0..rounds {
            black_box(round);
        }
    }

    #[test]
    fn sample_counts_for_all_polls_and_by_the_last_kind_of_work() {
        let cpu = CpuMetrics::registered(&mut Registry::default());
        let before = now();
        let polls = 20_000;
        for number in 0..polls {
            poll(&cpu, Work::Connection, || {
                did(Work::Miss);
                burn(10_000);
                if number % 4 == 0 {
                    did(Work::Hit);
                }
            });
        }
        let all = (now() - before).as_secs_f64();
        let of = |work: Work| cpu.0[work as usize].get().as_secs_f64();
        let (hit, miss) = (of(Work::Hit), of(Work::Miss));
        assert_eq!((of(Work::Connection), of(Work::Bytes)), (0.0, 0.0));
        // About 78 polls are measured, three of four of them misses.
        assert!(((hit + miss) / all - 1.0).abs() < 0.4, "{hit} + {miss} of {all}");
        assert!(miss > hit, "{miss} {hit}");
    }

    #[test]
    fn handshake_is_measured_always_and_not_twice() {
        let cpu = CpuMetrics::registered(&mut Registry::default());
        let mut first = Box::pin(cpu.timed(Work::Connection, async {
            cpu.handshake(async { burn(1_000_000) }).await;
        }));
        // The first poll of the sample.
        AHEAD.set(1);
        assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        let (handshake, around) =
            (cpu.0[Work::Handshake as usize].get(), cpu.0[Work::Connection as usize].get());
        assert!(handshake > Duration::ZERO);
        assert!(around < handshake * 256 / 2, "{around:?} {handshake:?}");
    }
}
