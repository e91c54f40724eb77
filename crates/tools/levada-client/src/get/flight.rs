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
    /// The times of the first bytes and the last.
    first: Option<Instant>,
    last: Option<Instant>,
    /// How often silence was wrongly taken as a move of the route, and when it was last doubted.
    wrong_doubts: u32,
    doubted: Option<Instant>,
}

impl Flight {
    /// A connection was opened in this time.
    pub(super) fn connected(&mut self, time: Duration) {
        self.round_trip = Some(self.round_trip.map_or(time, |least| least.min(time)));
    }

    /// These bytes have come over one of the connections.
    pub(super) fn received(&mut self, now: Instant, bytes: usize) {
        self.first.get_or_insert(now);
        self.last = Some(now);
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
        let Some(most) = self.most() else { return MOST_CONNECTIONS };
        u32::try_from(most / INITIAL_WINDOW).unwrap_or(u32::MAX).clamp(1, MOST_CONNECTIONS)
    }

    /// The receive window of each of so many connections: together they receive somewhat more in a
    /// round trip than the path carries, but do not fill its queue.
    pub(super) fn window(&self, connections: u32) -> Option<usize> {
        let share = self.most()? / u64::from(connections.max(1));
        Some(usize::try_from(share.max(LEAST_WINDOW)).unwrap_or(usize::MAX))
    }

    /// The length of a range for one of several connections.
    pub(super) fn range(&self) -> u64 {
        self.most.saturating_mul(2).max(LEAST_RANGE)
    }

    /// The most bytes within a round trip, once bytes have come for so long that windows are open.
    fn most(&self) -> Option<u64> {
        let time = self.last?.duration_since(self.first?);
        (time >= self.round_trip? * SLOW_START).then_some(self.most)
    }

    /// The time from which on the silence of all connections makes the route doubtful. A request that
    /// was sent at `asked` brings bytes without pauses only after some round trips.
    pub(super) fn doubtful_from(&self, asked: Instant) -> Option<Instant> {
        let round_trip = self.round_trip.filter(|&time| time >= SHORT)?;
        let silence = (round_trip / 4).max(LEAST_SILENCE) * (1 << self.wrong_doubts);
        Some((self.last? + silence).max(asked + round_trip * 3))
    }

    /// A doubt turned out to be wrong or right: the next silence may be longer or shorter. Connections
    /// that find out at once count once.
    pub(super) fn doubted(&mut self, now: Instant, is_wrong: bool) {
        let round_trip = self.round_trip.unwrap_or_default();
        if self.doubted.is_some_and(|last| now.duration_since(last) <= round_trip) {
            return;
        }
        self.doubted = Some(now);
        self.wrong_doubts = match is_wrong {
            true => (self.wrong_doubts + 1).min(MOST_DOUBTS),
            false => self.wrong_doubts.saturating_sub(1),
        };
    }

    /// Whether it took longer than the path takes until the first byte of a response came: the server
    /// is slow, and a silence of it means nothing.
    pub(super) fn is_slow(&self, first_byte: Duration) -> bool {
        self.round_trip.is_some_and(|round_trip| first_byte > round_trip * 2)
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
const LEAST_RANGE: u64 = 16 * INITIAL_WINDOW;
const LEAST_WINDOW: u64 = 2 * INITIAL_WINDOW;
/// A window that doubles in each round trip is open after so many.
const SLOW_START: u32 = 8;
/// Schedulers and radio links pause for less.
const LEAST_SILENCE: Duration = Duration::from_millis(20);
/// Then silence has to last longer than a stall.
const MOST_DOUBTS: u32 = 8;
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
        for at in (0..3 * round_trip).chain([8 * round_trip]) {
            flight.received(begun + Duration::from_millis(at), bytes_each);
        }
        flight
    }

    #[test]
    fn as_many_connections_as_bring_the_bytes_into_flight_again() {
        assert_eq!(Flight::default().connections(), 1);
        let fast = flight(100, 2500);
        assert_eq!((fast.range(), fast.connections()), (500_000, 8));
        assert_eq!(fast.window(8), Some(31_250));
        assert_eq!(fast.window(20), Some(29_200), "not less than connections begin with");
        assert_eq!(flight(100, 600).connections(), 4);
        assert_eq!(flight(100, 10).connections(), 1);
        assert_eq!(flight(9, 25_000).connections(), 1);
        assert_eq!(flight(10, 25_000).connections(), 8);
        assert_eq!(fast.grace(), Duration::from_secs(1));
        assert_eq!(flight(600, 10).grace(), Duration::from_millis(2400));
    }

    #[test]
    fn first_windows_show_nothing_of_the_path() {
        let (mut flight, begun) = (Flight::default(), Instant::now());
        flight.connected(Duration::from_millis(100));
        flight.received(begun, 14_600);
        flight.received(begun + Duration::from_millis(100), 29_200);
        assert_eq!((flight.connections(), flight.window(8)), (8, None));
        assert_eq!(flight.range(), 233_600);
    }

    #[test]
    fn doubts_are_slower_after_wrong_ones_and_sooner_after_right_ones() {
        let (mut flight, ms) = (flight(100, 2500), Duration::from_millis);
        let last = flight.last.unwrap();
        let doubtful = |flight: &Flight| flight.doubtful_from(last - ms(1000)).unwrap() - last;
        assert_eq!(doubtful(&flight), ms(25));
        assert_eq!(flight.doubtful_from(last), Some(last + ms(300)), "the request is new");
        // Two connections notice the same.
        flight.doubted(last, true);
        flight.doubted(last + ms(1), true);
        assert_eq!(doubtful(&flight), ms(50));
        flight.doubted(last + ms(200), false);
        flight.doubted(last + ms(400), false);
        assert_eq!(doubtful(&flight), ms(25));
        for times in 1..20 {
            flight.doubted(last + ms(400 + 200 * times), true);
        }
        assert_eq!(doubtful(&flight), ms(6400));
        assert!(self::flight(9, 2500).doubtful_from(last).is_none());
        assert!(!flight.is_slow(ms(200)) && flight.is_slow(ms(201)));
    }
}
