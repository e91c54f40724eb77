//! Whether the servers that the fetches of a site ask answer at all, whichever way a fetch goes.
//!
//! ```text
//!   asked ──┬─ an answer in time ───────────────> they answer
//!           └─ none in time, of no request ─────> silent: requests with a stand-in wait no more,
//!                                                 and one of them a second still asks
//! ```

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use levada_types::Timestamp;

use crate::head_time::HeadTime;

/// The answers of a site's servers, as all its fetches together see them.
#[derive(Default)]
pub struct Silence {
    times: HeadTime,
    /// When the last answer came.
    answered: AtomicU64,
    silent: AtomicBool,
    /// When they were asked last although they are silent.
    tried: AtomicU64,
}

impl Silence {
    /// Takes in the answer to a request that began then, whatever it says.
    pub fn answered(&self, begun: Timestamp, now: Timestamp) {
        self.times.took(now.since(begun));
        self.answered.store(now.0, Relaxed);
        self.silent.store(false, Relaxed);
    }

    /// Takes in that a request that began then has waited and got no answer. Others may have been answered meanwhile.
    pub fn waited(&self, begun: Timestamp) {
        if self.answered.load(Relaxed) <= begun.0 {
            self.silent.store(true, Relaxed);
        }
    }

    /// How long a request with a stand-in waits for an answer: `least`, or a multiple of the usual time where that is
    /// longer.
    pub fn wait(&self, least: Duration) -> Duration {
        self.times.usual().map_or(least, |usual| least.max(usual * FACTOR))
    }

    /// Whether nothing has been answered since a request gave up waiting.
    pub fn is_silent(&self) -> bool {
        self.silent.load(Relaxed)
    }

    /// Whether a request asks silent servers now: one in each interval does.
    pub fn tries(&self, now: Timestamp) -> bool {
        let last = self.tried.load(Relaxed);
        now.since(Timestamp(last)) >= TRY_INTERVAL
            && self.tried.compare_exchange(last, now.0, Relaxed, Relaxed).is_ok()
    }
}

/// The multiple of the usual time for which a request with a stand-in waits.
const FACTOR: u32 = 3;
/// Silent servers are asked once in this time for requests with a stand-in.
const TRY_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn servers_are_silent_until_the_next_answer_when_nothing_was_answered() {
        let silence = Silence::default();
        silence.answered(at(0), at(10));
        silence.waited(at(5));
        assert!(!silence.is_silent(), "another request was answered meanwhile");
        silence.waited(at(20));
        assert!(silence.is_silent());
        silence.answered(at(20), at(3000));
        assert!(!silence.is_silent());
    }

    #[test]
    fn silent_servers_are_asked_once_a_second() {
        let silence = Silence::default();
        let times = [1000, 1500, 2000, 2001, 5000, 5999, 6000];
        let tries = times.map(|millis| silence.tries(at(millis)));
        assert_eq!(tries, [true, false, true, false, true, false, true]);
    }

    #[test]
    fn slow_servers_are_waited_for() {
        let (silence, second) = (Silence::default(), Duration::from_secs(1));
        assert_eq!(silence.wait(second), second);
        silence.answered(at(0), at(100));
        assert_eq!(silence.wait(second), second);
        (0..50).for_each(|_| silence.answered(at(0), at(2000)));
        assert!(silence.wait(second) > 5 * second);
    }
}
