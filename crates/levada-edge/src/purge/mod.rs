//! Purging: stored responses that this node and its peers must not serve any more.
//!
//! ```text
//! endpoint            receives orders: PURGE requests, the admin listener, peers
//! order               parses an order, or says why it cannot be carried out
//! rules               a rule covers stored responses, and is checked against their labels
//! invalidated         notes URIs that unsafe requests invalidate while they are being fetched
//! sweep               applies rules to everything stored, then drops them
//! journal             keeps rules over a restart, for a node with a disk tier
//! spread              sends orders to peers, now or when they are back
//! ```
//!
//! A tier that keeps responses has three duties. It keeps the [`Label`] of everything that can be
//! looked up by itself. It calls [`Purges::may_keep`] before it uses an object that it found. It holds
//! a [`PendingStore`] from before that call until the object is stored. Blocks need no label: their
//! head names the version that leads to them, and [`Label::born`] is part of that version.

pub(crate) mod endpoint;
mod invalidated;
mod journal;
mod order;
pub(crate) mod report;
mod rules;
mod spread;
mod sweep;

use std::{io, path::Path, sync::Arc, time::SystemTime};

use http::HeaderMap;
use levada_store::{Label, LabelVerdict, Object, Sought, label};
use levada_types::Key;
use tokio::sync::Notify;

pub(crate) use rules::{PurgeVerdict, Rule, Rules};
pub(crate) use spread::{Pending, deliver, run as deliver_all};
pub(crate) use sweep::{PendingStore, run as sweep};

use journal::{Journal, JournalHistory};
use sweep::PendingStores;

/// A node's purges.
pub(crate) struct Purges {
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
    pub(crate) fn new(now: SystemTime, directory: Option<&Path>, expose_tags: bool) -> Self {
        let rules = Rules::new(now);
        let journal = directory.map(|directory| Arc::new(restore(&rules, directory, now)));
        Self { rules, journal, pending_stores: Arc::default(), added: Notify::new(), expose_tags }
    }

    /// The number of the newest purge.
    pub(crate) fn latest(&self) -> u64 {
        self.rules.latest()
    }

    /// Begins a fetch. Call it before anything is sent to the origin.
    pub(crate) fn begin(&self) -> PendingStore {
        PendingStore::begin(&self.pending_stores, || self.rules.latest())
    }

    /// Notes that an unsafe request has invalidated a URI. Later requests do not share a fetch that
    /// runs now.
    pub(crate) fn invalidate(&self, uri: Key) {
        self.pending_stores.invalidated.note(uri);
    }

    /// Whether a URI was invalidated since a fetch that began `then`.
    pub(crate) fn invalidated_since(&self, then: u64, uri: Key) -> bool {
        self.pending_stores.invalidated.since(then, uri)
    }

    /// Checks a response with this label against the rules.
    pub(crate) fn judge(&self, label: &Label, identity: &str) -> PurgeVerdict {
        self.rules.judge(label, identity)
    }

    /// Removes a purged object from the result of a look-up.
    pub(crate) fn without_purged(&self, sought: Sought) -> Sought {
        Sought { object: sought.object.filter(|object| self.may_keep(object)), ..sought }
    }

    /// Whether an object may be kept. It may be stale, but not purged.
    pub(crate) fn may_keep(&self, object: &Object) -> bool {
        self.judge(&object.head.label, object.identity()) != PurgeVerdict::Dead
    }

    /// Tells the disk tier whether to keep a response with this label, and whether its label changed.
    pub(crate) fn keep_on_disk(&self, identity: &str, label: &Label) -> LabelVerdict {
        let stale = label.is_stale();
        match self.judge(label, identity) {
            PurgeVerdict::Dead => LabelVerdict::Remove,
            _ if label.is_stale() != stale => LabelVerdict::Relabel,
            _ => LabelVerdict::Keep,
        }
    }

    /// Whether a request that arrives now may share a fetch that began with this label.
    pub(crate) fn may_join(&self, label: &Label, identity: &str) -> bool {
        self.judge(label, identity) == PurgeVerdict::Alive
    }

    /// Whether a request that arrives now may follow a fetch with this label that was begun then.
    pub(crate) fn may_follow(&self, label: &Label, begun: u64, identity: &str) -> bool {
        self.may_join(label, identity)
            && !self.invalidated_since(begun, Key::of(identity.as_bytes()))
    }

    /// Puts rules in force. They share the number that is returned.
    fn add(&self, rules: &[Rule], now: SystemTime) -> u64 {
        let number = self.rules.add(rules, now);
        self.added.notify_one();
        number
    }

    /// Waits until the rules are written to the journal.
    async fn persist(&self, number: u64, rules: Vec<Rule>) -> io::Result<()> {
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
    pub(crate) fn strip(&self, headers: &mut HeaderMap) {
        if !self.expose_tags {
            label::strip(headers);
        }
    }

    /// The number of rules that are still needed.
    pub(crate) fn len(&self) -> usize {
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
