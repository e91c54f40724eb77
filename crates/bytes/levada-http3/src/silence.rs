//! Clients that answer nothing: their route has moved, or they are gone.
//!
//! A client acknowledges what it gets. After its route has moved, its acknowledgements reach another node, and this one
//! would repeat its packets until the connection is idle for too long: half a minute and more, with all that the
//! responses hold. WWW'09 (Sec. 3.1.2) gives a connection of TCP up after one retransmission that is not acknowledged.
//! The same bound holds here, where packets are repeated by the probe timeout (PTO, RFC 9002 Sec. 6.2):
//!
//! ```text
//! unit       = 200 ms, the least timeout of TCP, or more on a long path
//! given up   = silent for (2^(retries + 1) - 1) units          600 ms with one retry
//!              and packets left in more than `retries` moments  what quinn repeats after a timeout
//!              and a unit has passed since the last of them
//!              and as many were unanswered as a live client leaves once in a million times, by the losses so far
//! ```
//!
//! Packets that only acknowledge ask for no answer. A client whose window is closed acknowledges probes: it is slow,
//! and [`levada_http::Watchdog`] has its deadline. A client that moves to another address within the bound goes on.

use std::time::Duration;

use quinn::ConnectionStats;
use tokio::time::{Instant, sleep, timeout};

use crate::{Serve, connection::Connection};

/// The least unit: the shortest timeout of TCP in Linux, from which the paper has its 600 ms.
const UNIT: Duration = Duration::from_millis(200);
/// The time that a client may wait before it acknowledges (RFC 9000 Sec. 18.2).
const MAX_ACK_DELAY: Duration = Duration::from_millis(25);
/// The time between two looks at a connection that sends.
const LOOK: Duration = Duration::from_millis(100);
/// The longest time between two looks at one that rests: it may send without a request, as a tunnel does.
const REST: Duration = Duration::from_secs(5);
/// A live client may be taken for a silent one this often.
const MISTAKE: f64 = 1e-6;
/// The least loss that is reckoned with, and the most: 3 and 20 packets.
const LOSSES: (f64, f64) = (0.01, 0.5);

/// Returns when the client has left unanswered what a live one answers. `retries` is the number of repetitions that it
/// may miss; without it this never returns.
pub(crate) async fn is_lasting<N: Serve>(connection: &Connection<N>, retries: Option<u8>) {
    let Some(retries) = retries else { return std::future::pending().await };
    connection.until_handshaken().await;
    let mut silence = Silence::from(Instant::now(), &Counts::of(&connection.quic.stats()));
    loop {
        match silence.look(Instant::now(), &Counts::of(&connection.quic.stats()), retries) {
            Found::Over => return,
            Found::Active => sleep(LOOK).await,
            // The next request ends the rest.
            Found::AtRest => drop(timeout(REST, connection.roused.notified()).await),
        }
    }
}

/// The counters of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counts {
    /// Datagrams from the client.
    received: u64,
    /// Frames that ask for an answer, and packets.
    asking: u64,
    sent: u64,
    loss: f64,
    round_trip: Duration,
}

impl Counts {
    fn of(stats: &ConnectionStats) -> Self {
        let (path, frames) = (&stats.path, &stats.frame_tx);
        Self {
            received: stats.udp_rx.datagrams,
            // Packets that quinn repeats after a timeout have one of these, or PING.
            asking: frames.ping
                + frames.stream
                + frames.reset_stream
                + frames.max_data
                + frames.max_stream_data
                + frames.new_connection_id,
            sent: path.sent_packets,
            loss: path.lost_packets as f64 / path.sent_packets.max(1) as f64,
            round_trip: path.rtt,
        }
    }

    /// Packets in a row of which a live client answers none, once in a million times.
    fn patience(&self) -> u64 {
        (MISTAKE.ln() / self.loss.clamp(LOSSES.0, LOSSES.1).ln()).ceil() as u64
    }

    fn unit(&self) -> Duration {
        UNIT.max(self.round_trip * 2 + MAX_ACK_DELAY)
    }
}

/// The state of a connection between two looks.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// Something was sent or has come since the last look, or an answer is missing.
    Active,
    AtRest,
    /// The client has been silent for too long.
    Over,
}

/// The looks since the client was heard.
#[derive(Debug)]
struct Silence {
    received: u64,
    /// Packets that had left when it was heard.
    sent: u64,
    asking: u64,
    /// Looks at which more packets had left.
    moments: u32,
    first: Instant,
    last: Instant,
}

