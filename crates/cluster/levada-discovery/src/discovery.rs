//! All sources of a node: each is followed once, however many sites use it, and for as long as one does.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock, Weak},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::Notify, task::AbortHandle, time::timeout_at};

use crate::{
    DiscoveryMetrics, Member, ResolverSettings, Source, dns, etcd, file, kubernetes,
    report::{Account, Common, IsUp, Report},
    resolver::{ResolverPlan, Resolvers},
    srv,
};

/// The sources that a node follows.
pub struct Discovery {
    followed: Mutex<HashMap<Source, Weak<Followed>>>,
    resolvers: Arc<Resolvers>,
    common: Arc<Common>,
    runtime: Handle,
}

/// A source that is followed until this is dropped.
pub struct Followed {
    account: Arc<Account>,
    task: AbortHandle,
}

impl Discovery {
    /// Follows nothing yet. Its tasks will run on the runtime of the caller.
    pub fn new(resolver: ResolverSettings, metrics: DiscoveryMetrics) -> Self {
        let common = Common {
            metrics,
            started: Instant::now(),
            is_up: OnceLock::new(),
            changed: Mutex::default(),
            has_changed: Notify::new(),
            labels: Mutex::default(),
        };
        Self {
            followed: Mutex::default(),
            resolvers: Arc::new(Resolvers::new(resolver)),
            common: Arc::new(common),
            runtime: Handle::current(),
        }
    }

    /// Plans to resolve names in another way.
    pub fn plan_resolver(&self, settings: ResolverSettings) -> ResolverPlan {
        self.resolvers.plan(settings)
    }

    /// Asks `is_up` before a member is kept that its source does not name any more.
    pub fn ask_health(&self, is_up: Box<IsUp>) {
        let _ = self.common.is_up.set(is_up);
    }

    /// Follows a source; `label` names it in the log and in metrics.
    pub fn follow(&self, source: &Source, label: &str) -> Arc<Followed> {
        let mut all = self.followed.lock();
        if let Some(followed) = all.get(source).and_then(Weak::upgrade) {
            return followed;
        }
        all.retain(|_, followed| followed.strong_count() > 0);
        let account = Account::new(source.clone(), label.into(), &self.common);
        let report = Report(account.clone());
        let task = self.runtime.spawn(follow(source.clone(), self.resolvers.clone(), report));
        let followed = Arc::new(Followed { account, task: task.abort_handle() });
        all.insert(source.clone(), Arc::downgrade(&followed));
        followed
    }

    /// Waits until each source has given a list or failed, or until the time is over.
    pub async fn settle(&self, timeout: Duration) {
        let until = tokio::time::Instant::now() + timeout;
        let all: Vec<_> = self.followed.lock().values().filter_map(Weak::upgrade).collect();
        for followed in all {
            let mut has_spoken = followed.account.has_spoken.subscribe();
            let spoken = has_spoken.wait_for(|has_spoken| *has_spoken);
            let _ = timeout_at(until, spoken).await;
        }
    }

    /// Returns when the members of sources have changed; with these sources. One task may wait.
    pub async fn changed(&self) -> Vec<Source> {
        loop {
            let changed = std::mem::take(&mut *self.common.changed.lock());
            if !changed.is_empty() {
                return changed;
            }
            self.common.has_changed.notified().await;
        }
    }
}

async fn follow(source: Source, resolvers: Arc<Resolvers>, report: Report) {
    let following = async {
        match &source {
            Source::Dns(source) => dns::follow(source, &resolvers, &report).await,
            Source::Srv(source) => srv::follow(source, &resolvers, &report).await,
            Source::File(source) => file::follow(source, &resolvers, &report).await,
            Source::Etcd(source) => etcd::follow(source, &report).await,
            Source::Kubernetes(source) => kubernetes::follow(source, &report).await,
        }
    };
    tokio::select! {
        () = following => {}
        () = report.end_delays() => {}
    }
}

impl Followed {
    /// The source.
    pub fn source(&self) -> &Source {
        &self.account.source
    }

    /// Its name in the log and in metrics.
    pub fn label(&self) -> &str {
        &self.account.label
    }

    /// The members in use, in the order of their names.
    pub fn members(&self) -> Arc<Vec<Member>> {
        self.account.members.load_full()
    }

    /// Why the source has named no member, if it has not.
    pub fn silence(&self) -> Option<String> {
        if !self.members().is_empty() {
            return None;
        }
        let why = self.failure().unwrap_or_else(|| "it has not answered yet".to_owned());
        Some(format!("{}: {why}", self.label()))
    }

    /// The reason why the source fails now, if it does.
    pub fn failure(&self) -> Option<String> {
        self.account.failure()
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
        self.account.end();
    }
}
