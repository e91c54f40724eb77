//! The node's route: announced, announced as a backup, or withdrawn, through a BGP daemon on the same
//! machine. `decide` chooses which, by the law of `others` where several nodes have it.
//!
//! BIRD gets commands over its control socket. ExaBGP runs `levada route exabgp`, which polls this node
//! for changes and prints them. If this node dies, that process withdraws the route; at BIRD a `guard` does. `drain` moves clients away
//! while the node goes on running.

mod bird;
mod decide;
pub mod drain;
mod guard;
mod metrics;
mod others;
mod settings;
mod stated;

use std::{io, path::PathBuf, time::Duration};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

pub use decide::RouteView;
pub use guard::{BEAT, BEAT_INTERVAL, FAREWELL, GuardedRoute};
pub use metrics::RouteMetrics;
pub use others::{OtherRoute, RouteStanding};
pub use settings::{RouteLevel, RouteRules, RouteSettings, Speaker};
pub use stated::StatedRoute;

use decide::Controller;

/// Why the BGP daemon does not carry out a command.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// BIRD cannot be reached.
    #[error("BIRD cannot be reached at {}: {why}; is it running, and may this user write to its socket?", .socket.display())]
    Unreachable {
        /// Its control socket.
        socket: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// BIRD does not answer in time.
    #[error("BIRD does not answer at {}", .0.display())]
    Timeout(PathBuf),
    /// BIRD refuses a command.
    #[error("BIRD refuses `{command}`: {reply}; is there such a protocol in its configuration?")]
    Refused {
        /// The command.
        command: String,
        /// Its reply.
        reply: String,
    },
}

/// The node's route, and the subscribers to its changes.
pub struct Route {
    settings: RouteSettings,
    metrics: RouteMetrics,
    controller: Mutex<Controller>,
    /// The state that the daemon was last given. Each change increments its number.
    state: watch::Sender<RouteState>,
}

#[derive(Clone, Debug)]
struct RouteState {
    number: u64,
    level: RouteLevel,
    error: Option<String>,
}

/// A route's status, for operators and for ExaBGP's process.
#[derive(Serialize)]
pub struct RouteStatus {
    /// How it is announced.
    pub level: &'static str,
    /// Why it is at this level.
    pub reason: &'static str,
    /// The seconds since it is.
    pub seconds: f64,
    load: f64,
    dry_run: bool,
    /// Why the daemon does not have it, if it does not.
    pub error: Option<String>,
    /// The number of this state. `/route?after=N` waits for another one.
    number: u64,
    /// The lines for ExaBGP now, and the ones for when this node is gone.
    lines: Vec<String>,
    withdrawal: Vec<String>,
}

impl Route {
    /// A route that nothing is known of yet.
    pub fn new(settings: RouteSettings, metrics: RouteMetrics) -> Self {
        // An earlier process may have left its route announced.
        let error = Some("nothing has been sent to the daemon yet".to_owned());
        let state = RouteState { number: 0, level: RouteLevel::Withdrawn, error };
        let controller = Mutex::new(Controller::new(settings.rules));
        Self { settings, metrics, controller, state: watch::Sender::new(state) }
    }

    /// Decides again and gives the daemon the result if it changed, if the last attempt failed, or if
    /// `again`.
    pub async fn update(&self, now: Duration, view: &RouteView<'_>, again: bool) {
        let (changed, level, reason) = {
            let mut controller = self.controller.lock();
            (controller.decide(now, view), controller.level, controller.reason)
        };
        if changed {
            let dry_run = self.settings.dry_run;
            self.metrics.changed(level, reason);
            let (level, reason) = (level.as_str(), reason.as_str());
            tracing::info!(level, reason, load = view.load, dry_run, "the route changes");
        }
        let failed = self.state.borrow().error.is_some();
        if changed || again || failed {
            self.send(level).await;
        }
        self.metrics.set(level);
    }

    async fn send(&self, level: RouteLevel) {
        let result = match &self.settings.speaker {
            _ if self.settings.dry_run => Ok(()),
            Speaker::Bird { socket, protocol, backup } => {
                bird::apply(socket, protocol, backup.as_deref(), level).await
            }
            // ExaBGP's process reads the new state from the channel.
            Speaker::ExaBgp { .. } => Ok(()),
        };
        let error = result.err().map(|error| error.to_string());
        if let Some(error) = &error {
            self.metrics.errors.inc();
            if self.state.borrow().error.as_ref() != Some(error) {
                tracing::error!("{error}");
            }
        }
        self.state.send_if_modified(|state| {
            let changed = state.level != level || state.error != error;
            if changed {
                *state = RouteState { number: state.number + 1, level, error };
            }
            changed
        });
    }

