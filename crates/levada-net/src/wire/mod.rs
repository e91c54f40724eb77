//! An emulated wire: several ends, and between them a rate, a delay, a queue and losses.
//!
//! ```text
//!  host a ── TUN ── [up a] ──┐           ┌── [down b] ── TUN ── host b
//!                            ├─ by ──────┤
//!  host c ── TUN ── [up c] ──┘  address  └── [down c] ── TUN ── host c
//! ```
//!
//! Each end has a [`Shape`] for what its host sends and one for what it receives. With two ends it is
//! a cable and addresses do not matter; with more it is a switch. One thread carries a wire: at
//! 10 Mbit/s it takes about a twentieth of a core, and a core carries somewhat more than 1 Gbit/s.
//!
//! What is exact: rate, delay, queue and the losses, which follow from the seed packet by packet.
//! What is not there: bursts of losses, cross traffic.

#[cfg(target_os = "linux")]
mod carry;
mod shape;
mod stage;

#[cfg(target_os = "linux")]
pub use carry::{End, Wire};
pub use shape::{Shape, ShapeError, parse_loss};
pub use stage::{Fate, Stage};

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// What can be seen, and done, in one direction of an end while the wire runs.
#[derive(Debug, Default)]
pub struct Meter {
    /// Packets that came in.
    pub packets: AtomicU64,
    /// Bytes that went out.
    pub bytes: AtomicU64,
    /// Packets lost by chance.
    pub lost: AtomicU64,
    /// Packets that found the queue full.
    pub overflowed: AtomicU64,
    /// Packets in the queue at this moment.
    pub queued: AtomicU64,
    cut: AtomicBool,
    slower: AtomicU32,
}

impl Meter {
    /// Drops everything in this direction from now on, as a moved route does; or ends that.
    pub fn cut(&self, cut: bool) {
        self.cut.store(cut, Relaxed);
    }

    /// Has every packet take so many times as long to send from now on.
    pub fn slow_down(&self, times: u32) {
        self.slower.store(times, Relaxed);
    }

    pub(crate) fn slower(&self) -> u32 {
        self.slower.load(Relaxed).max(1)
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Relaxed)
    }
}
