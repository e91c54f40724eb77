//! An emulated wire: several ends, and between them a rate, a delay, a queue and losses.
//!
//! ```text
//!  host a ── TUN ── [up a] ──┐           ┌── [down b] ── TUN ── host b
//!                            ├─ by ──────┤
//!  host c ── TUN ── [up c] ──┘  address  └── [down c] ── TUN ── host c
//! ```
//!
//! Each end has a [`Shape`] for packets that its host sends, and one for packets that it receives.
//! A wire with two ends is a cable, and addresses do not matter; with more ends it is a switch. One
//! thread carries a wire: at 10 Mbit/s it takes about a twentieth of a core, and a core carries
//! somewhat more than 1 Gbit/s.
//!
//! Rate, delay, queue and losses are exact; the losses follow from the seed packet by packet.
//! Bursts of losses and cross traffic are not emulated.

#[cfg(target_os = "linux")]
mod carry;
mod shape;
mod stage;

#[cfg(target_os = "linux")]
pub use carry::{End, Wire};
pub use shape::{Shape, ShapeError, parse_loss};
pub use stage::{Fate, Stage};

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The counters and controls of one direction of an end while the wire runs.
#[derive(Debug, Default)]
pub struct Meter {
    /// Packets received.
    pub packets: AtomicU64,
    /// Bytes delivered.
    pub bytes: AtomicU64,
    /// Packets lost at random.
    pub lost: AtomicU64,
    /// Packets dropped because the queue was full.
    pub overflowed: AtomicU64,
    /// Packets in the queue now.
    pub queued: AtomicU64,
    cut: AtomicBool,
    slower: AtomicU32,
}

impl Meter {
    /// Starts or stops dropping all packets of this direction, as after a moved route.
    pub fn cut(&self, cut: bool) {
        self.cut.store(cut, Relaxed);
    }

    /// Makes every packet take `times` as long to send from now on.
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
