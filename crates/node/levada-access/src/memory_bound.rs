//! The bound on the resident memory of a node.
//!
//! ```text
//!   resident memory     the node
//!   below 13/16         serves everybody
//!   above 13/16         forgets what the memory tier has, down to 12/16
//!   above 14/16         a client has a few requests and connections at once
//!   above 15/16         begins no fetch; a client has fewer yet
//!   above 31/32         turns all clients away, unless nobody has anything that could be given back
//! ```
//!
//! The system's count is the only one that has everything in it: buffers of the protocols, state of TLS,
//! and what the allocator keeps back. A thread of its own reads it, so that busy workers do not delay
//! it. Admitted requests grow after that: a fetch that begins may take its `FETCH` within `GROWN`.
//! So there begin no more of them in a time than fit into what is free.
//!
//! A node without requests rests: its memory is read every 10 s, and so are the other things that a node
//! looks at regularly. Everything that a client begins asks for the pressure first, and this ends the rest.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    },
    thread::Thread,
    time::{Duration, Instant},
};

use tokio::{sync::Notify, time::Interval};

/// How far the resident memory is from its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum MemoryPressure {
    /// Far enough.
    #[default]
    None = 0,
    /// Clients that have much get no more.
    Some = 1,
    /// No fetch begins.
    High = 2,
    /// No client gets more.
    Full = 3,
}

/// See the module.
#[derive(Debug)]
pub struct MemoryBound {
    limit: AtomicU64,
    resident: AtomicU64,
    /// The pressure, and the marks `UNASKED` and `RESTS`: so asking for it costs one read, rest or not.
    pressure: AtomicU8,
    /// The fetches that may begin until the memory is read again.
    fetches: AtomicU64,
    begun: Instant,
    /// The thread that reads the memory.
    reader: OnceLock<Thread>,
    rest_is_over: Notify,
}

/// The memory that is bounded.
pub trait BoundedMemory: Send + 'static {
    /// The resident memory; `None` where the system does not say.
    fn resident(&self) -> Option<u64>;

    /// Forgets so many bytes that are in the tier, and gives what is free back to the system.
    fn shrink(&self, bytes: u64);

    /// Whether nothing is left that could be given back: the tier is empty, and no client has anything.
    fn is_bare(&self) -> bool;

    /// Whether the node serves no request.
    fn is_idle(&self) -> bool;
}

/// The least bound of a node with so many sites. An idle node has 27 MiB on its heap, 30 MiB of its program in memory,
/// and 9 KiB for each site; at 28/32 of the bound, clients get less.
pub fn least(sites: usize) -> u64 {
    let of_sites = sites as u64 * (12 << 10);
    (64 << 20) + (of_sites >> 20 << 20)
}

/// The pressure was not asked for since the memory was read.
const UNASKED: u8 = 1 << 7;
/// The node rests.
const RESTS: u8 = 1 << 6;

/// How often the resident memory is read.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// After this time can be seen whether enough was given back.
const GIVEN_BACK: Duration = Duration::from_millis(200);
/// A node that turned everybody away for so long, with nothing to give back, serves again.
const BARE: Duration = Duration::from_secs(5);
/// Bytes that a fetch and its first reader take when memory is short: their buffers, what waits for its
/// turn, and the state of two connections.
const FETCH: u64 = 64 << 10;
/// The longest wait of a fetch for room.
const ROOM_TIMEOUT: Duration = Duration::from_secs(5);
/// A node rests when it was idle for so long.
const QUIET: Duration = Duration::from_secs(5);
/// A node whose memory grows by so much is not idle.
const GROWTH: u64 = 1 << 20;
/// How often a node that rests looks at its memory and other things.
const REST_INTERVAL: Duration = Duration::from_secs(10);
/// In this time a fetch that has started takes its memory.
const GROWN: Duration = Duration::from_millis(500);

/// The facts that one look at the memory leaves for the next.
#[derive(Default)]
struct MemoryWatch {
    /// Since when no fetch begins.
    full_since: Option<Instant>,
    /// When memory was given back.
    shrunk: Option<Instant>,
    /// Since when the node is idle, and its resident memory then.
    idle_since: Option<(Instant, u64)>,
    rests: bool,
}

