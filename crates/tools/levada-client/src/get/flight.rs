//! The bytes that are in flight on the path of a transfer: after the route has moved, so many
//! connections go on as can bring them into flight again at once.

use std::time::Duration;

use tokio::time::Instant;

/// The round trip of the path, and the most bytes that have come within one.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// The shortest time in which a connection was opened.
    round_trip: Option<Duration>,
    /// The round trip that is being counted.
    since: Option<Instant>,
    bytes: u64,
    most: u64,
}

impl Flight {
    /// A connection was opened in this time.
    pub(super) fn connected(&mut self, time: Duration) {
        self.round_trip = Some(self.round_trip.map_or(time, |least| least.min(time)));
    }

    /// These bytes have come over one of the connections.
    pub(super) fn received(&mut self, now: Instant, bytes: usize) {
        let Some(round_trip) = self.round_trip else { return };
        let elapsed = now.duration_since(*self.since.get_or_insert(now));
        if elapsed >= round_trip {
            let share = round_trip.as_secs_f64() / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
            self.most = self.most.max((self.bytes as f64 * share) as u64);
            self.since = Some(now);
            self.bytes = 0;
        }
        self.bytes += bytes as u64;
    }

    /// The number of new connections that send the most bytes within their first round trip.
    pub(super) fn connections(&self) -> u32 {
        if self.round_trip.is_none_or(|time| time < SHORT) {
            return 1;
        }
        u32::try_from(self.most / INITIAL_WINDOW).unwrap_or(u32::MAX).clamp(1, MOST_CONNECTIONS)
    }

    /// The length of a range for one of several connections.
    pub(super) fn range(&self) -> u64 {
        self.most.saturating_mul(2)
    }

    /// How long a connection may be silent that is older than the last sign of a moved route.
    pub(super) fn grace(&self) -> Duration {
        GRACE.max(self.round_trip.unwrap_or_default() * 4)
    }
}

/// Within shorter round trips one connection is at full speed soon.
const SHORT: Duration = Duration::from_millis(10);
/// Ten segments (RFC 6928).
const INITIAL_WINDOW: u64 = 14_600;
const MOST_CONNECTIONS: u32 = 8;
/// TCP repeats a lost packet within this time, once or twice.
const GRACE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(round_trip: u64, bytes_each: usize) -> Flight {
        let (mut flight, begun) = (Flight::default(), Instant::now());
        flight.connected(Duration::from_millis(1000));
        flight.connected(Duration::from_millis(round_trip));
        // A read every millisecond, and a pause, which does not count.
        for at in (0..3 * round_trip).chain([7 * round_trip]) {
            flight.received(begun + Duration::from_millis(at), bytes_each);
        }
        flight
    }

    #[test]
    fn as_many_connections_as_bring_the_bytes_into_flight_again() {
        assert_eq!(Flight::default().connections(), 1);
        let fast = flight(100, 2500);
        assert_eq!((fast.range(), fast.connections()), (500_000, 8));
        assert_eq!(flight(100, 600).connections(), 4);
        assert_eq!(flight(100, 10).connections(), 1);
        assert_eq!(flight(9, 25_000).connections(), 1);
        assert_eq!(flight(10, 25_000).connections(), 8);
        assert_eq!(fast.grace(), Duration::from_secs(1));
        assert_eq!(flight(600, 10).grace(), Duration::from_millis(2400));
    }
}
