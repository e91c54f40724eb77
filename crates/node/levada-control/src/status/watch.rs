//! Turns what a node sees from one look to the next into events: health, members, sets of objects, refusals, the
//! route. A look at servers that are as they were compares pointers and flags only.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Weak},
};

use levada_upstream::{Health, Server};
use serde_json::json;

use levada_cluster::events::{EventKind, Events, unix_time};

use crate::status::HotObject;

/// The most events of one look about sets of objects, and about health.
const MOST: usize = 4;
/// Seconds between two events about refused requests.
const REFUSED_PAUSE: f64 = 10.0;

/// The servers of one kind, as they were at the last look.
#[derive(Default)]
pub struct ServerWatch {
    seen: Option<Vec<SeenServer>>,
}

struct SeenServer {
    health: Weak<Health>,
    owner: usize,
    name: Arc<str>,
    up: bool,
}

/// The kind of the servers that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// Nodes of the cluster.
    Peers,
    /// Origins and servers of sites.
    Servers,
}

impl Watched {
    fn event(self, up: bool) -> EventKind {
        match (self, up) {
            (Self::Peers, false) => EventKind::PeerDown,
            (Self::Peers, true) => EventKind::PeerUp,
            (Self::Servers, false) => EventKind::ServerDown,
            (Self::Servers, true) => EventKind::ServerUp,
        }
    }
}

impl ServerWatch {
    /// Looks at `servers`, each with the number of its owner; `owner` names an owner that an event is about.
    pub fn look(
        &mut self,
        watched: Watched,
        servers: &[(usize, Arc<Server>)],
        owner: impl Fn(usize) -> String,
        events: &Events,
    ) {
        let Some(seen) = &mut self.seen else {
            self.seen = Some(servers.iter().map(SeenServer::of).collect());
            return;
        };
        let same = |seen: &SeenServer, server: &Server| {
            seen.health.as_ptr() == Arc::as_ptr(&server.health)
        };
        let is_same = seen.len() == servers.len()
            && seen.iter().zip(servers).all(|(seen, (_, server))| same(seen, server));
        let mut changed = Vec::new();
        if is_same {
            for (seen, (at, server)) in seen.iter_mut().zip(servers) {
                let up = server.health.is_up();
                if std::mem::replace(&mut seen.up, up) != up {
                    changed.push((*at, server, up));
                }
            }
        } else {
            let before: HashMap<_, bool> = seen.iter().map(|s| (s.health.as_ptr(), s.up)).collect();
            tell_members(watched, seen, servers, &owner, events);
            let now: Vec<_> = servers.iter().map(SeenServer::of).collect();
            for ((at, server), now) in servers.iter().zip(&now) {
                let was = before.get(&Arc::as_ptr(&server.health));
                if was.is_some_and(|was| *was != now.up) {
                    changed.push((*at, server, now.up));
                }
            }
            *seen = now;
        }
        for (at, server, up) in changed.iter().take(MOST) {
            tell_health(watched, owner(*at), server, *up, events);
        }
        if let Some(more) = changed.len().checked_sub(MOST + 1) {
            let text = format!("{} more servers changed their health", more + 1);
            events.tell(watched.event(changed.iter().skip(MOST).any(|(_, _, up)| *up)), text);
        }
    }
}

impl SeenServer {
    fn of((owner, server): &(usize, Arc<Server>)) -> Self {
        Self {
            health: Arc::downgrade(&server.health),
            owner: *owner,
            name: server.name.clone(),
            up: server.health.is_up(),
        }
    }
}

fn tell_health(watched: Watched, owner: String, server: &Server, up: bool, events: &Events) {
    let (name, why) = (&*server.name, server.health.why_down().unwrap_or_default());
    let what = match watched {
        Watched::Peers => format!("node {name}"),
        Watched::Servers => format!("{name}, a server of {owner},"),
    };
    let text = match up {
        true => format!("{what} is up again"),
        false => format!("{what} is down: {why}"),
    };
    let fields = [("server", json!(name)), ("site", json!(owner)), ("why", json!(why))];
    events.tell_with(watched.event(up), text, fields);
}

