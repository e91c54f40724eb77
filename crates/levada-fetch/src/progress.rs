//! How fast a piece under way comes.

use levada_types::Timestamp;

/// How far back is looked.
const SPANS: usize = 3;

/// What has come of a piece, and how fast in the last spans between looks: a connection that has lost packets
/// stands still, and then begins slowly; it is slow in one span, but not for long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    looked: Timestamp,
    came: u64,
    /// Bytes per second.
    speeds: [f64; SPANS],
}

impl Progress {
    /// Of a piece that is asked for now.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { looked: now, came: 0, speeds: [0.0; SPANS] }
    }

    /// So many bytes have come by now.
    pub(crate) fn look(&mut self, now: Timestamp, came: u64) {
        let span = now.since(self.looked).as_secs_f64();
        if span > 0.0 {
            let speed = came.saturating_sub(self.came) as f64 / span;
            (self.looked, self.came) = (now, came);
            self.speeds.rotate_left(1);
            self.speeds[SPANS - 1] = speed;
        }
    }

    /// The speed in the best span.
    pub(crate) fn speed(&self) -> f64 {
        self.speeds.iter().copied().fold(0.0, f64::max)
    }

    /// Whether something came in each.
    pub(crate) fn moves(&self) -> bool {
        self.speeds.iter().all(|speed| *speed > 0.0)
    }

    /// Seconds that the rest of `length` bytes takes at that speed.
    pub(crate) fn left(&self, length: u64) -> f64 {
        length.saturating_sub(self.came) as f64 / self.speed()
    }
}
