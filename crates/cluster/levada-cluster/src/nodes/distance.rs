//! Distances between nodes, from the round trips that health probes measure.

use std::{collections::VecDeque, time::Duration};

use parking_lot::Mutex;

/// The round trips of a node's last probes, as this node has measured them.
#[derive(Default)]
pub(crate) struct RoundTrips(Mutex<Measured>);

#[derive(Default)]
struct Measured {
    last: VecDeque<Duration>,
    shown: Option<Duration>,
}

impl RoundTrips {
    /// Notes the time of a probe that was answered. One that had to connect, or met a busy node, took longer than a
    /// round trip: the shortest of the last ones counts. Returns whether the distance has changed by more than noise.
    pub(crate) fn note(&self, took: Duration) -> bool {
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
    pub(crate) fn shown(&self) -> Option<Duration> {
        self.0.lock().shown
    }
}

/// The distances of nodes by their round trips, those that the configuration states first: relative to the shortest
/// one, and 1 where none is known (OSDI'02 Sec. 3.5). Times that were measured and are shorter than [`NOISE`] are
/// alike: in them a node's own work shows.
pub(crate) fn distances(
    trips: impl Iterator<Item = (Option<Duration>, Option<Duration>)> + Clone,
) -> impl Iterator<Item = f64> {
    let trips = trips.map(|(stated, measured)| stated.or(measured.map(|time| time.max(NOISE))));
    let nearest = trips.clone().flatten().min().unwrap_or_default();
    trips.map(move |trip| match trip {
        Some(trip) if !nearest.is_zero() => trip.as_secs_f64() / nearest.as_secs_f64(),
        _ => 1.0,
    })
}

/// Probes by which a distance is known: 20 seconds of them by default.
const WINDOW: usize = 10;
/// Round trips within a data centre are shorter.
const NOISE: Duration = Duration::from_millis(2);

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

    #[test]
    fn distance_is_relative_to_the_nearest_node_and_stated_ones_come_first() {
        let of = |trips: &[(Option<u32>, Option<u32>)]| {
            let time = |time: Option<u32>| time.map(|time| time * MS);
            let trips = trips.iter().map(|(stated, measured)| (time(*stated), time(*measured)));
            distances(trips).collect::<Vec<_>>()
        };
        assert_eq!(of(&[(None, None), (None, Some(80)), (None, Some(200))]), [1.0, 1.0, 2.5]);
        assert_eq!(of(&[(None, Some(0)), (None, Some(1)), (Some(8), Some(80))]), [1.0, 1.0, 4.0]);
        assert_eq!(of(&[(Some(1), None), (Some(3), Some(1))]), [1.0, 3.0]);
        assert_eq!(of(&[(None, None), (None, None)]), [1.0, 1.0]);
    }
}
