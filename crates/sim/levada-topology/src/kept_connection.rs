//! Responses over a kept connection of TCP on a long link without losses and limits of rate.
//!
//! A response that is longer than the window takes another round trip for each window (RFC 5681 Sec. 3.1). The window
//! grows while responses need it, and falls back while the connection is idle (RFC 5681 Sec. 4.1). The rules are those
//! of Linux with its defaults:
//!
//! ```text
//! growth    by the segments of an acknowledgement, of two each, while the window is full, or less than twice the
//!           most that was in flight (tcp_is_cwnd_limited)
//! idle      for longer than the retransmission timeout: halved for each timeout, not below the initial window
//!           (tcp_cwnd_restart, tcp_slow_start_after_idle = 1)
//! timeout   round trip + variance; the variance begins at two round trips and falls towards 200 ms with each round
//!           (RFC 6298; tcp_rtt_estimator)
//! ```

use std::collections::VecDeque;

/// A part of a body, as it comes: so many segments, the earlier ones included, at this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// In nanoseconds.
    pub at: u64,
    /// The segments so far.
    pub segments: u64,
}

/// The sending side of a kept connection. It carries one response after another.
#[derive(Clone, Debug)]
pub struct KeptConnection {
    /// The round trip in nanoseconds.
    trip: u64,
    initial_window: u64,
    /// The congestion window, in segments.
    window: u64,
    /// The part of the retransmission timeout above the round trip.
    variance: u64,
    /// When a segment was last sent.
    sent: u64,
}

impl KeptConnection {
    /// A connection with this round trip that was opened `at` this time, both in nanoseconds. Its window has so many
    /// segments at first.
    pub fn open(at: u64, trip: u64, initial_window: u64) -> Self {
        let variance = (2 * trip).max(LEAST_VARIANCE);
        Self { trip, initial_window, window: initial_window, variance, sent: at }
    }

    /// The window after the connection was idle.
    fn restart(&mut self, at: u64) {
        let timeout = self.trip + self.variance;
        let mut idle = at.saturating_sub(self.sent);
        while idle > timeout && self.window > self.initial_window {
            self.window = (self.window / 2).max(self.initial_window);
            idle -= timeout;
        }
    }

    /// Carries a response whose parts come to the sender at these times, ascending. Returns the times at which they
    /// come to the receiver: half a round trip after they are sent.
    pub fn carry(&mut self, come: &[Part]) -> Vec<Part> {
        let (Some(first), Some(last)) = (come.first(), come.last()) else { return Vec::new() };
        self.restart(first.at);
        let (mut now, mut sent, mut acknowledged) = (first.at, 0, 0);
        let (mut flying, mut usage) = (VecDeque::new(), Usage::default());
        let mut received: Vec<Part> = Vec::new();
        loop {
            if let Some((at, segments)) = flying.front().copied()
                && at <= now
            {
                flying.pop_front();
                acknowledged += segments;
                self.grow(segments, &usage);
            }
            let here = come.iter().rev().find(|part| part.at <= now);
            let ready = here.map_or(0, |part| part.segments) - sent;
            let burst = ready.min(self.window.saturating_sub(sent - acknowledged));
            if burst > 0 {
                sent += burst;
                self.sent = now;
                usage.note((sent, acknowledged), self.window);
                let pairs = (0..burst).step_by(2).map(|at| (now + self.trip, (burst - at).min(2)));
                flying.extend(pairs);
                received.pop_if(|part| part.at == now + self.trip / 2);
                received.push(Part { at: now + self.trip / 2, segments: sent });
            }
            if sent == last.segments {
                break;
            }
            let next = come.iter().map(|part| part.at).find(|at| *at > now);
            let freed = flying.front().map(|(at, _)| *at);
            let soonest = next.into_iter().chain(freed).min().unwrap_or(now);
            if soonest > now {
                self.variance -= (self.variance - LEAST_VARIANCE) / 4;
            }
            now = now.max(soonest);
        }
        flying.into_iter().for_each(|(_, segments)| self.grow(segments, &usage));
        received
    }

    fn grow(&mut self, segments: u64, usage: &Usage) {
        if usage.is_limited || self.window < 2 * usage.most {
            self.window += segments;
        }
    }
}

/// How much of its window a response uses (tcp_cwnd_validate).
#[derive(Default)]
struct Usage {
    /// Whether the window was full.
    is_limited: bool,
    /// The most segments in flight.
    most: u64,
    /// The segments that had been sent when this was noted. It holds until they are acknowledged.
    until: u64,
}

impl Usage {
    fn note(&mut self, (sent, acknowledged): (u64, u64), window: u64) {
        let in_flight = sent - acknowledged;
        let is_limited = in_flight >= window;
        let is_more = !self.is_limited && in_flight > self.most;
        if acknowledged >= self.until || is_limited || is_more {
            *self = Self { is_limited, most: in_flight, until: sent };
        }
    }
}

/// Linux' TCP_RTO_MIN, in nanoseconds.
const LEAST_VARIANCE: u64 = 200_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn connection() -> KeptConnection {
        KeptConnection::open(0, 80 * MS, 10)
    }

    /// The times, in milliseconds, and the segments of a response of this length that begins at a time.
    fn carried(connection: &mut KeptConnection, at: u64, segments: u64) -> Vec<(u64, u64)> {
        let parts = connection.carry(&[Part { at: at * MS, segments }]);
        parts.iter().map(|part| (part.at / MS, part.segments)).collect()
    }

    #[test]
    fn response_longer_than_the_window_takes_another_round_trip() {
        assert_eq!(carried(&mut connection(), 100, 10), [(140, 10)]);
        assert_eq!(carried(&mut connection(), 100, 22), [(140, 10), (220, 22)]);
        assert_eq!(carried(&mut connection(), 100, 50), [(140, 10), (220, 30), (300, 50)]);
        assert_eq!(connection().carry(&[]), []);
    }

    #[test]
    fn window_grows_by_use_and_falls_back_when_idle() {
        let mut used = connection();
        carried(&mut used, 100, 22);
        // All 22 segments have made it larger.
        assert_eq!(used.window, 32);
        assert_eq!(carried(&mut used, 300, 22), [(340, 22)]);
        // After three timeouts of 280 ms it is the initial one.
        assert_eq!(carried(&mut used, 1_200, 22).len(), 2);
    }

    #[test]
    fn part_goes_on_as_it_comes() {
        let come = [Part { at: 10 * MS, segments: 5 }, Part { at: 30 * MS, segments: 12 }];
        let received = connection().carry(&come);
        let times: Vec<_> = received.iter().map(|part| (part.at / MS, part.segments)).collect();
        // The first five fill half of the window, and the last two wait for an acknowledgement.
        assert_eq!(times, [(50, 5), (70, 10), (130, 12)]);
    }
}
