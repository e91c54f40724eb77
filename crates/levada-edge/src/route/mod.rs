//! The node's route: announced, kept as a backup or withdrawn through a BGP daemon beside it, by what
//! [`decide`] says.
//!
//! BIRD is told over its control socket. ExaBGP runs `levada route exabgp`, which waits here for news and
//! prints them: if this process dies, that one withdraws the route.

mod bird;
mod decide;
mod tend;

use std::{io, path::PathBuf, time::Duration};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

use self::decide::{Controller, RouteView};
pub(crate) use self::tend::{end, tend};
use crate::{
    clock::Clock,
    metrics::Metrics,
    settings::{RouteLevel, RouteSettings, Speaker},
};

/// Why the BGP daemon does not do as it is told.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// No BIRD.
    #[error("BIRD cannot be reached at {}: {why}; is it running, and may this user write to its socket?", .socket.display())]
    Unreachable {
        /// Its control socket.
        socket: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// BIRD hangs.
    #[error("BIRD does not answer at {}", .0.display())]
    Silent(PathBuf),
    /// BIRD did not like its orders.
    #[error("BIRD refuses `{order}`: {said}; is there such a protocol in its configuration?")]
    Refused {
        /// What it was told.
        order: String,
        /// What it said.
        said: String,
    },
}

/// The node's route, and whoever waits for news of it.
pub(crate) struct Route {
    pub(crate) settings: RouteSettings,
    controller: Mutex<Controller>,
    /// What the daemon has been told; its number is one more each time.
    told: watch::Sender<RouteState>,
}

#[derive(Clone, Debug)]
struct RouteState {
    number: u64,
    level: RouteLevel,
    error: Option<String>,
}

/// A route, for operators and for ExaBGP's process.
#[derive(Serialize)]
pub(crate) struct RouteStatus {
    level: &'static str,
    reason: &'static str,
    seconds: f64,
    load: f64,
    dry_run: bool,
    error: Option<String>,
    /// Of these news; `/route?after=N` waits for others.
    number: u64,
    /// What ExaBGP is to be told, and what it is to be told when this node is gone.
    lines: Vec<String>,
    withdrawal: Vec<String>,
}

impl Route {
    pub(crate) fn new(settings: RouteSettings) -> Self {
        // An earlier process may have left something there.
        let error = Some("the daemon has not been told anything yet".to_owned());
        let told = RouteState { number: 0, level: RouteLevel::Withdrawn, error };
        let controller = Mutex::new(Controller::new(settings.rules));
        Self { settings, controller, told: watch::Sender::new(told) }
    }

    /// Looks at the node, and has the daemon told what changes; again and again if it does not listen.
    async fn look(&self, now: Duration, view: &RouteView, metrics: &Metrics, again: bool) {
        let (changed, level, reason) = {
            let mut controller = self.controller.lock();
            (controller.decide(now, view), controller.level, controller.reason)
        };
        if changed {
            let dry_run = self.settings.dry_run;
            let (level, reason) = (level.as_str(), reason.as_str());
            tracing::info!(level, reason, load = view.load, dry_run, "the route changes");
            metrics.route_changed(level, reason);
        }
        let failed = self.told.borrow().error.is_some();
        if changed || again || failed {
            self.tell(metrics, level).await;
        }
        metrics.route_level.set(match level {
            RouteLevel::Withdrawn => 0,
            RouteLevel::Backup => 1,
            RouteLevel::Announced => 2,
        });
    }

    async fn tell(&self, metrics: &Metrics, level: RouteLevel) {
        let result = match &self.settings.speaker {
            _ if self.settings.dry_run => Ok(()),
            Speaker::Bird { socket, protocol, backup } => {
                bird::apply(socket, protocol, backup.as_deref(), level).await
            }
            // Whoever waits reads it.
            Speaker::ExaBgp { .. } => Ok(()),
        };
        let error = result.err().map(|error| error.to_string());
        if let Some(error) = &error {
            metrics.route_errors.inc();
            if self.told.borrow().error.as_ref() != Some(error) {
                tracing::error!("{error}");
            }
        }
        self.told.send_if_modified(|told| {
            let news = told.level != level || told.error != error;
            if news {
                *told = RouteState { number: told.number + 1, level, error };
            }
            news
        });
    }

    /// Whether the daemon has been told that the route is no more.
    fn is_withdrawn(&self) -> bool {
        let told = self.told.borrow();
        told.level == RouteLevel::Withdrawn && told.error.is_none()
    }

    pub(crate) fn status(&self, now: Duration) -> RouteStatus {
        let told = self.told.borrow().clone();
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
            error: told.error,
            number: told.number,
            lines: lines(told.level),
            withdrawal: lines(RouteLevel::Withdrawn),
        }
    }

    /// The status when there are other news than those of this number, or after a while.
    pub(crate) async fn news(&self, clock: Clock, number: u64) -> RouteStatus {
        let mut told = self.told.subscribe();
        let other = told.wait_for(|told| told.number != number);
        drop(tokio::time::timeout(LONGEST_WAIT, other).await);
        self.status(clock.uptime())
    }
}

/// Takes a node's route back from outside, when it may be dead.
///
/// # Errors
/// When the daemon does not do it.
pub async fn withdraw(settings: &RouteSettings) -> Result<(), RouteError> {
    match &settings.speaker {
        Speaker::Bird { socket, protocol, backup } => {
            bird::apply(socket, protocol, backup.as_deref(), RouteLevel::Withdrawn).await
        }
        // Its process has done so when the node went.
        Speaker::ExaBgp { .. } => Ok(()),
    }
}

/// What ExaBGP is told, one line per prefix.
fn lines(speaker: &Speaker, level: RouteLevel) -> Vec<String> {
    let Speaker::ExaBgp { prefixes, attributes, backup } = speaker else { return Vec::new() };
    let (verb, attributes) = match level {
        RouteLevel::Announced => ("announce", attributes),
        RouteLevel::Backup => ("announce", backup.as_ref().unwrap_or(attributes)),
        RouteLevel::Withdrawn => ("withdraw", attributes),
    };
    prefixes.iter().map(|prefix| format!("{verb} route {prefix} {attributes}")).collect()
}

/// Longer than a process waits that does not want to be without news for ever.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

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
