//! Events of a node: the last ones, and those that come, for listeners that may be slow.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use levada_tls::acme::{CertificateEvent, end_in_words};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::broadcast;

/// Something that happened at a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its number at this node, from 1. Each process starts at 1 again.
    pub number: u64,
    /// When it happened: seconds of Unix time, with milliseconds.
    pub time: f64,
    /// The kind.
    pub kind: EventKind,
    /// One sentence for people.
    pub text: String,
    /// The same for programs: names depend on the kind, as `server` or `changes`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, Value>,
}

impl Event {
    /// The time of day in UTC, as `14:03:59`.
    pub fn clock(&self) -> String {
        let seconds = self.time as u64 % 86_400;
        format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
    }
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A node of the cluster does not answer any more.
    PeerDown,
    /// A node of the cluster answers again.
    PeerUp,
    /// An origin or a server of a site does not answer any more.
    ServerDown,
    /// An origin or a server of a site answers again.
    ServerUp,
    /// Nodes of the cluster, or servers of a site, have joined or left.
    MembersChanged,
    /// The configuration was read again.
    Reloaded,
    /// The configuration could not be used; the former one stays.
    ReloadFailed,
    /// Another process has taken over.
    Upgraded,
    /// A drain has started.
    DrainBegun,
    /// The node is in service again.
    DrainUndone,
    /// Stored responses were purged.
    Purged,
    /// The route to the node is announced, or announced as a backup.
    RouteAnnounced,
    /// The route to the node is withdrawn.
    RouteWithdrawn,
    /// A certificate was replaced by a newer one.
    CertificateRenewed,
    /// A certificate could not be ordered or renewed.
    CertificateFailed,
    /// A certificate ends soon.
    CertificateExpiring,
    /// More nodes are responsible for an object than before.
    SetGrew,
    /// Fewer nodes are responsible for an object than before.
    SetShrank,
    /// Requests were refused because the node was full.
    CapacityRefused,
    /// Another node has the name of this one, or wants it.
    NameTaken,
    /// A kind that this version does not know.
    #[serde(other)]
    Other,
}

impl EventKind {
    /// The word in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PeerDown => "peer_down",
            Self::PeerUp => "peer_up",
            Self::ServerDown => "server_down",
            Self::ServerUp => "server_up",
            Self::MembersChanged => "members_changed",
            Self::Reloaded => "reloaded",
            Self::ReloadFailed => "reload_failed",
            Self::Upgraded => "upgraded",
            Self::DrainBegun => "drain_begun",
            Self::DrainUndone => "drain_undone",
            Self::Purged => "purged",
            Self::RouteAnnounced => "route_announced",
            Self::RouteWithdrawn => "route_withdrawn",
            Self::CertificateRenewed => "certificate_renewed",
            Self::CertificateFailed => "certificate_failed",
            Self::CertificateExpiring => "certificate_expiring",
            Self::SetGrew => "set_grew",
            Self::SetShrank => "set_shrank",
            Self::CapacityRefused => "capacity_refused",
            Self::NameTaken => "name_taken",
            Self::Other => "other",
        }
    }
}

/// The events of a node: the last [`Events::KEPT`], and a channel for those that come.
pub struct Events {
    kept: Mutex<KeptEvents>,
    live: broadcast::Sender<Arc<Event>>,
}

#[derive(Default)]
struct KeptEvents {
    last: u64,
    events: VecDeque<Arc<Event>>,
}

impl Default for Events {
    fn default() -> Self {
        Self { kept: Mutex::default(), live: broadcast::Sender::new(Self::KEPT) }
    }
}

impl Events {
    /// The events that are kept.
    pub const KEPT: usize = 512;

    /// Notes an event. Waits for no listener.
    pub fn tell(&self, kind: EventKind, text: impl Into<String>) {
        self.tell_with(kind, text, []);
    }

    /// Notes an event with fields for programs.
    pub fn tell_with<const N: usize>(
        &self,
        kind: EventKind,
        text: impl Into<String>,
        fields: [(&str, Value); N],
    ) {
        let (time, text) = (unix_time(), text.into());
        let fields = fields.map(|(name, value)| (name.to_owned(), value)).into();
        let mut kept = self.kept.lock();
        kept.last += 1;
        let event = Arc::new(Event { number: kept.last, time, kind, text, fields });
        if kept.events.len() == Self::KEPT {
            kept.events.pop_front();
        }
        kept.events.push_back(event.clone());
        // Sent under the lock, so that listeners get events in the order of their numbers.
        drop(self.live.send(event));
    }

