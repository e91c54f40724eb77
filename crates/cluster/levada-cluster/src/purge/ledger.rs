//! Puts orders in force: the journal first, then the rules and the log in memory.
//!
//! An order that was given to this node is carried out when the journal has it, and not at all when it
//! cannot be written: a purge that a restart would undo is none. An order of a peer is in force at once,
//! whatever the disk does, but counts as known only when it is written. The peer sends it again until
//! then.
//!
//! One writer at a time holds the journal. Orders that arrive meanwhile wait together, and the next writer
//! writes all of them at once (group commit).

use std::{
    hash::{BuildHasher, RandomState},
    io,
    path::Path,
    sync::Arc,
    time::SystemTime,
};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, oneshot};

use crate::purge::{
    Purges,
    exchange::Exchange,
    journal::{self, Applied, Journal, JournalHistory, JournalLine},
    log::{ALONE, IN_CLUSTER, LogId, LogState, LogStates, LoggedOrder, OrderId, OrderLog},
    order::PurgeOrder,
    rules::{Rule, Rules, after_restart, first_of_era},
};

/// About the most bytes of orders in one message.
const MESSAGE_BYTES: usize = 512 << 10;

/// The orders that are in force, and where they are written.
pub(crate) struct Ledger {
    book: RwLock<Book>,
    waiting: Mutex<Vec<WaitingOrder>>,
    writer: Arc<AsyncMutex<Option<Journal>>>,
    /// The journal, while another process has it.
    lent: Mutex<Option<Journal>>,
    /// Something that was stored before the start may be used.
    restored: bool,
    /// There are peers that orders are kept for.
    in_cluster: bool,
}

struct Book {
    log: OrderLog,
    /// The log that this node numbers; `None` until it is given an order.
    own: Option<LogId>,
    /// The states that the journal has, while it lacks orders that are in force.
    written: Option<LogStates>,
}

/// An order that waits for the journal.
struct WaitingOrder {
    order: PurgeOrder,
    rules: Vec<Rule>,
    done: oneshot::Sender<io::Result<OrderId>>,
}

/// The outcome of a message from a peer.
#[derive(Debug)]
pub struct Merged {
    /// Orders that were unknown and are in force now.
    pub applied: Vec<Arc<LoggedOrder>>,
    /// The peer has dropped orders that this node has never had: everything stored was purged.
    pub missed: bool,
    /// Whether the journal has it all.
    pub written: io::Result<()>,
}

impl Ledger {
    /// Without a directory, goes on with the state that another process has had, if there is one.
    pub(crate) fn open(
        directory: Option<&Path>,
        in_cluster: bool,
        former: Option<&str>,
    ) -> (Self, Rules) {
        let bounds = if in_cluster { IN_CLUSTER } else { ALONE };
        let mut opened = directory.map(|directory| Journal::open(directory, bounds));
        let past = opened.as_mut().and_then(|(journal, past)| restart(journal, past.take()?));
        let restored = past.is_some();
        let former = former.filter(|_| directory.is_none());
        let past = past.or_else(|| journal::parse(former?.as_bytes(), bounds));
        let history = past.unwrap_or_else(|| JournalHistory {
            latest: first_of_era(RandomState::new().hash_one(0)),
            own: None,
            rules: Vec::new(),
            log: OrderLog::new(bounds),
        });
        let rules = Rules::new(history.latest);
        for Applied { number, at, rules: of, .. } in &history.rules {
            rules.add(of, *number, *at);
        }
        let journal = opened.map(|(journal, _)| journal).map(|mut journal| {
            if !restored {
                begin(&mut journal, &history, &rules);
            }
            journal
        });
        let book = Book { log: history.log, own: history.own, written: None };
        let ledger = Self {
            book: RwLock::new(book),
            waiting: Mutex::default(),
            writer: Arc::new(AsyncMutex::new(journal)),
            lent: Mutex::default(),
            restored,
            in_cluster,
        };
        (ledger, rules)
    }
}

