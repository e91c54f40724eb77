//! Documents that expire, change and are purged. A node's own rules decide by the fields that the origin sends:
//! `levada_cache::may_store` and `serve`.
//!
//! ```text
//! lookup ── not storable ──────────────────────────────────── pass: a fetch of its own, nothing is kept
//!        ── stored    ── fresh, or stale while revalidated ── transmit
//!                     ── stale ── a renewal, which requests follow ── unchanged: transmit, from the disk if it is there only
//!                                                                  ── changed: an ordinary fill
//! ```

use std::time::{Duration, SystemTime};

use http::{HeaderMap, Method, StatusCode};
use levada_cache::{
    CacheRules, OriginExchange, RequestDirectives, ServeDecision, may_store, serve,
};
use levada_types::{Key, Rng, Timestamp, weigh};

use super::{
    Event, World,
    fills::{Fill, FillKind, FillSource},
};
use crate::{
    collect::Found,
    scenario,
    server::{Place, Stored},
    slab::NONE,
    workload::Document,
};

/// The classes of all documents.
pub(super) struct Freshness {
    classes: Vec<Class>,
    /// The class of each document; beyond the last one for documents that never expire.
    of: Vec<u8>,
    rng: Rng,
}

struct Class {
    fields: HeaderMap,
    is_storable: bool,
    /// Mean time between changes, in nanoseconds.
    changes: Option<f64>,
}

impl Freshness {
    /// `None` where nothing expires or is purged.
    pub(super) fn new(
        settings: &scenario::Freshness,
        documents: &[Document],
        seed: u64,
    ) -> Option<Self> {
        if settings.class.is_empty() && settings.purge.is_empty() {
            return None;
        }
        let of = documents.iter().map(|document| class_of(&settings.class, document.key));
        let classes = settings.class.iter().map(|class| {
            let fields = class.fields().unwrap_or_default();
            let is_storable = storable(&fields, 0).is_some();
            let changes = class.changes.map(|time| time.0.as_nanos() as f64);
            Class { fields, is_storable, changes }
        });
        Some(Self { classes: classes.collect(), of: of.collect(), rng: Rng::new(seed ^ CHANCE) })
    }

    fn class(&self, document: u32) -> Option<&Class> {
        self.classes.get(usize::from(self.of[document as usize]))
    }

    /// Whether a server keeps `document` at all.
    pub(super) fn is_kept(&self, document: u32) -> bool {
        self.class(document).is_none_or(|class| class.is_storable)
    }

    /// The note of a server on a document that has come or was confirmed so many nanoseconds after the beginning
    /// of the run; `None` if it never expires.
    pub(super) fn stored(&self, document: u32, since: i64) -> Option<Stored> {
        let freshness = storable(&self.class(document)?.fields, since)?;
        Some(Stored { freshness, since, renewal: NONE })
    }

    /// Whether the origin's document has changed since then: changes come at random times.
    fn has_changed(&mut self, document: u32, since: i64, now: Timestamp) -> bool {
        let Some(mean) = self.class(document).and_then(|class| class.changes) else { return false };
        let unchanged = libm::exp(-((now.0 as i64 - since) as f64) / mean);
        self.rng.unit() >= unchanged
    }
}