impl MemoryBound {
    /// A bound of `limit` bytes.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self {
            limit: AtomicU64::new(limit),
            resident: AtomicU64::new(0),
            pressure: AtomicU8::new(0),
            fetches: AtomicU64::new(u64::MAX),
            begun: Instant::now(),
            reader: OnceLock::new(),
            rest_is_over: Notify::new(),
        })
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// Changes the limit.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Relaxed);
    }

    /// The resident memory when it was last read.
    pub fn resident(&self) -> u64 {
        self.resident.load(Relaxed)
    }

    /// How far that is from the limit. Ends the rest of the node.
    #[inline]
    pub fn pressure(&self) -> MemoryPressure {
        let marked = self.pressure.load(Relaxed);
        if marked & (UNASKED | RESTS) != 0 {
            self.stir();
        }
        MemoryPressure::of(marked)
    }

    #[cold]
    fn stir(&self) {
        let before = self.pressure.fetch_and(!(UNASKED | RESTS), Relaxed);
        if before & RESTS != 0 {
            self.rest_is_over.notify_waiters();
            self.reader.get().inspect(|reader| reader.unpark());
        }
    }

    /// Waits until something that a node does regularly is due: at the next of these ticks, or every 10 s while the node
    /// rests. All that waits then is due at the same time, so that the process wakes once for it.
    pub async fn tick(&self, ticks: &mut Interval) {
        let over = self.rest_is_over.notified();
        if self.pressure.load(Relaxed) & RESTS == 0 {
            ticks.tick().await;
            return;
        }
        let passed = self.begun.elapsed().as_nanos() % REST_INTERVAL.as_nanos();
        let due = REST_INTERVAL - Duration::from_nanos(passed as u64);
        let _ = tokio::time::timeout(due, over).await;
    }

    /// Whether one more fetch may begin.
    pub fn allows_fetch(&self) -> bool {
        let less = |left: u64| left.checked_sub(1);
        self.fetches.fetch_update(Relaxed, Relaxed, less).is_ok()
    }

    /// Waits until one more fetch may begin. A burst of fetches is spread over time as long as memory is not
    /// nearly full; false if there is no room for this one.
    pub async fn makes_room_for_fetch(&self) -> bool {
        let begun = Instant::now();
        while self.pressure() < MemoryPressure::High && begun.elapsed() < ROOM_TIMEOUT {
            tokio::time::sleep(CHECK_INTERVAL).await;
            if self.allows_fetch() {
                return true;
            }
        }
        false
    }

    fn mark(&self, of_32: u64) -> u64 {
        self.limit() / 32 * of_32
    }

    /// Takes note of the resident memory. Returns how many bytes the memory tier is to give back.
    fn note(&self, resident: u64, is_bare: bool) -> u64 {
        let before = MemoryPressure::of(self.pressure.load(Relaxed));
        let pressure = match resident {
            _ if resident > self.mark(28) && is_bare => MemoryPressure::Some,
            _ if resident > self.mark(31) => MemoryPressure::Full,
            _ if resident > self.mark(30) => MemoryPressure::High,
            _ if resident > self.mark(28) => MemoryPressure::Some,
            // Between the marks what began goes on, so that it does not begin and end all the time.
            _ if resident > self.mark(26) => before.min(MemoryPressure::Some),
            _ => MemoryPressure::None,
        };
        let fetches = match pressure {
            MemoryPressure::High | MemoryPressure::Full => 0,
            _ => {
                let free = self.mark(30).saturating_sub(resident);
                let ticks = (GROWN.as_millis() / CHECK_INTERVAL.as_millis()) as u64;
                (free / FETCH / ticks).max(1)
            }
        };
        self.fetches.store(fetches, Relaxed);
        self.resident.store(resident, Relaxed);
        self.pressure.store(pressure as u8 | UNASKED, Relaxed);
        if pressure > before {
            let limit = self.limit();
            tracing::warn!(
                resident,
                limit,
                ?pressure,
                "memory is nearly full: clients are turned away"
            );
        }
        if resident > self.mark(26) { resident - self.mark(24) } else { 0 }
    }

    /// Watches this memory until nobody else has the bound. It has been read once when this returns.
    pub fn watch(self: &Arc<Self>, memory: impl BoundedMemory) {
        let Some(resident) = memory.resident() else { return };
        self.note(resident, false);
        let bound = Arc::downgrade(self);
        let watch = move || {
            let mut watch = MemoryWatch::default();
            while let Some(bound) = bound.upgrade() {
                let Some(pause) = watch.look(&bound, &memory, Instant::now()) else { return };
                drop(bound);
                if watch.rests {
                    std::thread::park_timeout(pause);
                } else {
                    std::thread::sleep(pause);
                }
            }
        };
        match std::thread::Builder::new().name("memory".into()).spawn(watch) {
            Ok(reader) => {
                let _ = self.reader.set(reader.thread().clone());
            }
            Err(error) => tracing::error!(%error, "`limits.memory` is not watched"),
        }
    }
}

