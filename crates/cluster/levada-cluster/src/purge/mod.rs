//! Purging: stored responses that a node must not serve any more.
//!
//! ```text
//! order               parses an order, or says why it cannot be carried out
//! rules               a rule covers stored responses, and is checked against their labels
//! invalidated         notes URIs that unsafe requests invalidate while they are being fetched
//! sweep               applies rules to everything stored, then drops them
//! log                 the orders of the whole cluster, for peers that lack some
//! exchange            the message by which two nodes compare their logs
//! ledger              puts orders in force: journal first, then rules and log
//! journal             keeps rules and the log over a restart, for a node with a disk tier
//! kept                values that are kept outside the store
//! answer              the answers to orders
//! report              the result of an order at one node
//! ```
//!
//! The crate does not know listeners, peers or sites. A node receives orders, sends them to its peers,
//! and knows which site answers to a host.
//!
//! A tier that keeps responses has three duties. It keeps the [`Label`] of everything that can be
//! looked up by itself. It calls [`Purges::may_keep`] before it uses an object that it found. It holds
//! a [`PendingStore`] from before that call until the object is stored. Blocks need no label: their
//! head names the version that leads to them, and [`Label::born`] is part of that version.

mod answer;
mod exchange;
mod invalidated;
mod journal;
mod kept;
mod ledger;
mod log;
mod metrics;
mod order;
mod report;
mod rules;
mod sweep;

use std::{path::Path, sync::Arc};

use http::HeaderMap;
use levada_store::{Label, LabelVerdict, Object, Sought, TAGS, label};
use levada_types::Key;
use tokio::sync::Notify;

pub use answer::{PurgeAnswer, read_order};
pub use exchange::Exchange;
pub use kept::KeptValues;
pub use ledger::Merged;
pub use log::{LogId, LogStates, LoggedOrder, OrderId};
pub use metrics::PurgeMetrics;
pub use order::{MAX_ITEMS, OrderError, PurgeOrder, PurgeTarget, PurgedSites, absolute};
pub use report::{Confirmation, NodeReport, PurgeReport, PurgeSummary};
pub use rules::{PurgeVerdict, Rule, Scope};
pub use sweep::{PendingStore, run as sweep};

use ledger::Ledger;
use rules::Rules;
use sweep::PendingStores;

/// The items that fuzz targets need to reach.
pub mod fuzzing {
    /// Reads a journal.
    pub fn journal(bytes: &[u8]) {
        let _ = crate::purge::journal::parse(bytes, crate::purge::log::IN_CLUSTER);
    }
}

/// A node's purges.
pub struct Purges {
    rules: Rules,
    ledger: Ledger,
    pending_stores: Arc<PendingStores>,
    added: Notify,
    /// Clients receive tags.
    expose_tags: bool,
}

impl Purges {
    /// Restores rules and log from the journal in `directory`, if responses are kept on disk. When the
    /// journal is damaged or missing, everything stored before counts as purged. A node `in_cluster`
    /// keeps orders for its peers. `former` is the state that another process has let go without a journal.
    pub fn open(
        directory: Option<&Path>,
        in_cluster: bool,
        expose_tags: bool,
        former: Option<&str>,
    ) -> Self {
        let (ledger, rules) = Ledger::open(directory, in_cluster, former);
        let added = Notify::new();
        if rules.len() > 0 {
            added.notify_one();
        }
        Self { rules, ledger, pending_stores: Arc::default(), added, expose_tags }
    }

    /// The number of the newest purge.
    pub fn latest(&self) -> u64 {
        self.rules.latest()
    }

    /// Begins a fetch. Call it before anything is sent to the origin.
    pub fn begin(&self) -> PendingStore {
        PendingStore::begin(&self.pending_stores, || self.rules.latest())
    }

    /// Notes that an unsafe request has invalidated a URI. Later requests do not share a fetch that
    /// runs now.
    pub fn invalidate(&self, uri: Key) {
        self.pending_stores.invalidated.note(uri);
    }

    /// Whether a URI was invalidated since a fetch that began `then`.
    pub fn invalidated_since(&self, then: u64, uri: Key) -> bool {
        self.pending_stores.invalidated.since(then, uri)
    }

    /// Checks a response with this label against the rules.
    pub fn check_label(&self, label: &Label, identity: &str) -> PurgeVerdict {
        self.rules.check(label, identity)
    }

