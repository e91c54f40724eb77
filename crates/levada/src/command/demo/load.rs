//! Open-loop load: every request is sent at its scheduled time, independent of earlier requests.

use std::{sync::Arc, time::Duration};

use levada_testbed::cluster::load::open_loop;
use tokio::{sync::Semaphore, time::Instant};

use super::{
    board::{Board, Lowered},
    client::{Clients, Ending, Trouble},
    setup::{Part, Setup},
};

/// Sends the requests of a part of the demo and returns when the last one has been sent. Each latency is
/// measured from the scheduled time: the lateness of a client counts as latency, so that an
/// overloaded demo cannot look better than it is.
pub(super) async fn send(
    setup: Arc<Setup>,
    part: Part,
    clients: Arc<Clients>,
    board: Arc<Board>,
    begin: Instant,
    places: Arc<Semaphore>,
) {
    let mut pace = Pace::default();
    let arrivals = setup.arrivals(part).map(|arrival| (arrival.at, arrival));
    open_loop(begin, arrivals, |due, arrival| {
        if !setup.keeps_rate {
            let lowered = pace.late(arrival.at, due.elapsed());
            board.look().lowered.extend(lowered);
            if !pace.sends() {
                return board.left_out(arrival);
            }
        }
        board.sent(arrival, due.elapsed());
        let Ok(place) = places.clone().try_acquire_owned() else {
            let ending = Ending { result: Err(Trouble::TooMany), retries: 0 };
            return board.ended(arrival, due.elapsed(), &ending);
        };
        let (clients, board) = (clients.clone(), board.clone());
        tokio::spawn(async move {
            let ending = clients.request(arrival.object).await;
            board.ended(arrival, due.elapsed(), &ending);
            drop(place);
        });
    })
    .await;
}

/// Limit of concurrent requests, far above the capacity of the nodes: a request beyond it counts as
/// failed.
pub(super) const MOST_UNDER_WAY: usize = 4_096;

/// The part of the requests that is sent. It halves when the machine does not send them in time: its other
/// programs need the processor, and a queue of late requests would show nothing else.
struct Pace {
    part: f64,
    /// The part of a request that is left over from those before.
    credit: f64,
    /// How late the requests of this second were.
    late: Vec<Duration>,
    judged: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { part: 1.0, credit: 0.0, late: Vec::new(), judged: Duration::ZERO }
    }
}

impl Pace {
    /// Notes how late a request is; returns the new pace when this lowers it.
    fn late(&mut self, at: Duration, late: Duration) -> Option<Lowered> {
        self.late.push(late);
        if at.saturating_sub(self.judged) < JUDGED || self.late.len() < FEWEST {
            return None;
        }
        self.judged = at;
        let mut late = std::mem::take(&mut self.late);
        late.sort();
        let half = late[late.len() / 2];
        if half < LATE || self.part <= LEAST_PART {
            return None;
        }
        self.part /= 2.0;
        let (at_seconds, late_ms) = ((at + half).as_secs_f64(), half.as_secs_f64() * 1e3);
        Some(Lowered { at_seconds, late_ms, part: self.part })
    }

    /// Whether the next request is sent.
    fn sends(&mut self) -> bool {
        self.credit += self.part;
        let sends = self.credit >= 1.0;
        self.credit -= f64::from(u8::from(sends));
        sends
    }
}

const JUDGED: Duration = Duration::from_secs(1);
const FEWEST: usize = 5;
const LATE: Duration = Duration::from_millis(100);
const LEAST_PART: f64 = 1.0 / 16.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts after each second of requests that are sent so late.
    fn parts(late_ms: &[u64]) -> Vec<f64> {
        let mut pace = Pace::default();
        let mut parts = Vec::new();
        for (second, late) in late_ms.iter().enumerate() {
            for tenth in 1..=10 {
                let at = Duration::from_millis(second as u64 * 1_000 + tenth * 100);
                pace.late(at, Duration::from_millis(*late));
            }
            parts.push(pace.part);
        }
        parts
    }

    #[test]
    fn load_halves_while_requests_are_sent_late() {
        assert_eq!(parts(&[1, 99, 1]), [1.0, 1.0, 1.0]);
        assert_eq!(parts(&[1, 150, 300, 1]), [1.0, 0.5, 0.25, 0.25]);
        assert_eq!(parts(&[500; 9]).last(), Some(&LEAST_PART));
    }

    #[test]
    fn part_of_the_requests_is_sent_evenly() {
        let mut pace = Pace { part: 0.25, ..Pace::default() };
        let sent: Vec<bool> = (0..8).map(|_| pace.sends()).collect();
        assert_eq!(sent, [false, false, false, true, false, false, false, true]);
        let mut all = Pace::default();
        assert!((0..8).all(|_| all.sends()));
    }
}