/// Tells which names have joined or left, owner by owner.
fn tell_members(
    watched: Watched,
    before: &[SeenServer],
    now: &[(usize, Arc<Server>)],
    owner: impl Fn(usize) -> String,
    events: &Events,
) {
    // Owners may have other numbers after a reload: names only are compared.
    let former: BTreeSet<&str> = before.iter().map(|seen| &*seen.name).collect();
    let present: BTreeSet<&str> = now.iter().map(|(_, server)| &*server.name).collect();
    let listed = |names: Vec<&str>| match names.len() {
        0 => "none".to_owned(),
        1..=8 => names.join(", "),
        all => format!("{} and {} more", names[..8].join(", "), all - 8),
    };
    let joined: Vec<_> = present.difference(&former).copied().collect();
    let left: Vec<_> = former.difference(&present).copied().collect();
    if joined.is_empty() && left.is_empty() {
        return;
    }
    let of_joined = now.iter().find(|(_, server)| joined.contains(&&*server.name));
    let at = of_joined.map(|(at, _)| *at);
    let at = at.or_else(|| before.iter().find(|seen| left.contains(&&*seen.name)).map(|s| s.owner));
    let of = match watched {
        Watched::Peers => "the cluster".to_owned(),
        Watched::Servers => at.map_or_else(String::new, owner),
    };
    let counts = [("joined", json!(joined.len())), ("left", json!(left.len()))];
    let text = format!("members of {of}: joined {}, left {}", listed(joined), listed(left));
    events.tell_with(EventKind::MembersChanged, text, counts);
}

/// The sets of hot objects, as they were at the last look.
#[derive(Default)]
pub struct SetWatch {
    seen: HashMap<String, Vec<String>>,
}

impl SetWatch {
    /// Looks at the hottest objects.
    pub fn look(&mut self, hottest: &[HotObject], events: &Events) {
        let mut changed = Vec::new();
        let known = |object: &HotObject| (object.key.clone(), object.set.clone());
        let before = std::mem::replace(&mut self.seen, hottest.iter().map(known).collect());
        for object in hottest {
            match before.get(&object.key) {
                Some(was) if was.len() != object.set.len() => changed.push((object, was)),
                _ => {}
            }
        }
        for (object, was) in changed.iter().take(MOST) {
            let grew = object.set.len() > was.len();
            let kind = if grew { EventKind::SetGrew } else { EventKind::SetShrank };
            let (verb, set) = (if grew { "grew" } else { "shrank" }, object.set.join(", "));
            let text = format!("the set of {} {verb} to {}: {set}", object.url, object.set.len());
            let fields = [
                ("url", json!(object.url)),
                ("before", json!(was)),
                ("set", json!(object.set)),
                ("rate", json!(object.rate)),
            ];
            events.tell_with(kind, text, fields);
        }
        if let Some(more) = changed.len().checked_sub(MOST + 1) {
            let grew = changed.iter().skip(MOST).any(|(object, was)| object.set.len() > was.len());
            let kind = if grew { EventKind::SetGrew } else { EventKind::SetShrank };
            events.tell(kind, format!("the sets of {} more objects changed", more + 1));
        }
    }
}

/// Requests that were refused because the node was full, as counted at the last event.
#[derive(Default)]
pub struct RefusalWatch {
    told: u64,
    at: f64,
}

impl RefusalWatch {
    /// Looks at the number of refused requests since the start.
    pub fn look(&mut self, refused: u64, capacity: u32, events: &Events) {
        let (now, new) = (unix_time(), refused.saturating_sub(self.told));
        if new == 0 || now - self.at < REFUSED_PAUSE {
            return;
        }
        (self.told, self.at) = (refused, now);
        let text = format!("{new} requests were refused: the node is full (capacity {capacity})");
        let fields = [("refused", json!(new)), ("capacity", json!(capacity))];
        events.tell_with(EventKind::CapacityRefused, text, fields);
    }
}

/// The level of the node's route at the last look.
#[derive(Default)]
pub struct RouteWatch {
    level: Option<&'static str>,
}