    /// Notes the result of a reload.
    pub fn reloaded(&self, result: &Result<Vec<String>, String>) {
        match result {
            Ok(changes) => {
                let text = match changes.len() {
                    0 => "reloaded: nothing has changed".to_owned(),
                    _ => format!("reloaded: {}", changes.join(", ")),
                };
                self.tell_with(EventKind::Reloaded, text, [("changes", changes.clone().into())]);
            }
            Err(reason) => {
                let first = reason.lines().next().unwrap_or_default();
                let text = format!("reload failed, the previous settings stay in use: {first}");
                let fields = [("reason", reason.clone().into())];
                self.tell_with(EventKind::ReloadFailed, text, fields);
            }
        }
    }

    /// Notes that another process has taken over.
    pub fn upgraded(&self, old: u32, new: u32) {
        let text = format!("process {new} has taken over from process {old}");
        self.tell_with(EventKind::Upgraded, text, [("old", old.into()), ("new", new.into())]);
    }

    /// Notes a purge of `count` things: `kind` is soft or hard, and `what` names the first ones.
    pub fn purged(&self, kind: &str, count: usize, what: &str) {
        let text = format!("purged ({kind}): {what}");
        let fields = [("kind", kind.into()), ("count", count.into()), ("what", what.into())];
        self.tell_with(EventKind::Purged, text, fields);
    }

    /// Notes what happened to a certificate.
    pub fn certificate(&self, event: &CertificateEvent) {
        match event {
            CertificateEvent::Renewed { name, source, ends } => {
                let text = format!("there is a new certificate of {name}, from {source}");
                let fields = [
                    ("name", name.clone().into()),
                    ("source", source.clone().into()),
                    ("ends", (*ends).into()),
                ];
                self.tell_with(EventKind::CertificateRenewed, text, fields);
            }
            CertificateEvent::Failed { name, reason } => {
                let text = format!("there is no new certificate of {name}: {reason}");
                let fields = [("name", name.clone().into()), ("reason", reason.clone().into())];
                self.tell_with(EventKind::CertificateFailed, text, fields);
            }
            CertificateEvent::Expiring { name, source, days, problem } => {
                let mut text =
                    format!("the certificate of {name} ({source}) {}", end_in_words(*days));
                if let Some(problem) = problem {
                    text = format!("{text}: {problem}");
                }
                let fields = [
                    ("name", name.clone().into()),
                    ("source", source.clone().into()),
                    ("days", (*days).into()),
                ];
                self.tell_with(EventKind::CertificateExpiring, text, fields);
            }
        }
    }

    /// The kept events after the one with this number, oldest first.
    pub fn since(&self, number: u64) -> Vec<Arc<Event>> {
        let kept = self.kept.lock();
        kept.events.iter().filter(|event| event.number > number).cloned().collect()
    }

    /// The events that come. A listener that is [`Events::KEPT`] events late loses the oldest, and learns how many
    /// ([`broadcast::error::RecvError::Lagged`]).
    pub fn listen(&self) -> broadcast::Receiver<Arc<Event>> {
        self.live.subscribe()
    }
}

/// Seconds of Unix time, with milliseconds.
pub fn unix_time() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast::error::TryRecvError;

    use super::*;

    #[test]
    fn last_events_are_kept_in_order() {
        let events = Events::default();
        for number in 0..Events::KEPT + 10 {
            events.tell(EventKind::Purged, format!("{number}"));
        }
        let kept = events.since(0);
        assert_eq!(kept.len(), Events::KEPT);
        assert_eq!((kept[0].number, &*kept[0].text), (11, "10"));
        assert_eq!(events.since(kept[Events::KEPT - 2].number).len(), 1);
    }

    #[test]
    fn slow_listener_learns_how_many_events_it_lost() {
        let events = Events::default();
        let mut listener = events.listen();
        for _ in 0..Events::KEPT + 7 {
            events.tell(EventKind::Reloaded, "again");
        }
        assert_eq!(listener.try_recv().unwrap_err(), TryRecvError::Lagged(7));
        assert_eq!(listener.try_recv().unwrap().number, 8);
    }

    #[test]
    fn event_of_a_later_version_can_be_read() {
        let text = r#"{"number": 1, "time": 2.5, "kind": "meteorite", "text": "it fell"}"#;
        let event: Event = serde_json::from_str(text).unwrap();
        assert_eq!((event.kind, &*event.text), (EventKind::Other, "it fell"));
    }

    #[test]
    fn word_of_a_kind_is_the_one_in_json() {
        for kind in [EventKind::PeerDown, EventKind::SetGrew, EventKind::CapacityRefused] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }
}
