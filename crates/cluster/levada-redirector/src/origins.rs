//! The origins of a site, and the order in which a request tries them.
//!
//! ```text
//!   tier    the members of one origin of the configuration, and of one priority
//!             requests go to all that are up, in turn, by weight
//!     │     none is up
//!     v
//!   next tier ... and at last those that are down
//! ```
//!
//! Origins outlive reloads and changes of members: those that stay keep their health and their connections.
//! Running requests end at their servers.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use arc_swap::{ArcSwap, Guard};
use http::HeaderValue;
use levada_net::stop::Spawn;
use levada_upstream::{
    Change, Clock, FirstLooks, HealthCheck, Origin, Server, ServerFailure, ServerKind,
    WatchedServer, watch_in_turn,
};
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::{server_plan::ServerPlan, sources::Found};

/// The origins of a site at work.
pub struct Origins {
    list: ArcSwap<OriginList>,
    /// Held while the list is made again.
    making: Mutex<()>,
    /// Counts requests, so that members take turns.
    turn: AtomicU64,
}

/// The origins at one moment.
#[derive(Default)]
pub struct OriginList {
    tiers: Vec<Tier>,
    all: Vec<Arc<WatchedOrigin>>,
}

/// Origins among which requests are spread.
struct Tier {
    origins: Vec<Arc<WatchedOrigin>>,
    /// The sums of the weights up to each of them.
    sums: Vec<f64>,
}

/// An origin under watch.
pub struct WatchedOrigin {
    /// The server.
    pub server: Arc<Server>,
    /// The source that has named it, for operators.
    pub source: Option<Arc<str>>,
    origin: Origin,
    weight: f64,
    check: HealthCheck,
    host: Option<HeaderValue>,
    /// The task that watches it.
    watch: Mutex<Option<AbortHandle>>,
}

impl Origins {
    /// No origins yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { list: ArcSwap::default(), making: Mutex::new(()), turn: AtomicU64::new(0) })
    }

    /// Goes on with another list: the members of each origin of the configuration. Those that stay are the same
    /// servers.
    pub fn change(&self, plan: &ServerPlan<'_>, found: Vec<Vec<Found>>) {
        let _making = self.making.lock();
        let before = self.list.load_full();
        let known: Known<'_> =
            before.all.iter().rev().map(|origin| (&origin.origin, origin)).collect();
        let mut list = OriginList::default();
        for mut members in found {
            members.sort_by_key(|found| found.priority);
            for tier in members.chunk_by(|one, other| one.priority == other.priority) {
                let origins: Vec<_> = tier.iter().map(|found| keep(&known, found, plan)).collect();
                list.all.extend(origins.iter().cloned());
                let sums = origins.iter().scan(0.0, |sum, origin| {
                    *sum += origin.weight;
                    Some(*sum)
                });
                list.tiers.push(Tier { sums: sums.collect(), origins });
            }
        }
        let stay: HashSet<_> = list.all.iter().map(Arc::as_ptr).collect();
        for gone in before.all.iter().filter(|origin| !stay.contains(&Arc::as_ptr(origin))) {
            gone.stop_watch();
        }
        self.list.store(Arc::new(list));
    }

    /// The origins at this moment.
    pub fn list(&self) -> Guard<Arc<OriginList>> {
        self.list.load()
    }

    /// The origins in the order in which a request tries them.
    pub fn order(&self) -> OriginOrder {
        let turn = self.turn.fetch_add(1, Relaxed);
        OriginOrder { list: self.list.load_full(), turn, last: None, tried: Vec::new() }
    }

    /// Watches the origins that have no watch yet, until `spawn`'s tasks end.
    pub fn tend(&self, clock: Clock, looks: &FirstLooks<'_>, spawn: &Spawn<'_>) {
        for origin in &self.list.load().all {
            let mut watching = origin.watch.lock();
            if watching.is_none() {
                *watching = Some(spawn(Box::pin(watch_in_turn(origin.clone(), clock, looks))));
            }
        }
    }

    /// Ends the watches.
    pub fn retire(&self) {
        self.list.load().all.iter().for_each(|origin| origin.stop_watch());
    }
}

impl OriginList {
    /// All origins.
    pub fn all(&self) -> &[Arc<WatchedOrigin>] {
        &self.all
    }
}

type Known<'a> = HashMap<&'a Origin, &'a Arc<WatchedOrigin>>;

