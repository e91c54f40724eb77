//! The client's side of a response: received segments, missing segments, acknowledgements.

use super::TcpSettings;

/// The client's end of a connection: see the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Receiver {
    /// The first segment that is missing.
    pub expected: u32,
    /// Segments in order since the last acknowledgement.
    unacknowledged: u32,
    /// Segments received beyond the missing one: bit n is segment `expected` + 1 + n.
    beyond: u64,
}

/// The client's reaction to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It acknowledges at once.
    Now,
    /// It waits for a further segment, but not for long.
    Later,
}

impl Receiver {
    /// Handles segment `number`; `last` marks the end of the response.
    #[inline]
    pub fn take(&mut self, number: u32, last: bool, settings: &TcpSettings) -> Reply {
        if number != self.expected {
            // An out-of-order or duplicate segment is acknowledged at once (RFC 5681, 4.2).
            if number > self.expected {
                self.beyond |= 1_u64.checked_shl(number - self.expected - 1).unwrap_or(0);
            }
            return self.acknowledge();
        }
        let filled = self.beyond != 0;
        let following = self.beyond.trailing_ones();
        self.expected += 1 + following;
        // The segment after those is missing: shift its bit out too.
        self.beyond = self.beyond.checked_shr(following + 1).unwrap_or(0);
        self.unacknowledged += 1;
        if filled || last || self.unacknowledged >= settings.segments_per_ack {
            self.acknowledge()
        } else {
            Reply::Later
        }
    }

    /// Records that an acknowledgement is sent now, for any reason.
    pub fn acknowledge(&mut self) -> Reply {
        self.unacknowledged = 0;
        Reply::Now
    }

    /// Whether segments wait for their acknowledgement.
    pub fn owes(&self) -> bool {
        self.unacknowledged > 0
    }
}

#[cfg(test)]
mod tests {
    use super::{super::sender::tests::SETTINGS, *};

    #[test]
    fn a_gap_is_told_at_once_and_closes_at_once() {
        let settings = TcpSettings { segments_per_ack: 2, ..SETTINGS };
        let mut receiver = Receiver::default();
        let mut play = |number| {
            let reply = receiver.take(number, false, &settings);
            (reply, receiver.expected)
        };
        assert_eq!(play(0), (Reply::Later, 1));
        assert_eq!(play(1), (Reply::Now, 2));
        assert_eq!(play(3), (Reply::Now, 2));
        assert_eq!(play(5), (Reply::Now, 2));
        assert_eq!(play(4), (Reply::Now, 2));
        assert_eq!(play(7), (Reply::Now, 2));
        assert_eq!(play(2), (Reply::Now, 6));
        assert_eq!(play(6), (Reply::Now, 8));
        // A duplicate.
        assert_eq!(play(6), (Reply::Now, 8));
        assert_eq!(play(8), (Reply::Later, 9));
    }

    #[test]
    fn the_widest_window_fits() {
        let mut receiver = Receiver::default();
        for number in 1..=64 {
            receiver.take(number, false, &SETTINGS);
        }
        receiver.take(0, false, &SETTINGS);
        assert_eq!(receiver.expected, 65);
        // A segment beyond any window is dropped without a panic.
        receiver.take(65 + 100, false, &SETTINGS);
        assert_eq!(receiver.expected, 65);
    }
}