/// Writes that numbers go on above those of before. `None` if that cannot be written: the same numbers
/// could be given twice.
fn restart(journal: &mut Journal, mut past: JournalHistory) -> Option<JournalHistory> {
    past.latest = after_restart(past.latest);
    let line = JournalLine::Start { number: past.latest };
    let written = journal.rewrite(&past).or_else(|_| {
        journal.go_on()?;
        journal.add(&[line])
    });
    match written {
        Ok(()) => Some(past),
        Err(error) => {
            let path = journal.path().display();
            tracing::error!(%path, %error, "the purge journal cannot be written");
            None
        }
    }
}

/// Begins a journal: everything that is stored belongs to another era.
fn begin(journal: &mut Journal, history: &JournalHistory, rules: &Rules) {
    let path = journal.path().display().to_string();
    tracing::warn!(path, "no purge journal: everything stored before counts as purged");
    // The era covers it already. The rule has the sweep remove it.
    rules.add(&[Rule::all(None, false)], history.latest + 1, 0);
    if let Err(error) = journal.remove().and_then(|()| journal.rewrite(history)) {
        tracing::error!(path, %error, "the purge journal cannot be written: purges are refused");
        if let Err(error) = journal.begin_later(history) {
            tracing::error!(path, %error, "the purge journal cannot be begun");
        }
    }
}

impl Purges {
    /// Whether responses that were stored before the start may be used.
    pub fn has_past(&self) -> bool {
        self.ledger.restored
    }

    /// How far this node knows the logs of the cluster, as far as a restart would not undo it.
    pub fn known(&self) -> LogStates {
        let book = self.ledger.book.read();
        book.written.as_ref().unwrap_or_else(|| book.log.states()).clone()
    }

    /// The number of orders that a peer which knows `theirs` lacks.
    pub fn lacking(&self, theirs: &LogStates) -> u64 {
        theirs.behind(self.ledger.book.read().log.states())
    }

    /// A message for a peer, with orders that it lacks if `theirs` is what it knows.
    pub fn message(&self, serves: bool, theirs: Option<&LogStates>) -> Exchange {
        let book = self.ledger.book.read();
        let orders = theirs.map_or_else(Vec::new, |theirs| book.log.lacking(theirs, MESSAGE_BYTES));
        let logs = book.written.as_ref().unwrap_or_else(|| book.log.states()).clone();
        Exchange { serves, logs, orders: orders.iter().map(|o| LoggedOrder::clone(o)).collect() }
    }

    /// Puts an order that was given to this node in force. It is in the journal when this returns.
    ///
    /// # Errors
    /// When the journal cannot be written. Nothing is purged then.
    pub async fn order(
        self: &Arc<Self>,
        order: PurgeOrder,
        rules: Vec<Rule>,
    ) -> io::Result<OrderId> {
        let (done, outcome) = oneshot::channel();
        self.ledger.waiting.lock().push(WaitingOrder { order, rules, done });
        self.write(|purges, journal| purges.carry_out_waiting(journal)).await?;
        // This writer or one before has carried it out.
        outcome.await.map_err(io::Error::other)?
    }

    /// Takes in a message from a peer. `rules_of` makes the rules of an order for this node.
    ///
    /// # Errors
    /// When so much waits for the disk that nothing more can be taken.
    pub async fn merge(
        self: &Arc<Self>,
        message: Exchange,
        rules_of: impl Fn(&PurgeOrder) -> Vec<Rule> + Send + 'static,
    ) -> io::Result<Merged> {
        if self.has_all_of(&message) {
            return Ok(Merged { applied: Vec::new(), missed: false, written: Ok(()) });
        }
        self.write(move |purges, journal| purges.merge_now(journal, message, rules_of)).await?
    }

    /// Lets another process have the journal. Without one, returns the state that it would have. Rules are not
    /// part of it: [`departs`](Self::departs) applies them.
    ///
    /// No order must be given until [`take_back`](Self::take_back).
    ///
    /// # Errors
    /// When orders that are in force cannot be written.
    pub async fn let_go(self: &Arc<Self>) -> io::Result<Option<String>> {
        let state = self.write(|purges, journal| {
            if let Some(journal) = journal {
                journal.add(&[])?;
                purges.all_written();
            }
            if let Some(journal) = journal.take() {
                *purges.ledger.lent.lock() = Some(journal);
                return Ok(None);
            }
            let book = purges.ledger.book.read();
            let (latest, own, log) = (purges.latest(), book.own, book.log.clone());
            journal::contents(&JournalHistory { latest, own, rules: Vec::new(), log }).map(Some)
        });
        state.await.flatten()
    }