/// The origin that this member is already, or a new one.
fn keep(known: &Known<'_>, found: &Found, plan: &ServerPlan<'_>) -> Arc<WatchedOrigin> {
    let is_alike = |old: &&&Arc<WatchedOrigin>| {
        old.check == *plan.check && old.host == plan.host && plan.reaches(&old.server)
    };
    let known = known.get(&found.origin).filter(is_alike);
    if let Some(known) = known {
        plan.renew(&known.server, &found.origin);
        if known.weight == found.weight && known.source == found.source {
            return Arc::clone(known);
        }
    }
    let make = || {
        let name = found.source.as_ref().zip(found.name.as_ref());
        plan.make(&found.origin, name.map(|(source, name)| format!("{source}/{name}").into()))
    };
    Arc::new(WatchedOrigin {
        server: known.map_or_else(make, |known| known.server.clone()),
        source: found.source.clone(),
        origin: found.origin.clone(),
        weight: found.weight,
        check: plan.check.clone(),
        host: plan.host.clone(),
        watch: Mutex::default(),
    })
}

/// The origins in the order in which one request tries them.
pub struct OriginOrder {
    list: Arc<OriginList>,
    turn: u64,
    last: Option<Arc<WatchedOrigin>>,
    /// Those before the last one.
    tried: Vec<Arc<WatchedOrigin>>,
}

impl OriginOrder {
    /// How many origins there are.
    pub fn len(&self) -> usize {
        self.list.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.all.is_empty()
    }

    /// Whether requests are spread over the members of an origin.
    pub fn is_spread(&self) -> bool {
        self.list.tiers.iter().any(|tier| tier.origins.len() > 1)
    }

    /// The reason why there is no further origin.
    pub fn why_none(&self) -> ServerFailure {
        match self.is_empty() {
            true => ServerFailure::NoMembers,
            false => ServerFailure::AllDown,
        }
    }

    /// Whether an origin that is up has not been tried.
    pub fn has_other(&self) -> bool {
        let all = self.list.all.iter();
        all.filter(|origin| origin.server.health.is_up()).any(|origin| !self.was_tried(origin))
    }

    fn was_tried(&self, origin: &Arc<WatchedOrigin>) -> bool {
        let is_it = |other: &Arc<WatchedOrigin>| Arc::ptr_eq(other, origin);
        self.last.as_ref().is_some_and(is_it) || self.tried.iter().any(is_it)
    }
}

impl Iterator for OriginOrder {
    type Item = Arc<WatchedOrigin>;

    /// The first that is up and has not been tried, and then those that are down.
    fn next(&mut self) -> Option<Arc<WatchedOrigin>> {
        let usable =
            |origin: &Arc<WatchedOrigin>| origin.server.health.is_up() && !self.was_tried(origin);
        let up = || self.list.tiers.iter().find_map(|tier| tier.choose(self.turn, usable));
        let untried = |origin: &Arc<WatchedOrigin>| !self.was_tried(origin);
        let down = || self.list.tiers.iter().find_map(|tier| tier.choose(self.turn, untried));
        let next = up().or_else(down).cloned()?;
        if let Some(last) = self.last.replace(next.clone()) {
            self.tried.push(last);
        }
        Some(next)
    }
}

/// How many members are drawn for a request before the rest is looked at one by one.
const DRAWS: u64 = 8;

impl Tier {
    /// A member for this turn. Turns go to members by weight, evenly spread, by multiples of the golden ratio. Of
    /// the next two in turn, the one with fewer requests for its weight is chosen.
    fn choose(
        &self,
        turn: u64,
        usable: impl Fn(&Arc<WatchedOrigin>) -> bool,
    ) -> Option<&Arc<WatchedOrigin>> {
        if let [only] = &self.origins[..] {
            return Some(only).filter(|origin| usable(origin));
        }
        let mut drawn = (0..DRAWS).map(|draw| &self.origins[self.place(turn.wrapping_add(draw))]);
        let first = drawn.by_ref().find(|origin| usable(origin));
        let Some(first) = first else { return self.origins.iter().find(|origin| usable(origin)) };
        let second = drawn.find(|origin| usable(origin) && !Arc::ptr_eq(origin, first));
        let load =
            |origin: &Arc<WatchedOrigin>| origin.server.counts().admitted as f64 / origin.weight;
        match second {
            Some(second) if load(second) < load(first) => Some(second),
            _ => Some(first),
        }
    }

    fn place(&self, turn: u64) -> usize {
        let total = self.sums.last().copied().unwrap_or_default();
        let fraction = turn.wrapping_mul(0x9E37_79B9_7F4A_7C15) as f64 / 2f64.powi(64);
        let at = self.sums.partition_point(|sum| *sum <= fraction * total);
        at.min(self.origins.len() - 1)
    }
}

impl WatchedOrigin {
    fn stop_watch(&self) {
        if let Some(watch) = self.watch.lock().take() {
            watch.abort();
        }
    }
}

impl WatchedServer for WatchedOrigin {
    const KIND: ServerKind = ServerKind::Origin;

    fn server(&self) -> &Arc<Server> {
        &self.server
    }

    fn check(&self) -> &HealthCheck {
        &self.check
    }

    fn host(&self) -> Option<&HeaderValue> {
        self.host.as_ref()
    }

    fn counts_answers(&self) -> bool {
        true
    }

    /// The next request looks at its health again.
    fn changed(&self, _change: Change) {}
}
