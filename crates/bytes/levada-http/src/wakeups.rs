//! Which of the streams of a connection may go on.
//!
//! One task drives all streams of a connection, each in a place with a waker. The waker notes that the stream may go on,
//! and wakes the task, which then polls this stream and no other.

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire},
        },
    },
    task::{Wake, Waker},
};

use parking_lot::Mutex;

/// The places that there may be.
pub const MOST: usize = 128;
/// The place of the task itself, for what it does but streams.
pub const TASK: usize = MOST;

/// See the module.
#[derive(Debug)]
pub struct Wakeups {
    ready: [AtomicU64; MOST / 64 + 1],
    /// The task of the connection.
    task: Mutex<Waker>,
}

impl Default for Wakeups {
    fn default() -> Self {
        Self { ready: Default::default(), task: Mutex::new(Waker::noop().clone()) }
    }
}

impl Wakeups {
    /// The waker of a place.
    pub fn waker(self: &Arc<Self>, at: usize) -> Waker {
        Waker::from(Arc::new(PlaceWaker { at, wakeups: self.clone() }))
    }

    /// Notes the task that is woken for all streams.
    pub fn register(&self, task: &Waker) {
        self.task.lock().clone_from(task);
    }

    /// The places of the streams that may go on, as bits.
    pub fn take_ready(&self) -> u128 {
        let [low, high, _] = &self.ready;
        let take =
            |half: &AtomicU64| if half.load(Acquire) == 0 { 0 } else { half.swap(0, AcqRel) };
        u128::from(take(low)) | u128::from(take(high)) << 64
    }

    /// Whether the task itself may go on.
    pub fn take_task(&self) -> bool {
        self.ready[TASK / 64].swap(0, AcqRel) != 0
    }

    /// Whether nothing may go on.
    pub fn are_none(&self) -> bool {
        self.ready.iter().all(|ready| ready.load(Acquire) == 0)
    }

    /// Lets a stream go on when the task is polled next.
    pub fn note(&self, at: usize) {
        self.set(at);
    }

    /// Lets streams go on as [`note`](Self::note) does, by the bits of their places.
    pub fn note_all(&self, places: u128) {
        self.ready[0].fetch_or(places as u64, AcqRel);
        self.ready[1].fetch_or((places >> 64) as u64, AcqRel);
    }

    /// Returns whether the stream could not go on before.
    fn set(&self, at: usize) -> bool {
        let bit = 1 << (at % 64);
        self.ready[at / 64].fetch_or(bit, AcqRel) & bit == 0
    }
}

#[derive(Debug)]
struct PlaceWaker {
    at: usize,
    wakeups: Arc<Wakeups>,
}

impl Wake for PlaceWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.wakeups.set(self.at) {
            self.wakeups.task.lock().wake_by_ref();
        }
    }
}
