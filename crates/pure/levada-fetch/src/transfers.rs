//! The number of transfers at a time: as many as the path carries.
//!
//! One transfer of small files brings one file per round trip, whatever the rate of the path. So the
//! number is doubled as long as that makes the whole notably faster, which is at about rate x round trip
//! of bytes on their way. After a step without effect, the number before it is used for a while.

use std::time::Duration;

/// Finds the number of transfers at a time.
#[derive(Debug)]
pub struct Transfers {
    at_once: usize,
    most: usize,
    /// The rate before the last step, and the number that had it.
    before: Option<(f64, usize)>,
    /// Rounds until the next step.
    pause: u32,
    round: Round,
}

/// The counters at the beginning of a round.
#[derive(Debug, Default)]
struct Round {
    began: Duration,
    bytes: u64,
    ended: u64,
}

impl Transfers {
    /// Starts with a few; there are never more than `most`.
    pub fn new(most: usize) -> Self {
        let most = most.max(1);
        Self { at_once: FIRST.min(most), most, before: None, pause: 0, round: Round::default() }
    }

    /// How many transfers should run.
    pub fn at_once(&self) -> usize {
        self.at_once
    }

    /// Call this now and then, with all bytes received and all transfers ended since the start.
    pub fn advance(&mut self, now: Duration, bytes: u64, ended: u64) {
        let took = now.saturating_sub(self.round.began);
        let transfers = ended.saturating_sub(self.round.ended);
        if took < SHORTEST_ROUND || (transfers < self.at_once as u64 && took < LONGEST_ROUND) {
            return;
        }
        let brought = bytes.saturating_sub(self.round.bytes) + transfers * COST_OF_REQUEST;
        let rate = brought as f64 / took.as_secs_f64();
        self.round = Round { began: now, bytes, ended };
        self.step(rate);
    }

    fn step(&mut self, rate: f64) {
        if let Some((before, at_once)) = self.before.take()
            && rate < before * NOTABLY
        {
            self.at_once = at_once;
            self.pause = PAUSE;
            return;
        }
        if self.pause > 0 {
            self.pause -= 1;
        } else if self.at_once < self.most {
            self.before = Some((rate, self.at_once));
            self.at_once = (self.at_once * 2).min(self.most);
        }
    }

    /// The server has refused one of `running` transfers. Returns whether to try it again later, with
    /// fewer at a time: a server may allow fewer connections than the path carries.
    pub fn on_refused(&mut self, running: usize) -> bool {
        // More than the number are running if they began before an earlier refusal.
        if running > 1 && running <= self.at_once {
            self.at_once = running / 2;
            self.most = self.at_once;
            self.before = None;
        }
        running > 1
    }
}

const FIRST: usize = 8;
/// A round of two round trips of a long path, so that its rate means something.
const SHORTEST_ROUND: Duration = Duration::from_millis(250);
const LONGEST_ROUND: Duration = Duration::from_secs(1);
/// A request is worth as many bytes of the rate: for empty files, requests are all there is to count.
const COST_OF_REQUEST: u64 = 1000;
const NOTABLY: f64 = 1.1;
/// How many rounds pass before a step that had no effect is tried again.
const PAUSE: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs ten seconds over a path of this rate in bytes per second and this round trip, with files of
    /// one size. Returns the number of transfers at the end.
    fn settled(rate: f64, round_trip: f64, size: f64, most: usize) -> usize {
        let mut transfers = Transfers::new(most);
        let (mut bytes, mut ended) = (0.0, 0.0);
        for tick in 1..=200 {
            let at_once = transfers.at_once() as f64;
            // Each transfer waits one round trip, then has its share of the rate.
            let seconds = (round_trip + size / 50e6).max(at_once * size / rate);
            let files = at_once / seconds * 0.05;
            (bytes, ended) = (bytes + files * size, ended + files);
            transfers.advance(Duration::from_millis(50 * tick), bytes as u64, ended as u64);
        }
        transfers.at_once()
    }

    #[test]
    fn small_files_on_a_long_path_have_many_transfers() {
        assert_eq!(settled(6e6, 0.05, 120.0, 64), 64);
        assert_eq!(settled(6e6, 0.05, 120.0, 5), 5);
        assert_eq!(settled(6e6, 0.05, 120.0, 0), 1);
    }

    #[test]
    fn a_full_path_gets_no_more() {
        assert!(settled(6e6, 0.05, 1e6, 64) <= 16);
        // 6 MB/s x 50 ms are ten files of 30 KB.
        assert!((8..=32).contains(&settled(6e6, 0.05, 30e3, 64)));
    }

    #[test]
    fn a_server_that_refuses_gets_fewer_and_the_last_one_fails() {
        let mut transfers = Transfers::new(64);
        // Eight are running, and the server allows three.
        let mut running = 8;
        while running > 3 {
            assert!(transfers.on_refused(running));
            running -= 1;
        }
        assert!((1..=4).contains(&transfers.at_once()));
        assert!(!transfers.on_refused(1));
        // It does not grow again.
        for tick in 1..100 {
            transfers.advance(Duration::from_secs(tick), tick * tick * 1_000_000, tick * 100);
        }
        assert!(transfers.at_once() <= 4);
    }
}