impl RouteWatch {
    /// Looks at the level, `announced`, `backup` or `withdrawn`, and its reason.
    pub fn look(&mut self, (level, reason): (&'static str, &'static str), events: &Events) {
        let before = self.level.replace(level);
        // A node begins without its route.
        if before.unwrap_or("withdrawn") == level {
            return;
        }
        let withdrawn = level == "withdrawn";
        let kind = if withdrawn { EventKind::RouteWithdrawn } else { EventKind::RouteAnnounced };
        let text = match level {
            "backup" => format!("the route is announced as a backup: {reason}"),
            _ => format!("the route is {level}: {reason}"),
        };
        events.tell_with(kind, text, [("level", json!(level)), ("reason", json!(reason))]);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use levada_types::Timestamp;
    use levada_upstream::{Address, HealthCheck, ServerBounds, Wire};

    use super::*;

    fn server(name: &str) -> Arc<Server> {
        let (wait, address) =
            (Duration::ZERO, Address::Tcp { host: "127.0.0.1".to_owned(), port: 1 });
        let bounds = ServerBounds {
            connections: 1,
            queue: 0,
            queue_timeout: wait,
            connect_timeout: wait,
            response_timeout: wait,
        };
        Server::new(name.into(), address, Wire::default(), bounds, 1)
    }

    fn texts(events: &Events) -> Vec<(EventKind, String)> {
        events.since(0).iter().map(|event| (event.kind, event.text.clone())).collect()
    }

    #[test]
    fn changes_of_health_and_members_become_events() {
        let (events, mut watch) = (Events::default(), ServerWatch::default());
        let (a, b, c) = (server("a"), server("b"), server("c"));
        let mut look = |servers: &[&Arc<Server>]| {
            let servers: Vec<_> = servers.iter().map(|s| (0, (*s).clone())).collect();
            watch.look(Watched::Servers, &servers, |_| "x.test".to_owned(), &events);
        };
        look(&[&a, &b]);
        look(&[&a, &b]);
        let check = HealthCheck::default();
        (0..2).for_each(|n| _ = b.health.probed(false, &check, Timestamp(n)));
        look(&[&a, &b]);
        look(&[&a, &c]);
        look(&[&c]);
        assert_eq!(
            texts(&events),
            [
                (EventKind::ServerDown, "b, a server of x.test, is down: 2 probes in a row failed"),
                (EventKind::MembersChanged, "members of x.test: joined c, left b"),
                (EventKind::MembersChanged, "members of x.test: joined none, left a"),
            ]
            .map(|(kind, text)| (kind, text.to_owned()))
        );
    }

    #[test]
    fn sets_that_change_become_few_events() {
        let (events, mut watch) = (Events::default(), SetWatch::default());
        let object = |number: usize, size: usize| HotObject {
            url: format!("http://a.test/{number}"),
            key: number.to_string(),
            set: (0..size).map(|node| format!("n{node}")).collect(),
            ..HotObject::default()
        };
        watch.look(&[object(0, 1)], &events);
        watch.look(&[object(0, 3), object(1, 2)], &events);
        let told =
            [(EventKind::SetGrew, "the set of http://a.test/0 grew to 3: n0, n1, n2".to_owned())];
        assert_eq!(texts(&events), told);
        let many = |size| (0..30).map(|number| object(number, size)).collect::<Vec<_>>();
        watch.look(&many(3), &events);
        let before = texts(&events).len();
        watch.look(&many(2), &events);
        let told = &texts(&events)[before..];
        assert_eq!(told.len(), MOST + 1);
        let last = "the sets of 26 more objects changed".to_owned();
        assert_eq!(told[MOST], (EventKind::SetShrank, last));
    }

    #[test]
    fn refusals_are_told_once_in_a_while_with_their_number() {
        let (events, mut watch) = (Events::default(), RefusalWatch::default());
        for refused in [0, 5, 9, 30] {
            watch.look(refused, 10, &events);
        }
        let text = "5 requests were refused: the node is full (capacity 10)".to_owned();
        assert_eq!(texts(&events), [(EventKind::CapacityRefused, text)]);
    }

    #[test]
    fn route_is_told_when_its_level_changes() {
        let (events, mut watch) = (Events::default(), RouteWatch::default());
        for level in ["withdrawn", "announced", "announced", "backup", "withdrawn"] {
            watch.look((level, "load"), &events);
        }
        let kinds: Vec<_> = texts(&events).into_iter().map(|(kind, _)| kind).collect();
        use EventKind::{RouteAnnounced, RouteWithdrawn};
        assert_eq!(kinds, [RouteAnnounced, RouteAnnounced, RouteWithdrawn]);
    }
}