    /// Goes on with the journal, to which the other process may have added.
    pub async fn take_back(self: &Arc<Self>) {
        let mut writer = self.ledger.writer.lock().await;
        let Some(mut journal) = self.ledger.lent.lock().take() else { return };
        if let Err(error) = journal.go_on() {
            tracing::error!(%error, "the purge journal cannot be read again");
        }
        *writer = Some(journal);
    }

    /// Makes everything stored stale: it is validated before its next use.
    pub async fn expire_all(self: &Arc<Self>) {
        let expired = self.write(|purges, journal| {
            let applied = purges.applied(&mut purges.latest(), vec![Rule::all(None, true)], None);
            let lines = [JournalLine::Applied(applied.clone())];
            let written = journal.as_mut().map_or(Ok(()), |journal| journal.add(&lines));
            purges.in_force(&applied);
            written
        });
        if let Err(error) = expired.await.flatten() {
            tracing::warn!(%error, "the purge journal cannot be written");
        }
    }

    /// Drops rules up to `number`. Everything stored has been checked against them.
    pub(crate) async fn forget(self: &Arc<Self>, number: u64) {
        let noted = self.write(move |_, journal| {
            let lines = [JournalLine::Swept { number }];
            journal.as_mut().map_or(Ok(()), |journal| journal.add(&lines))
        });
        if let Err(error) = noted.await.flatten() {
            // The rules stay in the journal, where they cover nothing any more.
            tracing::warn!(%error, "the purge journal cannot be written");
        }
        self.rules.forget(number);
    }