    /// The route that a guard withdraws when this node dies; `None`: none is needed.
    pub fn guarded(&self) -> Option<GuardedRoute> {
        let Speaker::Bird { socket, protocol, backup } = &self.settings.speaker else {
            return None;
        };
        let (socket, protocol, backup) = (socket.clone(), protocol.clone(), backup.clone());
        (!self.settings.dry_run).then_some(GuardedRoute { socket, protocol, backup })
    }

    /// Gives the daemon its state again with the next decision: somebody else may have changed it.
    pub fn distrust(&self) {
        let why = "the state of the daemon is not known".to_owned();
        self.state.send_modify(|state| state.error = Some(why));
    }

    /// Whether the daemon has accepted the withdrawal.
    pub fn is_withdrawn(&self) -> bool {
        let state = self.state.borrow();
        state.level == RouteLevel::Withdrawn && state.error.is_none()
    }

    /// How it is announced, and why.
    pub fn level(&self) -> (&'static str, &'static str) {
        let controller = self.controller.lock();
        (controller.level.as_str(), controller.reason.as_str())
    }

    /// The words for other nodes, of a node that may serve so many requests at once.
    pub fn standing(&self, capacity: u32) -> RouteStanding {
        self.controller.lock().standing(capacity)
    }

    /// The status at `now`, the time since the start.
    pub fn status(&self, now: Duration) -> RouteStatus {
        let state = self.state.borrow().clone();
        let controller = self.controller.lock();
        let lines = |level| match &self.settings.speaker {
            Speaker::ExaBgp { .. } if self.settings.dry_run => Vec::new(),
            speaker => lines(speaker, level),
        };
        RouteStatus {
            level: controller.level.as_str(),
            reason: controller.reason.as_str(),
            seconds: now.saturating_sub(controller.since).as_secs_f64(),
            load: controller.load,
            dry_run: self.settings.dry_run,
            error: state.error,
            number: state.number,
            lines: lines(state.level),
            withdrawal: lines(RouteLevel::Withdrawn),
        }
    }

    /// Withdraws the route for good, and gives the routers time to notice.
    pub async fn end(&self, now: Duration) {
        self.controller.lock().stop(now);
        if !self.is_withdrawn() {
            self.send(RouteLevel::Withdrawn).await;
            self.settled().await;
        }
    }

    /// Waits as long as routers may take to notice a withdrawal.
    pub async fn settled(&self) {
        tokio::time::sleep(self.settings.settle).await;
    }

    /// Waits until the number of the status differs from `number`, or for a while.
    pub async fn wait_for_change(&self, number: u64) {
        let mut state = self.state.subscribe();
        let other = state.wait_for(|state| state.number != number);
        drop(tokio::time::timeout(CHANGE_TIMEOUT, other).await);
    }
}

/// Withdraws a node's route from outside, when the node may be dead.
///
/// # Errors
/// When the daemon cannot be reached or refuses.
pub async fn withdraw(settings: &RouteSettings) -> Result<(), RouteError> {
    match &settings.speaker {
        Speaker::Bird { socket, protocol, backup } => {
            bird::apply(socket, protocol, backup.as_deref(), RouteLevel::Withdrawn).await
        }
        // ExaBGP's process has withdrawn the route when the node went away.
        Speaker::ExaBgp { .. } => Ok(()),
    }
}

/// The lines for ExaBGP, one per prefix.
fn lines(speaker: &Speaker, level: RouteLevel) -> Vec<String> {
    let Speaker::ExaBgp { prefixes, attributes, backup } = speaker else { return Vec::new() };
    let (verb, attributes) = match level {
        RouteLevel::Announced => ("announce", attributes),
        RouteLevel::Backup => ("announce", backup.as_ref().unwrap_or(attributes)),
        RouteLevel::Withdrawn => ("withdraw", attributes),
    };
    prefixes.iter().map(|prefix| format!("{verb} route {prefix} {attributes}")).collect()
}

/// The longest wait for a change. ExaBGP's process asks again after it.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exabgp_gets_a_line_per_prefix() {
        let speaker = Speaker::ExaBgp {
            prefixes: vec!["192.0.2.0/24".to_owned(), "2001:db8::/48".to_owned()],
            attributes: "next-hop self".to_owned(),
            backup: Some("next-hop self med 100".to_owned()),
        };
        assert_eq!(
            lines(&speaker, RouteLevel::Backup),
            [
                "announce route 192.0.2.0/24 next-hop self med 100",
                "announce route 2001:db8::/48 next-hop self med 100",
            ]
        );
        assert_eq!(
            lines(&speaker, RouteLevel::Withdrawn)[0],
            "withdraw route 192.0.2.0/24 next-hop self"
        );
    }
}
