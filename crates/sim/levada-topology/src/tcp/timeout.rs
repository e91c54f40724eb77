//! The retransmission timeout of RFC 6298, with Karn's rule: a segment that was sent twice is no
//! sample of the round trip.

/// The retransmission timeout of one end of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timeout {
    /// The smoothed round trip and its mean deviation, in ns; 0 before the first sample.
    smoothed: u64,
    deviation: u64,
    /// Number of doublings.
    doubled: u8,
}

/// Six doublings of a second make the 64 s that RFC 6298 (2.5) allows at least as a bound.
const MOST_DOUBLED: u8 = 6;

impl Timeout {
    /// Takes a sample: a segment that was sent once took `round_trip` to be acknowledged.
    pub fn sample(&mut self, round_trip: u64) {
        if self.smoothed == 0 {
            // RFC 6298 (2.2)
            self.smoothed = round_trip.max(1);
            self.deviation = round_trip / 2;
        } else {
            // RFC 6298 (2.3), beta 1/4, alpha 1/8
            let error = self.smoothed.abs_diff(round_trip);
            self.deviation = self.deviation - self.deviation / 4 + error / 4;
            self.smoothed = self.smoothed - self.smoothed / 8 + round_trip / 8;
        }
        self.doubled = 0;
    }

    /// Doubles the timeout after it has expired (5.5).
    pub fn double(&mut self) {
        self.doubled = (self.doubled + 1).min(MOST_DOUBLED);
    }

    /// The timeout, in ns.
    pub fn length(&self, first: u64, least: u64) -> u64 {
        let known = self.smoothed + 4 * self.deviation;
        let base = if self.smoothed == 0 { first } else { known.max(least) };
        base << self.doubled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u64 = 3_000;
    const LEAST: u64 = 100;

    #[test]
    fn timeouts_follow_round_trips() {
        let mut timeout = Timeout::default();
        assert_eq!(timeout.length(FIRST, LEAST), FIRST);
        timeout.sample(800);
        assert_eq!(timeout.length(FIRST, LEAST), 800 + 4 * 400);
        timeout.sample(1_600);
        // Deviation 400 * 3/4 + 800 / 4, smoothed 800 * 7/8 + 1600 / 8.
        assert_eq!(timeout.length(FIRST, LEAST), 900 + 4 * 500);
        for _ in 0..100 {
            timeout.sample(8);
        }
        assert_eq!(timeout.length(FIRST, LEAST), LEAST);
    }

    #[test]
    fn each_loss_doubles_and_a_sample_ends_it() {
        let mut timeout = Timeout::default();
        let mut lengths = Vec::new();
        for _ in 0..8 {
            lengths.push(timeout.length(FIRST, LEAST) / FIRST);
            timeout.double();
        }
        assert_eq!(lengths, [1, 2, 4, 8, 16, 32, 64, 64]);
        timeout.sample(10);
        assert_eq!(timeout.length(FIRST, LEAST), LEAST);
    }
}