    /// Removes a purged object from the result of a look-up.
    pub fn without_purged(&self, sought: Sought) -> Sought {
        match &sought.object {
            Some(object) if !self.may_keep(object) => {
                Sought { vary: object.vary(), object: None, key: sought.key }
            }
            _ => sought,
        }
    }

    /// Counts everything stored as purged from now on, without removing it: another process answers for it.
    pub fn retire(&self) {
        self.rules.retire();
    }

    /// Whether an object of a node that has retired may go to another process, by the rules that were in force.
    pub fn departs(&self, object: &Object) -> bool {
        self.rules.departs(object.label(), object.identity())
    }

    /// Whether a sweep leaves an object where it is.
    pub(crate) fn stays(&self, object: &Object) -> bool {
        self.rules.is_retired() || self.may_keep(object)
    }

    /// Whether an object may be kept. It may be stale, but not purged.
    pub fn may_keep(&self, object: &Object) -> bool {
        self.check_label(object.label(), object.identity()) != PurgeVerdict::Dead
    }

    /// Tells the disk tier whether to keep a response with this label, and whether its label changed.
    pub fn keep_on_disk(&self, identity: &str, label: &Label) -> LabelVerdict {
        let stale = label.is_stale();
        match self.check_label(label, identity) {
            PurgeVerdict::Dead => LabelVerdict::Remove,
            _ if label.is_stale() != stale => LabelVerdict::Relabel,
            _ => LabelVerdict::Keep,
        }
    }

    /// Whether a request that arrives now may share a fetch that began with this label.
    pub fn may_join(&self, label: &Label, identity: &str) -> bool {
        self.check_label(label, identity) == PurgeVerdict::Alive
    }

    /// Whether a request that arrives now may follow a fetch with this label that was started at `begun`.
    pub fn may_follow(&self, label: &Label, begun: u64, identity: &str) -> bool {
        self.may_join(label, identity)
            && !self.invalidated_since(begun, Key::of(identity.as_bytes()))
    }

    /// Removes the tags from a response: the origin meant them for this cache only.
    pub fn strip(&self, headers: &mut HeaderMap) {
        headers.remove(TAGS);
        if !self.expose_tags {
            label::strip(headers);
        }
    }

    /// The number of rules that are still needed.
    pub fn rule_count(&self) -> usize {
        self.rules.len()
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, StatusCode, header::VARY};
    use levada_cache::{Freshness, Validators, Vary};
    use levada_store::StoredHead;

    use super::*;

    #[test]
    fn disk_keeps_a_record_writes_once_that_it_is_stale_and_removes_it_when_it_is_purged() {
        let purges = Purges::open(None, false, false, None);
        let url = "http://a.test/x";
        let label = Label::new(1, purges.latest());
        let order = |soft| purges.rules.add(&[Rule::url(1, url, soft)], purges.latest() + 1, 1000);
        assert!(matches!(purges.keep_on_disk(url, &label), LabelVerdict::Keep));
        order(true);
        assert!(matches!(purges.keep_on_disk(url, &label), LabelVerdict::Relabel));
        assert!(matches!(purges.keep_on_disk(url, &label), LabelVerdict::Keep));
        order(false);
        assert!(matches!(purges.keep_on_disk(url, &label), LabelVerdict::Remove));
    }

    #[test]
    fn look_up_finds_what_is_stale_and_of_what_is_purged_how_it_varied() {
        let purges = Purges::open(None, false, false, None);
        let url = "http://a.test/x";
        let headers = HeaderMap::from_iter([(VARY, HeaderValue::from_static("accept-language"))]);
        let (freshness, vary) =
            (Freshness::from_bytes(&[0; Freshness::BYTES]).unwrap(), Vary::of(&headers).unwrap());
        let head = StoredHead {
            status: StatusCode::OK,
            validators: Validators::of(&headers, freshness.received()),
            freshness,
            variant: vary.key(&HeaderMap::new()),
            vary,
            headers,
            label: Label::new(1, purges.latest()),
            copies: 0,
        };
        let object = Arc::new(Object::new(url, head, std::iter::empty(), 0));
        let seek = || {
            purges.without_purged(Sought { key: Key(1), object: Some(object.clone()), vary: None })
        };
        let order = |soft| purges.rules.add(&[Rule::url(1, url, soft)], purges.latest() + 1, 1000);
        assert!(seek().object.is_some());
        order(true);
        assert!(seek().object.is_some());
        order(false);
        let sought = seek();
        assert!(sought.object.is_none() && sought.vary.is_some());
    }
}
