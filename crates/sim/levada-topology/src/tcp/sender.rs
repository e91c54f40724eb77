//! The server's side of a response: slow start, congestion avoidance, fast retransmit and fast
//! recovery (RFC 5681, as Reno has them), and the retransmission timeout.

use super::{TcpSettings, Timeout};

/// The server's end of a connection: see the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sender {
    /// Segments that the server has ready, of so many in all.
    pub ready: u32,
    /// All segments of the response.
    pub segments: u32,
    /// The first segment that is not acknowledged, the next to send, and the first never sent.
    unacknowledged: u32,
    next: u32,
    unsent: u32,
    /// The congestion window and the slow start threshold, in segments.
    window: u32,
    threshold: u32,
    /// Acknowledgements since the window grew, in congestion avoidance.
    credit: u32,
    /// Duplicate acknowledgements in a row.
    duplicates: u32,
    /// In fast recovery, or after a timeout: the highest segment sent when the last loss was
    /// detected. Duplicates of earlier segments do not indicate another loss.
    recover: u32,
    recovering: bool,
    timeout: Timeout,
    /// The segment whose round trip is measured, if any, and when it was sent.
    timed: Option<u32>,
    timed_at: u64,
    /// The time of the retransmission timeout; [`u64::MAX`] while nothing is outstanding.
    pub deadline: u64,
}

/// Duplicate acknowledgements that indicate a loss (RFC 5681, 3.2).
const DUPLICATES: u32 = 3;

impl Sender {
    /// The sender of a connection that is not established yet.
    pub fn idle() -> Self {
        Self { deadline: u64::MAX, ..Self::default() }
    }

    /// Starts an established connection. `round_trip` is the time of its handshake, if no packet of
    /// it was sent twice.
    pub fn new(round_trip: Option<u64>, settings: &TcpSettings) -> Self {
        let mut timeout = Timeout::default();
        if let Some(round_trip) = round_trip {
            timeout.sample(round_trip);
        }
        Self {
            window: settings.initial_window,
            // The threshold begins at the receiver's window: slow start ends at the first loss.
            threshold: settings.window,
            timeout,
            ..Self::idle()
        }
    }

    /// The next segment to send now, if the windows allow one.
    #[inline]
    pub fn poll(&mut self, now: u64, settings: &TcpSettings) -> Option<u32> {
        let window = self.window.min(settings.window);
        if self.next >= self.ready || self.next >= self.unacknowledged + window {
            return None;
        }
        let segment = self.next;
        self.next += 1;
        if segment == self.unsent {
            self.unsent += 1;
            if self.timed.is_none() {
                self.timed = Some(segment);
                self.timed_at = now;
            }
        }
        if self.deadline == u64::MAX {
            self.restart(now, settings);
        }
        Some(segment)
    }

    /// Handles an acknowledgement: the client has everything before `expected`. Returns the segment
    /// to retransmit at once, if any.
    #[inline]
    pub fn acknowledge(&mut self, expected: u32, now: u64, settings: &TcpSettings) -> Option<u32> {
        if expected > self.unacknowledged {
            self.progress(expected, now, settings);
            return None;
        }
        if expected < self.unacknowledged || self.unsent == self.unacknowledged {
            return None;
        }
        self.duplicates += 1;
        if self.recovering {
            // Each duplicate means that a segment has left the network.
            self.window += 1;
            return None;
        }
        if self.duplicates < DUPLICATES || self.unacknowledged < self.recover {
            return None;
        }
        self.halve();
        self.window = self.threshold + DUPLICATES;
        self.recovering = true;
        self.restart(now, settings);
        Some(self.unacknowledged)
    }

    /// Handles a retransmission timeout at [`Sender::deadline`]: all unacknowledged segments are
    /// sent again, from a window of one segment.
    pub fn time_out(&mut self, now: u64, settings: &TcpSettings) {
        self.halve();
        self.window = 1;
        self.recovering = false;
        self.next = self.unacknowledged;
        self.timeout.double();
        self.restart(now, settings);
    }

