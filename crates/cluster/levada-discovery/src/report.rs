//! A source's account of its members, and what follows from it: the members in use, the log, the metrics.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use levada_types::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::{DiscoveryMetrics, Member, Source, damping::Damping};

/// The interval at which a delayed leave checks the health of its member. Delays last for ten seconds at least.
const HEALTH_INTERVAL: Duration = Duration::from_secs(1);

/// Whether a member is up, as its users see it.
pub type IsUp = dyn Fn(&Source, &Member) -> bool + Send + Sync;

/// The state that all sources of a node share.
pub(crate) struct Common {
    pub(crate) metrics: DiscoveryMetrics,
    pub(crate) started: Instant,
    pub(crate) is_up: OnceLock<Box<IsUp>>,
    /// The sources whose members have changed, until someone takes them.
    pub(crate) changed: Mutex<Vec<Source>>,
    pub(crate) has_changed: Notify,
    /// The accounts of each label, the oldest one first.
    pub(crate) labels: Mutex<HashMap<Arc<str>, Vec<Arc<Account>>>>,
}

/// The members of one source, as its task reports them and its users see them.
pub(crate) struct Account {
    pub(crate) source: Source,
    pub(crate) label: Arc<str>,
    pub(crate) members: ArcSwap<Vec<Member>>,
    /// Whether the metrics of its label are those of this source. While a reload plans another source of the same
    /// name, they are those of the former one.
    is_shown: AtomicBool,
    /// Whether the source has given a list or failed.
    pub(crate) has_spoken: watch::Sender<bool>,
    state: Mutex<AccountState>,
    delayed: Notify,
    common: Arc<Common>,
}

#[derive(Default)]
struct AccountState {
    damping: Damping,
    failure: Option<String>,
}

/// The way in which a source reports. A source that says nothing keeps its members.
pub struct Report(pub(crate) Arc<Account>);

impl Report {
    /// The source has given this list, which is whole. An empty list counts as a failure: it never leaves a site
    /// or a cluster without members.
    pub fn members(&self, list: Vec<Member>) {
        if list.is_empty() {
            return self.failed("it names no members".to_owned());
        }
        let account = &self.0;
        let mut state = account.state.lock();
        if state.failure.take().is_some() {
            tracing::info!(source = %account.label, members = list.len(), "the source answers again");
        }
        account.count(DiscoveryMetrics::succeeded);
        state.damping.reported(list, account.common.now());
        account.publish(&state);
        if state.damping.delays() {
            account.delayed.notify_one();
        }
        account.has_spoken.send_replace(true);
    }

    /// The source has failed, for this reason. Its last members stay.
    pub fn failed(&self, reason: String) {
        let account = &self.0;
        account.count(DiscoveryMetrics::failed);
        let before = account.state.lock().failure.replace(reason.clone());
        // Once for each change of state, however often it tries.
        if before.is_none() {
            let members = account.members.load().len();
            tracing::warn!(source = %account.label, reason, members, "the source fails; its last members stay");
        }
        account.has_spoken.send_replace(true);
    }

    /// Ends delayed leaves, for ever.
    pub(crate) async fn end_delays(&self) {
        let account = &self.0;
        loop {
            account.delayed.notified().await;
            loop {
                tokio::time::sleep(HEALTH_INTERVAL).await;
                let mut state = account.state.lock();
                let is_up = account.common.is_up.get();
                let is_up =
                    |member: &Member| is_up.is_none_or(|is_up| is_up(&account.source, member));
                state.damping.tick(is_up, account.common.now());
                account.publish(&state);
                if !state.damping.delays() {
                    break;
                }
            }
        }
    }
}

impl Account {
    pub(crate) fn new(source: Source, label: Arc<str>, common: &Arc<Common>) -> Arc<Self> {
        let mut labels = common.labels.lock();
        let alike = labels.entry(label.clone()).or_default();
        let account = Arc::new(Self {
            source,
            label,
            members: ArcSwap::default(),
            is_shown: AtomicBool::new(alike.is_empty()),
            has_spoken: watch::Sender::new(false),
            state: Mutex::default(),
            delayed: Notify::new(),
            common: common.clone(),
        });
        alike.push(account.clone());
        account
    }

    /// The source is followed no more. The next one of its label is shown.
    pub(crate) fn end(&self) {
        let mut labels = self.common.labels.lock();
        let Some(alike) = labels.get_mut(&self.label) else { return };
        alike.retain(|other| !std::ptr::eq(Arc::as_ptr(other), self));
        if self.is_shown.swap(false, Relaxed) {
            self.common.metrics.forget(&self.label);
        }
        match alike.first() {
            None => drop(labels.remove(&self.label)),
            Some(next) if !next.is_shown.swap(true, Relaxed) => {
                let members = next.members.load().len();
                if members > 0 {
                    next.count(DiscoveryMetrics::succeeded);
                    next.count(|metrics, label| metrics.members(label, members));
                }
            }
            Some(_) => {}
        }
    }

    fn count(&self, count: impl FnOnce(&DiscoveryMetrics, &str)) {
        if self.is_shown.load(Relaxed) {
            count(&self.common.metrics, &self.label);
        }
    }

    /// The reason why the source fails now.
    pub(crate) fn failure(&self) -> Option<String> {
        self.state.lock().failure.clone()
    }

    fn publish(&self, state: &AccountState) {
        let members = state.damping.in_use();
        if **self.members.load() == members {
            return;
        }
        let (before, after) = (self.members.load().len(), members.len());
        tracing::info!(source = %self.label, before, after, "members changed");
        self.count(|metrics, label| metrics.changed(label, after));
        self.members.store(Arc::new(members));
        self.common.changed.lock().push(self.source.clone());
        self.common.has_changed.notify_one();
    }
}

impl Common {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.started.elapsed()
    }
}
