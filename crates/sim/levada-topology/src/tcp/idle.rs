//! TCP's transfer time on an idle path, in closed form.
//!
//! A connection costs a round trip, the request half of one. Then the window doubles in each round
//! until it reaches its largest size (slow start, every segment acknowledged). A round lasts a
//! round-trip time or, where the window fills the path, the time of its segments at the narrowest
//! link:
//!
//! ```text
//! offset   0        RTT       2 RTT     3 RTT
//! window   1        2         4         8 ...      up to `window`, then all the same
//! segment  0        1 2       3 4 5 6   7 ...
//! ```

use super::HEADER;

/// TCP's constants in a run.
#[derive(Clone, Copy, Debug)]
pub struct IdleTcp {
    /// Payload of a full segment, in bytes.
    pub segment: u32,
    /// Initial window, in segments.
    pub initial_window: u32,
    /// Largest window, in segments.
    pub window: u32,
    /// Whether connections are there before the first request.
    pub persistent: bool,
}

/// Times of an idle path, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleTiming {
    /// Time of a full segment at the narrowest link.
    pub narrowest: u64,
    /// Time from the last bit of a full segment at the narrowest link until the whole segment is at
    /// the other end.
    pub onward: u64,
    /// End-to-end time of a packet without payload, such as an acknowledgement.
    pub back: u64,
}

impl IdleTiming {
    /// Time from sending a segment to its acknowledgement.
    #[inline]
    pub fn round_trip(self) -> u64 {
        self.narrowest + self.onward + self.back
    }
}

impl IdleTcp {
    /// Time from the first packet of a client until the server has the whole request, which comes
    /// with the last packet of the handshake, if there is one.
    #[inline]
    pub fn request(self, timing: IdleTiming) -> u64 {
        if self.persistent { timing.back } else { 3 * timing.back }
    }

    /// Number of segments for `bytes`; an empty response takes one packet too.
    #[inline]
    pub fn segments(self, bytes: u64) -> u64 {
        bytes.div_ceil(u64::from(self.segment)).max(1)
    }

    /// The size of `bytes` on the wire.
    #[inline]
    pub fn on_the_wire(self, bytes: u64) -> u64 {
        bytes + self.segments(bytes) * u64::from(HEADER)
    }

    /// The time at which segment `number`, counted from 0, may be sent, after the first one was
    /// sent.
    #[inline]
    pub fn send_offset(self, number: u64, timing: IdleTiming) -> u64 {
        let round_trip = timing.round_trip();
        let lasts = |window: u64| (window * timing.narrowest).max(round_trip);
        let (mut offset, mut before, mut window) = (0, 0, u64::from(self.initial_window));
        let largest = u64::from(self.window);
        while window < largest {
            if number < before + window {
                return offset + (number - before) * timing.narrowest;
            }
            offset += lasts(window);
            before += window;
            window = (2 * window).min(largest);
        }
        let (rounds, place) = ((number - before) / largest, (number - before) % largest);
        offset + rounds * lasts(largest) + place * timing.narrowest
    }

    /// The time at which the other end has all of `segments`, after the first one was sent.
    #[inline]
    pub fn received_offset(self, segments: u64, timing: IdleTiming) -> u64 {
        self.send_offset(segments - 1, timing) + timing.narrowest + timing.onward
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NS2: IdleTcp = IdleTcp { segment: 536, initial_window: 1, window: 20, persistent: false };

    #[test]
    fn rounds_double_up_to_the_largest_window() {
        // A round trip of 100 and segments that take no time: the offset is the round.
        let timing = IdleTiming { narrowest: 0, onward: 50, back: 50 };
        let rounds: Vec<u64> = [0, 1, 2, 3, 6, 7, 14, 15, 30, 31, 50, 51, 70, 71]
            .map(|n| NS2.send_offset(n, timing))
            .into();
        assert_eq!(rounds, [0, 100, 100, 200, 200, 300, 300, 400, 400, 500, 500, 600, 600, 700]);
    }

    #[test]
    fn segments_of_a_round_follow_each_other_at_the_narrowest_link() {
        let timing = IdleTiming { narrowest: 7, onward: 43, back: 50 };
        assert_eq!(NS2.send_offset(5, timing), 200 + 2 * 7);
        // Segment 5 is the second to last of a round of four: 6 segments have arrived after the
        // third round.
        assert_eq!(NS2.received_offset(6, timing), 200 + 2 * 7 + 50);
    }

    #[test]
    fn a_window_that_fills_the_path_sends_without_pause() {
        // A segment takes 10 and the round trip 40: from a window of 4 on, the link never idles.
        let timing = IdleTiming { narrowest: 10, onward: 10, back: 20 };
        let from = NS2.send_offset(3, timing);
        for number in 3..100 {
            assert_eq!(NS2.send_offset(number, timing), from + (number - 3) * 10);
        }
    }

    #[test]
    fn headers_weigh_on_the_wire() {
        assert_eq!(NS2.segments(0), 1);
        assert_eq!((NS2.segments(536), NS2.segments(537)), (1, 2));
        assert_eq!(NS2.on_the_wire(1072), 1072 + 80);
    }
}