impl MemoryWatch {
    /// Reads the memory, and has it give back what is too much. Returns when to look again; `None` where the system
    /// does not say.
    fn look(
        &mut self,
        bound: &MemoryBound,
        memory: &impl BoundedMemory,
        now: Instant,
    ) -> Option<Duration> {
        let resident = memory.resident()?;
        let was_asked = bound.pressure.load(Relaxed) & UNASKED == 0;
        let is_bare = self.full_since.is_some_and(|since| now - since > BARE) && memory.is_bare();
        let excess = bound.note(resident, is_bare);
        let pressure = MemoryPressure::of(bound.pressure.load(Relaxed));
        match pressure {
            MemoryPressure::High | MemoryPressure::Full => {
                self.full_since.get_or_insert(now);
            }
            _ if is_bare => {}
            _ => self.full_since = None,
        }
        if excess > 0 && self.shrunk.is_none_or(|then| now - then >= GIVEN_BACK) {
            memory.shrink(excess);
            self.shrunk = Some(now);
        }
        let grows = self.idle_since.is_some_and(|(_, then)| resident > then + GROWTH);
        if was_asked || grows || excess > 0 || !memory.is_idle() {
            self.idle_since = None;
        } else {
            self.idle_since.get_or_insert((now, resident));
        }
        let unasked = pressure as u8 | UNASKED;
        let rests = self.idle_since.is_some_and(|(since, _)| now - since >= QUIET)
            && bound.pressure.compare_exchange(unasked, unasked | RESTS, Relaxed, Relaxed).is_ok();
        if self.rests && !rests {
            bound.rest_is_over.notify_waiters();
        }
        self.rests = rests;
        Some(if rests { REST_INTERVAL } else { CHECK_INTERVAL })
    }
}

