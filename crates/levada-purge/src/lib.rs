//! Purging: stored responses that a node must not serve any more.
//!
//! ```text
//! order               parses an order, or says why it cannot be carried out
//! rules               a rule covers stored responses, and is checked against their labels
//! invalidated         notes URIs that unsafe requests invalidate while they are being fetched
//! sweep               applies rules to everything stored, then drops them
//! journal             keeps rules over a restart, for a node with a disk tier
//! unconfirmed         orders that peers have not confirmed yet
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

mod invalidated;
mod journal;
mod order;
mod report;
mod rules;
mod sweep;
mod unconfirmed;

use std::{io, path::Path, sync::Arc, time::SystemTime};

use http::HeaderMap;
use levada_store::{Label, LabelVerdict, Object, Sought, label};
use levada_types::Key;
use tokio::sync::Notify;

pub use order::{OrderError, PurgeOrder, PurgeTarget, absolute};
pub use report::{Confirmation, NodeReport};
pub use rules::{PurgeVerdict, Rule, Scope};
pub use sweep::{PendingStore, run as sweep};
pub use unconfirmed::UnconfirmedOrders;

use journal::{Journal, JournalHistory};
use rules::Rules;
use sweep::PendingStores;

/// A node's purges.
pub struct Purges {
    rules: Rules,
    journal: Option<Arc<Journal>>,
    pending_stores: Arc<PendingStores>,
    added: Notify,
    /// Clients receive tags.
    expose_tags: bool,
}

impl Purges {
    /// Restores the rules from the journal in `directory`, if responses are kept on disk. When the
    /// journal is damaged or missing, everything stored before counts as purged.
    pub fn new(now: SystemTime, directory: Option<&Path>, expose_tags: bool) -> Self {
        let rules = Rules::new(now);
        let journal = directory.map(|directory| Arc::new(restore(&rules, directory, now)));
        Self { rules, journal, pending_stores: Arc::default(), added: Notify::new(), expose_tags }
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
        Sought { object: sought.object.filter(|object| self.may_keep(object)), ..sought }
    }

    /// Whether an object may be kept. It may be stale, but not purged.
    pub fn may_keep(&self, object: &Object) -> bool {
        self.check_label(&object.head.label, object.identity()) != PurgeVerdict::Dead
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

    /// Whether a request that arrives now may follow a fetch with this label that was begun then.
    pub fn may_follow(&self, label: &Label, begun: u64, identity: &str) -> bool {
        self.may_join(label, identity)
            && !self.invalidated_since(begun, Key::of(identity.as_bytes()))
    }

    /// Puts rules in force. They share the number that is returned.
    pub fn add(&self, rules: &[Rule], now: SystemTime) -> u64 {
        let number = self.rules.add(rules, now);
        self.added.notify_one();
        number
    }

    /// Waits until the rules are written to the journal.
    ///
    /// # Errors
    /// When a restart would bring back purged responses.
    pub async fn persist(&self, number: u64, rules: Vec<Rule>) -> io::Result<()> {
        let Some(journal) = self.journal.clone() else { return Ok(()) };
        tokio::task::spawn_blocking(move || journal.add(number, &rules)).await?
    }

    /// Drops rules up to `number`. Everything stored has been checked against them.
    fn forget(&self, number: u64) {
        if let Some(journal) = &self.journal
            && let Err(error) = journal.forget(number)
        {
            // The rules stay in the journal, where they cover nothing any more.
            tracing::warn!(%error, "the purge journal cannot be shortened");
        }
        self.rules.forget(number);
    }

    /// Removes the tags from a response: the origin meant them for this cache only.
    pub fn strip(&self, headers: &mut HeaderMap) {
        if !self.expose_tags {
            label::strip(headers);
        }
    }

    /// The number of rules that are still needed.
    pub fn rule_count(&self) -> usize {
        self.rules.len()
    }
}

/// Restores the rules from the journal, or adds one rule that covers everything that may have been
/// lost.
fn restore(rules: &Rules, directory: &Path, now: SystemTime) -> Journal {
    let (journal, past) = Journal::open(directory);
    if let Some(JournalHistory { latest, rules: past }) = past {
        rules.raise(latest);
        past.iter().for_each(|(number, rule)| rules.restore(rule, *number));
        return journal;
    }
    let all = Rule::all(None, false);
    let number = rules.add(std::slice::from_ref(&all), now);
    let directory = directory.display();
    tracing::warn!(%directory, "no purge journal: everything stored before counts as purged");
    if let Err(error) =
        journal.begin(&JournalHistory { latest: number, rules: vec![(number, all)] })
    {
        tracing::error!(%directory, %error, "the purge journal cannot be written");
    }
    journal
}