    /// Runs `work` as the only writer. With a journal it may wait for the disk, on a thread for that.
    async fn write<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self, &mut Option<Journal>) -> T + Send + 'static,
    ) -> io::Result<T> {
        let mut journal: OwnedMutexGuard<_> = self.ledger.writer.clone().lock_owned().await;
        if journal.is_none() {
            return Ok(work(self, &mut journal));
        }
        let purges = self.clone();
        Ok(tokio::task::spawn_blocking(move || work(&purges, &mut journal)).await?)
    }

    /// Carries out all orders that wait, with one write.
    fn carry_out_waiting(&self, journal: &mut Option<Journal>) {
        let waiting = std::mem::take(&mut *self.ledger.waiting.lock());
        if waiting.is_empty() {
            return;
        }
        let mut lines = Vec::new();
        let (log, mut place) = self.own_log(&mut lines);
        let mut number = self.latest();
        let mut answers = Vec::new();
        let mut applied = Vec::new();
        for WaitingOrder { order, rules, done } in waiting {
            place += 1;
            let id = OrderId { log, number: place };
            answers.push((done, id));
            let kept = self.ledger.in_cluster.then(|| LoggedOrder { id, order }.into());
            applied.push(self.applied(&mut number, rules, kept));
        }
        lines.extend(applied.iter().cloned().map(JournalLine::Applied));
        let written = journal.as_mut().map_or(Ok(()), |journal| journal.add(&lines));
        if written.is_ok() {
            self.ledger.book.write().own = Some(log);
            self.all_written();
            applied.iter().for_each(|one| self.in_force(one));
        }
        for (done, id) in answers {
            let told = match &written {
                Ok(()) => Ok(id),
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            };
            // The caller may have gone.
            let _ = done.send(told);
        }
    }

    /// The log that this node numbers, and its newest order.
    fn own_log(&self, lines: &mut Vec<JournalLine>) -> (LogId, u64) {
        let book = self.ledger.book.read();
        let log = book.own.unwrap_or_else(|| {
            let log = LogId(RandomState::new().hash_one(1));
            lines.push(JournalLine::Own { log });
            log
        });
        // Alone, orders have the numbers of their rules: nothing else is kept of them.
        let newest =
            if self.ledger.in_cluster { book.log.states().newest(log) } else { self.latest() };
        (log, newest)
    }

    /// Rules with the number after `number`, which is raised. Without rules no number is needed.
    fn applied(
        &self,
        number: &mut u64,
        rules: Vec<Rule>,
        order: Option<Arc<LoggedOrder>>,
    ) -> Applied {
        if !rules.is_empty() {
            *number += 1;
        }
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Applied { number: *number, at: since.as_millis() as u64, rules, order }
    }

    fn in_force(&self, applied: &Applied) {
        let Applied { number, at, rules, order } = applied;
        if !rules.is_empty() {
            self.rules.add(rules, *number, *at);
            self.added.notify_one();
        }
        if let Some(order) = order {
            self.ledger.book.write().log.add(order.clone());
        }
    }

    fn all_written(&self) {
        self.ledger.book.write().written = None;
    }

    /// Whether a message tells nothing new, and nothing waits to be written.
    fn has_all_of(&self, message: &Exchange) -> bool {
        let book = self.ledger.book.read();
        book.written.is_none()
            && book.log.missed(&message.logs).is_empty()
            && message.orders.iter().all(|order| book.log.states().has(order.id))
    }

    /// Takes in a message as the only writer.
    fn merge_now(
        &self,
        journal: &mut Option<Journal>,
        message: Exchange,
        rules_of: impl Fn(&PurgeOrder) -> Vec<Rule>,
    ) -> io::Result<Merged> {
        self.leave_own_log_if_behind(&message.logs);
        let missed = self.ledger.book.read().log.missed(&message.logs);
        let mut number = self.latest();
        let mut changes = Vec::new();
        if !missed.is_empty() {
            // Before the logs go on: a crash in between must not lose it.
            let all = vec![Rule::all(None, false)];
            changes.push(JournalLine::Applied(self.applied(&mut number, all, None)));
            changes.extend(missed.iter().cloned().map(JournalLine::Log));
        }
        let mut next = self.ledger.book.read().log.states().clone();
        missed.iter().for_each(|state| next.set(state));
        for order in message.orders {
            let (log, place) = (order.id.log, order.id.number);
            if next.newest(log).checked_add(1) != Some(place) {
                continue;
            }
            next.set(&LogState { log, newest: place, dropped: 0 });
            let rules = rules_of(&order.order);
            let applied = self.applied(&mut number, rules, Some(order.into()));
            changes.push(JournalLine::Applied(applied));
        }
        let before = self.known();
        let written = journal.as_mut().map_or(Ok(()), |journal| journal.add(&changes));
        match (&written, journal) {
            (Ok(()), _) => self.all_written(),
            (Err(_), Some(journal)) => {
                journal.keep_for_later(&changes)?;
                self.ledger.book.write().written = Some(before);
            }
            (Err(_), None) => {}
        }
        let mut applied = Vec::new();
        for change in changes {
            match change {
                JournalLine::Log(state) => self.ledger.book.write().log.skip_to(&state),
                JournalLine::Applied(one) => {
                    self.in_force(&one);
                    applied.extend(one.order);
                }
                _ => {}
            }
        }
        Ok(Merged { applied, missed: !missed.is_empty(), written })
    }

    /// Begins another log when a peer has orders of this node's own that it lacks: its directory is an
    /// older copy, and their numbers must not be given again.
    fn leave_own_log_if_behind(&self, theirs: &LogStates) {
        let mut book = self.ledger.book.write();
        let states = book.log.states();
        if book.own.is_some_and(|own| theirs.newest(own) > states.newest(own)) {
            tracing::warn!(
                "peers have newer purges of this node than its journal: was it restored from a copy?"
            );
            book.own = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use levada_store::Label;

    use super::*;
    use crate::purge::{PurgeVerdict, order::PurgeTarget};

    const SITE: u64 = 7;

    fn opened(directory: &Path) -> Arc<Purges> {
        Arc::new(Purges::open(Some(directory), true, false, None))
    }

    fn all() -> PurgeOrder {
        PurgeOrder { target: PurgeTarget::All(None), soft: false }
    }

    async fn purge_all(purges: &Arc<Purges>) -> OrderId {
        purges.order(all(), vec![Rule::all(None, false)]).await.unwrap()
    }

    /// Passes on all that `to` lacks.
    async fn pass_on(from: &Arc<Purges>, to: &Arc<Purges>) -> Merged {
        let message = from.message(true, Some(&to.known()));
        to.merge(message, |_| vec![Rule::all(None, false)]).await.unwrap()
    }

    fn verdict(purges: &Purges, born: u64) -> PurgeVerdict {
        purges.check_label(&Label::new(SITE, born), "http://a.test/")
    }

    #[tokio::test]
    async fn purge_covers_whatever_was_stored_before_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let mut born = Vec::new();
        for round in 0..4 {
            let purges = opened(directory.path());
            born.push(purges.begin().born());
            if round % 2 == 1 {
                purge_all(&purges).await;
                assert!(born.iter().all(|born| verdict(&purges, *born) == PurgeVerdict::Dead));
                born.push(purges.begin().born());
            }
            assert_eq!(verdict(&purges, purges.begin().born()), PurgeVerdict::Alive);
        }
        assert!(born.is_sorted());
    }

    #[tokio::test]
    async fn what_is_made_stale_is_so_after_a_restart_too() {
        let directory = tempfile::tempdir().unwrap();
        let purges = opened(directory.path());
        let born = purges.begin().born();
        purges.expire_all().await;
        for purges in [purges, opened(directory.path())] {
            assert_eq!(verdict(&purges, born), PurgeVerdict::Stale);
            assert_eq!(verdict(&purges, purges.begin().born()), PurgeVerdict::Alive);
        }
    }

    #[tokio::test]
    async fn without_its_journal_a_node_has_no_past() {
        let directory = tempfile::tempdir().unwrap();
        let born = opened(directory.path()).begin().born();
        assert!(opened(directory.path()).has_past());
        std::fs::remove_file(directory.path().join("purge.journal")).unwrap();
        for has_past in [false, true] {
            let purges = opened(directory.path());
            assert_eq!(purges.has_past(), has_past);
            assert_eq!(verdict(&purges, born), PurgeVerdict::Dead);
        }
    }

    #[tokio::test]
    async fn orders_that_arrive_together_have_names_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let purges = opened(directory.path());
        let orders = (0..50).map(|_| {
            let purges = purges.clone();
            tokio::spawn(async move { purge_all(&purges).await.number })
        });
        let mut numbers = Vec::new();
        for order in orders.collect::<Vec<_>>() {
            numbers.push(order.await.unwrap());
        }
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(1..=50));
        drop(purges);
        let again = opened(directory.path());
        assert_eq!(purge_all(&again).await.number, 51);
    }

    #[tokio::test]
    async fn order_that_arrives_twice_has_one_effect() {
        let [a, b] = [(); 2].map(|()| Arc::new(Purges::open(None, true, false, None)));
        purge_all(&a).await;
        let message = a.message(true, Some(&b.known()));
        assert_eq!(pass_on(&a, &b).await.applied.len(), 1);
        let born = b.begin().born();
        assert_eq!(b.merge(message, |_| unreachable!()).await.unwrap().applied, []);
        assert_eq!(verdict(&b, born), PurgeVerdict::Alive);
        assert!(b.known().covers(&a.known()) && a.known().covers(&b.known()));
    }

    #[tokio::test]
    async fn node_restored_from_a_copy_begins_another_log() {
        let [directory, copy] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let (a, b) = (opened(directory.path()), Arc::new(Purges::open(None, true, false, None)));
        purge_all(&a).await;
        let journal = "purge.journal";
        std::fs::copy(directory.path().join(journal), copy.path().join(journal)).unwrap();
        let second = purge_all(&a).await;
        pass_on(&a, &b).await;
        let a = opened(copy.path());
        assert_eq!(pass_on(&b, &a).await.applied.len(), 1);
        let third = purge_all(&a).await;
        assert_ne!(third.log, second.log);
        pass_on(&a, &b).await;
        assert!(b.known().has(third));
    }

    #[tokio::test]
    async fn node_alone_keeps_no_orders() {
        let directory = tempfile::tempdir().unwrap();
        let purges = Arc::new(Purges::open(Some(directory.path()), false, false, None));
        purge_all(&purges).await;
        assert!(purges.message(true, Some(&LogStates::default())).orders.is_empty());
        assert_eq!(purges.known(), LogStates::default());
    }
}