impl MemoryPressure {
    fn of(marked: u8) -> Self {
        match marked & !(UNASKED | RESTS) {
            0 => Self::None,
            1 => Self::Some,
            2 => Self::High,
            _ => Self::Full,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_begins_at_one_mark_and_ends_at_a_lower_one() {
        let bound = MemoryBound::new(3200);
        for (resident, pressure, excess) in [
            (2600, MemoryPressure::None, 0),
            (2601, MemoryPressure::None, 201),
            (2801, MemoryPressure::Some, 401),
            (3001, MemoryPressure::High, 601),
            (3101, MemoryPressure::Full, 701),
            (2700, MemoryPressure::Some, 300),
            (2600, MemoryPressure::None, 0),
            (2700, MemoryPressure::None, 300),
        ] {
            assert_eq!(bound.note(resident, false), excess, "{resident}");
            assert_eq!((bound.pressure(), bound.resident()), (pressure, resident));
        }
    }

    #[test]
    fn fetches_begin_no_faster_than_memory_has_room_for_them() {
        let bound = MemoryBound::new(3200 * FETCH);
        let begun = |resident: u64| {
            bound.note(resident * FETCH, false);
            (0..10_000).take_while(|_| bound.allows_fetch()).count()
        };
        assert_eq!(begun(500), 100);
        assert_eq!(begun(2500), 20);
        assert_eq!(begun(2990), 1);
        assert_eq!(begun(3001), 0);
    }

    #[tokio::test]
    async fn fetch_of_a_burst_waits_for_room_unless_memory_is_nearly_full() {
        let bound = MemoryBound::new(3200 * FETCH);
        bound.note(2990 * FETCH, false);
        assert!(bound.allows_fetch() && !bound.allows_fetch());
        let frees = async { bound.note(500 * FETCH, false) };
        let (has_room, _) = tokio::join!(bound.makes_room_for_fetch(), frees);
        assert!(has_room);
        bound.note(3001 * FETCH, false);
        assert!(!bound.makes_room_for_fetch().await);
    }

    #[test]
    fn node_with_nothing_to_give_back_serves_a_little() {
        let bound = MemoryBound::new(3200);
        bound.note(5000, false);
        assert_eq!((bound.pressure(), bound.allows_fetch()), (MemoryPressure::Full, false));
        bound.note(5000, true);
        assert_eq!((bound.pressure(), bound.allows_fetch()), (MemoryPressure::Some, true));
    }

    /// Memory as it was at one moment.
    struct FixedMemory {
        resident: u64,
        is_bare: bool,
        is_idle: bool,
        given_back: std::sync::mpsc::Sender<u64>,
    }

    impl BoundedMemory for FixedMemory {
        fn resident(&self) -> Option<u64> {
            Some(self.resident)
        }

        fn shrink(&self, bytes: u64) {
            self.given_back.send(bytes).unwrap();
        }

        fn is_bare(&self) -> bool {
            self.is_bare
        }

        fn is_idle(&self) -> bool {
            self.is_idle
        }
    }

    #[tokio::test]
    async fn idle_node_rests_until_somebody_asks() {
        let (bound, mut watch) = (MemoryBound::new(1 << 30), MemoryWatch::default());
        let (given_back, _shrunk) = std::sync::mpsc::channel();
        let mut memory =
            FixedMemory { resident: 1 << 20, is_bare: true, is_idle: true, given_back };
        let mut now = Instant::now();
        let mut looks = |memory: &FixedMemory| {
            let look = |_: &u32| {
                let pause = watch.look(&bound, memory, now).unwrap();
                now += pause;
                pause == CHECK_INTERVAL
            };
            (0..1_000).take_while(look).count()
        };
        assert_eq!(looks(&memory), 251, "5 s of 20 ms each");
        let mut ticks = tokio::time::interval(Duration::from_nanos(1));
        let mut rest = Box::pin(bound.tick(&mut ticks));
        assert!(tokio::time::timeout(Duration::ZERO, &mut rest).await.is_err());
        assert_eq!(looks(&memory), 0, "it rests until somebody asks");
        assert_eq!(bound.pressure(), MemoryPressure::None);
        rest.await;
        bound.tick(&mut ticks).await;
        assert_eq!(looks(&memory), 251);
        memory.resident += 2 * GROWTH;
        assert_eq!(looks(&memory), 251, "memory that grows ends the rest");
        memory.is_idle = false;
        assert_eq!(looks(&memory), 1_000, "a request is served");
    }

    #[test]
    fn node_that_is_full_and_bare_serves_a_little_until_that_is_over() {
        let (bound, mut watch, start) =
            (MemoryBound::new(3200), MemoryWatch::default(), Instant::now());
        let (given_back, shrunk) = std::sync::mpsc::channel();
        for (second, resident, is_bare, pressure) in [
            (0, 3101, true, MemoryPressure::Full),
            (5, 3101, true, MemoryPressure::Full),
            (6, 3101, true, MemoryPressure::Some),
            (7, 3101, true, MemoryPressure::Some),
            (8, 3101, false, MemoryPressure::Full),
            (9, 3101, true, MemoryPressure::Some),
            (10, 2500, false, MemoryPressure::None),
            (11, 3101, true, MemoryPressure::Full),
            (16, 3101, true, MemoryPressure::Full),
            (17, 3101, true, MemoryPressure::Some),
        ] {
            let memory =
                FixedMemory { resident, is_bare, is_idle: false, given_back: given_back.clone() };
            watch.look(&bound, &memory, start + Duration::from_secs(second)).unwrap();
            assert_eq!(bound.pressure(), pressure, "after {second} s");
        }
        assert!(shrunk.try_iter().eq([701; 9]));
    }

    #[test]
    fn memory_that_gives_back_gets_the_time_for_it() {
        let (bound, mut watch, start) =
            (MemoryBound::new(3200), MemoryWatch::default(), Instant::now());
        let (given_back, shrunk) = std::sync::mpsc::channel();
        let memory = FixedMemory { resident: 2700, is_bare: false, is_idle: false, given_back };
        for look in 0..20 {
            watch.look(&bound, &memory, start + CHECK_INTERVAL * look).unwrap();
        }
        assert!(shrunk.try_iter().eq([300; 2]));
    }
}
