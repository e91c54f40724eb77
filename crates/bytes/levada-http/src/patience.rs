//! The least rate of a client.
//!
//! A client may let this node wait for a time. Waiting uses this time up, and bytes that move earn it back, as
//! much as they take at the least rate, but never more than there was at first. So a client that stands still is
//! given up after that time, and one that is slower than the rate in the long run somewhat later. One that
//! keeps to the rate goes on, however evenly or in bursts its bytes move.

use std::time::Duration;

use tokio::time::Instant;

/// The time that a client may let this node wait, and the rate at which bytes earn it back.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The longest time without a byte.
    pub time: Duration,
    /// Bytes per second; with 0, any byte earns all of it back.
    pub min_rate: u64,
}

impl Patience {
    /// The time that is left when `bytes` have moved and there was `left` before.
    pub fn earned(&self, left: Duration, bytes: u64) -> Duration {
        let earned = match (bytes, bytes.saturating_mul(1_000_000).checked_div(self.min_rate)) {
            (0, _) => Duration::ZERO,
            (_, None) => self.time,
            (_, Some(micros)) => Duration::from_micros(micros),
        };
        left.saturating_add(earned).min(self.time)
    }
}

/// A wait for a client that does not take bytes, judged by those that it acknowledges: for a long while
/// after it has started to read slowly, the system takes no more bytes for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendStall {
    left: Duration,
    looked: Instant,
    acknowledged: Option<u64>,
}

/// How often the acknowledged bytes are looked at, at least, in the time that a client has. Writes that go on
/// before the first look cost no system call.
const LOOKS: u32 = 8;

impl SendStall {
    pub(crate) fn begin(patience: &Patience, now: Instant) -> Self {
        Self { left: patience.time, looked: now, acknowledged: None }
    }

    pub(crate) fn next_look(&self, patience: &Patience) -> Instant {
        self.looked + self.left.min(patience.time / LOOKS)
    }

    /// Whether the client is waited for any longer. `acknowledged` is the number of bytes that it has
    /// acknowledged so far, where the system tells.
    pub(crate) fn goes_on(
        &mut self,
        patience: &Patience,
        now: Instant,
        acknowledged: Option<u64>,
    ) -> bool {
        let before = self.acknowledged.zip(acknowledged);
        let moved = before.map_or(0, |(before, now)| now.saturating_sub(before));
        let left = self.left.saturating_sub(now.saturating_duration_since(self.looked));
        *self = Self { left: patience.earned(left, moved), looked: now, acknowledged };
        !self.left.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { time: Duration::from_secs(60), min_rate: 500 };

    /// The time after which a client is given up that acknowledges `lump` bytes every so many seconds; `None`:
    /// not within a day.
    fn given_up(patience: Patience, lump: u64, every: u64) -> Option<u64> {
        let start = Instant::now();
        let mut stall = SendStall::begin(&patience, start);
        loop {
            let now = stall.next_look(&patience);
            let seconds = (now - start).as_secs();
            if seconds > 86_400 {
                return None;
            }
            let acknowledged = (every > 0).then(|| seconds / every * lump);
            if !stall.goes_on(&patience, now, acknowledged) {
                return Some(seconds);
            }
        }
    }

    #[test]
    fn reader_is_judged_by_what_it_acknowledges() {
        assert_eq!(given_up(PATIENCE, 0, 0), Some(60), "the system does not tell");
        assert_eq!(given_up(PATIENCE, 0, 1), Some(60), "nothing is acknowledged");
        assert_eq!(given_up(PATIENCE, 6000, 1), None);
        assert_eq!(given_up(PATIENCE, 300_000, 50), None, "in lumps");
        assert!(given_up(PATIENCE, 1, 1).is_some_and(|after| after < 70));
        assert!(given_up(PATIENCE, 400, 1).is_some());
        let any = Patience { min_rate: 0, ..PATIENCE };
        assert_eq!(given_up(any, 1, 20), None);
    }

    #[test]
    fn bytes_earn_no_more_than_there_was() {
        let second = Duration::from_secs(1);
        assert_eq!(PATIENCE.earned(second, 500), 2 * second);
        assert_eq!(PATIENCE.earned(second, u64::MAX), 60 * second);
        assert_eq!(Patience { min_rate: 0, ..PATIENCE }.earned(second, 0), second);
    }
}
