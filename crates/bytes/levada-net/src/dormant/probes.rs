//! The probes of a connection whose client is silent.
//!
//! ```text
//!   sent      |  |  |  |  |  |  |  |          INTERVAL apart
//!   heard                       ^             |<- round trip ->|
//!             lost      answered   too late: an answer could not be there yet
//! ```

use std::time::{Duration, Instant};

/// Linux answers such segments of a connection once in 500 ms (`tcp_invalid_ratelimit`): others tell nothing.
const INTERVAL: Duration = Duration::from_millis(550);

/// The times of the probes since the client was heard last.
#[derive(Debug, Default)]
pub(super) struct Probes(Vec<Instant>);

/// The fate of the probes, as known when the client is heard again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) answered: u32,
    pub(super) lost: u32,
}

impl Probes {
    pub(super) fn sent(&mut self, now: Instant) {
        self.0.push(now);
    }

    /// Whether the next one would be too early: the client might not answer it.
    pub(super) fn is_too_early(&self, now: Instant) -> bool {
        self.0.last().is_some_and(|last| now - *last < INTERVAL)
    }

    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn first(&self) -> Option<Instant> {
        self.0.first().copied()
    }

    /// The number of probes so old that their answers would be here.
    pub(super) fn unanswered(&self, now: Instant, within: Duration) -> usize {
        self.0.iter().filter(|sent| now - **sent > within).count()
    }

    /// The client was heard at a time, perhaps after the first probe. It forgets the probes then. The last one that
    /// can have been answered was.
    pub(super) fn answered(&mut self, heard: Instant, round_trip: Duration) -> Option<Answer> {
        self.first().filter(|first| heard > *first)?;
        let sent = std::mem::take(&mut self.0);
        let before = sent.iter().filter(|sent| **sent + round_trip < heard).count();
        let answered = u32::from(before > 0);
        Some(Answer { answered, lost: before as u32 - answered })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn next_probe_waits_until_the_client_may_answer_it() {
        let (mut probes, begun) = (Probes::default(), Instant::now());
        assert!(!probes.is_too_early(begun));
        probes.sent(begun);
        assert!(probes.is_too_early(begun + 500 * MS));
        assert!(!probes.is_too_early(begun + 600 * MS));
    }

    #[test]
    fn answer_is_that_to_the_last_probe_a_round_trip_before() {
        let begun = Instant::now();
        let heard = |at| {
            let mut probes = Probes::default();
            (0..5).for_each(|nth| probes.sent(begun + 100 * MS * nth));
            let answer = probes.answered(begun + at, 150 * MS);
            (answer.map(|answer| (answer.answered, answer.lost)), probes.is_empty())
        };
        assert_eq!(heard(Duration::ZERO), (None, false), "it was heard before");
        assert_eq!(heard(100 * MS), (Some((0, 0)), true), "it answers something else");
        assert_eq!(heard(200 * MS), (Some((1, 0)), true));
        assert_eq!(heard(400 * MS), (Some((1, 2)), true));
    }
}