    /// Whether the client has acknowledged everything.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.segments > 0 && self.unacknowledged == self.segments
    }

    fn progress(&mut self, expected: u32, now: u64, settings: &TcpSettings) {
        if let Some(timed) = self.timed
            && expected > timed
        {
            self.timeout.sample(now - self.timed_at);
            self.timed = None;
        }
        if self.recovering {
            // Reno leaves fast recovery with the first new acknowledgement.
            self.recovering = false;
            self.window = self.threshold;
        } else if self.window < self.threshold {
            self.window += 1;
        } else {
            self.credit += 1;
            if self.credit >= self.window {
                self.credit = 0;
                self.window = (self.window + 1).min(settings.window);
            }
        }
        self.duplicates = 0;
        self.unacknowledged = expected;
        self.next = self.next.max(expected);
        self.unsent = self.unsent.max(expected);
        if self.unacknowledged == self.unsent {
            self.deadline = u64::MAX;
        } else {
            self.restart(now, settings);
        }
    }

    /// Handles a loss: halves the outstanding data (RFC 5681, equation 4).
    fn halve(&mut self) {
        let out = (self.unsent - self.unacknowledged).min(self.window);
        self.threshold = (out / 2).max(2);
        self.recover = self.unsent;
        self.duplicates = 0;
        self.credit = 0;
        self.timed = None;
    }

    fn restart(&mut self, now: u64, settings: &TcpSettings) {
        self.deadline = now + self.timeout.length(settings.first_timeout, settings.least_timeout);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) const SETTINGS: TcpSettings = TcpSettings {
        segment: 536,
        initial_window: 1,
        window: 20,
        segments_per_ack: 1,
        ack_delay: 100_000_000,
        first_timeout: 3_000,
        least_timeout: 1_000,
        request: 300,
    };

    fn sender(segments: u32) -> Sender {
        Sender { ready: segments, segments, ..Sender::new(Some(100), &SETTINGS) }
    }

    fn sent(sender: &mut Sender, now: u64) -> Vec<u32> {
        std::iter::from_fn(|| sender.poll(now, &SETTINGS)).collect()
    }

    /// Acknowledges one by one and returns the segments sent for each.
    fn acknowledged(sender: &mut Sender, expected: &[u32], now: u64) -> Vec<Vec<u32>> {
        let each = |expected: &u32| {
            let again = sender.acknowledge(*expected, now, &SETTINGS);
            again.into_iter().chain(sent(sender, now)).collect()
        };
        expected.iter().map(each).collect()
    }

    #[test]
    fn slow_start_doubles_and_the_receiver_bounds_it() {
        let mut sender = sender(1_000);
        let mut windows = Vec::new();
        let mut expected = 0;
        for round in 0..8 {
            let now = round * 100;
            let round = sent(&mut sender, now);
            windows.push(round.len());
            // The acknowledgements of a round allow the next round, seen here as a whole.
            for _ in round {
                expected += 1;
                assert_eq!(sender.acknowledge(expected, now + 100, &SETTINGS), None);
            }
        }
        assert_eq!(windows, [1, 2, 4, 8, 16, 20, 20, 20]);
    }

    #[test]
    fn nothing_is_sent_that_is_not_ready() {
        let mut sender = Sender { ready: 0, ..sender(9) };
        assert!(sent(&mut sender, 0).is_empty());
        sender.ready = 1;
        assert_eq!(sent(&mut sender, 0), [0]);
        assert!(acknowledged(&mut sender, &[1], 5)[0].is_empty());
        assert_eq!(sender.deadline, u64::MAX);
        sender.ready = 9;
        assert_eq!(sent(&mut sender, 9), [1, 2]);
    }

    #[test]
    fn three_duplicates_are_a_loss() {
        let mut sender = sender(1_000);
        sender.window = 8;
        assert_eq!(sent(&mut sender, 0), (0..8).collect::<Vec<_>>());
        // Segment 0 is lost; 1 to 7 make seven duplicates.
        let after = acknowledged(&mut sender, &[0; 7], 100);
        // Half of 8 and the three that arrived make 7: with the fifth duplicate 9, one more than is
        // outstanding.
        assert_eq!(after, [vec![], vec![], vec![0], vec![], vec![8], vec![9], vec![10]]);
        // The retransmission arrives: the window is 4, and three are outstanding.
        assert_eq!(acknowledged(&mut sender, &[8], 200), [vec![11]]);
        assert_eq!((sender.window, sender.threshold, sender.recovering), (4, 4, false));
        // Congestion avoidance: the window grows by one per window of acknowledgements.
        let after = acknowledged(&mut sender, &[9, 10, 11, 12], 300);
        assert_eq!(after, [vec![12], vec![13], vec![14], vec![15, 16]]);
    }

    #[test]
    fn a_timeout_goes_back_and_starts_slowly() {
        let mut sender = sender(1_000);
        sender.window = 8;
        sent(&mut sender, 0);
        assert_eq!(sender.deadline, 1_000);
        sender.time_out(1_000, &SETTINGS);
        assert_eq!(sender.deadline, 1_000 + 2_000);
        assert_eq!(sent(&mut sender, 1_000), [0]);
        // All but segment 0 had arrived.
        assert_eq!(acknowledged(&mut sender, &[8], 1_100), [vec![8, 9]]);
        // Karn: the timeout stays doubled until a segment that was sent once is acknowledged.
        assert_eq!(sender.deadline, 1_100 + 2_000);
        assert_eq!(acknowledged(&mut sender, &[9], 1_200), [vec![10, 11]]);
        assert_eq!(sender.deadline, 1_200 + 1_000);
        // The threshold is half of 8: at 4 the doubling ends.
        acknowledged(&mut sender, &[10, 11, 12], 1_300);
        assert_eq!((sender.window, sender.threshold), (4, 4));
    }

    #[test]
    fn duplicates_of_what_was_sent_again_are_no_further_loss() {
        let mut sender = sender(1_000);
        sender.window = 8;
        sent(&mut sender, 0);
        sender.time_out(1_000, &SETTINGS);
        sent(&mut sender, 1_000);
        let after = acknowledged(&mut sender, &[0; 6], 1_100);
        assert!(after.iter().all(Vec::is_empty));
    }

    #[test]
    fn the_end_is_when_all_is_acknowledged() {
        let mut sender = sender(3);
        sent(&mut sender, 0);
        acknowledged(&mut sender, &[1, 2], 100);
        assert!(!sender.is_done());
        acknowledged(&mut sender, &[3], 200);
        assert!(sender.is_done());
        assert_eq!(sender.deadline, u64::MAX);
    }
}
