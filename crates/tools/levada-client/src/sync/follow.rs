//! `levada sync --follow`: pulls again whenever the manifest changes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use levada_types::{Backoff, Rng};
use tokio::{sync::Notify, time::sleep};

use super::{PullReport, PullRequest, Pulling, SyncError};
use crate::Client;

/// How a manifest is followed.
#[derive(Clone, Copy, Debug)]
pub struct FollowSettings {
    /// The time between two requests for the manifest.
    pub interval: Duration,
}

/// A pull of a follower.
pub type Round = Result<PullReport, SyncError>;

impl FollowSettings {
    /// The time until the next round after so many failed ones in a row. Followers that were started
    /// together spread: each waits between half of the time and one and a half of it.
    fn pause(self, failures: u32, rng: &mut Rng) -> Duration {
        let pause = match failures {
            0 => self.interval,
            failures => Backoff::new(FIRST_RETRY.min(self.interval), self.interval).after(failures),
        };
        pause.mul_f64(0.5 + rng.unit())
    }
}

impl Client {
    /// Pulls until `stop` is notified, and passes each round's result to `tell`. Returns whether the
    /// destination equals the last manifest that was fetched.
    ///
    /// A manifest that has not changed since the last complete round is not fetched again.
    pub async fn follow(
        &self,
        request: &PullRequest,
        settings: FollowSettings,
        stop: &Notify,
        mut tell: impl FnMut(&Round),
    ) -> bool {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut rng = Rng::new(seed.as_nanos() as u64 ^ u64::from(std::process::id()) << 40);
        let mut request = request.clone();
        let mut failures = 0;
        loop {
            let pulling = Pulling::default();
            let mut stopped = false;
            let round = {
                let mut work = std::pin::pin!(self.pull(&request, &pulling));
                loop {
                    tokio::select! {
                        round = &mut work => break round,
                        () = stop.notified(), if !stopped => {
                            stopped = true;
                            pulling.stop();
                        }
                    }
                }
            };
            let is_complete = round.as_ref().is_ok_and(|report| report.complete);
            request.unless = match &round {
                Ok(report) if is_complete => report.etag.clone(),
                _ => None,
            };
            failures = if is_complete { 0 } else { failures + 1 };
            tell(&round);
            if stopped {
                return is_complete;
            }
            tokio::select! {
                () = sleep(settings.pause(failures, &mut rng)) => {}
                () = stop.notified() => return is_complete,
            }
        }
    }
}

/// The first pause after a round that failed.
const FIRST_RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_rounds_are_repeated_sooner_and_no_two_followers_at_the_same_time() {
        let settings = FollowSettings { interval: Duration::from_secs(60) };
        let mut rng = Rng::new(1);
        for (failures, seconds) in [(0, 60.0), (1, 1.0), (2, 2.0), (7, 60.0)] {
            let pauses: Vec<f64> =
                (0..100).map(|_| settings.pause(failures, &mut rng).as_secs_f64()).collect();
            assert!(pauses.iter().all(|pause| (0.5 * seconds..1.5 * seconds).contains(pause)));
            assert!(pauses.iter().any(|pause| *pause < 0.9 * seconds));
            assert!(pauses.iter().any(|pause| *pause > 1.1 * seconds));
        }
    }
}
