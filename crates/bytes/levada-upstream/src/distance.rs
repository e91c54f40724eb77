//! Round trips to servers, as health probes measure them. Policies see the [distances](levada_policy::distances) that
//! follow from them.

use std::{collections::VecDeque, time::Duration};

use levada_policy::NOISE;
use parking_lot::Mutex;

/// The round trips of a server's last probes, as this node has measured them.
#[derive(Default)]
pub struct RoundTrips(Mutex<Measured>);

#[derive(Default)]
struct Measured {
    last: VecDeque<Duration>,
    shown: Option<Duration>,
}

impl RoundTrips {
    /// Notes the time of a probe that was answered. One that had to connect, or met a busy node, took longer than a
    /// round trip: the shortest of the last ones counts. Returns whether the distance has changed by more than noise.
    pub fn note(&self, took: Duration) -> bool {
        let mut measured = self.0.lock();
        measured.last.truncate(WINDOW - 1);
        measured.last.push_front(took);
        let shortest = measured.last.iter().min().copied();
        let changed = match (measured.shown, shortest) {
            (Some(shown), Some(now)) => shown.abs_diff(now) > NOISE.max(shown / 8),
            (shown, now) => shown != now,
        };
        if changed {
            measured.shown = shortest;
        }
        changed
    }

    /// The round trip, once it is known.
    pub fn shown(&self) -> Option<Duration> {
        self.0.lock().shown
    }
}

/// Probes by which a distance is known: 20 seconds of them by default.
const WINDOW: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn shortest_of_the_last_probes_counts() {
        let trips = RoundTrips::default();
        assert_eq!(trips.shown(), None);
        // The first one has connected.
        let changes = [160, 80, 81, 300, 79].map(|time| trips.note(time * MS));
        assert_eq!(changes, [true, true, false, false, false]);
        assert_eq!(trips.shown(), Some(80 * MS));
        // Another way is longer: it shows when the window has no shorter one.
        let later: Vec<_> = (0..WINDOW).map(|_| trips.note(120 * MS)).collect();
        assert_eq!(
            (later.iter().filter(|changed| **changed).count(), later[WINDOW - 1]),
            (1, true)
        );
        assert_eq!(trips.shown(), Some(120 * MS));
    }
}