impl Silence {
    fn from(now: Instant, counts: &Counts) -> Self {
        let Counts { received, asking, sent, .. } = *counts;
        Self { received, sent, asking, moments: 0, first: now, last: now }
    }

    fn look(&mut self, now: Instant, counts: &Counts, retries: u8) -> Found {
        if counts.received != self.received {
            *self = Self::from(now, counts);
            return Found::Active;
        }
        if counts.asking > self.asking {
            if self.moments == 0 {
                self.first = now;
            }
            (self.asking, self.moments, self.last) = (counts.asking, self.moments + 1, now);
        }
        let (unit, timeouts) = (counts.unit(), (2_u32 << retries.min(15)) - 1);
        let is_over = self.moments > u32::from(retries)
            && now - self.first >= unit * timeouts
            && now - self.last >= unit
            && counts.sent - self.sent >= counts.patience();
        match self.moments {
            _ if is_over => Found::Over,
            // The packets before the client was heard may be unanswered as well: they are repeated within this time.
            0 if now - self.first >= 2 * unit => Found::AtRest,
            _ => Found::Active,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection with this round trip and loss, looked at every 100 ms from its last answer on, that sends packets at
    /// these times in milliseconds, two each. Returns when it is given up.
    fn given_up(retries: u8, round_trip: u64, loss: f64, sent: &[u64]) -> Option<u64> {
        let begun = Instant::now();
        let mut counts = Counts {
            received: 9,
            asking: 9,
            sent: 9,
            loss,
            round_trip: Duration::from_millis(round_trip),
        };
        let mut silence = Silence::from(begun, &counts);
        (1..600).map(|look| look * 100).find(|at| {
            counts.sent = 9 + 2 * sent.iter().filter(|sent| *sent <= at).count() as u64;
            counts.asking = counts.sent;
            let now = begun + Duration::from_millis(*at);
            silence.look(now, &counts, retries) == Found::Over
        })
    }

    /// The times of timeouts that double, the first of which is this one.
    fn timeouts(first: u64) -> Vec<u64> {
        (1..12).map(|count| ((1 << count) - 1) * first).collect()
    }

    #[test]
    fn client_is_given_up_after_one_retry_and_a_lossy_one_after_more() {
        assert_eq!(given_up(1, 10, 0.0, &timeouts(40)), Some(800));
        assert_eq!(given_up(1, 100, 0.0, &timeouts(180)), Some(900));
        assert_eq!(given_up(0, 10, 0.0, &timeouts(40)), Some(500));
        assert!(given_up(2, 10, 0.0, &timeouts(40)) > Some(1400));
        assert!(given_up(1, 100, 0.17, &timeouts(180)) > Some(2700), "four repetitions");
        assert!(given_up(1, 100, 0.3, &timeouts(180)).is_some_and(|at| at < 12_000));
    }

    #[test]
    fn client_that_owes_nothing_or_answers_stays() {
        assert_eq!(given_up(1, 10, 0.0, &[]), None, "nothing was sent");
        assert_eq!(given_up(1, 10, 0.0, &[40]), None, "sent once, and never repeated");
        let begun = Instant::now();
        let mut counts = Counts {
            received: 0,
            asking: 0,
            sent: 0,
            loss: 0.0,
            round_trip: Duration::from_millis(10),
        };
        let mut silence = Silence::from(begun, &counts);
        for look in 1..600 {
            (counts.asking, counts.sent) = (counts.asking + 1, counts.sent + 1);
            // It answers one packet of seven: one look of seven finds it heard.
            counts.received += u64::from(look % 7 == 0);
            let now = begun + look * LOOK;
            assert_eq!(silence.look(now, &counts, 1), Found::Active, "{look}");
        }
    }

    #[test]
    fn a_rest_ends_with_the_next_packet() {
        let begun = Instant::now();
        let mut counts = Counts {
            received: 5,
            asking: 5,
            sent: 5,
            loss: 0.0,
            round_trip: Duration::from_millis(10),
        };
        let mut silence = Silence::from(begun, &counts);
        let at = |millis| begun + Duration::from_millis(millis);
        assert_eq!(silence.look(at(300), &counts, 1), Found::Active);
        assert_eq!(silence.look(at(400), &counts, 1), Found::AtRest);
        (counts.asking, counts.sent) = (counts.asking + 1, counts.sent + 1);
        assert_eq!(silence.look(at(5400), &counts, 1), Found::Active);
        assert_eq!(silence.look(at(6400), &counts, 1), Found::Active, "it was not repeated");
    }
}