impl World<'_> {
    /// Whether `document`, which the server has in memory or on disk, must be confirmed before it answers `request`,
    /// which then waits.
    pub(super) fn waits_for_renewal(&mut self, request: u32, server: u32, document: u32) -> bool {
        let stored = self.servers[server as usize].expiring.get(&document);
        let Some(Stored { freshness, renewal, .. }) = stored.copied() else { return false };
        let waits = match serve(&freshness, &RequestDirectives::default(), wall(self.now.0 as i64))
        {
            ServeDecision::Fresh { .. } => return false,
            ServeDecision::Stale { .. } => false,
            ServeDecision::Validate | ServeDecision::GatewayTimeout => true,
        };
        let fill = if renewal == NONE { self.renew(server, document) } else { renewal };
        if waits {
            self.serve_from_fill(request, fill);
        }
        waits
    }

    /// A request before the run, at `then`, has brought a copy, or found one that is confirmed if it had expired.
    pub(super) fn filled(&mut self, server: u32, document: u32, then: i64, is_new: bool) {
        let expiring = &mut self.servers[server as usize].expiring;
        let is_stale = |known: &Stored| !known.freshness.is_fresh(wall(then));
        if (is_new || expiring.get(&document).is_some_and(is_stale))
            && let Some(all) = &self.freshness
            && let Some(stored) = all.stored(document, then)
        {
            expiring.insert(document, stored);
        }
    }

    /// Asks the origin whether a document has changed.
    fn renew(&mut self, server: u32, document: u32) -> u32 {
        let fill = self.begin_fill(server, document, FillSource::Origin, FillKind::Renewal);
        if let Some(stored) = self.servers[server as usize].expiring.get_mut(&document) {
            stored.renewal = fill;
        }
        fill
    }

    /// The origin answers a renewal. Returns whether nothing has changed: requests that wait go on with what is in
    /// memory, or with what the disk has to read. Otherwise the body follows, as in an ordinary fill.
    pub(super) fn is_confirmed(&mut self, fill: u32) -> bool {
        let (server, document) = (self.fills[fill].server, self.fills[fill].document);
        // A copy that was purged, or came again, meanwhile is not confirmed by this answer.
        let stored = self.servers[server as usize].expiring.get(&document).copied();
        let stored = stored.filter(|stored| stored.renewal == fill);
        let freshness = self.freshness.as_mut().expect("documents expire");
        let changed =
            stored.is_none_or(|stored| freshness.has_changed(document, stored.since, self.now));
        let found = if changed { Found::Missing } else { Found::Confirmed };
        let mut follower = self.fills[fill].followers.first;
        while follower != NONE {
            self.collector.looked_up(self.now, found);
            follower = self.requests[follower].next;
        }
        let at = &mut self.servers[server as usize];
        let memory = &mut at.memory;
        if changed {
            let being_fetched = matches!(memory.place(document), Some(Place::Fill(_)));
            self.fills[fill].kind = match being_fetched {
                true => FillKind::Passing,
                false => {
                    memory.remove(document);
                    memory.begin_fill(document, fill);
                    FillKind::Kept
                }
            };
            return false;
        }
        if let Some(stored) = freshness.stored(document, self.now.0 as i64) {
            at.expiring.insert(document, stored);
        }
        let key = self.documents[document as usize].key;
        let on_disk = at.tier.as_ref().is_some_and(|tier| tier.holds(key));
        if on_disk && at.memory.place(document).is_none() {
            at.memory.begin_fill(document, fill);
            self.left_origin(fill);
            (self.fills[fill].source, self.fills[fill].kind) = (FillSource::Tier, FillKind::Kept);
            self.fetch_block(fill);
        } else {
            self.end_fill(fill);
        }
        true
    }

    pub(super) fn begin_purges(&mut self) {
        for (list, purge) in (0..).zip(&self.prepared.scenario.freshness.purge) {
            self.agenda.schedule(Timestamp::ZERO + purge.at.0, Event::Purge(list));
        }
    }

    /// A purge reaches all servers at once, as far as the time of a simulation goes.
    pub(super) fn purge(&mut self, list: u32) {
        let purge = &self.prepared.scenario.freshness.purge[list as usize];
        if let Some(every) = purge.every {
            self.agenda.schedule(self.now + every.0, Event::Purge(list));
        }
        let seed = self.freshness.as_mut().map_or(0, |freshness| freshness.rng.bits());
        let share = purge.share.0;
        let is_purged = |key: Key| part(key, seed) < share;
        for fill in self.fills.numbers() {
            let Fill { server, document, kind, .. } = self.fills[fill];
            let key = self.documents[document as usize].key;
            if server != NONE && kind == FillKind::Kept && is_purged(key) {
                // It may be the old version: it goes to those who wait for it, and is not kept.
                let memory = &mut self.servers[server as usize].memory;
                if memory.place(document) == Some(Place::Fill(fill)) {
                    memory.forget(document);
                    self.fills[fill].kind = FillKind::Passing;
                }
            }
        }
        for server in &mut self.servers {
            let purged: Vec<_> = (server.memory.documents())
                .filter(|document| is_purged(self.documents[*document as usize].key))
                .collect();
            for document in purged {
                server.memory.remove(document);
                server.expiring.remove(&document);
            }
            let Some(tier) = &mut server.tier else { continue };
            for (number, document) in (0..).zip(&self.documents) {
                if is_purged(document.key) {
                    tier.remove(document.key);
                    server.expiring.remove(&number);
                }
            }
        }
    }
}

fn storable(fields: &HeaderMap, now: i64) -> Option<levada_cache::Freshness> {
    let exchange = OriginExchange {
        method: &Method::GET,
        request: &HeaderMap::new(),
        status: StatusCode::OK,
        response: fields,
        requested: wall(now),
        received: wall(now),
    };
    may_store(&exchange, &CacheRules::default()).ok().map(|storable| storable.freshness)
}

/// The number of the class of a document. Classes have their shares of all documents.
fn class_of(classes: &[scenario::FreshnessClass], key: Key) -> u8 {
    let at = part(key, CHANCE);
    let mut until = 0.0;
    let found = classes.iter().position(|class| {
        until += class.share.0;
        at < until
    });
    found.unwrap_or(classes.len()) as u8
}

/// A number from 0 to 1 for a key.
fn part(key: Key, seed: u64) -> f64 {
    (weigh(key, seed) >> 11) as f64 / (1u64 << 53) as f64
}

/// The wall clock of simulated time, in nanoseconds from the beginning of the run.
fn wall(now: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos((BEGINNING + now).max(0) as u64)
}

const BEGINNING: i64 = 1_000_000_000_000_000_000;
/// Seeds the classes and changes apart from other random numbers.
const CHANCE: u64 = 0x66_7265_7368;
